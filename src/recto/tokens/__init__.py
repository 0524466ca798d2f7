"""Counting tokens: tokenizers, estimates, model limits and calibration."""
