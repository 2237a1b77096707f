"""Code that runs on a host: watcher, journal follower, transaction. Standard library and pynvml only, Python 3.9."""
