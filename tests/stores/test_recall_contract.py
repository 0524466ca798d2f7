"""The contract of `RecallIndex`, kept by every index. A new index is one more line in `INDEXES`."""

from __future__ import annotations

import itertools
import os
import random
import select
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.postgres import emptied
from together import in_threads

from recto.errors import IndexCorrupt, IndexFailed, IndexUnavailable, InputError, StoreError
from recto.recall.index.rows import CoveredRange, IndexRow, LaneSize, SealedRow, gaps, is_covered, join_ranges
from recto.recall.protocols import RecallIndex
from recto.stores.memory import MemoryIndex
from recto.stores.postgres import PostgresStore
from recto.stores.postgres._index import PostgresIndex
from recto.stores.sqlite import SqliteStore
from recto.stores.sqlite.index import SqliteIndex

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def postgres_index() -> PostgresIndex:
    url = emptied()
    PostgresStore(url).close()  # its tables are made with the store's
    return PostgresIndex(url, lock_timeout=20)


INDEXES: dict[str, Callable[[Path], RecallIndex]] = {
    "memory": lambda folder: MemoryIndex(),
    "sqlite": lambda folder: SqliteIndex(folder / "transcript.db-recall"),
    "postgres": lambda folder: postgres_index(),
}

MAIN = "agent:default:main"
WORDS = "words/1"


