"""The same tests against a sandbox host and a lab host: what holds in the demo holds on real hosts."""
