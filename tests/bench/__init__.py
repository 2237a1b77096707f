"""`make bench`: the speed figures of the console, each a ratio or a bound measured in this very run."""
