"""How drafts are made: ids, events, and JSON of our own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from recto.core.entries import Draft
from recto.errors import MalformedMessage
from recto.ports import Clock


def new_id(clock: Clock) -> str:
    """An id that sorts by time and never repeats: 48 bits of milliseconds, 80 bits of chance."""
    return f"{max(clock.now(), 0) // 1000 & 0xFFFFFFFFFFFF:012x}{os.urandom(10).hex()}"


def event(clock: Clock, kind: str, about: Mapping[str, Any], key: str | None = None, surface: str = "window") -> Draft:
    """Something that happened to a session and is not a message."""
    return Draft(
        id=new_id(clock), ts=clock.now(), role="event", kind=kind, content=to_json(about), surface=surface, key=key
    )


def to_json(value: object) -> bytes:
    """Compact JSON of a value that is ours to write."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"it cannot be written as JSON ({error})") from None
