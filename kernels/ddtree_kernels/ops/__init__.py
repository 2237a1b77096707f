"""One folder an operation: wrapper, triton.py, reference.py (plain torch, the specification), README.md."""
