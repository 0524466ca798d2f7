"""Measures the SQLite store: appends per second, and whether opening and reading stay flat as a session grows.
The entries are made up; sessions have 1,000 to 1,000,000 of them. An append per commit is compared with an insert into
bare SQLite with the same columns and indexes.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import apsw

import recto
from bench.measure import percentile, row, seconds
from recto.engine.verification import verify
from recto.stores.sqlite import SqliteStore
from recto.testing import scripted_session
from recto.transcript.entries import Draft

SESSION = "agent:bench:main"
SIZES = (1_000, 100_000, 1_000_000)
_TABLE_AND_INDEXES = """
SELECT sql FROM sqlite_schema WHERE tbl_name = 'entries' AND type IN ('table', 'index') AND sql <> ''
"""
_INSERT = """
INSERT INTO entries(pos, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev, hash, content)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
TEXT = "The ledger is written before the queue is told, so that a crash between the two loses nothing. " * 6


def run(quick: bool, largest: int = SIZES[-1]) -> list[dict]:
    appends, sizes = (500, (1_000, 10_000)) if quick else (5_000, [size for size in SIZES if size <= largest])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        rows += beside_bare_sqlite(Path(folder), appends)
        rows += indexing(appends)
        for writers in (1, 8):
            rows.append(threads(Path(folder) / f"threads-{writers}.db", writers, appends))
        rows.append(processes(Path(folder) / "processes.db", 8, appends))
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            rows += grown(Path(folder) / "grown.db", size)
    for what in ("open", "tail of 200") if sizes else ():
        times = [line["value"] for line in rows if line["what"].startswith(f"{what} at")]
        rows.append(row(f"{what}: largest over smallest session", times[-1] / times[0], "ratio", "flat is 1", 2))
    return rows


def drafts(name: str, count: int) -> Iterator[Draft]:
    for number in range(count):
        content = b'{"role":"user","content":"%d %s"}' % (number, TEXT.encode())
        yield Draft(id=f"{name}-{number}", ts=number, role="user", content=content, wire="openai.chat", tokens=140)


def beside_bare_sqlite(folder: Path, count: int) -> list[dict]:
    """Entries one per commit, in turn with rows of the same columns and indexes that a bare connection inserts.

    The bare table has no triggers, no chain and no copy of the head outside the file.
    """
    store = SqliteStore(folder / "one.db")
    bare = _bare_file(folder)

    def insert_bare(number: int, draft: Draft) -> None:
        with bare:
            about = (draft.ts, draft.role, draft.kind, draft.wire, draft.surface, draft.tokens, draft.counter)
            values = (1 << 32 | number, draft.id, *about, draft.key, draft.meta, bytes(32), bytes(32), draft.content)
            bare.execute(_INSERT, values)

    times: list[float] = []
    plain: list[float] = []
    for number, draft in enumerate(drafts("a", count), 1):  # in turn, so that the disk is the same for both
        times.append(seconds(lambda draft=draft: store.append(SESSION, [draft])))
        plain.append(seconds(lambda number=number, draft=draft: insert_bare(number, draft)))
    store.close()
    bare.close()
    middle, middle_plain = percentile(times, 0.5), percentile(plain, 0.5)
    return [
        row("append, one per commit", count / sum(times), "entries/s", "durable, one caller"),
        row("append, one per commit, p50", middle * 1e3, "ms", "", 3),
        row("append, one per commit, p99", percentile(times, 0.99) * 1e3, "ms", "", 3),
        row("bare SQLite, one per commit, p50", middle_plain * 1e3, "ms", "same columns and indexes, full sync", 3),
        row("append over bare SQLite", middle_plain / middle, "ratio", "1: as fast as bare SQLite", 2),
    ]


def _bare_file(folder: Path) -> apsw.Connection:
    """A file with the table of entries and its indexes, and nothing around it."""
    bare = apsw.Connection(str(folder / "bare.db"))
    with closing(apsw.Connection(str(folder / "one.db"))) as ours:
        made = [sql for (sql,) in ours.execute(_TABLE_AND_INDEXES)]
        page_size = ours.pragma("page_size")
    for statement in (f"PRAGMA page_size={page_size}", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", *made):
        bare.execute(statement).fetchall()
    return bare


def indexing(count: int) -> list[dict]:
    """What a message costs with its words indexed, beyond what it costs without."""
    took = []
    messages = list(islice(scripted_session(exchanges=count), count))
    for recall in ({"enabled": False}, {"embedder": {"use": "none"}}):
        with recto.open("memory:", model="gpt-4o", recall=recall) as session:
            session.append_all(messages[:20])
            start = time.process_time()
            for message in messages[20:]:
                session.append(message)
            if recall.get("enabled", True):
                session.window.recall_engine.catch_up()
            took.append((time.process_time() - start) / (len(messages) - 20) * 1e3)
    return [row("indexing a message, words", took[1] - took[0], "ms", "of the processor, beyond storing it", 3)]


def threads(path: Path, writers: int, count: int) -> dict:
    """Each thread appends to a session of its own; the store groups their commits."""
    store = SqliteStore(path)

    def write(name: str) -> None:
        for draft in drafts(name, count // writers):
            store.append(f"agent:bench:{name}", [draft])

    running = [threading.Thread(target=write, args=(f"w{number}",)) for number in range(writers)]

    def together() -> None:
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    took = seconds(together)
    store.close()
    return row(f"group commit, {writers} writer{'s' * (writers > 1)}", count / took, "entries/s", "threads, one store")


def _write_in_a_process(path: Path, name: str, count: int) -> None:
    store = SqliteStore(path)
    for draft in drafts(name, count):
        store.append(f"agent:bench:{name}", [draft])
    store.close()


def processes(path: Path, writers: int, count: int) -> dict:
    SqliteStore(path).close()
    context = multiprocessing.get_context("spawn")
    running = [
        context.Process(target=_write_in_a_process, args=(path, f"p{n}", count // writers)) for n in range(writers)
    ]

    def together() -> None:
        for process in running:
            process.start()
        for process in running:
            process.join()

    return row(f"{writers} processes on one file", count / seconds(together), "entries/s", "with their start-up")


def grown(path: Path, size: int) -> list[dict]:
    """One session of this many entries: how long to fill, open, read its end, verify."""
    store = SqliteStore(path)
    waiting = list(drafts("g", 0))

    def fill() -> None:
        for draft in drafts("g", size):
            waiting.append(draft)
            if len(waiting) == 500:
                store.append(SESSION, waiting)
                waiting.clear()
        if waiting:
            store.append(SESSION, waiting)

    filled = seconds(fill)
    store.close()
    opened = []
    tails = []
    for _ in range(21):
        opened.append(seconds(lambda: SqliteStore(path).head(SESSION)))
        store = SqliteStore(path)
        store.head(SESSION)
        tails.append(seconds(lambda store=store: store.tail(SESSION, 200)))
        store.close()
    store = SqliteStore(path)
    verified = seconds(lambda: verify(store, SESSION))
    store.close()
    label = f"{size:,} entries"
    return [
        row(f"append in batches of 500 to {label}", size / filled, "entries/s"),
        row(f"open at {label}, p50", percentile(opened, 0.5) * 1e3, "ms", "open the file and read the head", 2),
        row(f"tail of 200 at {label}, p50", percentile(tails, 0.5) * 1e3, "ms", "", 2),
        row(f"verify {label}", size / verified, "entries/s", f"{verified:.1f} s"),
        row(f"file of {label}", path.stat().st_size / size, "bytes/entry", "content is 600 bytes"),
    ]
