"""Speculative decoding of one request at a time: autoregressive, linear (DFlash chain), ddtree and shadow-linear."""
