"""Slow machines are no reason to fail a property."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("logs", deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("logs")
