"""Server-sent events: parsed across arbitrary chunk boundaries, forwarded byte for byte."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from recto.errors import MalformedMessage
from recto.formats.streaming import SseReader, sse

ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
LINES = st.sampled_from(
    [
        b"data: x",
        b"data:y",
        b"data: \xc3\xbc \xe2\x82\xac",
        b"event: e",
        b"event:f",
        b": comment",
        b"id: 7",
        b"data",
        b"",
    ]
) | st.binary(max_size=6).filter(lambda line: b"\n" not in line and b"\r" not in line)
STREAMS = st.lists(st.tuples(LINES, ENDS).map(b"".join), max_size=12).map(b"".join)


def chunks_of(raw, cuts):
    places = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    return [raw[start:end] for start, end in pairwise(places)]


def read(raw, cuts=()):
    reader = SseReader()
    return [event for chunk in chunks_of(raw, cuts) for event in reader.feed(chunk)], reader.rest


def test_names_data_comments_and_all_line_ends_are_read():
    events, rest = read(
        b"\xef\xbb\xbfevent: a\ndata: one\ndata:two\n\n: ping\n\ndata: {}\r\n\r\n"
        b"event: b\rdata\r\rid: 1\nretry: 2\n\nda"
    )
    assert [(event.name, event.data) for event in events] == [
        ("a", "one\ntwo"),
        ("", ""),
        ("", "{}"),
        ("b", ""),
        ("", ""),
    ]
    assert rest == b"da"


@given(raw=STREAMS, cuts=st.lists(st.integers(0, 80), max_size=8), mark=st.booleans())
def test_chunk_boundaries_change_no_event_and_lose_no_byte(raw, cuts, mark):
    raw = b"\xef\xbb\xbf" * mark + raw
    whole, rest = read(raw)
    events, left = read(raw, cuts)
    assert b"".join(event.raw for event in events) + left == raw == b"".join(event.raw for event in whole) + rest
    contents = [(event.name, event.data) for event in events if event.name or event.data]
    assert contents == [(event.name, event.data) for event in whole if event.name or event.data]


@given(raw=STREAMS.filter(lambda raw: b"id" not in raw and b"retry" not in raw), cuts=st.lists(st.integers(0, 80)))
def test_events_equal_those_of_the_openai_client(raw, cuts):
    try:
        raw.decode()
    except UnicodeDecodeError:
        return
    events, _ = read(raw + b"\n\n", cuts)
    theirs = list(SSEDecoder().iter_bytes(iter([raw + b"\n\n"])))
    assert [(event.name, event.data) for event in events if event.name or event.data] == [
        (event.event or "", event.data) for event in theirs if event.event or event.data
    ]


@given(
    name=st.none() | st.sampled_from(["a", "response.created"]), data=st.text(st.characters(exclude_categories=["Cs"]))
)
def test_written_events_are_read_back(name, data):
    [event], rest = read(sse(name, data))
    assert (event.name, rest) == (name or "", b"")
    assert event.data.split("\n") == (data.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n"))


def test_a_late_line_feed_is_not_a_line_of_its_own():
    reader = SseReader()
    assert [event.data for event in reader.feed(b"data: x\r\n\r")] == ["x"]
    assert [event.raw for event in reader.feed(b"\ndata: y\n\n")] == [b"\ndata: y\n\n"]
    assert [event.raw for event in SseReader().feed(b"\xef\xbb\xbf\ndata: y\n\n")][1:] == [b"data: y\n\n"]


def test_an_endless_event_is_refused_and_earlier_events_are_kept():
    reader = SseReader(max_bytes=100)
    assert [event.data for event in reader.feed(b"data: a\n\ndata: " + b"x" * 200)] == ["a"]
    with pytest.raises(MalformedMessage, match="longer than 100 bytes"):
        reader.feed(b"x")
    with pytest.raises(MalformedMessage, match="longer than 100 bytes"):
        SseReader(max_bytes=100).feed(b"data: " + b"x" * 200 + b"\n\n")


def test_a_long_event_in_small_pieces_is_scanned_once():
    reader = SseReader()
    for piece in range(1, 2_000):
        assert reader.feed(b"x" * 64) == []
        assert reader._seen == piece * 64 - 3
    assert [event.raw for event in reader.feed(b"\n\n")] == [b"x" * 64 * 1_999 + b"\n\n"]
