"""Words, vectors and uses in an index, compared with plain Python before and after sealing and with other writers."""

from __future__ import annotations

import copy
import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count as counting
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.context.facts.types import Mark
from recto.errors import IndexCorrupt, IndexUnavailable, StoreError
from recto.recall.index import bm25, vectors
from recto.recall.index.bm25 import TermStatistics, WordIndex, WordScores
from recto.recall.index.message_rows import AttributeTable, Unsealed
from recto.recall.index.rows import BoundedCache, CoveredRange, IndexRow, LaneSnapshot, SealedRow
from recto.recall.index.vectors import VectorIndex, hamming_distances, quantize, sign_bits, smallest
from recto.recall.term_rows import is_document, pack_row
from recto.stores.memory import MemoryIndex
from recto.stores.sqlite.index import SqliteIndex
from recto.transcript.entries import EMPTY_HEAD, Draft, Entry, Head, link_entries

MAIN = "agent:default:main"
DIMS = 70
"""A size that is neither a multiple of a byte nor of a machine word."""


@pytest.fixture(params=["memory", "sqlite"])
def index(request, tmp_path) -> Iterator[MemoryIndex | SqliteIndex]:
    opened = MemoryIndex() if request.param == "memory" else SqliteIndex(tmp_path / "recall")
    yield opened
    opened.close()


@pytest.fixture
def small(monkeypatch):
    """Lowers the limits: seals after 8 messages, merges after 3 blocks, own rows from 6 messages on."""
    make_small(monkeypatch)


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "SEAL_AT", 8)
    monkeypatch.setattr(bm25, "MERGE_AT", (3, 3))
    monkeypatch.setattr(bm25, "OWN_ROW_AT", 6)
    monkeypatch.setattr(bm25, "MAX_DOCUMENTS", (8, 24, 72, 72))


VERSION = b"test"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedDocument:
    seq: int
    ts: int
    role: str
    marks: Mark
    terms: dict[int, int]

    @property
    def row(self) -> bytes:
        return pack_row(VERSION, self.ts, self.role, self.marks, self.terms)


