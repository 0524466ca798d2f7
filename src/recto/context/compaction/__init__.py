"""Shorter text in place of messages: summaries, digests of tool results, and checks of both."""
