"""Operator console for DDTree speculative-decoding services."""

__version__ = "0.1.0"
