"""How health is told to others: Prometheus, OpenTelemetry, lines of JSON, a webhook. None of it can fail a turn.

Each module is a `HealthSink` of its own and is imported by whoever wants it; what it needs beside the standard library
comes with an extra.
"""
