"""Promise 7: nothing is evicted from the prompt before it can be recalled.

As soon as a decision is stored, the index file is opened again and searched for every evicted message. Embedders and
indexes fail and recover at random; processes are killed between the index and the decision; power is cut.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest
from leaving import DECISIONS, Moody, batched, entered, evicted, speak, unfindable
from lossy_disk import Disk, Trace, TracingDisk
from witness import Child

from recto.context.window.state import seqs_in
from recto.errors import RectoError, WindowOverflow
from recto.recall.index import bm25
from recto.recall.index.rows import is_covered
from recto.recall.indexer import Indexer
from recto.recall.recall import RecallService
from recto.recall.search import Searcher
from recto.recall.stemmer import PorterLexicon
from recto.recall.types import Confirmation, Query
from recto.stores.memory import MemoryStore
from recto.stores.sqlite import SqliteOptions, SqliteStore
from recto.stores.sqlite.index import SqliteIndex
from recto.transcript.entries import Entry

pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.timeout(0)]
S = "agent:default:main"
LEXICON = PorterLexicon()
SHARDS = 2
OWN = re.compile(r"kestrel\d+q")


def words_of(entries: Iterable[Entry]) -> dict[int, str]:
    """Returns the unique word of each message, by sequence number."""
    matches = {entry.seq: OWN.search(entry.content.decode()) for entry in entries if entry.kind == "message"}
    return {seq: found[0] for seq, found in matches.items() if found}


def unfound(indexer: Indexer, own: dict[int, str]) -> list[int]:
    """Returns the entries that are not found by their own words in the index."""
    found = set()
    try:
        for some in batched(list(own), 32):
            query = Query(text=" ".join(own[seq] for seq in some), now=2**50)
            ranked = Searcher(indexer).find(query, [S]).best()
            found |= {hit.seq for hit in ranked if hit.bm25}
    except RectoError:
        return list(own)
    return [seq for seq in own if seq not in found]


def lacking(store, index: Path, seqs: list[int]) -> list[int]:
    """Returns the entries that are not found in the index as it is in its file now."""
    own = words_of(entry for seq in seqs for entry in store.read(S, seq, seq))
    with closing(Indexer(store, SqliteIndex(index), lexicon=LEXICON, in_background=False)) as indexer:
        return unfound(indexer, own)


def gone_by(entries: Iterable[Entry]) -> list[int]:
    """Returns the entries evicted by the decisions among these entries."""
    made = [json.loads(entry.content) for entry in entries if entry.kind in DECISIONS]
    return [seq for decision in made for seq in seqs_in(decision["left"])]


@dataclass
class Watch:
    """Checks every decision as soon as it is stored."""

    store: object
    index: Path
    wrong: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __call__(self, entry: Entry) -> None:
        if entry.kind not in DECISIONS:
            return
        decision = json.loads(entry.content)
        gone, indexed = seqs_in(decision["left"]), decision["indexed"]
        self.seen[indexed.split(":")[0]] += bool(gone)
        if missing := lacking(self.store, self.index, gone):
            self.wrong.append(f"entries {missing} left unindexed, though '{indexed}'")
        if indexed.startswith("nothing") and gone:
            self.wrong.append(f"entry {entry.seq} evicted units though nothing may be evicted")


class Life:
    """A session that meets random failures, from a seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.folder, self.index = folder, folder / "i"
        self.store = MemoryStore()
        self.embedder = Moody()
        self.numbers = itertools.count()
        self.watch = Watch(self.store, self.index)
        self.overflows = 0
        self.enter()

    def enter(self) -> None:
        self.session, self.indexer = entered(self.store, self.index, self.embedder, index_seconds=2.0)
        self.session.window.events.listen(self.watch)

    def reopen(self) -> None:
        self.indexer.close()
        self.enter()

    def turn(self) -> None:
        speak(self.session, next(self.numbers), filler=self.rng.choice((10, 60, 150)))
        self.session.append({"role": "user", "content": "Go on."})
        try:
            self.session.prompt()
        except WindowOverflow:
            self.overflows += 1
            self.session.append({"role": "assistant", "content": "…"})

    def change_mood(self) -> None:
        self.embedder.mood = self.rng.choice(("works", "works", "fails", "breaks", "lies", "shrinks"))

    def lose(self) -> None:
        """Removes the index, or puts something else in its place."""
        for ending in ("", "-wal", "-shm"):
            file = self.index.with_name(self.index.name + ending)
            shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
        what = self.rng.choice(("nothing", "garbage", "a folder"))
        if what == "garbage":
            self.index.write_bytes(self.rng.randbytes(30_000))
        elif what == "a folder":
            self.index.mkdir()

    def close_the_index(self) -> None:
        self.indexer.index.close()

    def recover(self) -> None:
        self.embedder.mood = "works"
        if self.index.is_dir():
            self.index.rmdir()
        self.reopen()

    def live(self, steps: int) -> None:
        others: list[Callable[[], None]] = [
            self.change_mood,
            self.change_mood,
            self.reopen,
            self.lose,
            self.close_the_index,
            self.recover,
            self.recover,
        ]
        for _ in range(steps):
            self.turn()
            if self.rng.random() < 0.4:
                self.rng.choice(others)()
        self.recover()
        missing = unfindable(self.session)
        if missing:
            self.watch.wrong.append(f"entries {missing} are not found though everything works again")
        self.indexer.close()


