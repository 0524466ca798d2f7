"""Exporters: health sinks for Prometheus, OpenTelemetry, JSON logs and webhooks. None of them can fail a turn.

Each module is imported only where it is used; dependencies outside the standard library come with an extra.
"""
