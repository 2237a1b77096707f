"""Tests of ddtree-console; tests/lab is a lab of real hosts."""