def lives(folder: Path, count: int, steps: int = 40) -> tuple[list[str], Counter[str]]:
    wrong, seen = [], Counter()
    for seed in range(count):
        (folder / str(seed)).mkdir()
        life = Life(folder / str(seed), seed)
        life.live(steps)
        wrong += life.watch.wrong
        seen += life.watch.seen + Counter({"overflows": life.overflows, "left": len(evicted(life.session))})
    return wrong, seen


def bypassed(recall: RecallService, seqs: object) -> Confirmation:
    """Confirms everything without checking the index: the control."""
    return Confirmation(words=True, vectors=True)


@pytest.mark.requirement("recall.indexed-first")
def test_nothing_is_evicted_before_it_can_be_recalled_whatever_fails(swift_folder, scale):
    wrong, seen = lives(swift_folder, scale(8, release=2_000))
    assert wrong == []
    assert min(seen["words and vectors"], seen["words alone"], seen["overflows"]) > 5, seen


def test_without_the_confirmation_entries_are_evicted_unindexed(swift_folder, monkeypatch):
    monkeypatch.setattr(RecallService, "confirm", bypassed)
    wrong, _ = lives(swift_folder, 2)
    assert any("left unindexed" in line for line in wrong)


def agent(folder: Path, start: int, acknowledge: Callable[[str], None], *, bypass: bool) -> None:
    """Runs an agent until it is killed."""
    if bypass:
        RecallService.confirm = bypassed
    session, _ = entered(SqliteStore(folder / "a.db"), folder / "a.db-recall", Moody(), inject=False)
    if bypass:
        session._make_row = None  # and no words are stored with the messages
    session.window.listen(lambda entry: acknowledge("left") if entry.kind in DECISIONS else None)
    for number in itertools.count(start):
        speak(session, number, filler=100)
        session.append({"role": "user", "content": "Go on."})
        session.prompt()
        acknowledge("turn")


