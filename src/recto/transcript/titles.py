"""Which entries a session is titled by: its newest rename, or its first user messages.

Stores find these entries without reading the rest of a session, so that a list of sessions has titles at the price of
a list. `recto.engine.titles` makes the title from them.
"""

from __future__ import annotations

from typing import Final

RENAMED: Final = "session_renamed"
"""The event that gives a session a title."""
TITLE_KEY: Final = "title/"
"""What the idempotency key of every rename begins with: stores have an index of keys."""
PAST_TITLE_KEYS: Final = "title0"
"""Sorts after every such key."""
OPENING_ENTRIES: Final = 64
"""How many of the first entries are searched for user messages."""
OPENING_MESSAGES: Final = 4
"""How many user messages are returned: the first ones may hold nothing but injected text."""
OPENING_BYTES: Final = 256 * 1024
"""Larger messages are skipped: a list of sessions must not load pasted files."""
