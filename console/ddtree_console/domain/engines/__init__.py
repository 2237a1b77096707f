"""The only place that knows an engine's flags, log lines, endpoints and dialects."""
