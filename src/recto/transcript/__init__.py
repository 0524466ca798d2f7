"""The append-only transcript: entries, events, session keys and the hash chain."""
