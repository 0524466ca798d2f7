"""Why a request is not answered, in the shape that its protocol's clients expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from recto.errors import (
    CannotCross,
    InputError,
    NotHeld,
    RectoError,
    SettingsError,
    StoreError,
    TooLarge,
    UpstreamsWrong,
    WindowOverflow,
)
from recto.gateway.answering import Whole
from recto.wire.refusals import (
    CANNOT_CROSS,
    INTERNAL,
    MALFORMED,
    NOT_FOUND,
    OVERLOADED,
    TOO_LARGE,
    overflow,
    refusal,
    status_for,
)

_CODES: Final[tuple[tuple[type[RectoError], str], ...]] = (
    (CannotCross, CANNOT_CROSS),
    (NotHeld, NOT_FOUND),
    (UpstreamsWrong, NOT_FOUND),
    (TooLarge, TOO_LARGE),
    (InputError, MALFORMED),
    (SettingsError, MALFORMED),
    (StoreError, OVERLOADED),
    (WindowOverflow, OVERLOADED),  # of what could leave once it is indexed: it is worth asking again
)


def refused(error: RectoError, wire: str, id: str, headers: Mapping[str, str] | None = None) -> Whole:
    """What a typed error becomes. An overflow is told as one only where asking again would not help."""
    if isinstance(error, WindowOverflow) and not error.kept_by:
        status, body = overflow(wire, error.tokens, error.room, told=str(error), request_id=id)
        return Whole(status, body, answer_headers(headers or {}, id))
    code = next((code for kind, code in _CODES if isinstance(error, kind)), INTERNAL)
    return said_no(wire, code, str(error), id, headers)


def said_no(wire: str, code: str, message: str, id: str, headers: Mapping[str, str] | None = None) -> Whole:
    """A refusal by its code."""
    status = status_for(wire, code)
    return Whole(status, refusal(wire, status, code, message, request_id=id), answer_headers(headers or {}, id))


def answer_headers(ours: Mapping[str, str], id: str) -> list[tuple[str, str]]:
    """The headers of an answer that is our own."""
    return [("content-type", "application/json"), ("x-request-id", id), ("request-id", id), *spelled(ours)]


def spelled(ours: Mapping[str, str]) -> list[tuple[str, str]]:
    """Our headers as the wire takes them: what is not ASCII is percent-encoded."""
    return [(name, value if value.isascii() else quote(value, safe=":/~@.,-_ ")) for name, value in ours.items()]
