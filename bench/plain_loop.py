"""The loop that people write without Recto: a list of messages, each counted once, and a table that stores them.

It appends to a bare SQLite file with full sync and drops the oldest messages if they do not fit; it has no pairs, pins,
decisions or recall. Every other figure of a turn is compared with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import apsw

from recto.config import load
from recto.config.factory import make_meter
from recto.formats import DEFAULT_FORMAT

_SCHEMA = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=FULL;
CREATE TABLE IF NOT EXISTS messages(number INTEGER PRIMARY KEY, role TEXT NOT NULL, content BLOB NOT NULL);
"""


class PlainLoop:
    """Keeps messages in a list and in a table; a turn appends some and returns those that fit."""

    def __init__(self, path: Path, model: str, budget: int, history: Iterable[bytes] = ()) -> None:
        self._meter = make_meter(load(environ={}, arguments={"model": model}))
        self._budget = budget
        self._costs: dict[bytes, int] = {}
        self._messages: list[bytes] = []
        self._connection = apsw.Connection(str(path))
        self._connection.execute(_SCHEMA).fetchall()
        for raw in history:  # stored by an earlier program; counted once they are needed
            self._messages.append(raw)

    def turn(self, exchange: Sequence[dict]) -> list[bytes]:
        """Stores the messages of an exchange durably, and returns the prompt after it."""
        new = [json.dumps(message, ensure_ascii=False).encode() for message in exchange]
        with self._connection:
            self._connection.executemany(
                "INSERT INTO messages(role, content) VALUES (?, ?)",
                [(message["role"], raw) for message, raw in zip(exchange, new, strict=True)],
            )
        self._messages += new
        used, first = 0, len(self._messages)
        while first > 0:
            used += self._cost(self._messages[first - 1])
            if used > self._budget:
                break
            first -= 1
        return self._messages[first:]

    def _cost(self, raw: bytes) -> int:
        cost = self._costs.get(raw)
        if cost is None:
            cost = self._costs[raw] = self._meter.message(DEFAULT_FORMAT.messages.read(raw))
        return cost

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
