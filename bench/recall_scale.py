"""Measures recall in long sessions: the latency of a search, the cost of indexing a turn, and the size of the index.
Sessions of 10,000, 100,000 and 1,000,000 made-up messages are searched alone, and the two smaller sizes also in a file
with a million entries of other sessions.

Each message has 110 words, drawn out of 200,000 by Zipf's law, and a vector of 384 numbers, so that the store, the
index and the ranking are timed and not a model; the time that the usual embedder takes for a question is shown
separately. The other sessions in the file are copies of a session of 10,000 entries: their messages are stored with
their words, and the rest of their index is copied row by row.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import apsw
import numpy as np
from rich.progress import track

from bench.measure import percentile, progress, row, seconds
from recto.context.facts.types import Mark
from recto.formats.openai_chat import CHAT
from recto.models.embedders import EmbedderChoice, embedder_for
from recto.recall.index.rows import CoveredRange
from recto.recall.indexer import Indexer
from recto.recall.search import Searcher
from recto.recall.stemmer import PorterLexicon
from recto.recall.term_rows import pack_row, row_version
from recto.recall.types import Query
from recto.stores.sqlite import SqliteStore
from recto.stores.sqlite.index import SqliteIndex
from recto.transcript.entries import Draft, Role, to_json

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

SIZES = (10_000, 100_000, 1_000_000)
BESIDE = (10_000, 100_000)
"""Sessions that are searched with others beside them."""
LARGEST = 1_000_000
"""Entries of the longest session, and of all sessions beside another: 3 GB in the folder for temporary files."""
COPIED = 10_000
VOCABULARY, DRAWS, DIMS = 200_000, 110, 384
PAGE = 1_000
SEARCHES, TURNS = 60, 300
KINDS = {"rare words": (300, 3_000), "frequent words": (5, 60)}
"""The words of a question, by how many words are more frequent."""
SESSION = "agent:bench:long"
_MINUTE = 60_000_000
_LETTERS = "bcdfghjklmnpqrstvwxz", "aeiou"
_VERSION = row_version(PorterLexicon())


class Made:
    """Messages and questions, the same ones every time."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        chances = 1 / np.arange(2, VOCABULARY + 2) ** 1.05
        self._edges = np.cumsum(chances / chances.sum())
        self._words = [_word(number) for number in range(VOCABULARY)]

    @cached_property
    def _terms(self) -> np.ndarray:
        lexicon = PorterLexicon()
        return np.array([lexicon.sequence(word)[0] for word in self._words], np.uint32)

    def drafts(self, first: int, count: int) -> list[Draft]:
        return [_draft(first + place, self._text(ranks)) for place, ranks in enumerate(self._drawn(count))]

    def page(self, first: int, count: int) -> list[Draft]:
        """Messages with their terms, which a lexicon would take longer to find."""
        drawn = self._drawn(count)
        terms = np.sort(self._terms[drawn], axis=1).tolist()
        return [
            _draft(first + place, self._text(ranks), Counter(found))
            for place, (ranks, found) in enumerate(zip(drawn, terms, strict=True))
        ]

    def question(self, low: int, high: int) -> str:
        return self._text(self._rng.choice(np.arange(low, high), 8, replace=False))

    def vectors(self, count: int) -> np.ndarray:
        rows = self._rng.standard_normal((count, 1, DIMS), np.float32)
        return rows / np.linalg.norm(rows, axis=2, keepdims=True)

    def _drawn(self, count: int) -> np.ndarray:
        return np.minimum(np.searchsorted(self._edges, self._rng.random((count, DRAWS))), VOCABULARY - 1)

    def _text(self, ranks: np.ndarray) -> str:
        return " ".join([self._words[rank] for rank in ranks.tolist()])


def _word(number: int) -> str:
    """A word that can be pronounced; none is another's stem."""
    word = ""
    for _ in range(4):
        number, consonant = divmod(number, len(_LETTERS[0]))
        number, vowel = divmod(number, len(_LETTERS[1]))
        word += _LETTERS[0][consonant] + _LETTERS[1][vowel]
    return word


