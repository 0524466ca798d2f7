"""Plain text: analysis, dates, sentences, secrets and Unicode hygiene. Knows nothing of messages."""
