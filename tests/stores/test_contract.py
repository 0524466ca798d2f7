"""The contract of `TranscriptStore`, kept by every store. A new store is one more line in `STORES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.postgres import emptied
from together import in_threads

from recto.errors import AppendConflict, InputError, KeyReused, StoreUnavailable
from recto.stores.memory import MemoryStore
from recto.stores.postgres import PostgresStore
from recto.stores.sqlite import SqliteStore
from recto.transcript.entries import (
    EMPTY_HEAD,
    GENESIS,
    MAX_NAME,
    OPENING_BYTES,
    OPENING_ENTRIES,
    OPENING_MESSAGES,
    Draft,
    Entry,
    Head,
    SessionSummary,
    entry_hash,
    verify_chain,
)
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import TenantStore

STORES: dict[str, Callable[[Path], TranscriptStore]] = {
    "memory": lambda folder: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "transcript.db"),
    "postgres": lambda folder: PostgresStore(emptied(), lock_timeout=20),
}

MAIN = "agent:default:main"


@pytest.fixture(params=STORES)
def store(request, tmp_path) -> Iterator[TranscriptStore]:
    opened = STORES[request.param](tmp_path)
    yield opened
    opened.close()


def draft(name: str, content: bytes | None = None, **others) -> Draft:
    fields = {"id": f"id-{name}", "ts": 1, "role": "user", "key": f"key-{name}", **others}
    return Draft(content=name.encode() if content is None else content, **fields)


def drafts(*names: str) -> list[Draft]:
    return [draft(name) for name in names]


def contents(store: TranscriptStore, session: str = MAIN) -> list[bytes]:
    return [entry.content for entry in store.read(session)]


def test_an_empty_store_has_an_empty_head_and_nothing_to_read(store):
    assert store.head(MAIN) == EMPTY_HEAD
    assert list(store.read(MAIN)) == store.tail(MAIN, 5) == store.sessions() == []
    assert store.get(MAIN, "id") is store.find(MAIN, "key") is None
    assert store.kept_heads() == {}
    assert store.damage() == []


def test_entries_are_numbered_from_one_without_gaps_and_chained(store):
    first = store.append(MAIN, drafts("a", "b"))
    second = store.append(MAIN, drafts("c"))
    entries = [*first, *second]
    assert [entry.seq for entry in entries] == [1, 2, 3]
    assert entries[0].prev == GENESIS
    assert list(store.read(MAIN)) == entries
    assert verify_chain(MAIN, EMPTY_HEAD, store.read(MAIN)) == store.head(MAIN) == Head(3, entries[-1].hash)


@pytest.mark.requirement("transcript.fields")
def test_every_field_comes_back_exactly(store):
    given = Draft(
        id="ид\0\n",
        ts=-(2**63),
        role="tool",
        content=bytes(range(256)) * 3,
        kind="context_window_pruned",
        wire="anthropic",
        surface="gateway chat",
        tokens=2**63 - 1,
        counter="o200k",
        meta=b'{"a": 1e2, "a": "\\ud800"}\0',
        key="ключ 🔑",
    )
    [stored] = store.append(MAIN, [given])
    [read] = store.read(MAIN)
    assert read == stored
    assert all(getattr(read, name) == getattr(given, name) for name in Draft.__dataclass_fields__)


def test_empty_content_is_kept_as_empty_content(store):
    store.append(MAIN, [draft("a", b"", meta=b"")])
    assert (store.tail(MAIN, 1)[0].content, store.tail(MAIN, 1)[0].meta) == (b"", b"")


def test_appending_nothing_stores_nothing_and_opens_no_session(store):
    assert store.append(MAIN, []) == []
    assert store.append(MAIN, [], expect=7) == []
    assert store.sessions() == []


def test_sessions_do_not_see_each_other(store):
    store.append("one", drafts("a"))
    store.append("two", drafts("a", "b"))
    assert contents(store, "one") == [b"a"]
    assert store.get("one", "id-b") is store.find("one", "key-b") is None
    assert (store.head("one").seq, store.head("two").seq) == (1, 2)
    assert store.head("one").hash != store.tail("two", 2)[0].hash


def test_expect_writes_only_at_that_place(store):
    store.append(MAIN, drafts("a"), expect=0)
    with pytest.raises(AppendConflict) as caught:
        store.append(MAIN, drafts("b"), expect=0)
    assert (caught.value.session, caught.value.expected, caught.value.actual) == (MAIN, 0, 1)
    assert contents(store) == [b"a"]
    store.append(MAIN, drafts("b"), expect=1)
    assert contents(store) == [b"a", b"b"]


def test_a_retry_returns_what_was_stored_and_stores_nothing(store):
    stored = store.append(MAIN, drafts("a", "b"))
    again = [draft("a", id="another id", ts=99), draft("b", tokens=5)]
    assert store.append(MAIN, again) == stored
    assert store.head(MAIN).seq == 2


def test_a_retry_with_the_old_expectation_is_no_conflict(store):
    stored = store.append(MAIN, drafts("a"), expect=0)
    store.append(MAIN, drafts("b"), expect=1)
    assert store.append(MAIN, drafts("a"), expect=0) == stored


def test_a_history_sent_again_with_something_new_stores_only_that(store):
    store.append(MAIN, drafts("a", "b"))
    entries = store.append(MAIN, drafts("a", "b", "c", "d"))
    assert [entry.seq for entry in entries] == [1, 2, 3, 4]
    assert contents(store) == [b"a", b"b", b"c", b"d"]


def test_a_part_of_the_history_sent_again_with_something_new_stores_only_that(store):
    store.append(MAIN, drafts("a", "b", "c"))
    assert [entry.seq for entry in store.append(MAIN, drafts("b", "d"))] == [2, 4]


@pytest.mark.parametrize("names", [("new", "a"), ("b", "a"), ("b", "new", "c")])
def test_what_would_reorder_history_is_refused_whole(store, names):
    store.append(MAIN, drafts("a", "b", "c"))
    with pytest.raises(AppendConflict):
        store.append(MAIN, drafts(*names))
    assert contents(store) == [b"a", b"b", b"c"]


def test_a_key_that_comes_back_with_another_message_is_refused(store):
    store.append(MAIN, drafts("a"))
    with pytest.raises(KeyReused) as caught:
        store.append(MAIN, [draft("new"), draft("a", b"other")])
    assert (caught.value.key, caught.value.seq) == ("key-a", 1)
    assert contents(store) == [b"a"]


def test_without_a_key_the_same_message_is_stored_twice(store):
    for name in ("a", "b"):
        store.append(MAIN, [draft(name, b"same", key=None)])
    assert contents(store) == [b"same", b"same"]


def test_a_taken_id_is_refused_and_the_batch_with_it(store):
    store.append(MAIN, drafts("a", "b"))
    with pytest.raises(AppendConflict, match="'id-b' is already entry 2"):
        store.append(MAIN, [draft("c"), draft("d", id="id-b")])
    assert contents(store) == [b"a", b"b"]
    assert store.find(MAIN, "key-c") is None


def test_ranges_are_inclusive_and_forgiving(store):
    store.append(MAIN, [draft(str(number)) for number in range(1, 8)])

    def seqs(*where):
        return [entry.seq for entry in store.read(MAIN, *where)]

    assert seqs(3) == [3, 4, 5, 6, 7]
    assert seqs(3, 5) == [3, 4, 5]
    assert seqs(5, 5) == [5]
    assert seqs(-4, 2) == [1, 2]
    assert seqs(6, 10**12) == [6, 7]
    assert seqs(5, 4) == seqs(8) == seqs(10**12) == []


def test_the_tail_is_oldest_first(store):
    store.append(MAIN, drafts("a", "b", "c"))
    assert [entry.content for entry in store.tail(MAIN, 2)] == [b"b", b"c"]
    assert len(store.tail(MAIN, 10)) == 3
    assert store.tail(MAIN, 0) == store.tail(MAIN, -1) == []


def test_entries_are_picked_by_their_numbers_in_order_and_those_that_are_not_there_are_left_out(store):
    store.append(MAIN, drafts("a", "b", "c", "d"))
    picked = store.pick(MAIN, [4, 2, 2, 9, 0, -1, 10**12])
    assert picked == [*store.read(MAIN, 2, 2), *store.read(MAIN, 4, 4)]
    assert store.pick(MAIN, []) == store.pick("agent:nobody:main", [1]) == []


def test_reading_goes_over_many_pages_and_sees_what_is_added_meanwhile(store):
    store.append(MAIN, [draft(str(number)) for number in range(1, 1203)])
    reading = store.read(MAIN)
    first = next(reading)
    store.append(MAIN, drafts("last"))
    assert [entry.seq for entry in (first, *reading)] == list(range(1, 1204))


def test_large_entries_are_read_one_after_the_other(store):
    large = [bytes([number]) * 5_000_000 for number in range(5)]
    store.append(MAIN, [draft(str(number), content) for number, content in enumerate(large)])
    assert contents(store) == large


def test_an_entry_is_found_by_id_and_by_key(store):
    [entry] = store.append(MAIN, drafts("a"))
    assert store.get(MAIN, "id-a") == store.find(MAIN, "key-a") == entry
    assert store.get(MAIN, "key-a") is store.find(MAIN, "id-a") is None


def test_sessions_are_listed_by_key_a_page_at_a_time(store):
    for name in ("b", "a", "ü", "c"):
        store.append(name, [draft("x", ts=5), draft("y", ts=3)])
    listed = store.sessions()
    assert [summary.session for summary in listed] == ["a", "b", "c", "ü"]
    assert listed[0] == SessionSummary(session="a", entries=2, first_ts=5, last_ts=3)
    assert [summary.session for summary in store.sessions(limit=2)] == ["a", "b"]
    assert [summary.session for summary in store.sessions(after="b", limit=1)] == ["c"]
    assert store.sessions(after="ü") == store.sessions(limit=0) == []


def test_a_session_is_titled_by_its_first_user_messages_or_by_its_newest_rename(store):
    large = b"x" * (OPENING_BYTES + 1)
    opening = [draft("s", role="system"), draft("large", large), *drafts("1", "2", "3", "4", "5")]
    first = store.append("a", opening)
    far = [draft(f"{n}", role="assistant") for n in range(OPENING_ENTRIES)]
    store.append("b", [*far, draft("too late"), draft("no message", kind="note")])
    renames = [draft(name, role="event", kind="session_renamed", key=f"title/{name}") for name in ("z", "a")]
    renamed = store.append("c", [draft("q"), *renames, draft("other", key="titles")])
    assert store.title_entries(["c", "a", "a", "b", "none"]) == [renamed[2], *first[2 : 2 + OPENING_MESSAGES]]
    assert store.title_entries([]) == []


def test_sessions_of_several_tenants_are_titled_at_once(store):
    ours = store.append("tenant:acme/a", drafts("1"))
    theirs = store.append("b", drafts("2"))
    assert store.title_entries(["tenant:acme/a", "b"]) == [*ours, *theirs]


def test_heads_are_kept_outside_the_transcript(store):
    for round_ in range(5):
        store.append("a", drafts(f"{round_}", f"{round_}+"))
        store.append("b" * 256, drafts(f"{round_}"))
        assert store.kept_heads() == {"a": store.head("a"), "b" * 256: store.head("b" * 256)}
    store.accept_heads()
    assert store.kept_heads() == {"a": store.head("a"), "b" * 256: store.head("b" * 256)}
    store.append("a", drafts("after"))
    assert store.kept_heads()["a"] == store.head("a")


@pytest.mark.parametrize(
    "fields",
    [
        {"id": ""},
        {"id": "\ud800"},
        {"id": 7},
        {"id": "x" * (MAX_NAME + 1)},
        {"key": ""},
        {"key": "a\udfff"},
        {"key": "x" * (MAX_NAME + 1)},
        {"kind": ""},
        {"kind": "\ud800"},
        {"wire": "\ud800"},
        {"surface": "\ud800"},
        {"counter": "\ud800"},
        {"role": "developer"},
        {"content": "text"},
        {"content": bytearray(b"x")},
        {"meta": "{}"},
        {"ts": 2**63},
        {"ts": 1.5},
        {"tokens": 2**63},
        {"tokens": -1},
    ],
    ids=str,
)
def test_what_could_not_be_given_back_is_refused_before_anything_is_stored(store, fields):
    bad = draft("bad", **{"content": b"x", **fields})
    with pytest.raises(InputError):
        store.append(MAIN, [draft("good"), bad])
    assert store.sessions() == []


@pytest.mark.parametrize("session", ["", " a", "a\n", "a\0b", "\ud800", "x" * 257])
def test_a_session_that_could_not_be_printed_is_refused(store, session):
    with pytest.raises(InputError):
        store.append(session, drafts("a"))


@pytest.mark.parametrize("twice", [{"id": "id-a"}, {"key": "key-a"}])
def test_an_id_or_key_twice_in_one_batch_is_refused(store, twice):
    with pytest.raises(InputError, match="twice"):
        store.append(MAIN, [draft("a"), draft("b", b"a", **twice)])
    assert store.sessions() == []


def worded(*names: str) -> list[Draft]:
    return [draft(name, terms=b"v1" + name.encode()) for name in names]


def test_rows_of_the_word_index_are_stored_with_their_entries(store):
    stored = store.append(MAIN, [*worded("a"), *drafts("b"), *worded("c", "d")])
    assert [entry.terms for entry in stored] == [b"v1a", b"", b"v1c", b"v1d"]
    assert list(store.terms(MAIN)) == [(1, b"v1a"), (3, b"v1c"), (4, b"v1d")]
    assert list(store.terms(MAIN, 2, 3)) == [(3, b"v1c")]
    assert list(store.terms(MAIN, -3, 10**12))[-1] == (4, b"v1d")
    assert list(store.terms(MAIN, 3, 2)) == list(store.terms("agent:nobody:main")) == []
    assert store.pick_terms(MAIN, [4, 1, 2, 9, -1, 10**12]) == {1: b"v1a", 4: b"v1d"}
    assert store.pick_terms(MAIN, []) == store.pick_terms("agent:nobody:main", [1]) == {}


def test_rows_of_the_word_index_are_no_part_of_an_entry(store):
    [with_row] = store.append("one", worded("a"))
    [without] = store.append("two", drafts("a"))
    assert list(store.read("one")) == [with_row]
    assert entry_hash("two", 1, GENESIS, with_row) == without.hash
    assert store.append("one", drafts("a")) == [with_row]  # a retry
    assert store.pick_terms("one", [1]) == {1: b"v1a"}


def test_rows_of_the_word_index_are_read_over_many_pages(store):
    names = [str(number) for number in range(1, 2503)]
    store.append(MAIN, worded(*names))
    assert [row for _, row in store.terms(MAIN)] == [b"v1" + name.encode() for name in names]


def test_a_missing_row_of_the_word_index_is_added_later_and_an_old_one_replaced(store):
    entries = store.append(MAIN, [*drafts("a"), *worded("b"), draft("c", kind="report"), *drafts("d")])
    assert store.lacking_terms(MAIN, b"v1") == [1, 4]
    assert store.lacking_terms(MAIN, b"v1", 2) == [4]
    assert store.lacking_terms(MAIN, b"v1", -1, 3) == store.lacking_terms(MAIN, b"v1", limit=1) == [1]
    assert store.lacking_terms(MAIN, b"v2", 1, 10**12) == [1, 2, 4]
    assert store.lacking_terms(MAIN, b"v1", 3, 2) == store.lacking_terms("agent:nobody:main", b"v1") == []
    late = [replace(entry, terms=b"v2" + entry.content) for entry in entries if entry.kind == "message"]
    for _ in range(2):
        store.add_terms(MAIN, late)
        assert list(store.terms(MAIN)) == [(1, b"v2a"), (2, b"v2b"), (4, b"v2d")]
    assert store.lacking_terms(MAIN, b"v2") == []
    assert list(store.read(MAIN)) == entries
    assert store.damage() == []


def test_no_row_of_the_word_index_is_added_to_another_entry(store):
    [entry] = store.append(MAIN, drafts("a"))
    row = replace(entry, terms=b"v1a")
    store.add_terms(MAIN, [replace(row, hash=bytes(32)), replace(row, seq=2), replace(row, terms=b"")])
    store.add_terms("agent:nobody:main", [row])
    store.erase(MAIN)
    store.append(MAIN, drafts("b"))
    store.add_terms(MAIN, [row])
    assert list(store.terms(MAIN)) == list(store.terms("agent:nobody:main")) == []
    assert [line.session for line in store.sessions()] == [MAIN]


def test_rows_of_the_word_index_are_erased_with_their_session(store):
    store.append(MAIN, worded("a", "b"))
    store.append("other", worded("c"))
    store.erase(MAIN)
    assert list(store.terms(MAIN)) == []
    assert store.pick_terms(MAIN, [1, 2]) == {}
    store.append(MAIN, drafts("x"))
    store.scrub([MAIN])
    assert (list(store.terms(MAIN)), list(store.terms("other"))) == ([], [(1, b"v1c")])


def test_a_tenant_reads_and_adds_only_its_own_rows_of_the_word_index(store):
    ours, theirs = TenantStore(store, "acme"), TenantStore(store, "other")
    [entry] = ours.append(ours.key("main"), worded("a"))
    assert list(ours.terms(entry.session)) == [(1, b"v1a")]
    assert ours.pick_terms(entry.session, [1]) == {1: b"v1a"}
    assert ours.lacking_terms(entry.session, b"v2") == [1]
    ours.add_terms(entry.session, [replace(entry, terms=b"v2a")])
    for call in (
        lambda: theirs.terms(entry.session),
        lambda: theirs.pick_terms(entry.session, [1]),
        lambda: theirs.lacking_terms(entry.session, b"v2"),
        lambda: theirs.add_terms(entry.session, [replace(entry, terms=b"v3a")]),
    ):
        with pytest.raises(InputError, match="not one of this tenant's"):
            call()
    assert store.pick_terms(entry.session, [1]) == {1: b"v2a"}


def test_after_close_every_call_says_so(store):
    store.append(MAIN, drafts("a"))
    store.close()
    for call in (
        lambda: store.append(MAIN, drafts("b")),
        lambda: store.head(MAIN),
        lambda: list(store.read(MAIN)),
        lambda: store.tail(MAIN, 1),
        lambda: list(store.terms(MAIN)),
        lambda: store.pick_terms(MAIN, [1]),
        lambda: store.add_terms(MAIN, []),
        lambda: store.lacking_terms(MAIN, b"v1"),
        store.sessions,
        store.kept_heads,
    ):
        with pytest.raises(StoreUnavailable, match="closed"):
            call()
    store.close()


def test_threads_on_one_session_never_interleave_inside_a_batch(store):
    def work(thread: int) -> None:
        for batch in range(15):
            names = [f"{thread}.{batch}.{place}" for place in range(4)]
            entries = store.append(MAIN, drafts(*names))
            assert [entry.content.decode() for entry in entries] == names
            assert entries[-1].seq == entries[0].seq + 3

    in_threads(8, work)
    assert verify_chain(MAIN, EMPTY_HEAD, store.read(MAIN)) == store.head(MAIN) == store.kept_heads()[MAIN]
    assert store.head(MAIN).seq == 8 * 15 * 4


def test_threads_on_their_own_sessions_do_not_disturb_each_other(store):
    def work(thread: int) -> None:
        for number in range(30):
            assert store.append(f"s{thread}", drafts(str(number)), expect=number)[0].seq == number + 1

    in_threads(8, work)
    for thread in range(8):
        assert verify_chain(f"s{thread}", EMPTY_HEAD, store.read(f"s{thread}")) == store.head(f"s{thread}")
        assert store.head(f"s{thread}").seq == 30


def test_records_are_stored_with_the_entries_they_are_about_and_the_first_of_a_name_wins(store):
    def records(entries):
        return [("shelf", draft(name, f"{entries[-1].seq}".encode())) for name in ("one", "two")]

    store.append("shelf", [draft("two", b"earlier")])
    entries = store.append(MAIN, drafts("a", "b"), also=records)
    assert [entry.seq for entry in entries] == [1, 2]
    assert {store.find("shelf", f"key-{name}").content for name in ("one", "two")} == {b"2", b"earlier"}
    with pytest.raises(AppendConflict):
        store.append(MAIN, drafts("c"), expect=1, also=lambda entries: [("shelf", draft("three", b"x"))])
    assert store.find("shelf", "key-three") is None


def test_a_refused_append_does_not_disturb_those_beside_it(store):
    store.append(MAIN, drafts("taken"))
    refused = []

    def work(thread: int) -> None:
        for number in range(20):
            bad = draft("taken", b"other") if number % 2 else draft(f"{thread}.{number}", id="id-taken")
            try:
                store.append(MAIN, [bad])
            except (KeyReused, AppendConflict) as error:
                refused.append(error)
            store.append(MAIN, drafts(f"{thread}+{number}"))

    in_threads(6, work)
    assert len(refused) == 6 * 20
    assert store.head(MAIN).seq == 1 + 6 * 20
    assert verify_chain(MAIN, EMPTY_HEAD, store.read(MAIN)) == store.head(MAIN)


def test_of_many_writers_with_the_same_expectation_one_wins(store):
    won, lost = [], []

    def work(thread: int) -> None:
        for place in range(10):
            try:
                won.append(store.append(MAIN, drafts(f"{thread}.{place}"), expect=place)[0].seq)
            except AppendConflict:
                lost.append(place)

    in_threads(6, work)
    assert sorted(won) == list(range(1, len(won) + 1))
    assert len(won) + len(lost) == 60


def test_who_has_the_turn_writes_as_ever_and_it_stores_nothing_by_itself(store):
    with store.turn(MAIN):
        assert store.head(MAIN) == EMPTY_HEAD
        assert store.sessions() == []
        store.append(MAIN, drafts("a"), expect=0)
        store.append("another", drafts("b"))
        with store.turn("a third", patience=0):
            assert contents(store) == [b"a"]
    assert [one.session for one in store.sessions()] == [MAIN, "another"]
    assert store.kept_heads().keys() == {MAIN, "another"}
    assert store.damage() == []


def test_a_turn_that_failed_is_over_too(store):
    store.append(MAIN, drafts("a"))
    with pytest.raises(AppendConflict), store.turn(MAIN):
        store.append(MAIN, drafts("x"), expect=7)
    store.append(MAIN, drafts("b"))
    with store.turn(MAIN, patience=0):
        store.append(MAIN, drafts("c"))
    assert contents(store) == [b"a", b"b", b"c"]


def test_there_is_no_turn_of_what_is_no_name_of_a_session(store):
    with pytest.raises(InputError), store.turn("bad\0name"):
        pass


def test_an_erased_session_is_gone_and_tells_where_it_ended(store):
    store.append(MAIN, drafts("a", "b"))
    store.append("other", drafts("c"))
    head = store.head(MAIN)
    assert store.erase(MAIN) == head
    assert store.head(MAIN) == EMPTY_HEAD
    assert list(store.read(MAIN)) == store.tail(MAIN, 3) == []
    assert store.get(MAIN, "id-a") is store.find(MAIN, "key-a") is None
    assert [line.session for line in store.sessions()] == list(store.kept_heads()) == ["other"]
    assert contents(store, "other") == [b"c"]
    assert store.damage() == []
    assert store.erase(MAIN) == store.erase("never was") == EMPTY_HEAD
    store.scrub([MAIN])
    assert contents(store, "other") == [b"c"]


def test_the_name_of_an_erased_session_begins_a_new_one(store):
    store.append(MAIN, drafts("a", "b"))
    store.erase(MAIN)
    [entry] = store.append(MAIN, drafts("a"), expect=0)
    assert (entry.seq, entry.prev) == (1, GENESIS)
    assert store.kept_heads() == {MAIN: store.head(MAIN)}
    assert verify_chain(MAIN, EMPTY_HEAD, store.read(MAIN)) == store.head(MAIN) == Head(1, entry.hash)


def test_a_session_that_grew_is_not_erased_by_who_has_not_seen_it(store):
    store.append(MAIN, drafts("a", "b"))
    with pytest.raises(AppendConflict):
        store.erase(MAIN, expect=1)
    assert contents(store) == [b"a", b"b"]
    assert store.erase(MAIN, expect=2).seq == 2


def test_who_writes_while_a_session_is_erased_writes_to_the_old_one_or_to_a_new_one(store):
    def work(number: int) -> None:
        for step in range(10):
            if number:
                store.append(MAIN, drafts(f"{number}.{step}"))
            else:
                store.erase(MAIN)

    in_threads(3, work)
    assert verify_chain(MAIN, EMPTY_HEAD, store.read(MAIN)) == store.head(MAIN)
    assert store.damage() == []


class Compared(RuleBasedStateMachine):
    """Any sequence of calls gives what a plain list would give."""

    make: Callable[[Path], TranscriptStore]

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.store = type(self).make(Path(self.folder.name))
        self.model: dict[str, list[Entry]] = {}

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    sessions = st.sampled_from(["one", "two", "ö"])
    names = st.lists(st.integers(0, 12), max_size=5, unique=True)

    @rule(session=sessions, names=names, keyed=st.booleans(), variant=st.sampled_from("aab"), offset=st.integers(-1, 4))
    def append(self, session, names, keyed, variant, offset):
        entries = self.model.get(session, [])
        expect = None if offset > 1 else len(entries) + offset
        batch = [
            draft(str(name), f"{name}{variant}".encode(), key=f"key-{name}" if keyed else None, ts=len(entries))
            for name in names
        ]
        wanted = self.expected(entries, batch, expect)
        if not isinstance(wanted, list):
            with pytest.raises(wanted):
                self.store.append(session, batch, expect=expect)
            return
        found = self.store.append(session, batch, expect=expect)
        assert [(entry.seq, entry.content, entry.ts) for entry in found] == wanted
        if new := [entry for entry in found if entry.seq > len(entries)]:
            self.model[session] = [*entries, *new]

    @rule(session=sessions)
    @precondition(lambda self: len(self.model) > 1)
    def erase(self, session):
        entries = self.model.pop(session, [])
        assert self.store.erase(session) == (Head(entries[-1].seq, entries[-1].hash) if entries else EMPTY_HEAD)

    def expected(self, entries: list[Entry], batch: list[Draft], expect: int | None):
        by_key = {entry.key: entry for entry in entries if entry.key is not None}
        stored = [by_key.get(given.key) for given in batch]
        for given, old in zip(batch, stored, strict=True):
            if old is not None and old.content != given.content:
                return self.first_refusal(batch, stored)
        seqs = [old.seq for old in stored if old is not None]
        new = [given for given, old in zip(batch, stored, strict=True) if old is None]
        if stored[: len(seqs)].count(None) or seqs != sorted(seqs):
            return AppendConflict
        if new and expect is not None and expect != len(entries):
            return AppendConflict
        if {given.id for given in new} & {entry.id for entry in entries}:
            return AppendConflict
        old = [(entry.seq, entry.content, entry.ts) for entry in stored if entry is not None]
        return old + [(len(entries) + place, given.content, given.ts) for place, given in enumerate(new, 1)]

    def first_refusal(self, batch: list[Draft], stored: list[Entry | None]) -> type[Exception]:
        """Drafts are looked at in order, so the first that is wrong says what is wrong."""
        last = 0
        for place, (given, old) in enumerate(zip(batch, stored, strict=True)):
            if old is None:
                continue
            if old.content != given.content:
                return KeyReused
            if None in stored[:place] or old.seq <= last:
                return AppendConflict
            last = old.seq
        raise AssertionError

    @precondition(lambda self: self.model)
    @rule(session=sessions, start=st.integers(-2, 30), length=st.integers(-2, 30), name=st.integers(0, 12))
    def read(self, session, start, length, name):
        entries = self.model.get(session, [])
        assert (
            list(self.store.read(session, start, start + length)) == entries[max(start, 1) - 1 : max(start + length, 0)]
        )
        assert self.store.tail(session, length) == (entries[-length:] if length > 0 else [])
        by_id = {entry.id: entry for entry in entries}
        by_key = {entry.key: entry for entry in entries if entry.key}
        assert self.store.get(session, f"id-{name}") == by_id.get(f"id-{name}")
        assert self.store.find(session, f"key-{name}") == by_key.get(f"key-{name}")

    @invariant()
    def heads_and_list_agree(self):
        heads = {name: Head(len(entries), entries[-1].hash) for name, entries in self.model.items()}
        assert self.store.kept_heads() == heads
        assert [(line.session, line.entries) for line in self.store.sessions()] == [
            (name, heads[name].seq) for name in sorted(heads)
        ]

    @invariant()
    def the_chain_holds(self):
        for name in self.model:
            assert verify_chain(name, EMPTY_HEAD, self.store.read(name)) == self.store.head(name)


@pytest.mark.parametrize("name", STORES)
def test_any_sequence_of_calls_gives_what_a_plain_list_would_give(name):
    machine = type(f"Compared_{name}", (Compared,), {"make": staticmethod(STORES[name])})
    examples = 6 if name == "postgres" else 40  # each call is a round trip
    machine.TestCase.settings = settings(settings.get_profile("recto"), max_examples=examples, stateful_step_count=30)
    machine.TestCase("runTest").runTest()
