"""What the lanes cache in memory: bounded over all sessions, least recently used first out."""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from recto.errors import IndexCorrupt
from recto.recall.index.rows import IndexRow

Value = TypeVar("Value")


class BoundedCache(Generic[Value]):
    """A least-recently-used cache, bounded by the sizes of its values; by their number if no sizes are given."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._size = 0
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Sum of the sizes of all cached values."""
        return self._size

    def get(self, key: Hashable) -> Value | None:
        """Return a cached value; None if it is not cached."""
        with self._lock:
            cached = self._values.get(key)
            if cached is None:
                return None
            self._values.move_to_end(key)
            return cached[0]

    def put(self, key: Hashable, value: Value, size: int = 1) -> None:
        """Cache a value, unless it alone is larger than the cache."""
        with self._lock:
            _, previous = self._values.pop(key, (None, 0))
            self._size -= previous
            if size > self._max_size:
                return
            self._values[key] = (value, size)
            self._size += size
            while self._size > self._max_size:
                _, (_, evicted) = self._values.popitem(last=False)
                self._size -= evicted

    def discard(self, key: Hashable) -> None:
        """Remove a value, if it is cached."""
        with self._lock:
            self._size -= self._values.pop(key, (None, 0))[1]


@contextmanager
def decoding(location: str) -> Iterator[None]:
    """Report decoding errors in this block as a corrupt index."""
    try:
        yield
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
        raise IndexCorrupt(location, f"a row in it is not what it should be: {error!s:.200}") from error


class UnsealedCounter:
    """How much of each session waits to be sealed, as far as this process knows. Other processes may add to it too."""

    _MAX_SESSIONS = 4096

    def __init__(self) -> None:
        self._amounts: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, session: str, amount: float, count: Callable[[], float]) -> float:
        """Add an amount and return the total; if the session is not known, `count` reads it from the index."""
        with self._lock:
            known = self._amounts.get(session)
        total = count() if known is None else known + amount
        self.set(session, total)
        return total

    def set(self, session: str, amount: float) -> None:
        """Set the amount of a session."""
        with self._lock:
            self._amounts.pop(session, None)
            if len(self._amounts) >= self._MAX_SESSIONS:
                del self._amounts[next(iter(self._amounts))]
            self._amounts[session] = amount


class DecodedRows(Generic[Value]):
    """The fresh rows of sessions as last decoded, so that the same bytes are not decoded twice."""

    _MAX_SESSIONS = 64
    _MAX_BYTES = 2**20

    def __init__(self, unpack: Callable[[Sequence[IndexRow]], Value]) -> None:
        self._unpack = unpack
        self._known: dict[str, tuple[bytes, Value]] = {}
        self._lock = threading.Lock()

    def of(self, session: str, rows: Sequence[IndexRow]) -> Value:
        """Return the decoded rows."""
        data = b"".join([row.data for row in rows]) + struct.pack(f"<{len(rows)}q", *(row.seq for row in rows))
        known = self._known.get(session)
        if known is not None and known[0] == data:
            return known[1]
        value = self._unpack(rows)
        with self._lock:
            self._known.pop(session, None)
            if len(self._known) >= self._MAX_SESSIONS:
                del self._known[next(iter(self._known))]
            if len(data) <= self._MAX_BYTES:
                self._known[session] = (data, value)
        return value
