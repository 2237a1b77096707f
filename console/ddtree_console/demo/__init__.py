"""Sandbox hosts in this process: the same host code over shims, replaying real recordings. Only cli imports it."""
