"""Recent requests of each API key, so that what the next request of a conversation repeats is not parsed again.

An agent sends its whole history with every request. Where a body begins with the bytes of an earlier body, the messages
that both share have been checked, parsed and hashed already. A match decides nothing: what is reused is a function of
the bytes that are the same, and requests of other keys and formats are never compared. Everything here belongs to one
event loop, so nothing is locked.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from recto.formats import Body

_MAX_BYTES: Final = 64 * 1024 * 1024
"""Memory for all requests, about."""
_MAX_REQUESTS: Final = 1_024
_MAX_KEY_REQUESTS: Final = 256
_MAX_BODY: Final = 4 * 1024 * 1024
"""A longer body is not kept: comparing it would hold up the event loop."""
_MAX_MESSAGES: Final = 10_000
_MESSAGE_BYTES: Final = 300
"""Memory of a message beside its bytes: objects, positions, hashes."""
_PROBES: Final = 4
"""Ends of messages at which a body is compared before all of it is: a client may have changed the last ones."""
_PROBE_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRequest:
    """A request whose turn has begun."""

    body: Body
    seed: bytes
    chain: Sequence[bytes]
    """The hash of the history up to each message that is not system text, from the seed on; empty if not computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPrefix:
    """The part of a body that is the same as in an earlier request."""

    request: KnownRequest
    count: int
    """Messages that are the same, with all bytes before them."""
    number: int
    """The earlier request."""

    @property
    def end(self) -> int:
        """Where the part ends, in bytes."""
        return self.request.body.ends[self.count - 1]


@dataclass(slots=True, kw_only=True)
class _Kept:
    request: KnownRequest
    owner: tuple[str, str]
    size: int
    probes: tuple[tuple[int, bytes], ...]


class KnownRequests:
    """The most recent requests of one gateway."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        """By number; the least recently used comes first."""
        self._by_owner: defaultdict[tuple[str, str], OrderedDict[int, _Kept]] = defaultdict(OrderedDict)
        self._numbers = count()
        self._size = 0

    def match(self, key: str, wire: str, raw: bytes) -> KnownPrefix | None:
        """Return the earlier request of an API key with which a body shares most, if any."""
        best: KnownPrefix | None = None
        for number, kept in reversed(self._by_owner.get((key, wire), {}).items()):
            if not any(raw.startswith(probe, at) for at, probe in kept.probes):
                continue
            shared = kept.request.body.common_messages(raw)
            if shared > (best.count if best else 0):
                best = KnownPrefix(request=kept.request, count=shared, number=number)
            if shared == len(kept.request.body.messages):
                break
        return best

    def remember(self, key: str, request: KnownRequest, known: KnownPrefix | None) -> None:
        """Keep a request. It replaces the earlier one that it continues."""
        body = request.body
        if len(body.raw) > _MAX_BODY or not 0 < len(body.ends) <= _MAX_MESSAGES:
            return
        if known is not None and known.count == len(known.request.body.messages):
            self._forget(known.number)
        owner = key, body.format.name
        starts = [max(end - _PROBE_BYTES, 0) for end in body.ends[-_PROBES:]]
        probes = tuple((start, body.raw[start : start + _PROBE_BYTES]) for start in starts)
        size = 2 * len(body.raw) + _MESSAGE_BYTES * len(body.messages)
        kept = _Kept(request=request, owner=owner, size=size, probes=probes)
        number = next(self._numbers)
        self._kept[number] = self._by_owner[owner][number] = kept
        self._size += size
        while len(self._by_owner[owner]) > _MAX_KEY_REQUESTS:
            self._forget(next(iter(self._by_owner[owner])))
        while self._kept and (self._size > self._max_bytes or len(self._kept) > _MAX_REQUESTS):
            self._forget(next(iter(self._kept)))

    def _forget(self, number: int) -> None:
        kept = self._kept.pop(number, None)
        if kept is not None:
            self._size -= kept.size
            own = self._by_owner[kept.owner]
            del own[number]
            if not own:
                del self._by_owner[kept.owner]
