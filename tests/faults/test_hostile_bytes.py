"""Promise 11: any input is recorded byte for byte or raises an `InputError`, in bounded time.

Seeded mutations of small messages, bodies and files. A failure shows the bytes that reproduce it.
"""

from __future__ import annotations

import json
import random
import re
import resource
import time
from collections.abc import Callable, Iterator

import pytest

from recto.errors import InputError
from recto.formats import FORMATS, canonical, detect, open_body, read, read_reply, render
from recto.formats.json_spans import parse, text_of
from recto.formats.session_files import lines_of, read_file
from recto.formats.session_files.recto_jsonl import read_entries, write_header, write_line
from recto.transcript.entries import EMPTY_HEAD, Draft, link_entries

WIRES = sorted(FORMATS)
SHARDS = 4
SLOWEST = 1.0
"""Seconds of processor time that no input may take."""

MESSAGES = [
    b'{"role":"user","content":"hi"}',
    b'{"role":"assistant", "content": null, "tool_calls":[{"id":"c","function":{"name": "f", "arguments": "{}"}}]}',
    b'{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"r"}]}',
    b'{"role":"assistant","content":"","reasoning_content":"t","reasoning_details":[{"text":"t","data":"e"}]}',
    b'{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}',
    b'{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"t","name":"f","input":{}}]}',
    b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"},{"type":"image","source":{"data":"/9j/"}}]}',
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"{\\"a\\":1}"}',
    b'{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"r"}]}',
    b'{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"e"}',
    b'{"role":"user","content":[{"type":"document","source":{"type":"text","data":"d"}}],"x":1e2,"y":-0}',
]
BODIES = [
    b'{"model":"m","system":"s","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}],"tools":[]}',
    b'{"input": "hi", "instructions": null}',
    b'{"choices":[{"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}',
    b'{"content":[{"type":"text","text":"x"}],"usage":{"input_tokens":1},"output":[{"type":"reasoning"}]}',
]
_ENTRIES = link_entries("s", EMPTY_HEAD, [Draft(id=f"e{n}", ts=n, role="user", content=MESSAGES[0]) for n in range(2)])
FILES = [
    b'{"type":"user","uuid":"u","sessionId":"s","timestamp":"2026-01-02T03:04:05Z","message":{"role":"user","content":"a"}}\n',
    b'{"timestamp":"2026-01-02T03:04:05Z","type":"response_item","payload":{"type":"reasoning","summary":[]}}\r\n',
    b'{"type":"meta","session_id":"n"}\n{"type":"message","role":"user","ts":"x","content":[],"i":0}\n',
    b'[{"turns":[[{"role":"user","content":"a"}],[{"role":"assistant","content":"b"}]]}]',
    b'{"messages":[{"role":"user","content":"a"}]}\n\n{"id":"x","messages":[{"role":"user","content":"b"}]}\n',
    b'\xef\xbb\xbf{"role":"user","content":"a"}\n{"role":"assistant","content":"b"}',
    write_header() + b"".join(map(write_line, _ENTRIES)),
]
SPITE = [
    b"\x00", b"\\u0000", b"\\ud800", b"\xed\xa0\x80", b"\xff", b"\xef\xbb\xbf", b"NaN", b"-Infinity", b"1e400",
    b"-0", b"9" * 30, b"9" * 4301, b"[" * 200, b'{"a":' * 130, b"]", b"}", b"[", b"{", b'"', b"\\", b",", b":",
    b"null", b"true", b'""', b"[]", b"{}", b'"role":"x",', b'"role":1,', b'"content":', b'"type":"message",',
    b'"type":[],', b'"id":{},', b"\n", b"\r", b" ", b"\t", b"\x1b[2J", b"\x7f", b"\xe2\x80\xa8",
    b"\xf0\x9f\x98\x80", b"\xc3", '{"role"'.encode("utf-16"), b"'", b"//", b"A" * 300,
]  # fmt: skip
VALUES = [
    b"null", b"true", b"3", b"-1.5e400", b"9" * 4301, b'""', b'"x"', b'"\\ud800"', b'"\\u0000"', b"[]", b"{}",
    b"[[]]", b'[{"type":"text"}]', b'[null,"x",3,{"type":[]}]', b'{"type":"text","text":7}',
    b'{"url":[],"data":{}}', b'"tool_result"', b'"tool_use"', b'"input_image"', b'"role"', b'"content"',
    b'"type"', b'"tool_use_id"', b'"image"', b'"message"', b'"x_call"', b'"x_output"',
    b'"2026-02-30T00:00:00Z"',
]  # fmt: skip
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|null|-?[0-9][0-9.e]*|\[\]|\{\}')
PLACES = {seed: [token.span() for token in TOKEN.finditer(seed)] for seed in (*MESSAGES, *BODIES, *FILES)}


