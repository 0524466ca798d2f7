"""Recall: index what was said, search it, and quote what matters in the prompt."""
