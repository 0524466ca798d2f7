"""Complete real sessions: every file is reproduced byte for byte, and every message in it is read."""

from __future__ import annotations

import json
import time

import pytest

from recto.errors import UnknownFormat
from recto.formats import canonical, open_body, read, render
from recto.formats.session_files import SourceEntry, detect_file, read_file


def read_back(file) -> list[SourceEntry]:
    raw = file.read_bytes()
    found = list(read_file([raw[at : at + 65_536] for at in range(0, len(raw), 65_536)], file.name))
    assert b"".join(entry.source for entry in found) == raw
    return found


def check_messages(entries: list[SourceEntry]) -> int:
    messages = [entry for entry in entries if entry.kind == "message"]
    for entry in messages:
        message = read(entry.content, entry.wire)
        assert message.role == entry.role
        assert json.loads(canonical(entry.content, entry.wire))["role"]
    rendered = render(entry.content for entry in messages)
    body = open_body(b'{"model": "m", "messages": ' + rendered + b"}", "openai.chat")
    assert body.messages == tuple(entry.content for entry in messages)
    return len(messages)


def test_agent_sessions_round_trip_with_their_call_pairs(data):
    files = sorted((data / "agent_sessions").rglob("*.jsonl"))
    count, calls, results = 0, set(), set()
    for file in files:
        entries = read_back(file)
        assert detect_file(file.read_bytes()[:4096]) == "session_lines"
        assert {entry.session for entry in entries} == {file.stem}
        assert all(entry.ts for entry in entries if entry.kind == "message")
        count += check_messages(entries)
        for entry in entries:
            if entry.kind == "message":
                message = read(entry.content, entry.wire)
                calls |= {part.call_id for part in message.calls}
                results |= {part.call_id for part in message.results}
    assert (len(files), count, len(calls), len(results)) == (42, 10_831, 5_004, 4_996)
    assert results <= calls


def test_tau_bench_is_read_as_two_hundred_runs(data):
    entries = read_back(data / "taubench" / "gpt-4o-airline.json")
    assert check_messages(entries) == 5_308
    assert len({entry.session for entry in entries}) == 200
    assert {entry.wire for entry in entries} == {"openai.chat"}
    open_calls: dict[str, set[str]] = {}
    for entry in entries:
        message = read(entry.content, entry.wire)
        waiting = open_calls.setdefault(entry.session, set())
        waiting |= {part.call_id for part in message.calls}
        assert {part.call_id for part in message.results} <= waiting


def test_longmemeval_has_a_session_for_each_of_its_chats_and_is_read_in_seconds(data):
    started = time.process_time()
    entries = read_back(data / "longmemeval_oracle" / "longmemeval_oracle.json")
    assert time.process_time() - started < 10
    assert check_messages(entries) == 10_960
    assert len({entry.session for entry in entries}) == 948
    assert entries[0].session == "longmemeval_oracle/gpt4_2655b836/haystack_sessions/answer_4be1b6b4_2"


def test_each_beam_chat_is_one_conversation(data):
    count = 0
    for file in sorted((data / "beam_100K").glob("*/chat.json")):
        entries = read_back(file)
        assert {entry.session for entry in entries} == {"chat"}
        assert [entry.meta["id"] for entry in entries] == list(range(len(entries)))
        count += check_messages(entries)
    assert count == 5_732


@pytest.mark.parametrize("pattern", ["*/probing_questions.json", "lme48_haystacks.json", "index.json", "LICENSE"])
def test_files_without_messages_are_refused(data, pattern):
    files = list(data.glob(f"*/{pattern}"))
    assert files
    for file in files:
        with pytest.raises(UnknownFormat):
            read_back(file)
