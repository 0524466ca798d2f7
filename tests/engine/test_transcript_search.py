"""Transcript search: lines with context and entries by range, in pages without gaps."""

from __future__ import annotations

import pytest
from tests.context.worked_sessions import FORMATS, worked

import recto
from recto.engine import transcript_search
from recto.errors import InputError


@pytest.fixture(params=FORMATS)
def session(request) -> recto.Session:
    with worked(request.param) as opened:
        yield opened


def log(session: recto.Session, *texts: str) -> None:
    for text in texts:
        session.append({"role": "user", "content": text})


@pytest.fixture
def empty() -> recto.Session:
    with recto.open("memory:", model="gpt-4o", recall={"enabled": False}) as opened:
        yield opened


def test_a_text_is_found_in_messages_calls_and_results_of_every_format(session):
    assert len(session.transcript.grep("KeyError: 'port'").matches) == 2
    assert session.transcript.grep("pip install pytest-env").matches
    assert session.transcript.grep("fix the PORT lookup").matches[0].seq == 1
    assert not session.transcript.grep("fix the PORT lookup", case=True).matches
    assert not session.transcript.grep("nowhere to be found").matches


def test_a_regular_expression_is_found_line_by_line(session):
    found = session.transcript.grep(r"\d+ (passed|failed) in [\d.]+s$", regex=True, newest_first=False)
    lines = [line.text for match in found.matches for line in match.lines]
    assert [line[-17:] for line in lines] == ["1 failed in 0.52s", "1 failed in 0.52s", "3 passed in 0.31s"]


def test_lines_around_a_match_come_with_their_numbers(empty):
    log(empty, "one\ntwo\nthree kestrel\nfour\nfive\nsix kestrel\nseven")
    [match] = empty.transcript.grep("kestrel", context=1).matches
    assert [(line.number, line.text, line.matches) for line in match.lines] == [
        (2, "two", False),
        (3, "three kestrel", True),
        (4, "four", False),
        (5, "five", False),
        (6, "six kestrel", True),
        (7, "seven", False),
    ]
    assert match.count == 2
    assert match.pointer.endswith("/1")


@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_of_matches_add_up_to_all_matches(empty, newest_first):
    log(empty, *(f"kestrel {number}" if number % 3 else "nothing" for number in range(40)))
    whole = [match.seq for match in empty.transcript.grep("kestrel", newest_first=newest_first, limit=1_000).matches]
    assert len(whole) == 26
    found, start = [], None
    while True:
        page = empty.transcript.grep("kestrel", start, newest_first=newest_first, limit=4)
        found += [match.seq for match in page.matches]
        start = page.next
        if start is None:
            break
    assert found == whole


def test_a_search_stops_at_the_requested_last_entry(empty):
    log(empty, *(f"kestrel {number}" for number in range(10)))
    assert [match.seq for match in empty.transcript.grep("kestrel", 3, stop=5, newest_first=False).matches] == [3, 4, 5]
    assert [match.seq for match in empty.transcript.grep("kestrel", 5, stop=3).matches] == [5, 4, 3]


def test_a_search_reads_a_bounded_number_of_entries_and_characters(empty, monkeypatch):
    log(empty, *(f"kestrel {number}" for number in range(10)))
    monkeypatch.setattr(transcript_search, "MAX_ENTRIES", 4)
    page = empty.transcript.grep("nothing")
    assert (page.searched, page.next) == (4, 6)
    monkeypatch.setattr(transcript_search, "MAX_ENTRIES", 100)
    monkeypatch.setattr(transcript_search, "MAX_CHARS", 20)
    page = empty.transcript.grep(r"[a-z]+ \d$", regex=True)
    assert page.next is not None
    assert len(page.matches) < 10


def test_a_long_line_is_cut_around_its_match_and_many_lines_are_counted(empty):
    log(empty, f"{'x' * 5_000} kestrel {'y' * 5_000}", "kestrel\n" * 500)
    many, long = empty.transcript.grep("kestrel", limit=1_000).matches
    assert many.count == 500
    assert len(many.lines) == 50
    [line] = long.lines
    assert "kestrel" in line.text
    assert len(line.text) < 500
    assert line.text.startswith("…")
    assert line.text.endswith("…")


def test_decisions_and_other_events_are_not_searched(empty):
    log(empty, "kestrel")
    empty.note("misc", "kestrel")
    assert [match.seq for match in empty.transcript.grep("kestrel").matches] == [1]


def test_an_invalid_pattern_is_refused(empty):
    with pytest.raises(InputError):
        empty.transcript.grep("(a", regex=True)


def test_entries_are_listed_with_role_size_and_first_line(session):
    first, second, *_ = session.transcript.outline().entries
    assert (first.seq, first.role, first.first_line, first.lines) == (1, "user", "Fix the port lookup.", 1)
    assert first.characters == len("Fix the port lookup.")
    assert first.tokens > 0
    assert second.role == "assistant"
    assert "I look at the parser first." in second.first_line


def test_pages_of_the_outline_add_up_in_both_directions(empty):
    log(empty, *(f"message {number}\nmore" for number in range(10)))
    page = empty.transcript.outline(limit=4)
    assert [entry.seq for entry in page.entries] == [1, 2, 3, 4]
    assert [entry.seq for entry in empty.transcript.outline(page.next, limit=4).entries] == [5, 6, 7, 8]
    assert empty.transcript.outline(9, limit=4).next is None
    assert [entry.seq for entry in empty.transcript.outline(limit=3, newest_first=True).entries] == [10, 9, 8]
    assert empty.transcript.outline(1, limit=1).entries[0].first_line == "message 0"
