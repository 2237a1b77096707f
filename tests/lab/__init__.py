"""A lab of real hosts for tests: each its own systemd (PID 1), journald, sshd and address, in namespaces."""
