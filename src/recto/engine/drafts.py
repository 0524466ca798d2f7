"""How drafts are made: ids, and JSON of our own."""

from __future__ import annotations

import json
import os

from recto.errors import MalformedMessage
from recto.ports import Clock


def new_id(clock: Clock) -> str:
    """An id that sorts by time and never repeats: 48 bits of milliseconds, 80 bits of chance."""
    return f"{max(clock.now(), 0) // 1000 & 0xFFFFFFFFFFFF:012x}{os.urandom(10).hex()}"


def to_json(value: object) -> bytes:
    """Compact JSON of a value that is ours to write."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"it cannot be written as JSON ({error})") from None
