"""Checkpoints and handoffs: the state of a task as values, files and readable pages."""
