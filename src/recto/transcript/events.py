"""How drafts are made: ids, events, and JSON of our own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from recto.errors import MalformedMessage
from recto.transcript.entries import Draft
from recto.transcript.protocols import Clock

_ASKED: ContextVar[tuple[str, str]] = ContextVar("asked", default=("", ""))
"""Who asked, and at which door; empty where nobody did."""


def new_id(clock: Clock) -> str:
    """An id that sorts by time and never repeats: 48 bits of milliseconds, 80 bits of chance."""
    return f"{max(clock.now(), 0) // 1000 & 0xFFFFFFFFFFFF:012x}{os.urandom(10).hex()}"


@contextmanager
def asked_by(who: str, surface: str) -> Iterator[None]:
    """Every event this thread makes meanwhile says who asked for it, and at which door.

    It rides along unseen: nothing between a door and an event decides anything by it, so nothing has to carry it.
    """
    before = _ASKED.set((who, surface))
    try:
        yield
    finally:
        _ASKED.reset(before)


def event(clock: Clock, kind: str, about: Mapping[str, Any], key: str | None = None, surface: str = "window") -> Draft:
    """Something that happened to a session and is not a message."""
    who, door = _ASKED.get()
    return Draft(
        id=new_id(clock),
        ts=clock.now(),
        role="event",
        kind=kind,
        content=to_json(about),
        surface=door or surface,
        meta=to_json({"asked_by": who}) if who else b"{}",
        key=key,
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
