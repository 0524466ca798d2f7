"""Graphs of vectors in PostgreSQL: they choose, exact comparison tells, and nothing depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import numpy as np
import psycopg
import pytest
from tests.postgres import as_role, database, may_have_vectors, new_role, server, switch_on_vectors
from tests.spelling import SpellingEmbedder

from recto.config import load
from recto.config.factory import upgrade_database
from recto.engine.doctor import Doctor
from recto.recall.index.rows import CoveredRange, GraphVector
from recto.recall.index.vectors import NearestMessages, VectorIndex, sign_parts
from recto.recall.indexer import Indexer
from recto.recall.stemmer import PorterLexicon
from recto.stores.memory import MemoryIndex
from recto.stores.postgres import PostgresStore, create_graphs, grant_role
from recto.stores.postgres._index import PostgresIndex
from recto.transcript.entries import Draft

MAIN, NORTH, SOUTH = "agent:default:main", "tenant:north/agent:a:main", "tenant:south/agent:a:main"
LANE, DIMS = "vectors/test", 384
LONG, MANY = 150, 304
"""Four blocks of vectors; half of that is called long."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with database(with_vectors=True) as made:
        PostgresStore(made).close()
        yield made


@pytest.fixture
def index(url) -> Iterator[PostgresIndex]:
    with closing(PostgresIndex(url, lock_timeout=20)) as opened:
        opened.reset()
        yield opened


