"""DDTree's own kernels, models and server. Importable where neither torch nor triton is installed."""

__version__ = "0.1.0"
