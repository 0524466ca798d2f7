"""What the address of a request may hold, where other formats write it in the body or in headers."""

from __future__ import annotations

from typing import NamedTuple


class RequestAddress(NamedTuple):
    """A model request whose address holds what other formats write in the body."""

    path: str
    """The path of the gateway, as `HttpApi` has it: with `{model}` in place of the model."""
    query: str
    """The rest of the query."""
    model: str
    stream: bool
    as_array: bool = False
    """Whether the client takes its stream as a JSON array, and not as server-sent events."""


class PassedAddress(NamedTuple):
    """A request without a conversation, at an address that only one format has."""

    resource: str
    """The path whose beginning a key needs, however the address spells it."""
    model: str
    """Empty if the address names none."""