def vectors(count: int, seed: int = 1) -> np.ndarray:
    """Around few centres, as what people write is."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((12, DIMS))
    drawn = centres[rng.integers(0, 12, count)] + rng.standard_normal((count, DIMS)) * 0.7
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def lane_of(index, dims: int = DIMS, long: int = LONG) -> VectorIndex:
    lane = VectorIndex(index, LANE, dims)
    lane.graph.min_vectors = long
    lane.max_exhaustive = 0
    return lane


def add(lane: VectorIndex, rows: np.ndarray, session: str = MAIN, first: int = 1, pieces: int = 2) -> None:
    """So many vectors for each message."""
    several = rows.reshape(-1, pieces, rows.shape[1])
    for start in range(0, len(several), 100):
        page = list(enumerate(several[start : start + 100], first + start))
        lane.add(session, page, CoveredRange(page[0][0], page[-1][0], bytes(32)))


def linked(lane: VectorIndex, session: str = MAIN) -> None:
    lane.maintain(session)
    lane.graph.link(session, lambda: True)


def told(near: NearestMessages) -> dict[int, float]:
    return {seq: round(cosine, 4) for seq, cosine in near.pairs()}


def rows_in(url: str, table: str, session: str = MAIN) -> int:
    with psycopg.connect(url) as connection:
        connection.execute("SET recto.tenant = '*'")
        [count] = connection.execute(f"SELECT count(*) FROM recto.{table} WHERE session = %s", (session,)).fetchone()
        return count


def exact_of(rows: np.ndarray, **how) -> VectorIndex:
    lane = VectorIndex(MemoryIndex(), LANE, rows.shape[1])
    add(lane, rows, **how)
    return lane


def agree(lane: VectorIndex, exact: VectorIndex, asked: np.ndarray, *, session: str = MAIN) -> None:
    """A graph may miss a few, never the best; and what it tells of those it finds is what comparing tells."""
    found, every = lane.nearest(session, asked, 10), exact.nearest(MAIN, asked, 2_000)
    assert lane.graph.nearest(session, asked, 10, None) is not None
    assert told(found).items() <= told(every).items()
    assert list(found.seqs[:1]) == list(every.seqs[:1])
    assert len(found.seqs) == 10
    assert len(set(found.seqs.tolist()) & set(every.seqs[:10].tolist())) >= 6


@pytest.mark.parametrize("dims", [200, 384, 500])
def test_a_graph_finds_what_comparing_all_finds_and_tells_the_same_likeness(index, dims):
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((MANY, dims)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    lane, exact = lane_of(index, dims), exact_of(rows)
    add(lane, rows)
    linked(lane)
    for asked in rows[::60]:
        agree(lane, exact, asked)
        some = set(range(5, 150, 7))
        assert told(lane.nearest(MAIN, asked, 50, only=some)) == told(exact.nearest(MAIN, asked, 50, only=some))


def test_what_is_not_in_the_graph_yet_is_found_beside_it(index):
    rows = vectors(MANY + 100)
    lane, exact = lane_of(index), exact_of(rows)
    add(lane, rows[:MANY])
    linked(lane)
    add(lane, rows[MANY:], first=MANY // 2 + 1)
    lane.maintain(MAIN)
    lacks = index.graphs.unlinked_blocks(MAIN, LANE, *sign_parts())
    assert lacks.firsts
    assert index.snapshot(MAIN, LANE).fresh
    for asked in rows[::50]:
        agree(lane, exact, asked)
        last = set(range(140, 203))
        assert told(lane.nearest(MAIN, asked, 9, only=last)) == told(exact.nearest(MAIN, asked, 9, only=last))


def test_a_session_that_is_not_long_is_in_no_graph(index, url):
    lane = lane_of(index)
    add(lane, vectors(140))
    linked(lane)
    assert lane.graph.nearest(MAIN, vectors(1)[0], 5, None) is None
    assert (rows_in(url, "near"), rows_in(url, "linked")) == (0, 0)


def test_while_most_of_a_session_is_not_in_the_graph_it_is_searched_without(index):
    rows = vectors(5_000)
    lane, exact = lane_of(index), exact_of(rows)
    add(lane, rows)
    lane.maintain(MAIN)
    assert lane.graph.nearest(MAIN, rows[5], 10, None) is None
    lane.rescored = len(rows)
    assert told(lane.nearest(MAIN, rows[5], 10)) == told(exact.nearest(MAIN, rows[5], 10))


def test_work_that_was_stopped_goes_on_where_it_ended(index, url):
    lane = lane_of(index)
    add(lane, vectors(MANY))
    lane.maintain(MAIN)
    steps = iter([True, True, False])
    lane.graph.link(MAIN, lambda: next(steps))
    assert rows_in(url, "linked") == 2
    again = lane_of(index)
    again.graph.link(MAIN, lambda: True)
    blocks = index.graphs.unlinked_blocks(MAIN, LANE, *sign_parts())
    assert (blocks.blocks, blocks.firsts) == (rows_in(url, "linked"), [])


def test_the_long_sessions_of_a_partition_share_a_graph_and_do_not_see_each_other(index, url):
    with psycopg.connect(url) as connection:
        [[other]] = connection.execute(
            "SELECT 'agent:other:' || n FROM generate_series(1, 1000) AS n, generate_series(0, 15) AS part"
            " WHERE satisfies_hash_partition('recto.near'::regclass, 16, part, %s::text)"
            " AND satisfies_hash_partition('recto.near'::regclass, 16, part, 'agent:other:' || n) LIMIT 1",
            (MAIN,),
        ).fetchall()
    mine, theirs = vectors(MANY, seed=5), vectors(MANY, seed=6)
    lane = lane_of(index)
    add(lane, mine)
    add(lane, theirs, session=other)
    linked(lane)
    linked(lane, other)
    for session, rows in ((MAIN, mine), (other, theirs)):
        for asked in (mine[3], theirs[3]):
            agree(lane, exact_of(rows), asked, session=session)


def test_a_tenant_sees_its_own_vectors_and_who_names_none_sees_none(index, url):
    lane = lane_of(index)
    for session in (NORTH, SOUTH):
        add(lane, vectors(MANY), session=session)
        linked(lane, session)
    with psycopg.connect(url, autocommit=True) as connection:
        for table in ("near", "linked"):
            assert connection.execute(f"SELECT count(*) FROM recto.{table}").fetchone() == (0,)
        connection.execute("SET recto.tenant = 'north'")
        for table in ("near", "linked"):
            assert connection.execute(f"SELECT DISTINCT session FROM recto.{table}").fetchall() == [(NORTH,)]


def test_what_is_forgotten_or_erased_is_in_no_graph_and_what_takes_its_place_is_found(index, url):
    """A graph is built at random and may miss some; its rows are also compared by number, which misses none."""
    rows, others = vectors(MANY), vectors(MANY, seed=9)
    lane, expected, every = lane_of(index), exact_of(others), set(range(1, MANY // 2 + 1))
    for lets_go in (lambda: index.forget(MAIN, LANE), lambda: index.forget(MAIN), index.reset, erase(url)):
        add(lane, rows)
        linked(lane)
        assert rows_in(url, "near") > 0
        lets_go()
        assert (rows_in(url, "near"), rows_in(url, "linked")) == (0, 0)
        add(lane, others)
        linked(lane)
        assert told(lane.nearest(MAIN, others[7], 10)).items() <= told(expected.nearest(MAIN, others[7], 2_000)).items()
        assert lane.graph.nearest(MAIN, others[7], 10, every) is not None
        assert told(lane.nearest(MAIN, others[7], 10, only=every)) == told(expected.nearest(MAIN, others[7], 10))
        index.forget(MAIN)
    index.scrub([MAIN])
    assert index.damage() == []


def erase(url: str):
    def gone() -> None:
        with PostgresStore(url) as store:
            store.append(MAIN, [Draft(id="e", ts=1, role="user", content=b"{}", wire="openai.chat", tokens=1)])
            store.erase(MAIN)

    return gone


def test_a_block_of_another_generation_is_not_taken_in(index, url):
    lane = lane_of(index)
    add(lane, vectors(MANY))
    lane.maintain(MAIN)
    generation = index.snapshot(MAIN, LANE).generation
    one = GraphVector(1, 1, 0, 0.5, bytes(DIMS))
    index.graphs.supports(DIMS)
    index.graphs.link(MAIN, LANE, generation + 1, DIMS, [one])
    index.graphs.link("agent:nobody:main", LANE, generation, DIMS, [one])
    assert (rows_in(url, "near"), rows_in(url, "linked")) == (0, 0)
    index.graphs.link(MAIN, LANE, generation, DIMS, [one])
    index.graphs.link(MAIN, LANE, generation, DIMS, [one])
    assert (rows_in(url, "near"), rows_in(url, "linked")) == (1, 1)


def test_others_add_to_a_lane_while_it_is_taken_into_a_graph(index, url):
    lane = lane_of(index)
    add(lane, vectors(200))
    with psycopg.connect(url) as connection:
        connection.execute("SET recto.tenant = '*'")
        connection.execute("SELECT 1 FROM recto.shelves WHERE session = %s FOR KEY SHARE", (MAIN,))
        add(lane, vectors(MANY), first=101, pieces=2)
    assert index.covered(MAIN, LANE) == [CoveredRange(1, 100 + MANY // 2, bytes(32))]


def test_an_extension_that_comes_later_is_used_by_those_who_serve_already():
    may_have_vectors()
    with database() as late, new_role(late) as role:
        PostgresStore(late).close()
        key = grant_role(late, role)
        with closing(PostgresIndex(late, lock_timeout=20)) as index:
            assert "not switched on" in index.graphs.unavailable_reason()
            lane = lane_of(index)
            rows = vectors(MANY)
            add(lane, rows)
            linked(lane)
            assert told(lane.nearest(MAIN, rows[0], 5)) == told(exact_of(rows).nearest(MAIN, rows[0], 5))
        assert "CREATE EXTENSION vector" in create_graphs(late)
        switch_on_vectors(late)
        settings = load(environ={}, arguments={"store": late})
        assert upgrade_database(settings, finish=False) == ["graphs of vectors: made"]
        assert upgrade_database(settings, finish=False) == []
        with closing(PostgresIndex(as_role(late, role), key=key, lock_timeout=20)) as index:
            lane = lane_of(index)
            linked(lane)
            agree(lane, exact_of(rows), rows[0])
            index.forget(MAIN)
        assert rows_in(late, "near") == 0


def test_the_doctor_says_whether_there_are_graphs(url):
    with database() as without, PostgresStore(without) as store, closing(store.index(lock_timeout=20)) as index:
        found = Doctor(Indexer(store, index, lexicon=PorterLexicon(), in_background=False)).examine()
        assert any("no graphs of vectors" in one.says and one.grade == "note" for one in found)
    with PostgresStore(url) as store, closing(store.index(lock_timeout=20)) as index:
        found = Doctor(Indexer(store, index, lexicon=PorterLexicon(), in_background=False)).examine()
        assert any("found by graphs" in one.says and one.grade == "fine" for one in found)


def test_an_indexer_that_catches_up_takes_a_long_session_into_its_graph(url):
    embedder = SpellingEmbedder()
    with PostgresStore(url) as store, closing(store.index(lock_timeout=20)) as index:
        index.reset()
        drafts = [
            Draft(id=f"i{n}", ts=n, role="user", content=_said(n), wire="openai.chat", tokens=1) for n in range(160)
        ]
        store.append(MAIN, drafts)
        indexer = Indexer(
            store, index, lexicon=PorterLexicon(), embedder=embedder, in_background=False, owns_index=False
        )
        lane = indexer.vector_index(indexer.embedders[0])
        lane.graph.min_vectors = 60
        assert indexer.catch_up(MAIN)
        lane.maintain(MAIN)  # as it does by itself when there are more
        assert indexer.catch_up(MAIN)
        assert rows_in(url, "near") >= 60
        found = lane.nearest(MAIN, embedder.query("message number 42 of them"), 3)
        assert lane.graph.nearest(MAIN, embedder.query("message number 42 of them")[0], 3, None) is not None
        assert len(found.seqs) == 3
        store.erase(MAIN)


def _said(number: int) -> bytes:
    return f'{{"role": "user", "content": "message number {number} of them"}}'.encode()


def test_the_nearest_are_found_along_the_graph_and_not_by_sorting_all(index, url):
    lane = lane_of(index)
    add(lane, vectors(MANY))
    linked(lane)
    with psycopg.connect(server(), dbname=urlsplit(url).path[1:], autocommit=True) as connection:
        connection.execute("SELECT pg_stat_reset()")
    for asked in vectors(5):
        lane.nearest(MAIN, asked, 10)
    index.close()  # what was counted is told when a connection ends
    with psycopg.connect(url, autocommit=True) as connection:
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        while connection.execute(f"{others} AND backend_type = 'client backend'").fetchone() != (0,):
            pass  # it ends a moment after it was closed
        scans = connection.execute(
            "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE indexrelname LIKE 'near_%_of_384'"
        ).fetchone()
    assert scans is not None
    assert scans[0] >= 5
