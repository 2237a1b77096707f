"""Async use cases without a screen: fleet monitor, journal, HTTP, deployments, history."""
