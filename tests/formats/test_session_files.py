"""Session files of other programs: what is read from them, and that every byte can be restored."""

from __future__ import annotations

import json

import pytest
from tests.formats.file_checks import REPLY, USER, entries_of, lines, outline
from tests.formats.test_agent_sessions import COPILOT, CURSOR, GEMINI, GOOSE, OPENCODE, PI

from recto.errors import MalformedFile, UnknownFormat
from recto.formats.session_files import ReadProblem, detect_file, read_file

CLAUDE = [
    {"type": "summary", "summary": "Tidy the logs", "leafUuid": "u9"},
    {
        "type": "file-history-snapshot",
        "messageId": "m0",
        "snapshot": {"trackedFileBackups": {}},
        "isSnapshotUpdate": False,
    },
    {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/me/project",
        "sessionId": "5f1c",
        "version": "2.1.0",
        "type": "user",
        "message": {"role": "user", "content": "list the files"},
        "uuid": "u1",
        "timestamp": "2026-02-03T04:05:06.789Z",
    },
    {
        "parentUuid": "u1",
        "isSidechain": False,
        "sessionId": "5f1c",
        "type": "assistant",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 3, "output_tokens": 4},
        },
        "requestId": "req_1",
        "uuid": "u2",
        "timestamp": "2026-02-03T04:05:07Z",
    },
    {
        "parentUuid": "u2",
        "isSidechain": False,
        "sessionId": "5f1c",
        "type": "user",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a.py"}]},
        "toolUseResult": {"stdout": "a.py", "stderr": ""},
        "uuid": "u3",
        "timestamp": "2026-02-03T04:05:08Z",
    },
    {
        "type": "system",
        "subtype": "compact_boundary",
        "sessionId": "5f1c",
        "uuid": "u4",
        "content": "Conversation compacted",
    },
    {
        "type": "user",
        "isSidechain": True,
        "agentId": "a7",
        "sessionId": "5f1c",
        "message": {"role": "user", "content": "look"},
    },
    {"type": "progress", "sessionId": "5f1c", "data": {"percent": 10}},
]


QWEN = [
    {
        "uuid": "u1",
        "parentUuid": None,
        "sessionId": "3173",
        "timestamp": "2026-11-17T18:21:33.000Z",
        "type": "user",
        "provenance": "real_user",
        "message": {"role": "user", "parts": [{"text": "List the files."}]},
    },
    {
        "uuid": "u2",
        "parentUuid": "u1",
        "sessionId": "3173",
        "timestamp": "2026-11-17T18:21:34.000Z",
        "type": "system",
        "provenance": "system",
        "subtype": "ui_telemetry",
    },
    {
        "uuid": "u3",
        "parentUuid": "u2",
        "sessionId": "3173",
        "timestamp": "2026-11-17T18:21:35.000Z",
        "type": "assistant",
        "provenance": "assistant_output",
        "model": "qwen-x",
        "message": {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "ls", "args": {}}}]},
    },
    {
        "uuid": "u4",
        "parentUuid": "u3",
        "sessionId": "3173",
        "timestamp": "2026-11-17T18:21:36.000Z",
        "type": "tool_result",
        "provenance": "tool_result",
        "message": {
            "role": "user",
            "parts": [{"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a.py"}}}],
        },
    },
]


def test_a_qwen_code_session_is_read_as_contents_of_gemini():
    found = entries_of(lines(*QWEN))
    assert outline(found) == [
        ("user", "message"),
        ("event", "imported_line"),
        ("assistant", "message"),
        ("tool", "message"),
    ]
    assert {entry.session for entry in found} == {"3173"}
    assert {entry.wire for entry in found if entry.kind == "message"} == {"google.gemini"}
    assert found[2].content == json.dumps(QWEN[2]["message"]).encode()
    assert found[2].meta["model"] == "qwen-x"