@pytest.fixture(params=INDEXES)
def index(request, tmp_path) -> Iterator[RecallIndex]:
    opened = INDEXES[request.param](tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "transcript.db-recall"


def hash_of(seq: int) -> bytes:
    return seq.to_bytes(32, "big")


def covers(first: int, last: int) -> CoveredRange:
    return CoveredRange(first, last, hash_of(last))


def rows(*seqs: int, say: bytes = b"row") -> list[IndexRow]:
    return [IndexRow(seq, say + str(seq).encode()) for seq in seqs]


def put(index: RecallIndex, first: int, last: int, session: str = MAIN, lane: str = WORDS) -> None:
    index.put(session, lane, rows(*range(first, last + 1)), covers(first, last))


def fresh(index: RecallIndex, session: str = MAIN, lane: str = WORDS) -> list[int]:
    return [row.seq for row in index.snapshot(session, lane).fresh]


def test_an_empty_index_covers_nothing_and_holds_nothing(index):
    assert index.covered(MAIN, WORDS) == index.sessions() == index.lanes() == index.lane_names() == []
    assert index.damage() == []
    snapshot = index.snapshot(MAIN, WORDS, [1, -1])
    assert snapshot.generation == 0
    assert [*snapshot.fresh, *snapshot.sealed, *snapshot.covered] == []
    assert fresh(index) == []
    assert not index.seal(MAIN, WORDS, [], [SealedRow(1, 1, b"x")])
    index.forget(MAIN)


def test_rows_come_back_exactly_and_in_order(index):
    given = [IndexRow(3, b""), IndexRow(1, bytes(range(256))), IndexRow(2**32 - 1, b"\0" * 100_000)]
    index.put(MAIN, WORDS, given, covers(1, 2**32 - 1))
    assert list(index.snapshot(MAIN, WORDS).fresh) == sorted(given)


def test_coverage_is_joined_with_its_neighbours_and_keeps_the_hash_of_its_end(index):
    for first, last in ((10, 12), (1, 3), (5, 5), (4, 4), (20, 30), (13, 19), (11, 11)):
        put(index, first, last)
    assert index.covered(MAIN, WORDS) == [covers(1, 5), covers(10, 30)]
    assert fresh(index) == [1, 2, 3, 4, 5, *range(10, 31)]


def test_an_entry_without_a_row_is_covered_all_the_same(index):
    index.put(MAIN, WORDS, [], covers(1, 7))
    assert index.covered(MAIN, WORDS) == [covers(1, 7)]
    assert fresh(index) == []
    index.put(MAIN, WORDS, rows(5), covers(5, 5))
    assert fresh(index) == []


def test_what_is_covered_already_is_left_out(index):
    put(index, 1, 4)
    index.put(MAIN, WORDS, rows(3, 4, 5, say=b"other"), covers(3, 5))
    assert list(index.snapshot(MAIN, WORDS).fresh) == [*rows(1, 2, 3, 4), *rows(5, say=b"other")]
    assert index.covered(MAIN, WORDS) == [covers(1, 5)]


@pytest.mark.parametrize("bad", [rows(5), rows(0), rows(1, 1)], ids=["after", "before", "twice"])
def test_rows_that_are_not_what_they_cover_are_refused(index, bad):
    with pytest.raises(ValueError, match="rows"):
        index.put(MAIN, WORDS, bad, covers(1, 4))
    with pytest.raises(ValueError, match="range"):
        index.put(MAIN, WORDS, [], covers(4, 3))
    assert index.sessions() == []
    put(index, 1, 4)
    assert fresh(index) == [1, 2, 3, 4]


def test_rows_that_were_never_fresh_are_sealed_with_what_they_cover(index):
    assert not index.seal(MAIN, WORDS, [], [SealedRow(7, 1, b"x")]), "there is no such lane"
    assert index.seal(MAIN, WORDS, [], [SealedRow(7, 1, b"a")], covers=CoveredRange(1, 4, bytes(32)))
    before = index.snapshot(MAIN, WORDS, [7])
    for first, last in ((1, 4), (4, 9), (2, 3), (1, 20)):
        covers = CoveredRange(first, last, bytes(32))
        assert not index.seal(MAIN, WORDS, [], [SealedRow(7, first, b"b")], covers=covers), "somebody was faster"
    assert not index.seal(MAIN, WORDS, [5], [], covers=CoveredRange(5, 6, bytes(32))), "there is no such row"
    assert index.snapshot(MAIN, WORDS, [7]) == before
    assert list(before.covered) == index.covered(MAIN, WORDS) == [CoveredRange(1, 4, bytes(32))]
    assert index.seal(MAIN, WORDS, [], [SealedRow(7, 5, b"b")], covers=CoveredRange(5, 9, b"h" * 32))
    after = index.snapshot(MAIN, WORDS, [7])
    assert list(after.sealed) == [SealedRow(7, 1, b"a"), SealedRow(7, 5, b"b")]
    assert list(after.covered) == [CoveredRange(1, 9, b"h" * 32)]
    assert after.generation != before.generation
    assert index.sessions() == [MAIN]
    assert index.damage() == []


def test_sealed_rows_take_the_place_of_fresh_ones(index):
    put(index, 1, 4)
    assert index.seal(
        MAIN, WORDS, [1, 2, 4], [SealedRow(7, 1, b"a"), SealedRow(-1, 1, b"b"), SealedRow(2**62, 4, b"c")]
    )
    snapshot = index.snapshot(MAIN, WORDS, [2**62, 7, -1, 99, 7])
    assert [row.seq for row in snapshot.fresh] == [3]
    assert list(snapshot.sealed) == [SealedRow(-1, 1, b"b"), SealedRow(7, 1, b"a"), SealedRow(2**62, 4, b"c")]
    assert list(index.snapshot(MAIN, WORDS, [7]).sealed) == [SealedRow(7, 1, b"a")]
    assert list(index.snapshot(MAIN, WORDS).sealed) == []
    assert index.covered(MAIN, WORDS) == [covers(1, 4)]


def test_what_was_sealed_is_not_put_again(index):
    put(index, 1, 4)
    index.seal(MAIN, WORDS, [1, 2, 3, 4], [SealedRow(1, 1, b"a")])
    put(index, 1, 5)
    assert fresh(index) == [5]


def test_only_one_of_two_sealings_of_an_entry_is_done(index):
    put(index, 1, 4)
    assert index.seal(MAIN, WORDS, [1, 2], [SealedRow(1, 1, b"a")])
    before = index.snapshot(MAIN, WORDS, [1, 2])
    assert not index.seal(MAIN, WORDS, [2, 3], [SealedRow(2, 2, b"b")])
    assert not index.seal(MAIN, WORDS, [9], [SealedRow(2, 9, b"b")])
    assert index.snapshot(MAIN, WORDS, [1, 2]) == before


def test_sealed_rows_are_merged_once(index):
    put(index, 1, 4)
    index.seal(MAIN, WORDS, [1, 2], [SealedRow(1, 1, b"a")])
    index.seal(MAIN, WORDS, [3], [SealedRow(1, 3, b"b"), SealedRow(5, 3, b"stays")])
    assert index.seal(MAIN, WORDS, [4], [SealedRow(1, 1, b"ab")], [(1, 1), (1, 3)])
    assert list(index.snapshot(MAIN, WORDS, [1, 5]).sealed) == [SealedRow(1, 1, b"ab"), SealedRow(5, 3, b"stays")]
    before = index.snapshot(MAIN, WORDS, [1, 2, 5])
    assert not index.seal(MAIN, WORDS, [], [SealedRow(2, 1, b"again")], [(1, 1), (1, 3)])
    assert index.snapshot(MAIN, WORDS, [1, 2, 5]) == before


def test_every_sealing_has_a_generation_of_its_own_also_after_a_new_beginning(index):
    seen = set()
    for round_ in range(6):
        put(index, 1, 3)
        for seq in (1, 2, 3):
            assert index.seal(MAIN, WORDS, [seq], [SealedRow(1, seq, b"x")])
            seen.add(index.snapshot(MAIN, WORDS).generation)
        index.forget(MAIN) if round_ % 2 else index.reset()
        assert index.snapshot(MAIN, WORDS).generation == 0
    assert len(seen) == 18
    assert 0 not in seen


def test_putting_does_not_change_the_generation(index):
    put(index, 1, 3)
    index.seal(MAIN, WORDS, [1], [SealedRow(1, 1, b"x")])
    generation = index.snapshot(MAIN, WORDS).generation
    put(index, 4, 5)
    assert index.snapshot(MAIN, WORDS).generation == generation


def test_sessions_and_lanes_do_not_see_each_other(index):
    put(index, 1, 2)
    put(index, 1, 5, lane="vectors/x")
    put(index, 3, 3, session="other")
    assert (fresh(index), fresh(index, lane="vectors/x"), fresh(index, "other")) == ([1, 2], [1, 2, 3, 4, 5], [3])
    index.forget(MAIN, WORDS)
    assert (fresh(index), fresh(index, lane="vectors/x"), fresh(index, "other")) == ([], [1, 2, 3, 4, 5], [3])
    assert index.covered(MAIN, WORDS) == []
    assert index.sessions() == [MAIN, "other"]
    index.forget(MAIN)
    assert index.sessions() == ["other"]
    put(index, 1, 1)
    assert fresh(index) == [1]


HOSTILE = [
    "a",
    "A",
    "a%",
    "a_",
    "ab",
    "a'b",
    'a"b',
    "a\\",
    "ä",
    "a\u0301",
    "a😀",
    "a\U0003134a",
    "a\U0003134ab",
    "b",
    "ж",
]


def test_what_was_forgotten_is_scrubbed_and_the_rest_stays(index):
    for session in (MAIN, "other"):
        index.put(session, WORDS, [IndexRow(1, b"row")], CoveredRange(1, 2, hash_of(2)))
    index.forget(MAIN)
    index.scrub([MAIN])
    assert index.sessions() == ["other"]
    assert index.snapshot("other", WORDS).fresh == [IndexRow(1, b"row")]
    assert index.covered("other", WORDS) == [CoveredRange(1, 2, hash_of(2))]
    assert index.damage() == []


def test_sessions_are_found_by_how_their_key_begins_whatever_is_in_it(index):
    for name in HOSTILE:
        put(index, 1, 1, session=name)
    for prefix in ["", *HOSTILE, "a%b", "zz", "\U0010ffff"]:
        assert index.sessions(prefix) == sorted(name for name in HOSTILE if name.startswith(prefix))


@pytest.mark.parametrize("name", ["", " a", "a\0b", "\ud800", "x" * 257])
def test_a_session_that_could_not_be_printed_is_refused(index, name):
    with pytest.raises(InputError):
        put(index, 1, 1, session=name)
    assert index.sessions() == []


def test_asking_for_a_key_that_is_not_text_is_an_error_of_the_index(path):
    with SqliteIndex(path) as index, pytest.raises(IndexUnavailable, match="surrogate"):
        index.covered("\ud800", WORDS)


def test_people_are_told_how_much_there_is(index):
    put(index, 1, 4)
    put(index, 1, 2, session="other")
    index.put(MAIN, "vectors/x", [IndexRow(9, b"12345")], covers(5, 9))
    index.seal(MAIN, WORDS, [1, 2], [SealedRow(1, 1, b"123")])
    assert index.lane_names() == ["vectors/x", WORDS]
    assert index.lanes() == [
        LaneSize(lane="vectors/x", sessions=1, entries=5, bytes=5),
        LaneSize(lane=WORDS, sessions=2, entries=6, bytes=4 * 4 + 3),
    ]


def test_after_a_new_beginning_nothing_is_there(index):
    put(index, 1, 4)
    index.reset()
    assert index.sessions() == fresh(index) == index.covered(MAIN, WORDS) == index.damage() == []
    put(index, 1, 2)
    assert fresh(index) == [1, 2]


def test_after_close_every_call_says_so(index):
    put(index, 1, 1)
    index.close()
    for call in (
        lambda: put(index, 2, 2),
        lambda: index.covered(MAIN, WORDS),
        lambda: index.snapshot(MAIN, WORDS),
        lambda: index.seal(MAIN, WORDS, [1], []),
        lambda: index.forget(MAIN),
        index.sessions,
        index.lanes,
        index.damage,
        index.reset,
    ):
        with pytest.raises(IndexUnavailable, match="closed"):
            call()
    index.close()


def test_threads_that_put_the_same_entries_and_seal_them_keep_each_once(index):
    def work(thread: int) -> None:
        for first in range(1, 200, 5):
            put(index, first, first + 4)
            seen = [row.seq for row in index.snapshot(MAIN, WORDS).fresh][:7]
            index.seal(MAIN, WORDS, seen, [SealedRow(1, seq, b"x") for seq in seen])

    in_threads(5, work)
    snapshot = index.snapshot(MAIN, WORDS, [1])
    assert sorted([row.seq for row in snapshot.fresh] + [row.first for row in snapshot.sealed]) == list(range(1, 201))
    assert index.covered(MAIN, WORDS) == [covers(1, 200)]


class Compared(RuleBasedStateMachine):
    """Any sequence of calls gives what plain dictionaries would give."""

    make: Callable[[Path], RecallIndex]

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.index = type(self).make(Path(self.folder.name))
        self.covered: dict[tuple[str, str], set[int]] = {}
        self.fresh: dict[tuple[str, str], dict[int, bytes]] = {}
        self.sealed: dict[tuple[str, str], dict[tuple[int, int], bytes]] = {}

    def teardown(self) -> None:
        self.index.close()
        self.folder.cleanup()

    shelves = st.tuples(st.sampled_from(["one", "One", "o%"]), st.sampled_from(["words", "vectors"]))
    seqs = st.integers(1, 15)

    @rule(shelf=shelves, first=seqs, size=st.integers(0, 5), without=st.sets(seqs), say=st.binary(max_size=3))
    def put(self, shelf, first, size, without, say):
        last = first + size
        given = [IndexRow(seq, say) for seq in range(first, last + 1) if seq not in without]
        self.index.put(*shelf, given, covers(first, last))
        known = self.covered.setdefault(shelf, set())
        self.fresh.setdefault(shelf, {}).update({row.seq: row.data for row in given if row.seq not in known})
        known |= set(range(first, last + 1))

    @rule(shelf=shelves, taken=st.lists(seqs, max_size=4, unique=True), part=st.integers(-2, 2), merge=st.booleans())
    def seal(self, shelf, taken, part, merge):
        sealed = self.sealed.get(shelf, {})
        merged = [place for place in sealed if place[0] == part] if merge else []
        first = min([*taken, *(place[1] for place in merged)], default=1)
        new = SealedRow(part, first, bytes(taken))
        done = shelf in self.covered and set(taken) <= self.fresh[shelf].keys()
        assert self.index.seal(*shelf, taken, [new], merged) is done
        if done:
            for seq in taken:
                del self.fresh[shelf][seq]
            for place in merged:
                del sealed[place]
            self.sealed.setdefault(shelf, {})[part, first] = new.data

    @rule(session=st.sampled_from(["one", "o%"]), lane=st.sampled_from(["words", None]))
    def forget(self, session, lane):
        self.index.forget(session, lane)
        for held in (self.covered, self.fresh, self.sealed):
            for shelf in [shelf for shelf in held if shelf[0] == session and lane in (None, shelf[1])]:
                del held[shelf]

    @invariant()
    def is_the_same(self):
        assert self.index.sessions() == sorted({session for session, _ in self.covered})
        for shelf in itertools.product(["one", "One", "o%"], ["words", "vectors"]):
            ranges = join_ranges(covers(seq, seq) for seq in self.covered.get(shelf, ()))
            assert self.index.covered(*shelf) == ranges
            snapshot = self.index.snapshot(*shelf, [-2, -1, 0, 1, 2])
            assert list(snapshot.fresh) == sorted(self.fresh.get(shelf, {}).items())
            assert {(row.part, row.first): row.data for row in snapshot.sealed} == self.sealed.get(shelf, {})


def compared(name: str) -> type:
    machine = type(f"Compared_{name}", (Compared,), {"make": staticmethod(INDEXES[name])})
    machine.TestCase.settings = settings(
        max_examples=6 if name == "postgres" else 30, stateful_step_count=25, deadline=None
    )
    return machine.TestCase


TestMemory = compared("memory")
TestSqlite = compared("sqlite")


def forked(work: Callable[[Callable[[str], None]], None]) -> tuple[int, int]:
    """Runs it in another process; returns its id and where what it says can be read."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    try:
        work(lambda line: os.write(writing, line.encode() + b"\n"))
    except BaseException:  # noqa: BLE001  # told to the parent
        os.write(writing, traceback.format_exc().encode()[-60_000:])
    finally:
        os._exit(0)


def said(child: int, pipe: int) -> list[str]:
    raw = b""
    while more := os.read(pipe, 65536):
        raw += more
    os.close(pipe)
    os.waitpid(child, 0)
    return raw.decode().splitlines()


def test_two_processes_that_put_the_same_entries_at_once_keep_each_once(path):
    def work(tell: Callable[[str], None]) -> None:
        with SqliteIndex(path) as index:
            for first in range(1, 300, 3):
                put(index, first, first + 4)
                seen = [row.seq for row in index.snapshot(MAIN, WORDS).fresh]
                if len(seen) > 20:
                    index.seal(MAIN, WORDS, seen[:10], [SealedRow(1, seq, b"x") for seq in seen[:10]])
        tell("done")

    assert [said(*child) for child in [forked(work), forked(work), forked(work)]] == [["done"]] * 3
    with SqliteIndex(path) as index:
        snapshot = index.snapshot(MAIN, WORDS, [1])
        assert sorted([row.seq for row in snapshot.fresh] + [row.first for row in snapshot.sealed]) == list(
            range(1, 303)
        )
        assert index.covered(MAIN, WORDS) == [covers(1, 302)]
        assert index.damage() == []


@pytest.mark.promise
def test_a_process_killed_in_the_middle_leaves_rows_and_coverage_in_agreement(path, scale):
    def work(tell: Callable[[str], None]) -> None:
        index = SqliteIndex(path)
        while True:
            start = max((one.last for one in index.covered(MAIN, WORDS)), default=0) + 1
            put(index, start, start + 6)
            tell(str(start + 6))
            seen = [row.seq for row in index.snapshot(MAIN, WORDS).fresh]
            if len(seen) > 25:
                index.seal(MAIN, WORDS, seen, [SealedRow(1, seen[0], repr(seen).encode())])

    rng = random.Random(9)
    last, sealings = 0, 0
    for _ in range(scale(20, ci=80, release=5_000)):
        child, pipe = forked(work)
        os.set_blocking(pipe, False)
        select.select([pipe], [], [], 30)
        select.select([], [], [], rng.uniform(0, 0.004))
        os.kill(child, signal.SIGKILL)
        os.set_blocking(pipe, True)
        lines = said(child, pipe)
        with SqliteIndex(path) as index:
            [range_] = index.covered(MAIN, WORDS)
            snapshot = index.snapshot(MAIN, WORDS, [1])
        held = [row.seq for row in snapshot.fresh]
        for row in snapshot.sealed:
            held += eval(row.data)
        assert sorted(held) == list(range(1, range_.last + 1))
        assert range_ == covers(1, range_.last)
        last = max([last, *map(int, lines)])
        assert range_.last in (last, last + 7), "what was confirmed is gone"
        sealings = len(snapshot.sealed)
    assert sealings > 0
    with SqliteIndex(path) as index:
        assert index.damage() == []


def test_an_index_opened_before_a_fork_is_refused_in_the_child(path):
    with SqliteIndex(path) as index:
        put(index, 1, 3)

        def work(tell: Callable[[str], None]) -> None:
            for call in (lambda: put(index, 4, 4), lambda: index.covered(MAIN, WORDS)):
                with pytest.raises(IndexUnavailable, match="forked"):
                    call()
            index.close()
            tell("refused")

        assert said(*forked(work)) == ["refused"]
        put(index, 4, 4)
        assert index.covered(MAIN, WORDS) == [covers(1, 4)]


def damaged(path: Path, how: str) -> None:
    with SqliteIndex(path) as index:
        for session in ("a", "b"):
            index.put(session, WORDS, [IndexRow(seq, bytes(3000)) for seq in range(1, 200)], covers(1, 199))
            index.seal(session, WORDS, list(range(1, 100)), [SealedRow(1, seq, bytes(9000)) for seq in range(1, 100)])
    size = path.stat().st_size
    match how:
        case "garbage":
            path.write_bytes(os.urandom(100_000))
        case "text":
            path.write_text("not a database at all, but a letter to a friend\n" * 200)
        case "short":
            os.truncate(path, 50)
        case "cut":
            os.truncate(path, size // 2)
        case "holes":
            with path.open("r+b") as file:
                for place in range(16384, size, 40_000):
                    file.seek(place)
                    file.write(os.urandom(5000))


@pytest.mark.parametrize("how", ["garbage", "text", "short", "cut", "holes"])
def test_a_damaged_file_is_reported_and_can_be_set_aside(path, how):
    damaged(path, how)
    with SqliteIndex(path) as index:
        assert index.damage() != []

        def use() -> None:
            for session in ("a", "b", "c"):
                put(index, 1, 900, session=session)
                index.snapshot(session, WORDS, [1])

        with pytest.raises(IndexCorrupt, match="recto doctor --repair"):
            use()
        index.reset()
        assert index.damage() == index.sessions() == []
        put(index, 1, 2)
        assert fresh(index) == [1, 2]
    assert [file.name for file in path.parent.glob("*damaged-1")] == [path.name + "-damaged-1"]
    with SqliteIndex(path) as index:
        index.reset()
    assert path.with_name(path.name + "-damaged-2").exists()


def test_the_log_of_a_damaged_file_is_set_aside_with_it(path):
    def work(tell: Callable[[str], None]) -> None:
        index = SqliteIndex(path)
        put(index, 1, 5)
        tell("put")
        os.kill(os.getpid(), signal.SIGKILL)

    assert said(*forked(work)) == ["put"]
    path.write_bytes(b"garbage" * 10_000)
    with SqliteIndex(path) as index:
        index.reset()
        assert index.sessions() == index.damage() == []
    assert path.with_name(path.name + "-damaged-1-wal").exists()


def test_damage_says_which_rows_nothing_accounts_for(path):
    with SqliteIndex(path) as index:
        put(index, 1, 5)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE covered SET last = 3")
    connection.close()
    with SqliteIndex(path) as index:
        assert index.damage() == ["2 rows belong to entries that are not covered"]


def test_another_process_that_starts_over_is_followed(path):
    with SqliteIndex(path) as one, SqliteIndex(path) as two:
        put(one, 1, 5)
        assert fresh(two) == [1, 2, 3, 4, 5]
        two.reset()
        assert fresh(one) == []
        put(one, 1, 2)
        assert fresh(two) == [1, 2]
        one.reset()
        put(two, 1, 1)
    with SqliteIndex(path) as index:
        assert fresh(index) == [1]
        assert index.damage() == []


def test_a_file_that_is_taken_away_is_made_anew(path):
    with SqliteIndex(path) as index:
        put(index, 1, 5)
        for file in path.parent.glob(path.name + "*"):
            file.unlink()
        assert fresh(index) == []
        put(index, 1, 2)
        assert fresh(index) == [1, 2]


def test_a_transcript_or_a_stranger_s_database_is_left_as_it_is(tmp_path):
    SqliteStore(tmp_path / "transcript").close()
    connection = apsw.Connection(str(tmp_path / "stranger"))
    connection.execute("CREATE TABLE theirs(x)")
    connection.close()
    for name in ("transcript", "stranger"):
        before = (tmp_path / name).read_bytes()
        with (
            SqliteIndex(tmp_path / name) as index,
            pytest.raises(IndexUnavailable, match=r"another kind.*doctor --repair"),
        ):
            put(index, 1, 1)
        assert (tmp_path / name).read_bytes() == before


def test_an_index_of_a_newer_version_is_not_touched(path):
    with SqliteIndex(path) as index:
        put(index, 1, 1)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with SqliteIndex(path) as index:
        for call in (lambda: put(index, 2, 2), index.sessions):
            with pytest.raises(IndexUnavailable, match="schema 99"):
                call()


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with SqliteIndex(tmp_path / "nowhere" / "recall") as index, pytest.raises(IndexUnavailable, match="does not exist"):
        index.sessions()


def test_a_read_only_folder_can_be_read_but_not_written():
    with TemporaryDirectory() as folder:
        path = Path(folder) / "recall"
        with SqliteIndex(path) as index:
            put(index, 1, 2)

        def work(tell: Callable[[str], None]) -> None:
            if os.geteuid() == 0:
                os.setuid(65534)  # root may write everywhere
            with SqliteIndex(path) as index:
                assert fresh(index) == [1, 2]
                with pytest.raises(IndexUnavailable, match=r"written|writable"):
                    put(index, 3, 3)
                assert index.covered(MAIN, WORDS) == [covers(1, 2)]
            with SqliteIndex(path.with_name("other")) as index, pytest.raises(IndexUnavailable, match="not writable"):
                index.sessions()
            tell("refused")

        Path(folder).chmod(0o555)
        path.chmod(0o444)
        assert said(*forked(work)) == ["refused"]
        Path(folder).chmod(0o700)


def test_a_full_disk_refuses_the_rows_and_keeps_what_was_confirmed(path):
    with SqliteIndex(path) as index:
        put(index, 1, 2)

    def work(tell: Callable[[str], None]) -> None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        with SqliteIndex(path) as index:
            last = 2

            def fill() -> None:
                nonlocal last
                while True:
                    index.put(MAIN, WORDS, [IndexRow(last + 1, bytes(20_000))], covers(last + 1, last + 1))
                    last += 1

            with pytest.raises(IndexUnavailable, match="no room"):
                fill()
            assert index.covered(MAIN, WORDS) == [covers(1, last)]
            assert fresh(index) == list(range(1, last + 1))
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            put(index, last + 1, last + 1)
        tell("lived")

    assert said(*forked(work)) == ["lived"]


def test_a_lock_that_is_held_too_long_is_told(path):
    with SqliteIndex(path) as index:
        put(index, 1, 1)
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN IMMEDIATE")
    with SqliteIndex(path, lock_timeout=0.05) as index:
        with pytest.raises(IndexUnavailable, match=r"held it for 0.05 s"):
            put(index, 2, 2)
        assert fresh(index) == [1]
        connection.execute("ROLLBACK")
        put(index, 2, 2)
        assert fresh(index) == [1, 2]
    connection.close()


def test_every_error_of_an_index_is_of_one_family():
    assert issubclass(IndexCorrupt, IndexFailed)
    assert issubclass(IndexUnavailable, IndexFailed)
    assert issubclass(IndexFailed, StoreError)


def test_gaps_are_what_is_not_covered():
    ranges = [covers(3, 5), covers(9, 9)]
    assert gaps(ranges, 1, 12) == [(1, 2), (6, 8), (10, 12)]
    assert [seq for seq in range(1, 12) if is_covered(ranges, seq)] == [3, 4, 5, 9]
