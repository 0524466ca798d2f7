"""Recto's own JSONL: exports round-trip without loss, and forged lines are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.errors import FileTooNew, InputError, MalformedFile
from recto.formats.session_files import detect_file, lines_of, read_file
from recto.formats.session_files.recto_jsonl import read_entries, write_header, write_line
from recto.transcript.entries import EMPTY_HEAD, Draft, Entry, Head, link_entries

CONTENTS = [
    b'{"role": "user", "content": "\xc3\xa9"}',
    b'{"role":"user","content":1e400,"x":18446744073709551616}',
    b'{"a": 1}\n',
    b' {"a": 1}',
    b'{"type": "text", "type": "twice"}',
    b'{"a": NaN}',
    b"\xff\x00 not even text",
    b"",
    b"1,2",
    b"1], [2",
    b'"a\r"',
    b"[" * 127 + b"]" * 127,
    b"[" * 128 + b"]" * 128,
    b'{"content": "\\ud800"}',
    '{"line": "\u2028\u0085"}'.encode(),
]


def draft(number: int, content: bytes, **fields) -> Draft:
    fields_with_defaults = {
        "id": f"e{number}",
        "ts": number,
        "role": "user",
        "content": content,
        "wire": "openai.chat",
        **fields,
    }
    return Draft(**fields_with_defaults)


def transcript(session: str = "agent:default:main", contents=CONTENTS) -> list[Entry]:
    drafts = [
        draft(number, content, key=f"k{number}" if number % 2 else None) for number, content in enumerate(contents)
    ]
    return link_entries(session, EMPTY_HEAD, drafts)


def heads_of(entries: list[Entry]) -> dict[str, Head]:
    return {entry.session: Head(entry.seq, entry.hash) for entry in entries}


def file_of(entries: list[Entry], heads: bool = True) -> bytes:
    return write_header(heads_of(entries) if heads else None) + b"".join(map(write_line, entries))


def test_written_entries_are_read_back_byte_for_byte():
    entries = transcript() + transcript("../../etc/passwd") + transcript("agent:ü:main")
    raw = file_of(entries)
    assert raw.count(b"\n") == len(entries) + 1
    assert detect_file(raw[:100]) == "recto"
    back = list(read_entries(lines_of([raw]), "x.jsonl"))
    assert back == entries
    assert file_of(back) == raw
    assert link_entries("agent:ü:main", EMPTY_HEAD, back[-len(CONTENTS) :])[-1].hash == entries[-1].hash


def test_single_line_json_content_is_stored_as_plain_json():
    first, *_, last = file_of(transcript(contents=CONTENTS[:1] * 2)).splitlines()
    assert json.loads(first)["recto"] == 1
    assert json.loads(last)["content"] == {"role": "user", "content": "é"}
    assert "content_base64" not in json.loads(last)


DRAFTS = st.builds(
    Draft,
    id=st.uuids().map(str),
    ts=st.integers(-(2**63), 2**63 - 1),
    role=st.sampled_from(["system", "user", "assistant", "tool", "event"]),
    content=st.binary(max_size=30)
    | st.sampled_from(CONTENTS)
    | st.recursive(
        st.none() | st.text(), lambda inner: st.dictionaries(st.text(), inner, max_size=2), max_leaves=3
    ).map(lambda value: json.dumps(value).encode()),
    kind=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
    wire=st.sampled_from(["", "openai.chat", 'odd"\\name\n']),
    tokens=st.integers(0, 2**63 - 1),
    counter=st.sampled_from(["", "o200k"]),
    meta=st.sampled_from([b"{}", b'{"line": 3}', b"{\n}", b'{"content": {"seq": 1}}']),
    key=st.none() | st.uuids().map(str),
)


@given(drafts=st.lists(DRAFTS, max_size=4), heads=st.booleans())
def test_any_entries_round_trip(drafts, heads):
    entries = link_entries("s", EMPTY_HEAD, drafts)
    raw = file_of(entries, heads)
    assert list(read_entries(lines_of([raw]), "x")) == entries
    copies = list(read_file([raw], "x"))
    assert b"".join(entry.source for entry in copies) == raw
    assert [entry.content for entry in copies[1:]] == [entry.content for entry in entries]


def test_a_file_of_a_newer_recto_is_refused_with_the_fix():
    raw = file_of(transcript()).replace(b'"recto": 1', b'"recto": 2', 1)
    with pytest.raises(FileTooNew, match="use a newer Recto"):
        list(read_entries(lines_of([raw]), "x"))
    with pytest.raises(FileTooNew, match="use a newer Recto"):
        list(read_file([raw], "x", keep_going=True))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"seq": 2,', b'"seq": 3,', "entry 2 is missing"),
        (b'"ts": 1,', b'"ts": 9,', "its hash does not match"),
        (b'"role": "user", "kind"', b'"role": "system", "kind"', "its hash does not match"),
        (b'"role": "user", "kind"', b'"role": "root", "kind"', "'root' is not a role"),
        (b'"id": "e1"', b'"id": "\\ud800"', "lone surrogate"),
        (b'"id": "e1"', b'"id": 7', "'id' is missing or not a text"),
        (b'"seq": 1,', b'"seq": true,', "not a whole number"),
        (b'"tokens": 0', b'"tokens": -1', "not below zero"),
        (b'"key": null', b'"key": null, "spare": 1', "no member 'spare'"),
        (b'"meta": {}', b'"meta": {}, "meta_base64": ""', "one of 'meta' and 'meta_base64'"),
        (b'"meta": {}, ', b"", "one of 'meta' and 'meta_base64'"),
        (b'"prev": "00', b'"prev": "0', "64 hexadecimal digits"),
        (b'"hash": "', b'"hash": " ', "64 hexadecimal digits"),
        (b'{"session"', b'["session"', "expected"),
    ],
)
def test_a_changed_line_is_refused_with_its_reason(old, new, reason):
    raw = file_of(transcript(contents=CONTENTS[:3]))
    assert old in raw
    with pytest.raises(MalformedFile, match=reason):
        list(read_entries(lines_of([raw.replace(old, new, 1)]), "x"))


def test_a_truncated_file_is_refused_when_its_header_names_the_end():
    raw = file_of(transcript()).splitlines(keepends=True)
    with pytest.raises(MalformedFile, match="the end is missing"):
        list(read_entries(lines_of([b"".join(raw[:-1])]), "x"))
    short = write_header() + b"".join(raw[1:-1])
    assert len(list(read_entries(lines_of([short]), "x"))) == len(CONTENTS) - 1


@pytest.mark.parametrize(
    "header", [b"", b"{}", b'{"recto": "1"}', b'{"recto": 0}', b'{"recto": true}', b'{"recto": 1, "heads": {"s": [1]}}']
)
def test_a_file_without_a_proper_header_is_refused(header):
    body = b"".join(map(write_line, transcript()))
    with pytest.raises(InputError):
        list(read_entries(lines_of([header + b"\n" + body]), "x"))
    with pytest.raises(InputError):
        list(read_entries(lines_of([]), "x"))


def test_readable_entries_of_a_damaged_file_are_imported_as_copies():
    entries = transcript()
    raw = file_of(entries).splitlines(keepends=True)
    raw[3] = raw[3][:50] + b"\n"
    damaged = b"".join(raw)
    with pytest.raises(MalformedFile, match="line 4"):
        list(read_file([damaged], "x"))
    problems = []
    found = list(read_file([damaged], "x", keep_going=True, report=problems.append))
    assert b"".join(entry.source for entry in found) == damaged
    assert [problem.line for problem in problems] == [4, 5]  # the line itself, and the one that no longer follows
    assert [entry.kind for entry in found].count("unreadable_line") == 1
    assert found[-1].content == entries[-1].content
    assert found[-1].meta["seq"] == len(entries)
