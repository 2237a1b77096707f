"""Frozen dataclasses and pure functions: stdlib only, no I/O, no clock, Python 3.9 (it also runs on hosts)."""
