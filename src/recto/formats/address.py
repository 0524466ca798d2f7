"""What the address of a model request may hold, where other formats write it in the body."""

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
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Headers that stand in the query."""
