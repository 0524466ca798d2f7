"""What a lane keeps in memory of an index: bounded over all sessions, what was not asked for longest goes first."""

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
    """Values by key, at most so many bytes of them; at most so many values where nobody says how large they are."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """How much is kept now."""
        return self._held

    def get(self, key: Hashable) -> Value | None:
        """What is kept under a key, if it still is."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, value: Value, size: int = 1) -> None:
        """Keeps a value in the place of the one before, if it is not larger than all there is room for."""
        with self._lock:
            _, before = self._values.pop(key, (None, 0))
            self._held -= before
            if size > self._most:
                return
            self._values[key] = (value, size)
            self._held += size
            while self._held > self._most:
                _, (_, gone) = self._values.popitem(last=False)
                self._held -= gone

    def drop(self, key: Hashable) -> None:
        """Lets go of what is kept under a key, if anything is."""
        with self._lock:
            self._held -= self._values.pop(key, (None, 0))[1]


@contextmanager
def decoding(location: str) -> Iterator[None]:
    """Bytes that are not what they should be make the index a damaged one."""
    try:
        yield
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
        raise IndexCorrupt(location, f"a row in it is not what it should be: {error!s:.200}") from error


class UnsealedCounter:
    """How much of each session waits to be sealed, as far as is known here. Others may add to it too."""

    _MOST_SESSIONS = 4096

    def __init__(self) -> None:
        self._amounts: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, session: str, amount: float, counted: Callable[[], float]) -> float:
        """How much waits now; where that is not known, it is counted."""
        with self._lock:
            known = self._amounts.get(session)
        now = counted() if known is None else known + amount
        self.set(session, now)
        return now

    def set(self, session: str, amount: float) -> None:
        """So much waits now."""
        with self._lock:
            self._amounts.pop(session, None)
            if len(self._amounts) >= self._MOST_SESSIONS:
                del self._amounts[next(iter(self._amounts))]
            self._amounts[session] = amount


class DecodedRows(Generic[Value]):
    """Fresh rows of sessions as they were last read: the same bytes are not taken apart twice."""

    _MOST_SESSIONS = 64
    _MOST_BYTES = 2**20

    def __init__(self, unpack: Callable[[Sequence[IndexRow]], Value]) -> None:
        self._unpack = unpack
        self._known: dict[str, tuple[bytes, Value]] = {}
        self._lock = threading.Lock()

    def of(self, session: str, rows: Sequence[IndexRow]) -> Value:
        """What the rows say."""
        data = b"".join([row.data for row in rows]) + struct.pack(f"<{len(rows)}q", *(row.seq for row in rows))
        known = self._known.get(session)
        if known is not None and known[0] == data:
            return known[1]
        value = self._unpack(rows)
        with self._lock:
            self._known.pop(session, None)
            if len(self._known) >= self._MOST_SESSIONS:
                del self._known[next(iter(self._known))]
            if len(data) <= self._MOST_BYTES:
                self._known[session] = (data, value)
        return value
