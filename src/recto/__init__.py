"""Recto keeps an LLM agent's prompt inside its context window, and forgets nothing."""
