"""Conversations for frameworks whose messages are not those of OpenAI Chat."""

from __future__ import annotations

from typing import Any

from recto.conversations import Conversations, follow
from recto.errors import SettingsError


def speaking(wire: str, given: Conversations | None, **names: Any) -> Conversations:  # noqa: ANN401
    """Those that are given, if they speak a format; else new ones, with the names of `recto.follow`."""
    if given is None:
        return follow(wire=wire, **names)
    if given.wire != wire:
        raise SettingsError("conversations", f'speak {given.wire}; open them with recto.follow(wire="{wire}")')
    return given