def test_a_claude_code_session_is_read():
    found = entries_of(lines(*CLAUDE))
    event = ("event", "imported_line")
    assert outline(found) == [
        event,
        event,
        ("user", "message"),
        ("assistant", "message"),
        ("tool", "message"),
        event,
        ("user", "message"),
        event,
    ]
    assert {entry.session for entry in found} == {"5f1c", "5f1c/a7"}
    assert found[3].content == json.dumps(CLAUDE[3]["message"]).encode()
    assert found[3].meta == {
        "place": 3,
        "line": 4,
        "uuid": "u2",
        "parentUuid": "u1",
        "sessionId": "5f1c",
        "requestId": "req_1",
        "isSidechain": False,
        "model": "claude-x",
        "usage": {"input_tokens": 3, "output_tokens": 4},
        "stop_reason": "tool_use",
        "message_id": "msg_1",
    }
    assert found[2].ts == 1_770_091_506_789_000
    assert found[5].content == json.dumps(CLAUDE[5]).encode()


CODEX = [
    {
        "timestamp": "2026-02-03T04:05:06Z",
        "type": "session_meta",
        "payload": {"id": "0199-aa", "cwd": "/x", "cli_version": "0.166.0"},
    },
    {"timestamp": "2026-02-03T04:05:06Z", "type": "turn_context", "payload": {"model": "gpt-x", "effort": "high"}},
    {
        "timestamp": "2026-02-03T04:05:06Z",
        "type": "response_item",
        "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    },
    {"timestamp": "2026-02-03T04:05:06Z", "type": "event_msg", "payload": {"type": "user_message", "message": "hi"}},
    {
        "timestamp": "2026-02-03T04:05:07Z",
        "type": "response_item",
        "payload": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    },
    {
        "timestamp": "2026-02-03T04:05:08Z",
        "type": "response_item",
        "payload": {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
    },
    {
        "timestamp": "2026-02-03T04:05:09Z",
        "type": "response_item",
        "payload": {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    },
    {
        "timestamp": "2026-02-03T04:05:09Z",
        "type": "response_item",
        "payload": {"type": "ghost_snapshot", "ghost_commit": {}},
    },
    {"timestamp": "2026-02-03T04:05:09Z", "type": "compacted", "payload": {"message": "so far so good"}},
]
OLD_CODEX = [
    {"id": "0188-bb", "timestamp": "2025-06-03T04:05:06Z", "instructions": None, "git": {}},
    {"record_type": "state"},
    *[line["payload"] for line in CODEX[2:7] if line["type"] == "response_item"],
]


@pytest.mark.parametrize(("objects", "session"), [(CODEX, "0199-aa"), (OLD_CODEX, "0188-bb")])
def test_a_codex_rollout_is_read(objects, session):
    found = entries_of(lines(*objects))
    messages = [entry for entry in found if entry.kind == "message"]
    assert [entry.role for entry in messages] == ["user", "assistant", "assistant", "tool"]
    assert {entry.wire for entry in messages} == {"openai.responses"}
    assert {entry.session for entry in found} == {session}
    assert messages[1].content == json.dumps(CODEX[4]["payload"]).encode()
    assert len(found) == len(objects)
    if objects is CODEX:
        assert messages[1].meta == {"place": 4, "line": 5, "model": "gpt-x", "item_id": "rs_1"}


NEUTRAL = [
    {"type": "meta", "session_id": "n1", "agent": "some"},
    {
        "type": "message",
        "role": "user",
        "ts": "2026-02-03T04:05:06Z",
        "content": [{"type": "text", "text": "héllo"}],
        "i": 0,
    },
    {
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ö"}],
        "i": 1,
        "role": "user",
        "type": "message",
    },
    {"type": "compact_boundary", "trigger": "auto", "pre_tokens": 9, "ts": "2026-02-03T04:05:06Z", "i": 2},
]


def test_flat_lines_give_messages_made_of_their_exact_members():
    raw = "\n".join(json.dumps(value, ensure_ascii=False) for value in NEUTRAL).encode()
    found = entries_of(raw)
    assert outline(found)[1:3] == [("user", "message"), ("tool", "message")]
    assert found[1].content == '{"role": "user", "content": [{"type": "text", "text": "héllo"}]}'.encode()
    assert json.loads(found[2].content) == {"role": "user", "content": NEUTRAL[2]["content"]}
    assert {entry.session for entry in found} == {"n1"}
    assert found[3].meta["pre_tokens"] == 9


FILES = {
    "claude_code": lines(*CLAUDE),
    "qwen_code": lines(*QWEN),
    "pi": lines(*PI),
    "gemini_cli": lines(*GEMINI),
    "opencode": lines(*OPENCODE),
    "goose": lines(*GOOSE),
    "cursor": lines(*CURSOR[:2], CURSOR[3]),
    "copilot_cli": lines(*COPILOT),
    "codex": lines(*CODEX),
    "session_lines": lines(*NEUTRAL),
    "message_arrays": lines(USER, REPLY),
}


@pytest.mark.parametrize("name", FILES)
def test_blank_lines_line_ends_byte_order_marks_and_a_missing_end_survive(name):
    raw = FILES[name]
    count = len(entries_of(raw))
    for changed in (
        raw.rstrip(b"\n"),
        raw.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + raw,
        raw.replace(b"\n", b"\n\n  \r\n"),
        b"\n\n" + raw + b"\n \n",
        raw.replace(b'": ', b'" :\t'),
    ):
        assert detect_file(changed) == name
        assert len([entry for entry in entries_of(changed) if entry.content]) == count


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_chunks_of_any_size_give_the_same_entries(name, size):
    raw = FILES[name]
    chunks = [raw[start : start + size] for start in range(0, len(raw), size)]
    assert list(read_file(chunks, "some.name.jsonl")) == list(read_file([raw], "some.name.jsonl"))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "bad", [b'{"type": "user", "mess', b"\xff\xfe", b"{'a': 1}", b'{"a": NaN}', b"[" * 5000, b"\x00"]
)
def test_an_unreadable_line_is_reported_with_its_number_and_kept_only_on_request(name, bad):
    good = FILES[name].splitlines(keepends=True)
    raw = b"".join([*good[:2], bad + b"\n", *good[2:]])
    with pytest.raises(MalformedFile, match=r"line 3: .*--keep-going") as raised:
        list(read_file([raw], "x.jsonl"))
    assert raised.value.line == 3
    problems: list[ReadProblem] = []
    found = entries_of(raw, keep_going=True, report=problems.append)
    assert [(problem.line, bool(problem.reason)) for problem in problems] == [(3, True)]
    assert [entry.content for entry in found if entry.kind == "unreadable_line"] == [bad]
    assert len(found) == len(good) + 1


def test_a_damaged_first_line_does_not_hide_the_rest():
    raw = b'{"role": "user", "content": "cut o\n' + lines(USER, REPLY)
    with pytest.raises(MalformedFile, match="line 1"):
        list(read_file([raw], "x"))
    assert [entry.kind for entry in entries_of(raw, keep_going=True)] == ["unreadable_line", "message", "message"]


def test_a_damaged_document_is_reported_with_its_line():
    raw = json.dumps([USER, REPLY], indent=1).encode()[:-20]
    with pytest.raises(MalformedFile) as raised:
        list(read_file([raw], "x.json"))
    assert raised.value.line == 8
    (entry,) = entries_of(raw, keep_going=True)
    assert (entry.kind, entry.content) == ("unreadable_line", raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" \n\n",
        b"hello\nworld\n",
        b"\x89PNG\r\n\x1a\n",
        '[{"role": "user"}]'.encode("utf-16"),
        b"{}",
        b'{"a": [1]}\n{}\n',
        b'[{"name": "Bob", "role": "admin"}]',
    ],
)
def test_a_file_without_messages_is_refused_with_the_supported_formats(raw):
    with pytest.raises(UnknownFormat, match="Recto reads Claude Code sessions, Codex rollouts"):
        list(read_file([raw], "x", keep_going=True))


def test_a_tool_result_without_a_call_is_a_faithful_record():
    orphan = {"role": "tool", "tool_call_id": "never", "content": "r"}
    assert [entry.role for entry in entries_of(lines(orphan, USER))] == ["tool", "user"]


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "C:\\temp\\x.jsonl", "a\x00b.jsonl", "\ud800.jsonl", "x" * 500, " .jsonl", "..", ""]
)
def test_a_file_name_becomes_a_session_name_and_nothing_else(name):
    (entry,) = read_file([json.dumps([USER]).encode()], name)
    assert entry.session.isprintable()
    assert 0 < len(entry.session) <= 256
    assert "/" not in entry.session
    assert "\\" not in entry.session
