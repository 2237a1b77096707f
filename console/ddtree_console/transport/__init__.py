"""Bytes, processes and channels to a host, by SSH or local."""