class Rows:
    """The part of a transcript that the word index reads. Every entry is a message."""

    _numbers = counting()

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, bytes]] = {}
        self.heads: dict[str, Head] = {}
        self.reads = 0

    def put(self, session: str, rows: dict[int, bytes]) -> None:
        self.rows[session] = {**self.rows.get(session, {}), **rows}
        if max(rows) > self.head(session).seq:
            self.heads[session] = Head(max(rows), next(self._numbers).to_bytes(32))

    def forget(self, session: str) -> None:
        self.rows.pop(session, None)
        self.heads.pop(session, None)

    def head(self, session: str) -> Head:
        return self.heads.get(session, EMPTY_HEAD)

    def terms(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        self.reads += 1
        rows = dict(self.rows.get(session, {}))
        return iter([(seq, rows[seq]) for seq in sorted(rows) if start <= seq and (stop is None or seq <= stop)])

    def lacking_terms(self, session: str, version: bytes, start: int, stop: int, limit: int | None = None) -> list[int]:
        rows = dict(self.rows.get(session, {}))
        return list(
            islice((seq for seq in range(start, stop + 1) if not is_document(rows.get(seq, b""), version)), limit)
        )

    def pick(self, session: str, seqs: list[int]) -> list[Entry]:
        [seq] = seqs
        content = Draft(id=str(seq), ts=0, role="user", content=b"")
        return link_entries(session, Head(seq - 1, bytes(32)), [content])


def over(index: MemoryIndex | SqliteIndex | ConcurrentIndex) -> WordIndex:
    """Returns a word index over the single transcript of an index."""
    whole = index.index if isinstance(index, ConcurrentIndex) else index
    if not hasattr(whole, "rows"):
        whole.rows = Rows()
    return WordIndex(whole.rows, index, "words", VERSION)


def document(
    seq: int, terms: dict[int, int], ts: int | None = None, role: str = "user", marks: int = 0
) -> IndexedDocument:
    return IndexedDocument(seq=seq, ts=seq * 1_000_000 if ts is None else ts, role=role, marks=Mark(marks), terms=terms)


def add(lane: WordIndex, *documents: IndexedDocument, session: str = MAIN) -> None:
    lane.store.put(session, {document.seq: document.row for document in documents})
    with suppress(StoreError):
        lane.maintain(session)


def expected(
    documents: Iterable[IndexedDocument],
    query: dict[int, float],
    lane: WordIndex,
    statistics: TermStatistics | None = None,
) -> dict:
    """Computes BM25 by its textbook formula."""
    documents = list(documents)
    count = statistics.documents if statistics else len(documents)
    length = statistics.length if statistics else sum(sum(document.terms.values()) for document in documents)
    average = max(length / max(count, 1), 1.0)
    df = statistics.df if statistics else Counter(term for document in documents for term in document.terms)
    idf = {term: math.log(1 + (count - df.get(term, 0) + 0.5) / (df.get(term, 0) + 0.5)) for term in query}
    mass = sum(weight * idf[term] for term, weight in query.items())
    found = {}
    for document in documents:
        matched = document.terms.keys() & query.keys()
        if matched:
            norm = lane.k1 * (1 - lane.b + lane.b * sum(document.terms.values()) / average)
            tf = {term: min(document.terms[term], 255) for term in matched}
            score = sum(query[term] * idf[term] * tf[term] / (tf[term] + norm) for term in matched)
            found[document.seq] = (score, sum(query[term] * idf[term] for term in matched) / mass)
    return found


def scores(lane: WordIndex, query: dict[int, float], session: str = MAIN) -> dict[int, tuple[float, float]]:
    scored = lane.score(session, query, lane.statistics(session, list(query)))
    return by_seq(scored, lane.attributes(session))


def by_seq(scored: WordScores, attributes: AttributeTable) -> dict[int, tuple[float, float]]:
    at = np.flatnonzero(scored.bm25)
    values = zip(scored.bm25[at].tolist(), scored.coverage(at).tolist(), strict=True)
    return dict(zip(attributes.seqs[at].tolist(), values, strict=True))


def same(found: dict, wanted: dict) -> None:
    assert found.keys() == wanted.keys()
    for seq, (score, coverage) in wanted.items():
        assert found[seq] == (pytest.approx(score, rel=1e-4), pytest.approx(coverage, rel=1e-4))


TERMS = [0, 1, 5, 2**27, 2**27 + 1, 2**31, 2**31 + 7, 2**32 - 2, 2**32 - 1]
counts = st.dictionaries(st.sampled_from(TERMS), st.sampled_from([1, 2, 7, 255, 300, 70_000]), max_size=6)
weights = st.dictionaries(st.sampled_from([*TERMS, 99]), st.sampled_from([0.3, 1.0, 2.5]), min_size=1, max_size=5)


@settings(max_examples=60)
@given(
    st.lists(counts, min_size=1, max_size=90), weights, st.randoms(use_true_random=False), st.sampled_from([1, 3, 20])
)
def test_scores_match_the_bm25_formula_for_any_order_and_batching(terms, query, rng, piece):
    documents = [document(2 * seq + 1, each) for seq, each in enumerate(terms)]
    groups = [documents[at : at + piece] for at in range(0, len(documents), piece)]
    rng.shuffle(groups)
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_small(monkeypatch)
        lane = over(MemoryIndex())
        there: list[IndexedDocument] = []
        for place, group in enumerate(groups):
            add(lane, *group)
            there += group
            if place % 7 == 0:
                same(scores(lane, query), expected(there, query, lane))
                assert list(lane.attributes(MAIN).seqs) == sorted(each.seq for each in there)
        same(scores(lane, query), expected(there, query, lane))
        same(scores(over(lane.index), query), expected(there, query, lane))


def test_sealing_a_message_does_not_change_its_score(monkeypatch):
    rng = np.random.default_rng(7)
    drawn = [np.unique((40 * rng.random(30) ** 2).astype(int), return_counts=True) for _ in range(40)]
    documents = [
        document(seq, dict(zip(terms.tolist(), often.tolist(), strict=True)))
        for seq, (terms, often) in enumerate(drawn, 1)
    ]
    query = {term: 0.3 + term / 7 for term in range(0, 40, 3)}
    fresh = over(MemoryIndex())
    add(fresh, *documents)
    make_small(monkeypatch)
    sealed = over(MemoryIndex())
    add(sealed, *documents)
    assert not fresh.sealed(MAIN)
    assert sealed.sealed(MAIN)
    assert scores(fresh, query) == scores(sealed, query)


def test_scores_are_the_same_before_and_after_sealing_and_merging_at_full_size(index):
    rng = np.random.default_rng(1)
    lane = over(index)
    there = []
    query = {3: 1.0, 40: 2.0, 2_000: 1.0, 7: 0.3}
    for first in range(1, 10_000, 250):
        more = []
        for seq in range(first, first + 250):
            drawn, often = np.unique((3000 * rng.random(30) ** 3).astype(int), return_counts=True)
            more.append(document(seq, dict(zip(drawn.tolist(), often.tolist(), strict=True))))
        add(lane, *more)
        there += more
        if first in (1, 501, 7_751):
            same(scores(lane, query), expected(there, query, lane))
    same(scores(lane, query), expected(there, query, lane))
    sizes = {block.bits for block in bm25.read_directory(index.snapshot(MAIN, "words", [bm25.DIRECTORY]))}
    assert len(sizes) > 1, "no block was merged, so the test proves nothing"
    own = index.snapshot(MAIN, "words", [bm25.own_part(term) for term in range(10)]).sealed
    assert own, "no term has its own row, so the test proves nothing"


def test_the_attributes_of_a_message_round_trip(index, small):
    lane = over(index)
    roles = ("system", "user", "assistant", "tool", "event")
    documents = [
        document(seq, {seq: 2, 1: 1}, ts=(-1) ** seq * seq * 10**12, role=roles[seq % 5], marks=seq % 512)
        for seq in range(1, 60)
    ]
    for each in documents:
        add(lane, each)
    attributes = lane.attributes(MAIN)
    for each in documents:
        known = attributes.of(each.seq)
        assert known is not None
        assert (known.ts, known.role, known.marks) == (each.ts, each.role, each.marks)
        assert known.length == sum(each.terms.values())
    assert attributes.of(60) is attributes.of(0) is attributes.of(2**32 - 1) is None
    opened = [
        max((other for other in range(1, each.seq + 1) if roles[other % 5] == "user"), default=0) for each in documents
    ]
    assert list(attributes.openings(np.arange(59))) == opened
    assert lane.attributes("none").openings(np.empty(0, np.intp)).tolist() == []
    assert list(attributes.marked(Mark.CORRECTION, after=50)) == [59, 57, 55, 53, 51]
    assert list(attributes.marked(Mark.CORRECTION | Mark.CONSTRAINT, after=55)) == [59, 58, 57]


def test_extreme_sizes_and_values_are_accepted(index):
    lane = over(index)
    add(lane, document(1, {}, ts=-(2**63)))
    add(lane, document(2, {7: 2**40, 8: 0, 9: -4}, ts=2**63 - 1))
    add(lane, document(2**32 - 1, dict.fromkeys(range(0, 2**32, 2**32 // 300_000), 1)))
    add(lane, document(3, {7: 1}))
    found = scores(lane, {7: 1.0, 0: 1.0})
    assert found.keys() == {2, 3, 2**32 - 1}
    assert lane.attributes(MAIN).of(2).length == 2**32 - 1
    assert scores(lane, {8: 1.0}) == scores(lane, {9: 1.0}) == scores(lane, {}) == scores(lane, {7: 0.0}) == {}


def test_large_messages_are_sealed_before_they_accumulate(index):
    lane = over(index)
    for seq in range(1, 12):
        add(lane, document(seq, dict.fromkeys(range(seq, 2**32, 2**32 // 200_000), 1)))  # a megabyte each
    assert len(bm25.read_directory(index.snapshot(MAIN, "words", [bm25.DIRECTORY]))) >= 1
    assert scores(lane, {5: 1.0}).keys() == {5}


def test_session_statistics_are_summed_and_used_by_scores(index, small):
    lane = over(index)
    ours = [document(seq, {1: 1, seq: 1}) for seq in range(10, 30)]
    theirs = [document(seq, {1: 3, 2: 1}) for seq in range(1, 12)]
    add(lane, *ours)
    add(lane, *theirs, session="other")
    statistics = (
        TermStatistics()
        + lane.statistics(MAIN, [1, 2, 15])
        + lane.statistics("other", [1, 2, 15])
        + lane.statistics("none", [1])
    )
    assert (statistics.documents, statistics.length, statistics.df) == (31, 40 + 44, {1: 31, 2: 11, 15: 1})
    scored = lane.score(MAIN, {1: 1.0, 15: 1.0}, statistics)
    same(by_seq(scored, lane.attributes(MAIN)), expected(ours, {1: 1.0, 15: 1.0}, lane, statistics))
    assert len(lane.score("none", {1: 1.0}, statistics).bm25) == 0


def test_the_best_scores_win_and_ties_go_to_the_newest(index):
    lane = over(index)
    add(lane, *[document(seq, {1: 1 + seq % 3}) for seq in range(1, 31)])
    scored = lane.score(MAIN, {1: 1.0}, lane.statistics(MAIN, [1]))
    everything = sorted(zip(scored.bm25.tolist(), range(30), strict=True), reverse=True)
    is_odd = np.arange(30) % 2 == 1
    for most in (0, 1, 5, 12, 30, 99):
        assert scored.best(most).tolist() == [at for _, at in everything[:most]]
        assert scored.best(most, is_odd).tolist() == [at for _, at in everything if at % 2][:most]


def test_a_message_without_a_query_term_has_no_score(index):
    lane = over(index)
    add(lane, document(2, {1: 1}), document(3, {2: 1}), document(5, {1: 2}))
    scored = lane.score(MAIN, {1: 1.0}, lane.statistics(MAIN, [1]))
    assert (scored.bm25 > 0).tolist() == (scored.coverage(np.arange(3)) > 0).tolist() == [True, False, True]
    assert WordScores.none(3).coverage(np.arange(3)).tolist() == [0, 0, 0]


def test_a_query_of_frequent_words_drops_the_most_frequent(index, small):
    lane = over(index)
    documents = [
        document(seq, {1: 1} | ({2: 1} if seq % 2 else {}) | ({3: 1} if seq % 9 == 0 else {})) for seq in range(1, 100)
    ]
    add(lane, *documents)
    lane.max_postings = 70
    assert scores(lane, {1: 1.0, 2: 1.0, 3: 1.0}).keys() == {
        each.seq for each in documents if each.terms.keys() & {2, 3}
    }
    lane.max_postings = 5
    assert scores(lane, {1: 1.0, 2: 1.0}).keys() == {each.seq for each in documents if 2 in each.terms}


class ConcurrentIndex:
    """An index that lets another writer act before every snapshot or sealing."""

    def __init__(self, index: MemoryIndex) -> None:
        self.index = index
        self.before_snapshot: list = []
        self.before_seal: list = []

    def __getattr__(self, name: str):
        return getattr(self.index, name)

    def snapshot(self, *args) -> LaneSnapshot:
        if self.before_snapshot:
            self.before_snapshot.pop()()
        return self.index.snapshot(*args)

    def seal(self, *args, **kwargs) -> bool:
        if self.before_seal:
            self.before_seal.pop()()
        return self.index.seal(*args, **kwargs)


def test_a_losing_sealer_neither_loses_nor_duplicates_a_message(small):
    index = MemoryIndex()
    there = [document(seq, {1: 1, seq % 5 + 10: 2}) for seq in range(1, 100)]
    slow = over(ConcurrentIndex(index))
    for each in there:
        slow.index.before_seal = [lambda: over(index).maintain(MAIN)]
        add(slow, each)
        if each.seq % 10 == 0:
            same(scores(slow, {1: 1.0, 12: 1.0}), expected(there[: each.seq], {1: 1.0, 12: 1.0}, slow))
    same(scores(slow, {1: 1.0, 12: 1.0}), expected(there, {1: 1.0, 12: 1.0}, slow))


def test_the_in_memory_cache_is_never_stale(index, small):
    query = {1: 1.0, 12: 1.0, 13: 0.5}
    mine, theirs = over(index), over(index)
    there: list[IndexedDocument] = []
    for seq in range(1, 150):
        there.append(document(seq, {1: 1 + seq % 2, seq % 5 + 10: 2}))
        add(theirs, there[-1])
        if seq % 3 == 0:
            same(scores(mine, query), expected(there, query, mine))
            assert list(mine.attributes(MAIN).seqs) == [each.seq for each in there]
    index.forget(MAIN)
    same(scores(mine, query), expected(there, query, mine))  # the rows are read from the transcript
    assert len(mine.attributes(MAIN)) == 149
    index.forget(MAIN)
    mine.store.forget(MAIN)
    assert scores(mine, query) == {}
    assert len(mine.attributes(MAIN)) == 0
    again = [document(seq, {1: 5, seq % 3 + 11: 1}, marks=1) for seq in range(1, 150)]
    add(theirs, *again)
    same(scores(mine, query), expected(again, query, mine))
    assert mine.attributes(MAIN).marks.tolist() == [1] * 149
    index.reset()
    same(scores(mine, query), expected(again, query, mine))


@pytest.mark.parametrize("count", [3, 40], ids=["fresh", "sealed"])
def test_a_session_recreated_by_another_writer_is_read_again(index, small, count):
    mine, theirs = over(index), over(index)
    for term, marks in ((5, 1), (6, 2)):
        index.forget(MAIN)
        mine.store.forget(MAIN)
        add(theirs, *[document(seq, {term: 1}, marks=marks) for seq in range(1, count + 1)])
        assert len(scores(mine, {term: 1.0})) == count
        assert scores(mine, {11 - term: 1.0}) == {}
        assert mine.attributes(MAIN).marks.tolist() == [marks] * count


def test_a_delayed_reader_sees_its_snapshot(small, monkeypatch):
    monkeypatch.setattr(bm25, "MERGE_AT", (99, 99))
    index = MemoryIndex()
    lane = over(index)
    add(lane, *[document(seq, {1: 1}) for seq in range(1, 20)])
    before = MemoryIndex()
    before._shelves = copy.deepcopy(index._shelves)
    add(lane, *[document(seq, {1: 1}) for seq in range(20, 40)])
    assert len(lane.attributes(MAIN)) == 39
    lane.index = before
    assert list(lane.attributes(MAIN).seqs) == list(range(1, 40))  # the rest is read from the transcript
    assert len(scores(lane, {1: 1.0})) == 39


def test_a_merge_done_concurrently_by_another_writer_is_skipped(small, monkeypatch):
    index = MemoryIndex()
    there = [document(seq, {1: 1, seq % 2 + 5: 1}) for seq in range(1, 25)]
    monkeypatch.setattr(bm25, "MERGE_AT", (99, 99))
    add(over(index), *there[:8])
    add(over(index), *there[8:16])
    add(over(index), *there[16:])
    monkeypatch.setattr(bm25, "MERGE_AT", (3, 3))
    for place in range(4):
        lane = over(ConcurrentIndex(index))
        lane.index.before_snapshot = [lambda: over(index).maintain(MAIN), *[lambda: None] * place]
        before = copy.deepcopy(index._shelves)
        lane.maintain(MAIN)
        same(scores(lane, {1: 1.0, 5: 1.0}), expected(there, {1: 1.0, 5: 1.0}, lane))
        index._shelves = before


def test_a_query_during_a_concurrent_sealing_is_answered_correctly(small):
    index = MemoryIndex()
    query = {1: 1.0, 12: 1.0}
    lane = over(ConcurrentIndex(index))
    there: list[IndexedDocument] = []
    for seq in range(1, 80):
        there.append(document(seq, {1: 1, seq % 5 + 10: 2}))
        lane.store.put(MAIN, {seq: there[-1].row})
        lane.index.before_snapshot = [lambda: over(index).maintain(MAIN), lambda: None]
        same(scores(lane, query), expected(there, query, lane))


def test_concurrent_writers_and_readers_see_complete_messages(index, small):
    lane = over(index)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(40):
                attributes = lane.attributes(MAIN)
                scored = lane.score(MAIN, {1: 1.0}, TermStatistics(10, 30, {1: 5}))
                assert (np.diff(attributes.seqs.astype(int)) > 0).all()
                assert (attributes.lengths == 3).all()
                assert np.count_nonzero(scored.bm25) >= len(attributes)
        except BaseException as error:  # noqa: BLE001  # shown below
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for seq in range(1, 150):
        add(lane, document(seq, {1: 1, seq + 5: 2}))
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(lane.attributes(MAIN)) == 149


def test_a_failed_sealing_does_not_affect_confirmed_messages(small):
    class Failing(MemoryIndex):
        def seal(self, *args, **kwargs) -> bool:
            raise IndexUnavailable("memory", "no room is left on the disk")

    lane = over(Failing())
    for seq in range(1, 40):
        add(lane, document(seq, {1: 1}))
    assert len(scores(lane, {1: 1.0})) == 39


@pytest.mark.parametrize("part", [-1, 1 << 40 | 1, bm25.bucket_part(1, 5)], ids=["directory", "facts", "bucket"])
@pytest.mark.parametrize("data", [b"", b"\xff" * 7, b"\xff" * 400], ids=len)
def test_a_damaged_row_raises_a_damaged_index_error(small, part, data):
    index = MemoryIndex()
    lane = over(index)
    add(lane, *[document(seq, {1 + seq % 3: 1}) for seq in range(1, 9)])
    assert index.seal(MAIN, "words", [], [SealedRow(part, 1, data)], [(part, 1)])
    with pytest.raises(IndexCorrupt, match="doctor"):
        scores(over(index), {1: 1.0})


def test_a_damaged_fresh_row_raises_a_damaged_index_error():
    index = MemoryIndex()
    index.put(MAIN, "vectors", [IndexRow(1, b"short")], CoveredRange(1, 1, b""))
    with pytest.raises(IndexCorrupt):
        VectorIndex(index, "vectors", 4).nearest(MAIN, np.ones(4), 1)


@pytest.mark.parametrize("row", [b"", b"test", b"test" * 5, b"othe" + document(2, {1: 1}).row[4:], bytes(300)])
def test_an_unreadable_row_of_words_counts_as_missing(index, row):
    lane = over(index)
    lane.store.put(MAIN, {1: document(1, {1: 1}).row, 2: row, 3: document(3, {1: 1}).row})
    assert scores(lane, {1: 1.0}).keys() == {1, 3}
    lane.store.put(MAIN, {2: document(2, {1: 1}).row})
    assert scores(lane, {1: 1.0}).keys() == {1, 2, 3}


@pytest.mark.parametrize("upto", [1, 7, 8, 9, 30, 49, 50, 99])
def test_statistics_up_to_an_entry_are_those_of_the_messages_before(index, small, upto):
    lane = over(index)
    there = [document(seq, {1: 1, seq % 5 + 10: 2}) for seq in range(1, 51)]
    for each in there:
        add(lane, each)
    before = [each for each in there if each.seq <= upto]
    found = lane.statistics(MAIN, [1, 12, 99], upto=upto)
    assert (found.documents, found.length) == (len(before), 3 * len(before))
    assert found.df == {term: sum(term in each.terms for each in before) for term in (1, 12, 99)}


def test_a_view_counts_the_occurrences_of_its_terms(index, small):
    lane = over(index)
    there = [document(seq, {1: 1, seq % 5 + 10: 2}) for seq in range(1, 51)]
    for each in there:
        add(lane, each)
    assert lane.view(MAIN, [1, 12, 99]).occurrences() == {1: 50, 12: 20}


@given(lengths=st.lists(st.integers(0, 40), max_size=12), cut=st.integers(0, 12))
def test_the_size_of_unsealed_rows_does_not_depend_on_batching(lengths, cut):
    data = [
        pack_row(b"test", at, "user", Mark.NONE, dict.fromkeys(range(length), 1)) for at, length in enumerate(lengths)
    ]
    rows = [IndexRow(seq, row) for seq, row in enumerate(data, 1)]
    empty = Unsealed(1, EMPTY_HEAD, True, (), 0.0)
    head = Head(len(rows), b"")
    whole = empty.extended(head, rows, complete=True)
    parts = empty.extended(head, rows[:cut], complete=True).extended(head, rows[cut:], complete=True)
    assert parts == whole
    assert whole.size == empty.size + sum(200 + 4 * len(row) for row in data)
    assert (not rows) or whole.decoded().size < whole.size
    assert whole.decoded().added == ()


def test_the_cache_stays_within_its_byte_limit():
    cached: BoundedCache[str] = BoundedCache(100)
    for name in "abcdef":
        cached.put(name, name, 30)
        assert cached.get("a") is not None or name > "d"
        assert cached.size <= 100
    assert cached.get("b") is None
    cached.put("huge", "huge", 101)
    assert cached.get("huge") is None
    cached.put("f", "f", 5)
    assert cached.size <= 100


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    drawn = rng.normal(size=shape).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)


def meaning(rng: np.random.Generator, seqs: Iterable[int], most: int = 3, dims: int = DIMS) -> list:
    return [(seq, unit(rng, int(rng.integers(1, most + 1)), dims)) for seq in seqs]


def add_vectors(lane: VectorIndex, rows: list, session: str = MAIN) -> None:
    seqs = [seq for seq, _ in rows]
    lane.add(session, rows, CoveredRange(min(seqs), max(seqs), bytes(32)))


def nearest(rows: list, query: np.ndarray, only: set[int] | None = None) -> list[tuple[int, float]]:
    """Reference search over the vectors quantised to eight bits."""
    found = []
    for seq, matrix in rows:
        if only is None or seq in only:
            scales, codes = quantize(matrix)
            found.append((seq, float((codes * scales[:, None] @ query).max())))
    return sorted(found, key=lambda pair: -pair[1])


@pytest.mark.parametrize("exact", [65_536, 0], ids=["exact", "by signs"])
def test_the_nearest_are_found_before_and_after_sealing(index, exact):
    rng = np.random.default_rng(2)
    lane = VectorIndex(index, "vectors", DIMS)
    lane.max_exhaustive = exact
    there: list = []
    for first in (300, 1, 700, 500, 900, 1100, 1300):
        rows = meaning(rng, range(first, first + 150))
        add_vectors(lane, rows)
        there += rows
        query = unit(rng, DIMS)
        lane.rescored = 10_000
        wanted = nearest(there, query)
        for searched in (lane, VectorIndex(index, "vectors", DIMS)):
            found = list(searched.nearest(MAIN, query, 40).pairs())
            assert [seq for seq, _ in found] == [seq for seq, _ in wanted[:40]]
            assert [cosine for _, cosine in found] == pytest.approx([cosine for _, cosine in wanted[:40]], abs=1e-5)
    assert index.snapshot(MAIN, "vectors").generation != 0, "no block was sealed, so the test proves nothing"


@pytest.mark.parametrize("exact", [65_536, 0], ids=["exact", "by signs"])
def test_a_search_can_be_limited_to_some_entries(index, exact):
    rng = np.random.default_rng(3)
    lane = VectorIndex(index, "vectors", DIMS)
    lane.max_exhaustive, lane.rescored = exact, 200
    there = meaning(rng, range(1, 900))
    add_vectors(lane, there[:400])
    add_vectors(lane, there[400:])
    query = unit(rng, DIMS)
    for only in ({5}, {5, 6, 7, 880, 5000}, set(range(1, 60)), set()):
        wanted = [seq for seq, _ in nearest(there, query, only)]
        assert lane.nearest(MAIN, query, 20, only=only).seqs.tolist() == wanted[:20]
        mask = np.zeros(max(only, default=0) + 1, bool)
        mask[list(only)] = True
        assert lane.nearest(MAIN, query, 20, only=mask).seqs.tolist() == wanted[:20]
    assert len(lane.nearest(MAIN, query, 0).seqs) == len(lane.nearest("none", query, 5).seqs) == 0


@pytest.mark.parametrize("exhaustive", [1000, 65_536], ids=["codes on disk", "codes in memory"])
def test_the_search_by_signs_has_a_recall_of_nine_tenths(tmp_path, exhaustive):
    rng = np.random.default_rng(4)
    topics = unit(rng, 40, 384)
    there = [(seq, unit_near(rng, topics[rng.integers(0, 40, 2)])) for seq in range(1, 5001)]
    with SqliteIndex(tmp_path / "recall") as index:
        lane, exact = VectorIndex(index, "vectors", 384), VectorIndex(index, "vectors", 384)
        lane.max_exhaustive, exact.rescored = exhaustive, 10_000
        for at in range(0, 5000, 500):
            add_vectors(lane, there[at : at + 500])
        hits = 0
        for _ in range(50):
            query = unit_near(rng, topics[rng.integers(0, 40, 1)])[0]
            wanted = set(exact.nearest(MAIN, query, 10).seqs.tolist())
            hits += len(wanted & set(lane.nearest(MAIN, query, 10).seqs.tolist()))
    assert hits / 500 >= 0.95


def unit_near(rng: np.random.Generator, centres: np.ndarray) -> np.ndarray:
    drawn = centres + rng.normal(size=centres.shape, scale=0.06).astype(np.float32)
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def test_the_search_by_signs_selects_the_most_similar():
    rng = np.random.default_rng(5)
    vectors = unit(rng, 3000, DIMS)
    query = unit(rng, 1, DIMS)
    differing = ((vectors > 0) != (query > 0)).sum(axis=1)
    assert hamming_distances(sign_bits(vectors), sign_bits(query)).tolist() == differing.tolist()
    for count in (1, 50, 2999, 3000, 9999):
        chosen = smallest(differing.astype(np.uint16), count)
        assert len(set(chosen.tolist())) == min(count, 3000)
        assert sorted(differing[chosen]) == sorted(differing)[:count]
    assert sorted(smallest(np.zeros(100_000, np.uint16), 1000)) == list(range(99_000, 100_000))


def test_stored_vectors_are_close_to_the_originals(index):
    rng = np.random.default_rng(6)
    there = meaning(rng, range(1, 700))
    for exact in (65_536, 0):
        lane = VectorIndex(index, "vectors", DIMS)
        lane.max_exhaustive = exact
        if exact:
            add_vectors(lane, there)
        found = lane.of(MAIN, [1, 2, 350, 699, 9999])
        assert found.keys() == {1, 2, 350, 699}
        for seq, matrix in found.items():
            assert matrix == pytest.approx(there[seq - 1][1], abs=0.005)


def test_the_sign_codes_of_an_oversized_session_are_dropped(index):
    rng = np.random.default_rng(7)
    lane = VectorIndex(index, "vectors", DIMS)
    lane.max_exhaustive = 1200
    there: list = []
    for first in range(1, 1600, 200):
        rows = meaning(rng, range(first, first + 200), most=1)
        add_vectors(lane, rows)
        there += rows
        query = unit(rng, DIMS)
        assert lane.nearest(MAIN, query, 5).seqs.tolist() == [seq for seq, _ in nearest(there, query)[:5]]


def test_cached_vectors_are_never_stale(index):
    rng = np.random.default_rng(8)
    for exact in (65_536, 0):
        mine, theirs = VectorIndex(index, "vectors", DIMS), VectorIndex(index, "vectors", DIMS)
        mine.max_exhaustive = theirs.max_exhaustive = exact
        for _ in range(2):
            there: list = []
            for first in range(1, 1500, 250):
                rows = meaning(rng, range(first, first + 250), most=1)
                add_vectors(theirs, rows)
                there += rows
                query = unit(rng, DIMS)
                assert mine.nearest(MAIN, query, 3).seqs.tolist() == [seq for seq, _ in nearest(there, query)[:3]]
            index.forget(MAIN)
            assert len(mine.nearest(MAIN, query, 3).seqs) == 0


def test_codes_are_never_applied_to_newer_vectors():
    rng = np.random.default_rng(11)
    index = MemoryIndex()
    lane = VectorIndex(ConcurrentIndex(index), "vectors", DIMS)
    lane.max_exhaustive, lane.rescored = 0, 20
    add_vectors(lane, meaning(rng, range(1, 700), most=1))
    lane.nearest(MAIN, unit(rng, DIMS), 3)
    again = meaning(rng, range(1, 700), most=1)
    query = again[300][1][0]

    def rebuild() -> None:
        index.forget(MAIN)
        add_vectors(VectorIndex(index, "vectors", DIMS), again)

    lane.index.before_snapshot = [rebuild, lambda: None]
    [(seq, cosine)] = lane.nearest(MAIN, query, 1).pairs()
    assert (seq, cosine) == (301, pytest.approx(1.0, abs=0.01))


def test_only_full_blocks_are_sealed(index):
    lane = VectorIndex(index, "vectors", 384)
    vector = np.full((1, 384), 384**-0.5, np.float32)
    add_vectors(lane, [(seq, vector) for seq in range(1, 601)])
    size = vectors.vectors_per_block(384)
    assert len(index.snapshot(MAIN, "vectors").fresh) == 600 % size
    assert set(vectors.read_directory(index.snapshot(MAIN, "vectors", [vectors.DIRECTORY]))["count"].tolist()) == {size}


def test_zero_and_invalid_vectors_are_stored_and_never_match(index):
    lane = VectorIndex(index, "vectors", 4)
    broken = np.array([[np.nan, np.inf, -np.inf, 0], [0, 0, 0, 0]], np.float32)
    rows = [(1, broken), (2, np.array([[0.6, 0.8, 0, 0]], np.float32)), (3, np.empty((0, 4), np.float32))]
    add_vectors(lane, rows)
    found = dict(lane.nearest(MAIN, np.array([0.6, 0.8, 0, 0], np.float32), 9).pairs())
    assert found == {1: 0.0, 2: pytest.approx(1.0, abs=0.01)}
    with pytest.raises(ValueError, match="expected rows of 4"):
        add_vectors(lane, [(4, np.zeros((1, 5), np.float32))])
    with pytest.raises(ValueError, match="expected 4"):
        lane.nearest(MAIN, np.zeros(5, np.float32), 1)


def test_a_message_with_many_vectors_is_stored_completely(index):
    rng = np.random.default_rng(9)
    there = [(1, unit(rng, 900, DIMS)), *meaning(rng, range(2, 400))]
    lane = VectorIndex(index, "vectors", DIMS)
    add_vectors(lane, there)
    query = there[0][1][700]
    assert lane.nearest(MAIN, query, 1).seqs.tolist() == [1]
    assert len(lane.of(MAIN, [1])[1]) == 900
    assert lane.nearest(MAIN, query, 50).seqs.tolist() == [seq for seq, _ in nearest(there, query)[:50]]


def test_concurrent_sealings_of_vectors_store_each_message_once():
    rng = np.random.default_rng(10)
    index = MemoryIndex()
    lane = VectorIndex(ConcurrentIndex(index), "vectors", DIMS)
    there = meaning(rng, range(1, 1200))
    for at in range(0, len(there), 100):
        lane.index.before_seal = [lambda: VectorIndex(index, "vectors", DIMS).maintain(MAIN)]
        add_vectors(lane, there[at : at + 100])
    found = lane.of(MAIN, range(1, 1200))
    assert {seq: len(matrix) for seq, matrix in found.items()} == {seq: len(matrix) for seq, matrix in there}


def test_the_directory_of_vectors_stays_short(index, monkeypatch):
    monkeypatch.setattr(vectors, "SEAL_AT", 1)
    lane = VectorIndex(index, "vectors", 2048)
    matrix = np.full((16, 2048), 2048**-0.5, np.float32)
    for seq in range(1, 200):
        add_vectors(lane, [(seq, matrix)])
    assert len(index.snapshot(MAIN, "vectors", [-1]).sealed) < 70
    assert len(lane.nearest(MAIN, matrix[0], 999).seqs) == 199
