"""Recall: index the transcript, search it, and quote relevant messages in the prompt."""
