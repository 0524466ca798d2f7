"""Indexing of messages: each once, in time, from several threads and processes, and only the session's own."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from contextlib import closing

import numpy as np
import pytest
from tests.spelling import SpellingEmbedder

from recto.errors import EmbedderFailed
from recto.recall.index.rows import CoveredRange, IndexRow
from recto.recall.indexer import OLD_LANES, EmbeddingRules, GuardedEmbedder, Indexer
from recto.recall.search import Searcher
from recto.recall.stemmer import PorterLexicon
from recto.recall.term_rows import with_row
from recto.recall.types import USED, Query
from recto.stores.memory import MemoryIndex, MemoryStore
from recto.stores.sqlite import SqliteStore
from recto.stores.sqlite.index import SqliteIndex
from recto.transcript.entries import Draft

S = "agent:default:main"
LEXICON = PorterLexicon()


def message(number: int, text: str = "", *, meta: bytes = b"{}", role="user") -> Draft:
    content = json.dumps({"role": role, "content": text or f"entry number{number} says something"}).encode()
    return Draft(id=f"m{number}", ts=number, role=role, content=content, wire="openai.chat", meta=meta)


def filled(count: int, store=None, session: str = S):
    store = store or MemoryStore()
    first = store.head(session).seq
    store.append(session, [message(first + number) for number in range(1, count + 1)])
    return store


def indexing(store, index=None, **more) -> Indexer:
    return Indexer(store, index or MemoryIndex(), lexicon=LEXICON, **{"in_background": False} | more)


def found(indexer: Indexer, text: str, session: str = S) -> list[int]:
    ranking = Searcher(indexer, patience=1.0).find(Query(text=text, now=10**15), [session])
    return [hit.seq for hit in ranking.best()]


class Steady:
    """A small embedder: texts with the same first letter have the same vector. It blocks while `gate` is cleared."""

    name, dims, weight = "steady/1", 26, 0.7

    def __init__(self, name: str = "steady/1") -> None:
        self.name = name
        self.gate = threading.Event()
        self.gate.set()
        self.called = threading.Event()
        self.calls = 0

    def documents(self, texts):
        self.calls += 1
        self.called.set()
        self.gate.wait()
        rows = np.zeros((len(texts), 26), np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[(ord(text.strip()[:1].lower() or "a") - 97) % 26] = 1
        return rows

    def query(self, text):
        return self.documents([text])


def test_confirmed_messages_are_found_and_no_others_are_indexed():
    indexer = indexing(filled(100), embedder=SpellingEmbedder())
    assert indexer.backlog(S) == (100, 100)
    assert indexer.confirm(S, [40, 41, 42], 5).vectors
    assert indexer.backlog(S) == (97, 97)
    assert found(indexer, "number41")[0] == 41
    assert 50 not in found(indexer, "number50")
    assert indexer.confirm(S, [40, 41, 42], 0.0).vectors, "indexed messages need no time"
    assert indexer.confirm(S, [], 0.0).vectors


def test_a_session_opened_late_indexes_only_evicted_messages():
    indexer = indexing(filled(5_000))
    assert indexer.confirm(S, range(4_000, 4_100), 5).vectors
    assert indexer.backlog(S) == (4_900, 0)
    assert [seq for seq, _ in indexer.store.terms(S)] == list(range(4_000, 4_100))


def test_messages_stored_with_their_words_need_no_indexing():
    store, lexicon = MemoryStore(), PorterLexicon()
    store.append(S, [with_row(message(number), lexicon) for number in range(1, 601)])
    indexer = indexing(store)
    assert indexer.backlog(S) == (0, 0)
    assert found(indexer, "number41")[0] == 41
    assert indexer.confirm(S, range(1, 601), 0.0).words
    assert indexer.words.sealed(S) == [], "a block was sealed while a turn waits"
    assert indexer.catch_up(S)
    assert [(block.first, block.last) for block in indexer.words.sealed(S)] == [(1, 512)]
    assert found(indexer, "number41")[0] == 41


def test_messages_stored_with_their_words_count_as_indexed_up_to_the_first_gap():
    store, lexicon = MemoryStore(), PorterLexicon()
    indexer = indexing(store)
    for number in range(1, 4):
        indexer.note_stored(S, store.append(S, [with_row(message(number), lexicon)]))
        assert indexer.indexed_through(S) == number
    indexer.note_stored(S, store.append(S, [message(4)]))
    indexer.note_stored(S, store.append(S, [with_row(message(5), lexicon)]))
    assert indexer.indexed_through(S) == 3
    assert indexer.catch_up(S)
    assert indexer.indexed_through(S) == 5


def test_messages_added_during_catch_up_still_count_as_indexed():
    store, lexicon = filled(3), PorterLexicon()
    indexer = indexing(store)

    def add(_: int) -> None:
        if store.head(S).seq == 3:
            indexer.note_stored(S, store.append(S, [with_row(message(4), lexicon)]))

    assert indexer.catch_up(S, advance=add)
    assert indexer.indexed_through(S) == 4


def test_unsealed_rows_of_an_unsearched_session_do_not_accumulate():
    store, lexicon = MemoryStore(), PorterLexicon()
    indexer = indexing(store)
    assert not found(indexer, "number1")
    for first in range(1, 2001, 8):
        drafts = [with_row(message(number), lexicon) for number in range(first, first + 8)]
        indexer.note_stored(S, store.append(S, drafts))
        assert len(indexer.words._unsealed.known(S).added) < 512
    assert all(found(indexer, f"number{number}")[0] == number for number in (1, 511, 512, 513, 2000))


def test_rows_of_another_lexicon_are_rebuilt():
    class Other(PorterLexicon):
        name = "other"

    store = MemoryStore()
    store.append(S, [with_row(message(number), Other()) for number in range(1, 21)])
    indexer = indexing(store)
    assert indexer.backlog(S) == (20, 0)
    assert found(indexer, "number7") == []
    assert indexer.catch_up(S)
    assert found(indexer, "number7")[0] == 7
    assert indexer.backlog(S) == (0, 0)


def test_a_session_indexed_with_english_stems_finds_other_forms_after_an_upgrade(tmp_path):
    class EnglishOnly(PorterLexicon):
        name = "porter/1"

        def terms(self, text):
            return dict(Counter(self.sequence(text)))

    texts = {1: "Die Rechnung der Spedition ist bezahlt.", 2: "Welche Plätze sind frei?"}
    with closing(SqliteStore(tmp_path / "old.db")) as store, closing(SqliteIndex(tmp_path / "old.recall.db")) as index:
        before = Indexer(store, index, lexicon=EnglishOnly(), in_background=False)
        drafts = [message(number, texts.get(number, "")) for number in range(1, 601)]
        store.append(S, [with_row(draft, before.lexicon) for draft in drafts])
        before.words.maintain(S)
        assert found(before, "number41")[0] == 41
        assert index.covered(S, "terms/porter/1")

        after = indexing(store, index)
        assert after.backlog(S) == (600, 0)
        assert after.catch_up(S)
        assert found(after, "Welche Rechnungen sind bezahlt?")[0] == 1
        assert found(after, "number41")[0] == 41
        assert index.covered(S, after.words.lane)
        assert not index.covered(S, "terms/porter/1")
        assert all(after.matches(entry) for entry in store.read(S))


@pytest.mark.parametrize("old", OLD_LANES)
def test_the_lane_of_an_earlier_version_is_dropped(old):
    indexer = indexing(filled(3))
    indexer.index.put(S, old, [IndexRow(1, b"row")], CoveredRange(1, 1, indexer.store.pick(S, [1])[0].hash))
    assert indexer.catch_up(S)
    assert old not in [size.lane for size in indexer.index.lanes()]


def test_gaps_are_filled_once_and_joined():
    embedder = Steady()
    indexer = indexing(filled(200), embedder=embedder)
    for place in (50, 150, 100):
        assert indexer.confirm(S, [place], 5).vectors
    before = embedder.calls
    assert before == 3
    assert indexer.catch_up(S)
    assert embedder.calls == 200, "an entry was embedded twice"
    assert [seq for seq, _ in indexer.store.terms(S)] == list(range(1, 201))
    assert indexer.backlog(S) == (0, 0)


def test_progress_is_reported_once_for_words_and_once_for_vectors():
    heard = []
    indexing(filled(300), embedder=SpellingEmbedder()).catch_up(S, advance=heard.append)
    assert sum(heard) == 600


def test_recaps_and_events_are_covered_but_not_found():
    store = filled(1)
    store.append(
        S,
        [
            message(2, "zanzibar in short", meta=b'{"isCompactSummary": true}'),
            Draft(id="e", ts=1, role="event", kind="note", content=b'{"text": "zanzibar"}'),
            message(4, "we went to zanzibar"),
        ],
    )
    indexer = indexing(store, embedder=SpellingEmbedder())
    assert indexer.catch_up(S)
    assert indexer.backlog(S) == (0, 0)
    assert found(indexer, "zanzibar")[0] == 4
    assert not {2, 3} & set(found(indexer, "zanzibar"))


@pytest.mark.parametrize(
    ("kind", "content", "meta"),
    [
        (USED, b"not JSON", b"{}"),
        (USED, b"[]", b"{}"),
        (USED, b'{"shown": 7, "used": null}', b"{}"),
        (USED, b'{"shown": ["x", -1, 1e400, 99999999999, true], "used": [{}]}', b"{}"),
        (USED, b"[" * 100_000, b"{}"),
        ("message", b'{"role": "user", "content": "x"}', b'["compact_summary"]'),
        ("message", b'{"role": "user", "content": "x"}', b"compact \xff"),
        ("message", b"\xff\xfe not a message", b"{}"),
        ("message", b'{"role": "user", "content": "\\ud800 lone"}', b"{}"),
    ],
)
def test_entries_of_any_content_are_indexed(kind, content, meta):
    store = filled(3)
    role = "event" if kind == USED else "user"
    store.append(S, [Draft(id="odd", ts=-(2**63), role=role, kind=kind, content=content, meta=meta)])
    filled(3, store)
    indexer = indexing(store, embedder=SpellingEmbedder())
    assert indexer.confirm(S, range(1, 8), 5).vectors
    assert found(indexer, "number7")[0] == 7


def test_words_that_miss_the_time_limit_are_not_confirmed():
    confirmed = indexing(filled(10)).confirm(S, [1], 0.0)
    assert (confirmed.words, confirmed.vectors) == (False, False)
    assert "in time" in confirmed.reason


def test_a_hanging_embedder_costs_at_most_the_time_limit_and_words_are_used():
    embedder = Steady()
    embedder.gate.clear()
    indexer = indexing(filled(10), embedder=embedder)
    started = time.monotonic()
    confirmed = indexer.confirm(S, [1, 2], 0.3)
    assert 0.2 < time.monotonic() - started < 2.0
    assert (confirmed.words, confirmed.vectors) == (True, False)
    assert "not answered within" in confirmed.reason
    started = time.monotonic()
    assert not indexer.confirm(S, [1, 2], 60).vectors
    assert time.monotonic() - started < 5.0, "a hanging embedder was called again before it returned"
    started = time.monotonic()
    assert found(indexer, "number1")[0] == 1
    assert time.monotonic() - started < 5.0
    embedder.gate.set()
    for _ in range(1000):
        if indexer.confirm(S, [1, 2], 5).vectors:
            break
    assert indexer.backlog(S) == (8, 8)
    assert embedder.calls < 10, "calls piled up"


def test_a_late_question_vector_is_cached_and_does_not_block_messages():
    embedder = Steady()
    guarded = GuardedEmbedder(embedder)
    embedder.gate.clear()
    with pytest.raises(EmbedderFailed, match="not answered within"):
        guarded.query("apple", 0.01)
    with pytest.raises(EmbedderFailed, match="a call before this one"):
        guarded.query("berry", 10)
    embedder.gate.set()
    assert guarded.documents(["cherry"]).shape == (1, 26), "messages do not wait for a question"
    while not guarded._late["query"].is_set():
        threading.Event().wait(0.001)
    calls = embedder.calls
    assert guarded.query("apple", 0.0)[0].argmax() == 0
    assert embedder.calls == calls, "the question was embedded again"


def test_messages_get_a_vector_of_their_beginning_and_tool_results_get_none():
    store, embedded = MemoryStore(), []

    class Noting(Steady):
        def documents(self, texts):
            embedded.extend(texts)
            return super().documents(texts)

    long = ("A sentence about gardens. " * 200).strip()
    messages = [("assistant", long), ("tool", "tool result " * 300), ("assistant", "short"), ("user", " ")]
    store.append(S, [message(number, text, role=role) for number, (role, text) in enumerate(messages, 1)])
    indexer = indexing(store, embedder=Noting())
    assert indexer.catch_up(S)
    assert indexer.backlog(S) == (0, 0), "messages without a vector are still covered"
    assert embedded == [long[:512], "short"]
    embedded.clear()
    more = EmbeddingRules(passages=3, characters=1000, tool_results=True)
    assert indexing(store, embedder=Noting(), embedding=more).catch_up(S)
    assert len(embedded) == 3 + 3 + 1
    assert embedded[2] == long[-len(embedded[2]) :], "the last passage is among the embedded ones"
    assert any(text.startswith("tool result") for text in embedded)


def test_a_passing_mention_by_the_user_has_its_own_vector():
    passing = (
        "Zebras are what we saw in Nairobi last week, from a small bus with an open roof and a very patient guide."
    )
    question = (
        "Apples keep well in a cellar, people say, but ours is damp and warm, so what else can one do with forty kilos?"
    )
    store = MemoryStore()
    messages = [("user", f"{question} {passing}"), ("assistant", f"{question} {passing}"), ("user", "Bees.")]
    store.append(S, [message(number, text, role=role) for number, (role, text) in enumerate(messages, 1)])
    indexer = indexing(store, embedder=Steady())
    assert indexer.catch_up(S)
    vectors = indexer.vector_index(indexer.embedders[0]).of(S, [1, 2, 3])
    assert {seq: len(matrix) for seq, matrix in vectors.items()} == {1: 3, 2: 1, 3: 1}
    assert found(indexer, "zoo")[0] == 1, "no word in common, only the meaning of the second sentence"


def test_messages_with_a_vector_of_an_earlier_version_keep_it_and_are_found():
    store, embedder = filled(2), Steady()
    indexer = indexing(store, embedder=embedder)
    last = list(store.read(S))[-1]
    rows = [(1, embedder.documents(["apple"])), (2, embedder.documents(["berry"]))]
    indexer.vector_index(indexer.embedders[0]).add(S, rows, CoveredRange(1, 2, last.hash))
    store.append(S, [message(3, "cherry " * 40)])
    assert indexer.catch_up(S)
    assert embedder.calls == 3, "only the new message was embedded"
    assert found(indexer, "another")[0] == 1


def test_a_bounded_number_of_threads_waits_for_a_hanging_embedder():
    embedder = Steady()
    embedder.gate.clear()
    indexer = indexing(filled(10), embedder=embedder)
    before = threading.active_count()
    for _ in range(20):
        indexer.confirm(S, [1], 0.01)
    assert threading.active_count() <= before + 1
    embedder.gate.set()


class Odd(Steady):
    """An embedder that returns an invalid result."""

    def __init__(self, answer, dims=26):
        super().__init__()
        self.answer, self.dims = answer, dims

    def documents(self, texts):
        return self.answer(texts)


def raising(error):
    def answer(texts):
        raise error

    return answer


ODD = {
    "NaN": lambda texts: np.full((len(texts), 26), np.nan, np.float32),
    "infinite": lambda texts: np.full((len(texts), 26), np.inf, np.float32),
    "too long": lambda texts: np.ones((len(texts), 26), np.float32),
    "wrong width": lambda texts: np.zeros((len(texts), 7), np.float32),
    "too many rows": lambda texts: np.zeros((len(texts) + 1, 26), np.float32),
    "no rows": lambda texts: np.zeros((0, 26), np.float32),
    "nothing": lambda texts: None,
    "text": lambda texts: ["a", "b"],
    "ragged": lambda texts: [[1.0], [1.0, 2.0]],
    "an object": lambda texts: object(),
    "fails": raising(EmbedderFailed("steady/1", "the plug is out")),
    "a key error": raising(KeyError("x")),
    "the end of the program": raising(SystemExit(3)),
    "an interrupt": raising(KeyboardInterrupt()),
    "no memory": raising(MemoryError()),
    "a stop": raising(StopIteration()),
}


@pytest.mark.parametrize("name", ODD)
def test_an_invalid_embedding_is_reported_and_words_are_used(name):
    indexer = indexing(filled(10), embedder=Odd(ODD[name]))
    confirmed = indexer.confirm(S, [1, 2], 5)
    assert (confirmed.words, confirmed.vectors) == (True, False)
    assert "steady/1" in confirmed.reason
    assert indexer.backlog(S) == (8, 10)
    assert found(indexer, "number2")[0] == 2


@pytest.mark.parametrize("dims", [0, -3, 10**9, "many", None])
def test_an_embedder_with_an_invalid_size_is_reported(dims):
    confirmed = indexing(filled(3), embedder=Odd(lambda texts: texts, dims)).confirm(S, [1], 5)
    assert (confirmed.words, confirmed.vectors) == (True, False)


def test_the_background_worker_brings_a_session_up_to_date():
    embedder = Steady()
    indexer = indexing(filled(100), embedder=embedder, in_background=True)
    indexer.schedule(S)
    assert embedder.called.wait(10)
    while any(indexer.backlog(S)):
        threading.Event().wait(0.001)
    indexer.close()
    assert embedder.calls == 100


def test_a_background_error_is_reported_only_to_its_session_and_cleared():
    broken = True

    def answer(texts):
        if broken:
            raise ValueError(f"cannot embed {texts[0]}")
        return np.zeros((len(texts), 26), np.float32)

    store = filled(3)
    filled(3, store, "agent:other:main")
    indexer = indexing(store, embedder=Odd(answer))
    indexer.try_catch_up(S)
    assert "number1" in indexer.last_error(S)
    assert indexer.last_error("agent:other:main") == ""
    broken = False
    indexer.try_catch_up(S)
    assert indexer.last_error(S) == ""


def test_the_background_worker_survives_every_exception():
    class Broken(PorterLexicon):
        def terms(self, text):
            if "number2 " in text:
                raise ZeroDivisionError
            return super().terms(text)

    store = filled(3)
    filled(1, store, "agent:other:main")
    indexer = Indexer(store, MemoryIndex(), lexicon=Broken())
    indexer.schedule(S)
    indexer.schedule("agent:other:main")
    while indexer.backlog("agent:other:main") != (0, 0) or not indexer.last_error(S):
        threading.Event().wait(0.001)
    assert "ZeroDivisionError" in indexer.confirm(S, [2], 5).reason
    indexer.close()


def test_close_returns_promptly_while_an_embedder_is_slow():
    class Slow(Steady):
        def documents(self, texts):
            self.called.set()
            threading.Event().wait(0.02)
            return super().documents(texts)

    embedder = Slow()
    indexer = indexing(filled(2_000), embedder=embedder, in_background=True)
    indexer.schedule(S)
    assert embedder.called.wait(10)
    started = time.monotonic()
    indexer.close()
    assert time.monotonic() - started < 3.0  # waits for the current batch, not for the remaining forty seconds
    indexer.schedule(S)  # has no effect after close


def test_close_returns_while_an_embedder_hangs(monkeypatch):
    monkeypatch.setattr("recto.recall.indexer._CLOSING_SECONDS", 0.2)
    embedder = Steady()
    embedder.gate.clear()
    indexer = indexing(filled(10), embedder=embedder, in_background=True)
    indexer.schedule(S)
    assert embedder.called.wait(10)
    started = time.monotonic()
    indexer.close()
    assert time.monotonic() - started < 3.0
    embedder.gate.set()


def test_background_indexing_does_not_wait_for_vectors_and_loses_none():
    embedder = Steady()
    embedder.gate.clear()
    store, index = filled(10), MemoryIndex()
    indexer = indexing(store, index, embedder=embedder, in_background=True, owns_index=False)
    confirmed = indexer.confirm(S, [1, 2], 5)
    assert (confirmed.words, confirmed.vectors, confirmed.reason) == (True, False, "")
    assert confirmed.summary == "words; vectors to follow"
    assert embedder.called.wait(10), "the session was not scheduled"
    indexer._worker.stop()
    embedder.gate.set()
    indexer.close()
    again = indexing(store, index, embedder=embedder, in_background=True)
    again.schedule(S)
    while again.backlog(S)[1]:
        threading.Event().wait(0.001)
    assert again.confirm(S, [1, 2], 5).summary == "words and vectors"
    assert embedder.calls <= 11, "vectors were made twice"
    again.close()


def test_an_embedder_that_fails_in_the_background_is_reported_as_the_reason():
    indexer = indexing(filled(10), embedder=Odd(raising(EmbedderFailed("steady/1", "no"))), in_background=True)
    assert indexer.confirm(S, [1], 5).reason == ""
    while not indexer.last_error(S):
        threading.Event().wait(0.001)
    confirmed = indexer.confirm(S, [1], 5)
    assert (confirmed.words, confirmed.vectors) == (True, False)
    assert "steady/1" in confirmed.reason
    assert confirmed.summary.startswith("words alone: ")
    indexer.close()


def test_a_backlog_beyond_the_bound_is_reported_as_the_reason(monkeypatch):
    monkeypatch.setattr("recto.recall.indexer._MAX_LAG", 8)
    embedder = Steady()
    embedder.gate.clear()
    indexer = indexing(filled(10), embedder=embedder, in_background=True)
    assert "10 entries wait for their vectors" in indexer.confirm(S, [10], 5).reason
    assert indexer.confirm(S, [7], 5).reason == ""
    indexer._worker.stop()
    embedder.gate.set()
    indexer.close()


def test_sessions_alternate_while_vectors_wait_for_their_budget(monkeypatch):
    monkeypatch.setattr("recto.recall.indexer._SLICE_SECONDS", 0.01)
    store = filled(200)
    filled(2, store, "agent:other:main")
    indexer = indexing(store, embedder=Steady(), in_background=True, embedding=EmbeddingRules(cpu_share=0.1))
    indexer._budget._credit = 0.0
    monkeypatch.setattr(indexer._budget, "_burst", 0.0)
    indexer.schedule(S)
    indexer.schedule("agent:other:main")
    while indexer.backlog("agent:other:main")[1]:
        threading.Event().wait(0.001)
    assert indexer.backlog(S)[1], "the long session had already finished, so the test proves nothing"
    indexer.close()


class Watched(MemoryIndex):
    """An index that counts calls of `covered`."""

    looks = 0

    def covered(self, session, lane):
        self.looks += 1
        return super().covered(session, lane)


def test_a_session_without_new_entries_is_not_scanned_again():
    index = Watched()
    indexer = indexing(filled(3), index, embedder=Steady())
    indexer.try_catch_up(S)
    before = index.looks
    indexer.try_catch_up(S)
    assert index.looks == before
    filled(1, indexer.store)
    indexer.try_catch_up(S)
    assert indexer.backlog(S) == (0, 0)
    indexer.rebuild(S)
    indexer.try_catch_up(S)
    assert indexer.backlog(S) == (0, 0)


def test_a_search_computes_vectors_only_within_its_credit():
    embedder = Steady()
    indexer = indexing(filled(40), embedder=embedder, embedding=EmbeddingRules(cpu_share=0.1))
    indexer._budget.charge(60.0)
    indexer.try_catch_up(S)
    assert indexer.backlog(S) == (0, 40)
    indexer._budget.charge(-60.0)
    indexer.try_catch_up(S)
    assert indexer.backlog(S) == (0, 0)
    indexer._budget.charge(60.0)
    filled(1, indexer.store)
    assert indexer.catch_up(S), "an explicit catch_up has no budget"


def test_the_background_worker_does_not_starve_evictions():
    store = filled(4_000)
    indexer = indexing(store, embedder=SpellingEmbedder(), in_background=True)
    indexer.schedule(S)
    while indexer.backlog(S)[1] > 3_900:
        threading.Event().wait(0.001)
    assert indexer.confirm(S, [3_990], 5).words
    assert indexer.backlog(S)[1] > 0, "the background had already finished, so the test proves nothing"
    indexer.close()


def test_two_processes_indexing_the_same_session_write_each_row_once(tmp_path):
    with SqliteStore(tmp_path / "a.db") as store:
        filled(600, store)
    go, children = tmp_path / "go", []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                store = SqliteStore(tmp_path / "a.db")
                indexer = indexing(store, SqliteIndex(tmp_path / "i"), embedder=SpellingEmbedder())
                while not go.exists():
                    threading.Event().wait(0.001)
                code = 0 if indexer.catch_up(S) else 2
            finally:
                os._exit(code)
        children.append(pid)
    go.touch()
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0]
    with SqliteStore(tmp_path / "a.db") as store, SqliteIndex(tmp_path / "i") as index:
        indexer = indexing(store, index, embedder=SpellingEmbedder())
        assert indexer.backlog(S) == (0, 0)
        assert indexer.words.statistics(S, []).documents == 600
        assert len(indexer.vector_index(indexer.embedder).of(S, range(1, 601))) == 600
        alone = indexing(store, embedder=SpellingEmbedder())
        alone.catch_up(S)
        for text in ("number7", "number599", "something"):
            assert found(indexer, text) == found(alone, text)


test_two_processes_indexing_the_same_session_write_each_row_once.pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
]


def test_both_embedders_find_by_meaning_during_a_change(tmp_path):
    store = MemoryStore()
    store.append(S, [message(number, text) for number, text in enumerate(("apple", "berry", "cherry"), 1)])
    index = MemoryIndex()
    old, new = Steady("old/1"), Steady("new/1")
    assert indexing(store, index, embedder=old).catch_up(S)
    indexer = indexing(store, index, embedder=new, previous=[old])
    assert indexer.confirm(S, [3], 5).vectors
    assert indexer.backlog(S) == (0, 2)
    assert found(indexer, "avocado")[0] == 1, "only the old vectors know it"
    assert found(indexer, "cranberry")[0] == 3
    store.append(S, [message(4, "date")])
    assert indexer.confirm(S, [4], 5).vectors
    assert found(indexer, "dragonfruit")[0] == 4, "only the new vectors know it"
    assert found(indexer, "blueberry")[0] == 2
    assert indexer.catch_up(S)
    assert not indexer.has_vectors(S, indexer.embedders[1])
    assert found(indexer, "avocado")[0] == 1


def test_a_failing_old_embedder_does_not_affect_the_new_embedder():
    store = MemoryStore()
    store.append(S, [message(number, text) for number, text in enumerate(("apple", "berry"), 1)])
    index = MemoryIndex()
    old = Steady("old/1")
    indexing(store, index, embedder=old).catch_up(S)
    old.documents = raising(EmbedderFailed("old/1", "gone"))
    indexer = indexing(store, index, embedder=Steady("new/1"), previous=[old])
    indexer.confirm(S, [2], 5)
    assert found(indexer, "blueberry")[0] == 2


def test_an_index_of_another_transcript_is_ignored():
    index = MemoryIndex()
    before = MemoryStore()
    before.append(S, [message(number, f"before{number}") for number in range(1, 51)])
    indexing(before, index).catch_up(S)
    indexer = indexing(filled(10), index)
    assert indexer.confirm(S, [1, 2, 3], 5).vectors
    assert indexer.words.statistics(S, []).documents == 3
    assert found(indexer, "number2")[0] == 2
    assert found(indexer, "before2") == []
    longer = indexing(filled(60), index)
    assert longer.confirm(S, range(1, 61), 5).vectors
    assert found(longer, "number60")[0] == 60


def test_a_damaged_index_is_rebuilt_by_the_process_that_finds_it(tmp_path):
    store = filled(50)
    with SqliteIndex(tmp_path / "i") as index:
        indexing(store, index, embedder=SpellingEmbedder()).catch_up(S)
    (tmp_path / "i").write_bytes(b"garbage" * 1000)
    (tmp_path / "i-wal").unlink(missing_ok=True)
    with SqliteIndex(tmp_path / "i") as index:
        indexer = indexing(store, index, embedder=SpellingEmbedder())
        assert indexer.confirm(S, [7], 5).vectors
        assert found(indexer, "number7")[0] == 7
        assert indexer.catch_up(S)
        assert found(indexer, "number33")[0] == 33
        assert (tmp_path / "i-damaged-1").exists()
        assert not (tmp_path / "i-damaged-2").exists()


def test_the_in_memory_cache_of_an_index_does_not_outlive_it(tmp_path):
    store = filled(1_200)
    with SqliteIndex(tmp_path / "i") as index:
        indexer = indexing(store, index, embedder=SpellingEmbedder())
        indexer.catch_up(S)
        before = found(indexer, "number1100")
        assert indexer.words.sealed(S)
        for lose in (index.reset, lambda: index.forget(S)):
            lose()
            assert not indexer.words.sealed(S)
            assert found(indexer, "number1100")[0] == 1100, "the words are in the transcript"
            assert indexer.backlog(S) == (0, 1_200)
            assert indexer.catch_up(S)
            assert found(indexer, "number1100") == before
