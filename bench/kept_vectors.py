"""An embedder that caches its vectors in a file, so that a second run of a benchmark need not compute them.

A vector's key is the embedder's name and the text's hash: another embedder starts with nothing cached.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from recto.recall.protocols import Embedder, Matrix

FILE = Path("build/embeddings.db")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors(embedder TEXT, kind TEXT, text BLOB, vector BLOB, PRIMARY KEY (embedder, kind, text))
WITHOUT ROWID
"""


def opened(path: Path = FILE) -> sqlite3.Connection:
    path.parent.mkdir(exist_ok=True)
    kept = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    kept.execute("PRAGMA journal_mode=WAL")
    kept.execute("PRAGMA synchronous=NORMAL")
    kept.execute(_SCHEMA)
    return kept


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


@dataclass(slots=True)
class KeptVectors:
    """The embedder it stands for, as far as its vectors are not kept yet."""

    inner: Embedder
    kept: sqlite3.Connection
    turn: threading.Lock = field(default_factory=threading.Lock, init=False)
    """An indexer asks from a thread of its own."""
    made: int = field(default=0, init=False)
    """Texts that were embedded because nobody had kept them."""

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def dims(self) -> int:
        return self.inner.dims

    @property
    def weight(self) -> float:
        return self.inner.weight

    def documents(self, texts: Sequence[str]) -> Matrix:
        return np.stack([self._vector("document", text) for text in texts])

    def query(self, text: str) -> Matrix:
        return self._vector("query", text)[None]

    def _vector(self, kind: str, text: str) -> Matrix:
        with self.turn:
            return self._kept(kind, text)

    def _kept(self, kind: str, text: str) -> Matrix:
        key = (self.name, kind, digest(text))
        found = self.kept.execute("SELECT vector FROM vectors WHERE (embedder, kind, text) = (?, ?, ?)", key).fetchone()
        if found is None:
            self.made += 1
            row = (self.inner.query(text) if kind == "query" else self.inner.documents([text])).reshape(-1)
            self.kept.execute("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?, ?)", (*key, row.tobytes()))
            return row
        return np.frombuffer(found[0], np.float32)
