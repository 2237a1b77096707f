"""Tests of connections and of what travels over them."""
