"""Session files of pi, Gemini CLI and opencode, written by hand; tests/agents reads those of the programs."""

from __future__ import annotations

import json

from tests.formats.file_checks import entries_of, lines, outline

from recto.formats.session_files import detect_file

PI = [
    {"type": "session", "version": 3, "id": "p1", "timestamp": "2026-11-17T20:05:25.015Z", "cwd": "/work"},
    {
        "type": "message",
        "id": "a1",
        "parentId": None,
        "message": {"role": "user", "content": [{"type": "text", "text": "List."}]},
    },
    {
        "type": "message",
        "id": "a2",
        "parentId": "a1",
        "timestamp": "2026-11-17T20:05:26.000Z",
        "message": {
            "role": "assistant",
            "model": "m",
            "content": [
                {"type": "thinking", "thinking": "Hm."},
                {"type": "text", "text": "I look."},
                {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}},
            ],
        },
    },
    {
        "type": "message",
        "id": "a3",
        "parentId": "a2",
        "message": {
            "role": "toolResult",
            "toolCallId": "c1",
            "content": [{"type": "text", "text": "a.py"}],
            "isError": False,
        },
    },
    {"type": "compaction", "id": "a4", "parentId": "a3", "summary": "They listed.", "firstKeptEntryId": "a3"},
]
GEMINI = [
    {"sessionId": "g1", "projectHash": "ab", "startTime": "2026-11-17T20:05:46.891Z", "kind": "main"},
    {"id": "u1", "timestamp": "2026-11-17T20:05:47Z", "type": "user", "content": [{"text": "List."}]},
    {"$set": {"lastUpdated": "2026-11-17T20:05:48Z"}},
    {"id": "m1", "timestamp": "2026-11-17T20:05:48Z", "type": "gemini", "content": "I look.", "model": "gemini-x"},
]
RESULT = {"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a.py"}}}
GEMINI_CALL = {**GEMINI[3], "toolCalls": [{"id": "c1", "name": "ls", "args": {"path": "."}, "result": [RESULT]}]}
OPENCODE = [
    {"info": {"id": "ses_1", "directory": "/work", "projectID": "p", "time": {"created": 1794945913552}}},
    {
        "info": {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1794945913837}},
        "parts": [{"id": "prt_1", "type": "text", "text": "List."}],
    },
    {
        "info": {"id": "msg_2", "sessionID": "ses_1", "role": "assistant", "modelID": "m"},
        "parts": [{"type": "step-start"}, {"type": "text", "text": "I look."}, {"type": "step-finish"}],
    },
]
TOOL = {
    "type": "tool",
    "tool": "bash",
    "callID": "c1",
    "state": {"status": "completed", "input": {"command": "ls"}, "output": "a.py"},
}
USER, CALL, ANSWER = ("user", "message"), ("assistant", "message"), ("tool", "message")
EVENT = ("event", "imported_line")


def contents(raw: bytes) -> list[object]:
    return [json.loads(entry.content) for entry in entries_of(raw) if entry.kind == "message"]


def test_a_pi_session_is_read_as_messages_of_anthropic():
    found = entries_of(lines(*PI))
    assert outline(found) == [EVENT, USER, CALL, ANSWER, EVENT]
    assert {entry.session for entry in found} == {"p1"}
    assert found[2].meta["model"] == "m"
    assert contents(lines(*PI))[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a.py"}]}],
        },
    ]


def test_a_pi_message_with_an_unknown_block_is_kept_and_not_taken_for_a_message():
    message = {"role": "user", "content": [{"type": "hologram"}]}
    found = entries_of(lines(PI[0], PI[1], {"type": "message", "id": "a9", "parentId": "a1", "message": message}))
    assert outline(found) == [EVENT, USER, EVENT]
    assert not found[2].is_known, "so that it is reported"


def test_a_gemini_cli_message_that_is_written_again_adds_only_its_calls_and_their_results_once():
    again = {"id": "u2", "timestamp": "2026-11-17T20:05:49Z", "type": "user", "content": [RESULT]}
    found = entries_of(lines(*GEMINI, GEMINI_CALL, again, {"$rewindTo": "u1"}))
    assert outline(found) == [EVENT, USER, EVENT, CALL, CALL, ANSWER, EVENT, EVENT]
    assert {entry.session for entry in found} == {"g1"}
    assert contents(lines(*GEMINI, GEMINI_CALL, again))[1:] == [
        {"role": "model", "parts": [{"text": "I look."}]},
        {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "ls", "args": {"path": "."}}}]},
        {"role": "user", "parts": [RESULT]},
    ]


def test_messages_that_gemini_cli_sets_at_once_are_read_and_known_ones_are_not_read_again():
    found = entries_of(lines(GEMINI[0], GEMINI[1], {"$set": {"messages": [GEMINI[1], GEMINI_CALL]}}))
    assert outline(found) == [EVENT, USER, CALL, CALL, ANSWER]


def test_a_document_of_an_older_gemini_cli_is_read():
    document = {**GEMINI[0], "messages": [GEMINI[1], GEMINI_CALL]}
    for raw in (json.dumps(document).encode(), json.dumps(document, indent=2).encode()):
        assert detect_file(raw) == "gemini_cli"
        assert outline(entries_of(raw)) == [USER, CALL, CALL, ANSWER]
        assert {entry.session for entry in entries_of(raw)} == {"g1"}


def test_a_tool_call_of_opencode_is_a_call_and_a_result():
    step = {**OPENCODE[2], "parts": [{"type": "text", "text": "I look."}, TOOL, {"type": "text", "text": "Done."}]}
    raw = lines(*OPENCODE[:2], step)
    assert outline(entries_of(raw)) == [EVENT, USER, CALL, ANSWER, CALL]
    assert contents(raw)[1:3] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.py"}]},
    ]


def test_an_export_of_opencode_is_read():
    raw = json.dumps({**OPENCODE[0], "messages": OPENCODE[1:]}, indent=2).encode()
    assert detect_file(raw) == "opencode"
    found = entries_of(raw)
    assert outline(found) == [USER, CALL]
    assert {entry.session for entry in found} == {"ses_1"}


def test_a_summary_that_opencode_wrote_is_no_message():
    summary = {**OPENCODE[2], "info": {**OPENCODE[2]["info"], "summary": True}}
    assert outline(entries_of(lines(*OPENCODE[:2], summary))) == [EVENT, USER, EVENT]
