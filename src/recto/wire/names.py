"""The names of the wire formats. Every message entry carries one of them."""

from __future__ import annotations

from typing import Final

CHAT: Final = "openai.chat"
RESPONSES: Final = "openai.responses"
ANTHROPIC: Final = "anthropic.messages"