def killed(folder: Path, cycles: int, *, bypass: bool = False) -> Counter[str]:
    """Kills an agent repeatedly; counts the evicted entries, and those missing in the index."""
    rng, seen = random.Random(cycles), Counter()
    for cycle in range(cycles):
        home = folder / str(cycle // 25)
        home.mkdir(exist_ok=True)
        child = Child.running(lambda ack, home=home, cycle=cycle: agent(home, cycle * 1000, ack, bypass=bypass))
        child.wait_for(rng.randrange(1, 7))
        child.kill(rng.uniform(0, 0.02))
        with SqliteStore(home / "a.db") as store:
            done = seen[home.name]
            gone = gone_by(store.read(S, done + 1))
            seen[home.name] = store.head(S).seq
            seen["left"] += len(gone)
            seen["unindexed"] += len(lacking(store, home / "a.db-recall", gone)) if gone else 0
    return seen


@pytest.mark.promise
def test_entries_evicted_before_kill_9_are_in_the_index(swift_folder, scale):
    cycles = scale(20, ci=80, release=5_000)
    seen = killed(swift_folder, cycles)
    assert seen["left"] > cycles
    assert seen["unindexed"] == 0


def test_a_decision_stored_before_its_index_rows_is_detected(swift_folder):
    assert killed(swift_folder, 12, bypass=True)["unindexed"] > 0


class Mirrored(MemoryStore):
    """A store that reads from memory and also writes to a disk that can lose power."""

    def __init__(self, disk: SqliteStore, on_append: Callable[[], None]) -> None:
        super().__init__()
        self._disk, self._on_append = disk, on_append

    def append(self, session, drafts, *, expect=None, also=None):
        entries = super().append(session, drafts, expect=expect, also=also)
        assert self._disk.append(session, drafts) == entries
        self._on_append()
        return entries


@dataclass
class Recording:
    """The operations on the transcript files, and the versions of the index at the time of each."""

    operations: list
    indexes: list[tuple[bytes, bytes]]
    """Each version of the index file and its WAL."""
    begins: int
    """The first operation after the store was created; its creation is tested elsewhere."""


_numbers = itertools.count()


def record(folder: Path, rng: random.Random) -> Recording:
    folder.mkdir()
    index, indexes = folder / "a.db-recall", [(b"", b"")]

    def look() -> None:
        now = tuple(
            file.read_bytes() if file.exists() else b"" for file in (index, index.with_name(index.name + "-wal"))
        )
        if now != indexes[-1]:
            indexes.append(now)

    trace = Trace(folder, lambda: len(indexes) - 1)
    name = f"tracing-recall-{next(_numbers)}"
    disk = TracingDisk(name, trace)
    with SqliteStore(folder / "a.db", options=SqliteOptions(vfs=name, exclusive=True)) as on_disk:
        begins = len(trace.operations)
        session, indexer = entered(Mirrored(on_disk, look), index, name=S)
        for number in range(16):
            speak(session, number, filler=rng.choice((60, 100)))
            session.append({"role": "user", "content": "Go on."})
            session.prompt()
            indexer.catch_up(S)
        look()
        indexer.index._disconnect(RuntimeError())  # without a checkpoint, which closing would do
        indexer.close()
    disk.unregister()
    return Recording(trace.operations, indexes, begins)


def torn(log: bytes, rng: random.Random) -> bytes:
    """Returns an unsynced WAL as a power cut may leave it: truncated, with lost sectors."""
    end = rng.choice((len(log), rng.randrange(len(log) + 1)))
    content = bytearray(log[:end])
    for _ in range(rng.choice((0, 0, 1, 4))):
        if content:
            start = rng.randrange(len(content)) // 512 * 512
            content[start : start + 512] = bytes(len(content[start : start + 512]))
    return bytes(content)


def states(recording: Recording, folder: Path, rng: random.Random, count: int):
    """Yields for each of `count` states that a power cut may leave, with its files in the folder."""
    instants = Counter(rng.randrange(recording.begins, len(recording.operations)) for _ in range(count))
    disk, at = Disk(), 0
    for instant, operation in enumerate(recording.operations):
        disk.happen(operation)
        at = operation.note if isinstance(operation.note, int) else at
        for _ in range(instants[instant]):
            for old in folder.iterdir():
                old.unlink()
            for name, content in disk.after_power_cut(rng):
                (folder / name).write_bytes(content)
            file, log = recording.indexes[at]
            if file:
                (folder / "a.db-recall").write_bytes(file)
                (folder / "a.db-recall-wal").write_bytes(torn(log, rng))
            yield


def answers_of(indexer: Indexer) -> list[list[tuple[int, float]]]:
    """Returns the hits of a few queries, with their scores."""
    answers = []
    for text in ("kestrel4q kestrel9q", "Tell me about what flies", "kestrel30q please"):
        ranking = Searcher(indexer).find(Query(text=text, now=2**50), [S])
        answers.append([(hit.seq, round(hit.score, 9)) for hit in ranking.best()])
    return answers


def examine(folder: Path, seen: Counter[str], *, rebuilds: bool) -> None:
    with SqliteStore(folder / "a.db") as store:
        entries = {entry.seq: entry for entry in store.read(S)}
        own = words_of(entries[seq] for seq in gone_by(entries.values()))
        seen["states"] += 1
        seen["left"] += len(own)
        index = SqliteIndex(folder / "a.db-recall")
        with closing(Indexer(store, index, lexicon=LEXICON, in_background=False)) as indexer:
            before = unfound(indexer, own)
            covered = indexer.with_repair(lambda: indexer.words.sealed(S))
            seen["not found"] += len(before)
            seen["sealed"] += len(covered)
            seen["claimed"] += sum(is_covered(covered, seq) for seq in before)
            indexer.catch_up(S)
            seen["lost"] += len(unfound(indexer, own))
            if rebuilds:
                seen["rebuilt"] += 1
                answers = answers_of(indexer)
                index.forget(S)
                indexer.catch_up(S)
                seen["different"] += answers != answers_of(indexer)


def explore(base: Path, shard: int, count: int) -> Counter[str]:
    rng, seen = random.Random(shard), Counter()
    traces = max(2, count // 5_000)
    for number in range(traces):
        recording = record(base / f"trace{number}", rng)
        folder = base / f"cut{number}"
        folder.mkdir()
        for state, _ in enumerate(states(recording, folder, rng, count // traces)):
            examine(folder, seen, rebuilds=state % 20 == 0)
    return seen


@pytest.mark.promise
@pytest.mark.parametrize("shard", range(SHARDS))
def test_after_a_power_cut_evicted_entries_are_found_and_a_rebuilt_index_finds_the_same(
    swift_folder, scale, shard, monkeypatch
):
    monkeypatch.setattr(bm25, "SEAL_AT", 8)
    count = scale(120, ci=800, release=100_000) // SHARDS
    seen = explore(swift_folder, shard, count)
    assert seen["states"] >= count * 0.99
    assert seen["left"] > count
    assert seen["rebuilt"] > 0
    assert seen["sealed"] > 0, "no words were sealed: the test covers too little"
    assert [seen[name] for name in ("not found", "lost", "claimed", "different")] == [0, 0, 0, 0]


def test_coverage_without_its_rows_is_detected(swift_folder, monkeypatch):
    monkeypatch.setattr(bm25, "SEAL_AT", 8)
    recording = record(swift_folder / "trace", random.Random(1))
    folder = swift_folder / "cut"
    folder.mkdir()
    seen: Counter[str] = Counter()
    for _ in states(recording, folder, random.Random(1), 30):
        if (folder / "a.db-recall").exists():
            with closing(apsw.Connection(str(folder / "a.db-recall"))) as connection, suppress(apsw.Error):
                connection.execute("DELETE FROM sealed WHERE part >= 0 AND part < 1 << 40")
        examine(folder, seen, rebuilds=True)
    assert seen["claimed"] > 0
    assert seen["lost"] > 0
    assert seen["different"] > 0


def test_messages_without_their_words_are_detected_and_reindexed(swift_folder):
    recording = record(swift_folder / "trace", random.Random(1))
    folder = swift_folder / "cut"
    folder.mkdir()
    seen: Counter[str] = Counter()
    for _ in states(recording, folder, random.Random(1), 10):
        with closing(apsw.Connection(str(folder / "a.db"))) as connection:
            connection.execute("DELETE FROM terms WHERE pos % 2")
        examine(folder, seen, rebuilds=False)
    assert seen["not found"] > 0
    assert seen["lost"] == 0
