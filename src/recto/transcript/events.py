"""Create drafts: ids, events, and Recto's own JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import msgspec

from recto.errors import MalformedMessage
from recto.transcript.entries import Draft

if TYPE_CHECKING:
    from recto.transcript.protocols import Clock

IMPORTED: Final = "imported"
"""The event that ends an import: the file, its digest, and the model that its tokens were counted for."""
HOST_COMPACTED: Final = "host_compacted"
"""The event that an agent has compacted the history in its own window."""
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_REQUESTER: ContextVar[tuple[str, str]] = ContextVar("requester", default=("", ""))
"""Who requested the current work, and through which surface; empty if unknown."""


def new_id(clock: Clock) -> str:
    """A unique id that sorts by time: 48 bits of milliseconds, 80 random bits."""
    return new_ids([clock.now()])[0]


def new_ids(times: Sequence[int]) -> list[str]:
    """An id for each of some times, in microseconds since 1970. One call to the system makes all of them random."""
    noise = os.urandom(10 * len(times)).hex()
    return [
        f"{max(time, 0) // 1000 & 0xFFFFFFFFFFFF:012x}{noise[20 * place : 20 * place + 20]}"
        for place, time in enumerate(times)
    ]


def refused_key(seq: int) -> str:
    """The key of the event that records the first refusal of a message by a provider."""
    return f"refused/{seq}"


@contextmanager
def requested_by(who: str, surface: str) -> Iterator[None]:
    """Record `who` and `surface` in every event this thread creates in the meantime.

    A context variable carries both: nothing between a surface and an event depends on them.
    """
    token = _REQUESTER.set((who, surface))
    try:
        yield
    finally:
        _REQUESTER.reset(token)


def event(
    clock: Clock, kind: str, payload: Mapping[str, Any], key: str | None = None, surface: str = "window"
) -> Draft:
    """Create an event: something that happened to a session and is not a message."""
    who, requested_surface = _REQUESTER.get()
    return Draft(
        id=new_id(clock),
        ts=clock.now(),
        role="event",
        kind=kind,
        content=to_json(payload),
        surface=requested_surface or surface,
        meta=to_json({"asked_by": who}) if who else b"{}",
        key=key,
    )


def payload_of(content: bytes) -> Any:  # noqa: ANN401  # JSON
    """The payload of an event."""
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:  # half of a surrogate pair, which the standard library reads
        return json.loads(content)


def to_json(value: object) -> bytes:
    """Compact JSON of one of Recto's own values."""
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"it cannot be written as JSON ({error})") from None