def _draft(number: int, text: str, terms: Mapping[int, int] | None = None) -> Draft:
    role: Role = "assistant" if number % 2 else "user"
    content = to_json({"role": role, "content": text})
    row = b"" if terms is None else pack_row(_VERSION, number * _MINUTE, role, Mark.NONE, terms)
    id = uuid.uuid4().hex
    return Draft(id=id, ts=number * _MINUTE, role=role, content=content, wire=CHAT, tokens=150, terms=row)


@dataclass(frozen=True, slots=True)
class Drawn:
    """An embedder that draws a vector for each text, in no time; the same one for the same text."""

    name: str = "drawn/1"
    dims: int = DIMS
    weight: float = 0.5

    def documents(self, texts: Sequence[str]) -> Matrix:
        rows = np.stack([np.random.default_rng(crc32(text.encode())).standard_normal(DIMS) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def query(self, text: str) -> Matrix:
        return self.documents([text])


class Place:
    """A folder with a transcript and its index."""

    def __init__(self, folder: Path) -> None:
        self.store = SqliteStore(folder / "transcript.db")
        self.index = SqliteIndex(f"{self.store.location}-recall")

    def indexer(self, *, with_vectors: bool = True) -> Indexer:
        meaning = Drawn() if with_vectors else None
        return Indexer(
            self.store, self.index, lexicon=PorterLexicon(), embedder=meaning, in_background=False, owns_index=False
        )

    def close(self) -> None:
        self.index.close()
        self.store.close()


def index_bytes(folder: Path) -> int:
    """On the disk, after closing."""
    return sum(file.stat().st_size for file in folder.iterdir() if "-recall" in file.name)


def run(quick: bool, largest: int = LARGEST) -> list[dict]:
    scale = 10 if quick else 1
    rows = [embedding_row()]
    for size in (one for one in SIZES if one <= largest):
        with tempfile.TemporaryDirectory() as folder:
            rows += of_size(Path(folder), size // scale)
    return rows + with_others(largest // scale, [size // scale for size in BESIDE if size <= largest])


def embedding_row() -> dict:
    embedder = embedder_for(EmbedderChoice())
    made = Made(1)
    questions = [made.question(300, 3_000) for _ in range(20)]
    embedder.query("once, to be loaded")
    times = [seconds(lambda text=text: embedder.query(text)) * 1e3 for text in questions]
    note = f"{embedder.name}; comes on top of every search below"
    return row("embedding a question of 8 words, p50", percentile(times, 0.5), "ms", note, 1)


def of_size(folder: Path, size: int) -> list[dict]:
    made, label = Made(size), f"{size:,} entries"
    with closing(Place(folder)) as place:
        took = seconds(lambda: fill(place, made, SESSION, size - TURNS * 2, label))
        turns = indexed_turns(place, made, size - TURNS * 2)
        lanes = [one for one in place.index.lanes() if one.bytes]
    told = ", ".join(f"{one.lane.partition('/')[0]} {one.bytes / one.entries:,.0f}" for one in lanes)
    on_disk = index_bytes(folder) / size
    rows = [
        row(f"{label}: index", on_disk, "bytes/entry", f"on disk; {told}"),
        row(f"{label}: filled", size / took, "entries/s", "stored and indexed, 1,000 at a time"),
    ]
    for what, times in turns.items():
        note = f"worst {max(times):.1f} ms; a turn is two messages"
        rows.append(row(f"{label}: {what} of one turn, p50", percentile(times, 0.5), "ms", "", 2))
        rows.append(row(f"{label}: {what} of one turn, p99", percentile(times, 0.99), "ms", note, 2))
    with closing(Place(folder)) as place:
        return rows + searches(place, made, SESSION, label)


def fill(place: Place, made: Made, session: str, count: int, label: str) -> None:
    """What an indexer would write, without making it out of texts first."""
    indexer = place.indexer()
    vectors = indexer.vector_index(indexer.embedders[0])
    for start in track(range(0, count, PAGE), f"recall at {label}", console=progress()):
        entries = place.store.append(session, made.page(start + 1, min(PAGE, count - start)))
        covers = CoveredRange(entries[0].seq, entries[-1].seq, entries[-1].hash)
        indexer.words.maintain(session)
        vectors.add(
            session, list(zip(range(covers.first, covers.last + 1), made.vectors(len(entries)), strict=True)), covers
        )


def indexed_turns(place: Place, made: Made, after: int) -> dict[str, list[float]]:
    """Milliseconds to index the two messages of a turn: their words, then their vectors."""
    words, both = place.indexer(with_vectors=False), place.indexer()
    times: dict[str, list[float]] = {"words": [], "vectors": []}
    for turn in range(TURNS):
        place.store.append(SESSION, made.drafts(after + 2 * turn + 1, 2))
        times["words"].append(seconds(lambda: words.catch_up(SESSION)) * 1e3)
        times["vectors"].append(seconds(lambda: both.catch_up(SESSION)) * 1e3)
    return times


def searches(place: Place, made: Made, session: str, label: str) -> list[dict]:
    """The first search reads the index; those after it find much of it in memory."""
    searcher = Searcher(place.indexer())
    end = place.store.head(session).seq * _MINUTE

    def search(text: str) -> float:
        return seconds(lambda: searcher.find(Query(text=text, now=end), [session])) * 1e3

    first = search(made.question(*KINDS["rare words"]))
    rows = []
    for kind, (low, high) in KINDS.items():
        times = [search(made.question(low, high)) for _ in range(SEARCHES)]
        note = f"8 {kind}; the very first {first:,.0f} ms" if not rows else f"8 {kind}"
        rows.append(row(f"{label}: search, {kind}, p50", percentile(times, 0.5), "ms", note, 1))
        rows.append(row(f"{label}: search, {kind}, p99", percentile(times, 0.99), "ms", "", 1))
    return rows


def with_others(others: int, sizes: Sequence[int]) -> list[dict]:
    """The same searches in a file that holds many other sessions too."""
    made = Made(others)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with closing(Place(folder)) as place:
            for size in {COPIED, *sizes}:
                fill(place, made, f"{SESSION}-{size}", size, f"{size:,} beside {others:,}")
            took = seconds(lambda: copy_sessions(place, f"{SESSION}-{COPIED}", others // COPIED))
        note = f"{took:,.0f} s to make copies of a session of {COPIED:,}"
        rows = [row(f"{others:,} entries beside: index", index_bytes(folder) / 1e9, "GB", note, 2)]
        with closing(Place(folder)) as place:
            for size in sizes:
                rows += searches(place, made, f"{SESSION}-{size}", f"{size:,} entries beside {others:,}")
    return rows


_COPY = """
INSERT INTO fresh SELECT :to, seq, data FROM fresh WHERE shelf = :of;
INSERT INTO sealed(shelf, part, first, data) SELECT :to, part, first, data FROM sealed WHERE shelf = :of;
"""


def copy_sessions(place: Place, session: str, copies: int) -> None:
    """Copy a session under other names: its messages with their words, and every lane of its index."""
    terms = dict(place.store.terms(session))  # a store hands them out apart
    entries = [replace(entry, terms=terms.get(entry.seq, b"")) for entry in place.store.read(session)]
    with closing(apsw.Connection(place.index.location)) as file:
        file.execute("PRAGMA synchronous=OFF")
        for number in track(range(copies), "copies", console=progress()):
            name = f"agent:other:{number}"
            hashes = [
                entry.hash
                for start in range(0, len(entries), PAGE)
                for entry in place.store.append(name, entries[start : start + PAGE])
            ]
            with file:
                _copy_lanes(file, session, name, hashes)
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.sync()


def _copy_lanes(file: apsw.Connection, session: str, name: str, hashes: Sequence[bytes]) -> None:
    """What a lane covers is known by the hash of its last entry, which is another one in a copy."""
    shelves = list(file.execute("SELECT shelf, lane, generation FROM shelves WHERE session = ?", (session,)))
    for shelf, lane, generation in shelves:
        new = "INSERT INTO shelves(session, lane, generation) VALUES (?, ?, ?)"
        file.execute(new, (name, lane, generation))
        to = file.last_insert_rowid()
        file.execute(_COPY, {"to": to, "of": shelf})
        for first, last in list(file.execute("SELECT first, last FROM covered WHERE shelf = ?", (shelf,))):
            file.execute("INSERT INTO covered VALUES (?, ?, ?, ?)", (to, first, last, hashes[last - 1]))