def mutated(seed: bytes, chance: random.Random) -> bytes:
    """Returns a seed with a value replaced, so that it stays JSON, or with its bytes disturbed, or both."""
    raw = seed
    how = int(chance.random() * 8)
    if how < 6:
        places = PLACES[seed]
        start, end = places[int(chance.random() * len(places))]
        raw = raw[:start] + VALUES[int(chance.random() * len(VALUES))] + raw[end:]
    if how < 4:
        return raw
    at = int(chance.random() * (len(raw) + 1))
    what = int(chance.random() * 5)
    if what == 0:
        return raw[:at] + SPITE[int(chance.random() * len(SPITE))] + raw[at:]
    if what == 1:
        return raw[:at] + bytes((int(chance.random() * 256),)) + raw[at + 1 :]
    if what == 2:
        return raw[:at] + raw[at + int(chance.random() * 9) :]
    if what == 3:
        return raw[:at] + raw[max(0, at - int(chance.random() * 30)) :]
    return raw[:at]


def through_messages(raw: bytes, turn: int) -> None:
    wire = WIRES[turn % len(WIRES)]
    read(raw, wire)
    sent = render([raw])
    assert sent[1:-1] == raw
    key = b"input" if wire == "openai.responses" else b"messages"
    body = b'{"%s": %s}' % (key, sent)
    opened = open_body(body, wire)
    assert opened.messages == (raw.strip(b" \t\r\n"),)
    assert opened.with_messages(opened.messages) == body
    if turn % 8 == 0:
        assert canonical(raw, wire)
        assert detect(raw) in FORMATS


def through_bodies(raw: bytes, turn: int) -> None:
    wire = WIRES[turn % len(WIRES)]
    if turn % 2:
        for message in read_reply(raw, wire).messages:
            parse(text_of(message))
        return
    body = open_body(raw, wire)
    assert body.with_messages(body.messages) == raw
    changed = [b'{"role":"user","content":"new"}', *body.messages]
    assert open_body(body.with_messages(changed), wire).messages == tuple(changed)


def through_files(raw: bytes, turn: int) -> None:
    keep_going = bool(turn % 2)
    found = list(read_file([raw], "x.jsonl", keep_going=keep_going))
    assert b"".join(entry.source for entry in found) == raw
    for entry in found:
        json.dumps(entry.meta, allow_nan=False, ensure_ascii=False).encode()
        assert entry.session.isprintable()


def through_our_own(raw: bytes, turn: int) -> None:
    assert list(read_entries(lines_of([raw]), "x.jsonl"))


