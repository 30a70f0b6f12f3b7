"""Bridges to frameworks, each with an extra of its own (`pip install rockmq[otel]`)."""
