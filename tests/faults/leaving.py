"""Helpers of the recall tests: sessions in which every message has a unique word, and their evicted entries."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np

from recto.config import Settings, load
from recto.config.factory import open_session
from recto.context.window.state import seqs_in
from recto.engine.session import Session
from recto.errors import EmbedderFailed
from recto.recall.indexer import Indexer
from recto.recall.stemmer import PorterLexicon
from recto.recall.types import Query
from recto.stores.sqlite.index import SqliteIndex
from recto.transcript.protocols import TranscriptStore

DECISIONS = ("context_window_pruned", "units_evicted", "units_merged", "tool_results_trimmed")
SMALL = {"gpt-4o": {"window": 3_000, "max_input": 3_000}}


def settings(**recall: object) -> Settings:
    recall_settings = {"embedder": {"use": "none"}, "background": False, "index_seconds": 5.0} | recall
    return load(environ={}, arguments={"model": "gpt-4o", "models": SMALL, "recall": recall_settings})


def entered(
    store: TranscriptStore, index: Path, embedder=None, *, name: str = "agent:default:main", **recall: object
) -> tuple[Session, Indexer]:
    """Opens a session over an index in its own file, with the embedder of the test."""
    indexer = Indexer(
        store, SqliteIndex(index, lock_timeout=5.0), lexicon=PorterLexicon(), embedder=embedder, in_background=False
    )
    return open_session(replace(settings(**recall), session=name), store, indexer), indexer


def word(number: int) -> str:
    """Returns a word that only one message contains."""
    return f"kestrel{number}q"


def speak(session: Session, number: int, *, filler: int = 60) -> None:
    """Appends one exchange, each message with its own word."""
    session.append({"role": "user", "content": f"Tell me about {word(2 * number)}, please."})
    session.append({"role": "assistant", "content": f"{word(2 * number + 1)}: " + "it flies " * filler})


def decisions(session: Session) -> list[dict]:
    return [json.loads(entry.content) for entry in session.read() if entry.kind in DECISIONS]


def events(session: Session, kind: str) -> list[dict]:
    return [json.loads(entry.content) for entry in session.read() if entry.kind == kind]


def evicted(session: Session) -> set[int]:
    return {seq for decision in decisions(session) for seq in seqs_in(decision["left"])}


def unfindable(session: Session, *, catches_up: bool = True) -> list[int]:
    """Returns the evicted entries that a search for their own words does not find."""
    if catches_up:
        session.recall("anything")
    searcher = session.window._recall.recall.searcher
    gone = evicted(session)
    own = {
        entry.seq: found[0]
        for entry in session.read()
        if entry.seq in gone and (found := re.search(r"kestrel\d+q", entry.content.decode()))
    }
    missing = []
    for some in batched(sorted(own), 32):
        query = Query(text=" ".join(own[seq] for seq in some), now=2**50)
        found = {hit.seq for hit in searcher.find(query, [session.key]).best() if hit.bm25}
        missing += [seq for seq in some if seq not in found]
    return missing


def batched(values: list[int], size: int) -> list[list[int]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


class Moody:
    """An embedder that works, fails, hangs or returns invalid vectors, depending on `mood`."""

    name, dims, weight = "moody/1", 8, 0.5

    def __init__(self) -> None:
        self.mood = "works"
        self.gate = threading.Event()
        """Releases calls that hang."""

    def documents(self, texts):
        match self.mood:
            case "fails":
                raise EmbedderFailed(self.name, "the plug is out")
            case "breaks":
                raise LookupError("odd")
            case "hangs":
                self.gate.wait()
            case "lies":
                return np.full((len(texts), 8), np.nan, np.float32)
            case "shrinks":
                return np.zeros((len(texts), 3), np.float32)
        rows = np.zeros((len(texts), 8), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[len(text) % 8] = 1
        return rows

    def query(self, text):
        return self.documents([text])