def through_everything(raw: bytes, turn: int) -> None:
    kind = turn % 16
    through = through_messages if kind < 13 else through_bodies if kind < 15 else through_files
    through(raw, turn // 16)


Through = Callable[[bytes, int], object]


def hunt(through: Through, executions: int, seed: int) -> Iterator[tuple[bytes, str]]:
    """Yields inputs that led to anything but a record or an `InputError`, or took too long."""
    chance = random.Random(seed)
    for turn in range(executions):
        kind = turn % 16
        seeds = MESSAGES if kind < 13 else BODIES if kind < 15 else FILES
        raw = mutated(seeds[int(chance.random() * len(seeds))], chance)
        started = time.thread_time()
        try:
            through(raw, turn)
        except InputError:
            pass
        except Exception as error:  # noqa: BLE001  what the hunt looks for
            yield raw, repr(error)
        if time.thread_time() - started > SLOWEST:
            yield raw, "too slow"


@pytest.mark.promise
@pytest.mark.parametrize("shard", range(SHARDS))
def test_mutated_input_is_recorded_faithfully_or_refused(shard, scale):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = next(hunt(through_everything, scale(40_000, ci=10**6, release=10**9) // SHARDS, seed=shard), None)
    assert found is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024


def fragile(raw: bytes, turn: int) -> None:
    """A naive reader: the control."""
    json.loads(raw)["role"].lower()


def rewriting(raw: bytes, turn: int) -> None:
    """A reader that accepts everything, but reserializes the message."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return
    assert json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass") == raw


@pytest.mark.parametrize("careless", [fragile, rewriting])
def test_the_hunt_catches_a_careless_reader(careless):
    assert len(list(hunt(careless, 2_000, seed=0))) > 10


def nested(open_: bytes, close: bytes, depth: int) -> bytes:
    return open_ * depth + close * depth


MANY = 20_000
HUGE = {
    "lists 10^5 deep": nested(b"[", b"]", 10**5),
    "objects 10^5 deep": nested(b'{"a":', b"}", 10**5),
    "lists 10^5 deep in a message": b'{"role":"user","content":' + nested(b"[", b"]", 10**5) + b"}",
    "never closed": b"[" * 10**6,
    "a text of 20 MB": b'{"role":"user","content":"' + b"x" * 20_000_000 + b'"}',
    "a text of escapes": b'{"role":"user","content":"' + b'\\"' * 2_000_000 + b'"}',
    "an open text of escapes": b'{"role":"user","content":' + b"[" * 129 + b'"' + b'\\"' * 1_000_000,
    "an integer of 10^6 digits": b'{"role":"user","content":' + b"9" * 10**6 + b"}",
    "a fraction of 10^6 digits": b'{"role":"user","content":0.' + b"9" * 10**6 + b"}",
    "thousands of keys": b'{"role":"user","content":{' + b",".join(b'"k%d":1' % n for n in range(MANY)) + b"}}",
    "thousands of blocks": b'{"role":"user","content":[' + b",".join([b'{"type":"x"}'] * MANY) + b"]}",
    "thousands of messages": b"[" + b",".join([b'{"role":"user","content":"x"}'] * MANY) + b"]",
    "thousands of arrays of messages": b"[" + b",".join([b'{"m":[{"role":"user","content":"x"}]}'] * MANY) + b"]",
    "messages 60 deep in messages": b'[{"role":"user","content":' * 60 + b"1" + b"}]" * 60,
    "10^6 blank lines": b"\n" * 10**6 + b'{"role":"user","content":"x"}\n',
    "one character of base64": b'{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"/9j/'
    + b"A" * 5_000_000
    + b'"}}]}',
    "10^6 NUL": bytes(10**6),
    "10^6 surrogates": b'{"role":"user","content":"' + b"\\ud800" * 10**6 + b'"}',
    "UTF-16": '[{"role": "user", "content": "x"}]'.encode("utf-16") * 1000,
}


def turns_of_each() -> Iterator[tuple[Through, int]]:
    """Yields every reader in each of its modes: by format, and strict or not."""
    for through, ways in ((through_messages, 3), (through_bodies, 3), (through_files, 2)):
        for turn in range(ways):
            yield through, turn
    yield lambda raw, turn: list(read_entries(lines_of([raw]), "x")), 0


@pytest.mark.parametrize("name", HUGE)
def test_huge_input_is_recorded_faithfully_or_refused_in_bounded_time(name):
    raw = HUGE[name]
    for through, turn in turns_of_each():
        started = time.thread_time()
        refusal = ""
        try:
            through(raw, turn)
        except InputError as error:
            refusal = str(error)
        assert len(refusal) < 2000
        assert time.thread_time() - started < 2 + len(raw) / 500_000
