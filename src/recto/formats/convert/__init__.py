"""Conversion between wire formats: requests, responses and streams, through neutral types."""
