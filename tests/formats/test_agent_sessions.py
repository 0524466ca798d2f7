"""Hand-written session files of coding agents; tests/agents reads files written by the programs themselves."""

from __future__ import annotations

import json

import pytest
from tests.formats.file_checks import entries_of, lines, outline

from recto.errors import MalformedFile
from recto.formats.session_files import detect_file, detect_source

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
AIDER = """
# aider chat started at 2026-11-17 21:46:37

> /usr/bin/aider --message Is the tide high?
# a heading of mine  
> Aider v0.86.2  

#### Is the tide high?  
#### # a heading of mine  

# Tide

> quoted by the model

#### its heading

The tide is high.

> Tokens: 2.4k sent, 44 received. Cost: $0.0064 message, $0.0064 session.  
> # 1 SEARCH/REPLACE block failed to match!

## SearchReplaceNoExactMatch: This SEARCH block failed to exactly match lines in pier.py
x = 1

The SEARCH section must exactly match an existing block of lines  

> The tide is high, again.

> Only 3 reflections allowed, stopping.  

# aider chat started at 2026-11-17 21:46:52

> Aider v0.86.2  

#### /ask And now?  

#### And now?  

Now it is low.

> Tokens: 198 sent, 44 received.  

"""  # noqa: W291
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
GOOSE = [
    {"working_dir": "/work", "description": "Listing", "message_count": 3},
    {
        "id": "m1",
        "role": "user",
        "created": 1794945913,
        "content": [{"type": "text", "text": "List."}],
        "metadata": {"userVisible": True, "agentVisible": True},
    },
    {
        "role": "assistant",
        "created": 1794945914,
        "content": [
            {"type": "text", "text": "I look."},
            {
                "type": "toolRequest",
                "id": "c1",
                "toolCall": {"status": "success", "value": {"name": "shell", "arguments": {"command": "ls"}}},
            },
        ],
    },
    {
        "role": "user",
        "created": 1794945915,
        "content": [
            {
                "type": "toolResponse",
                "id": "c1",
                "toolResult": {"status": "success", "value": {"content": [{"type": "text", "text": "a.py"}]}},
            }
        ],
    },
]
CURSOR = [
    {"composerId": "c1", "createdAt": 1794945913552, "name": "Listing", "cwd": "/work"},
    {"composerId": "c1", "bubbleId": "b1", "createdAt": "2026-11-17T20:05:13.837Z", "type": 1, "text": "List."},
    {
        "composerId": "c1",
        "bubbleId": "b2",
        "createdAt": 1794945914000,
        "type": 2,
        "text": "I look.",
        "thinking": {"text": "Hm."},
        "toolFormerData": {
            "name": "run_terminal_cmd",
            "toolCallId": "call_1\nfc_1",
            "status": "completed",
            "rawArgs": '{"command": "ls"}',
            "result": '{"output": "a.py"}',
        },
    },
    {"composerId": "c1", "bubbleId": "b3", "createdAt": 1794945915000, "type": 2, "thinking": {"text": "Hm."}},
]
COPILOT = [
    {
        "type": "session.start",
        "data": {"sessionId": "cop1", "context": {"cwd": "/work"}},
        "id": "e1",
        "timestamp": "2026-11-17T20:05:25Z",
        "parentId": None,
    },
    {"type": "user.message", "data": {"content": "List."}, "id": "e2", "timestamp": "2026-11-17T20:05:26Z"},
    {
        "type": "assistant.message",
        "data": {
            "content": "I look.",
            "model": "m",
            "toolRequests": [{"toolCallId": "c1", "name": "bash", "arguments": {"command": "ls"}}],
        },
        "id": "e3",
        "timestamp": "2026-11-17T20:05:27Z",
    },
    {
        "type": "tool.execution_complete",
        "data": {"toolCallId": "c1", "success": False, "error": {"message": "no such file"}},
        "id": "e4",
        "timestamp": "2026-11-17T20:05:28Z",
    },
]
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


def test_a_pi_message_with_an_unknown_block_becomes_an_event():
    message = {"role": "user", "content": [{"type": "hologram"}]}
    found = entries_of(lines(PI[0], PI[1], {"type": "message", "id": "a9", "parentId": "a1", "message": message}))
    assert outline(found) == [EVENT, USER, EVENT]
    assert not found[2].is_known, "the event must be reported as unknown"


def test_a_rewritten_gemini_cli_message_adds_only_its_calls_and_results_once():
    again = {"id": "u2", "timestamp": "2026-11-17T20:05:49Z", "type": "user", "content": [RESULT]}
    found = entries_of(lines(*GEMINI, GEMINI_CALL, again, {"$rewindTo": "u1"}))
    assert outline(found) == [EVENT, USER, EVENT, CALL, CALL, ANSWER, EVENT, EVENT]
    assert {entry.session for entry in found} == {"g1"}
    assert contents(lines(*GEMINI, GEMINI_CALL, again))[1:] == [
        {"role": "model", "parts": [{"text": "I look."}]},
        {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "ls", "args": {"path": "."}}}]},
        {"role": "user", "parts": [RESULT]},
    ]


def test_gemini_cli_messages_set_in_bulk_are_read_and_known_messages_are_skipped():
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


def test_a_goose_session_is_read_as_messages_of_anthropic():
    found = entries_of(lines(*GOOSE))
    assert outline(found) == [EVENT, USER, CALL, ANSWER]
    assert detect_source(lines(*GOOSE)) == ("goose", "/work")
    assert found[1].ts == 1794945913000000
    assert contents(lines(*GOOSE))[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "shell", "input": {"command": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a.py"}]}],
        },
    ]


def test_goose_results_in_the_older_form_and_errors_are_read():
    results = [
        ({"status": "success", "value": [{"type": "text", "text": "a.py"}]}, [{"type": "text", "text": "a.py"}], None),
        ({"status": "error", "error": "no such file"}, "no such file", True),
        ({"status": "success", "value": {"content": [], "isError": True}}, [], True),
        (
            {"value": {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "a"}}]}},
            [{"type": "text", "text": "a"}],
            None,
        ),
    ]
    for result, content, is_error in results:
        block = {"type": "toolResponse", "id": "c1", "toolResult": result}
        (read,) = contents(lines(*GOOSE[:1], {**GOOSE[3], "content": [block]}))[0]["content"]
        assert (read["content"], read.get("is_error")) == (content, is_error)


def test_goose_entries_hidden_from_the_user_and_notices_are_not_messages():
    hidden = {**GOOSE[1], "metadata": {"userVisible": False, "agentVisible": True}}
    notice = {**GOOSE[2], "content": [{"type": "systemNotification", "msg": "Compacted."}]}
    found = entries_of(lines(*GOOSE[:2], hidden, notice))
    assert outline(found) == [EVENT, USER, EVENT, EVENT]
    assert found[2].is_known
    assert found[3].is_known


def test_a_goose_message_with_an_unknown_block_becomes_an_event():
    unknown = {**GOOSE[1], "content": [{"type": "hologram"}]}
    result = {"type": "toolResponse", "id": "c1", "toolResult": {"value": {"content": [{"type": "hologram"}]}}}
    found = entries_of(lines(*GOOSE[:2], unknown, {**GOOSE[3], "content": [result]}))
    assert outline(found) == [EVENT, USER, EVENT, EVENT]
    assert not any(entry.is_known for entry in found[2:]), "the events must be reported as unknown"


def test_an_export_of_goose_is_read():
    document = {"id": "20261117_1", "working_dir": "/work", "session_type": "user", "conversation": GOOSE[1:]}
    for raw in (json.dumps(document).encode(), json.dumps(document, indent=2).encode()):
        assert detect_file(raw) == "goose"
        assert outline(entries_of(raw)) == [USER, CALL, ANSWER]
        assert {entry.session for entry in entries_of(raw)} == {"20261117_1"}


def test_bubbles_of_cursor_are_read_as_messages_of_anthropic():
    found = entries_of(lines(*CURSOR))
    assert outline(found) == [EVENT, USER, CALL, ANSWER, EVENT], "a bubble with only thoughts is not a message"
    assert {entry.session for entry in found} == {"c1"}
    assert detect_source(lines(*CURSOR)) == ("cursor", "/work")
    assert contents(lines(*CURSOR))[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "call_1_fc_1", "name": "run_terminal_cmd", "input": {"command": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call_1_fc_1", "content": '{"output": "a.py"}'}],
        },
    ]


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ({"status": "error", "result": "no"}, [({}, "no", True)]),
        ({"status": "completed", "additionalData": {"status": "error"}}, [({}, "error", True)]),
        ({"status": "completed", "params": '{"path": "a"}'}, [({"path": "a"}, "completed", None)]),
        ({"status": "loading", "rawArgs": "{"}, [({"rawArgs": "{"}, None, None)]),
    ],
)
def test_calls_of_cursor_that_failed_or_have_not_ended_are_read(tool, expected):
    step = {**CURSOR[2], "toolFormerData": {"name": "grep", "toolCallId": "call_1", **tool}}
    call, *results = contents(lines(*CURSOR[:2], step))[1:]
    blocks = [message["content"][0] for message in results] or [{}]
    found = [(call["content"][-1]["input"], block.get("content"), block.get("is_error")) for block in blocks]
    assert found == expected


@pytest.mark.parametrize("odd", [{"type": 7}, {"type": None}, {"text": ["List."]}, {"toolFormerData": "ls"}])
def test_an_unreadable_cursor_bubble_raises_an_error_with_its_line(odd):
    raw = lines(*CURSOR[:2], {**CURSOR[1], **odd})
    with pytest.raises(MalformedFile, match="line 3: a bubble of Cursor is not understood"):
        entries_of(raw)
    assert [entry.kind for entry in entries_of(raw, keep_going=True)][2] == "unreadable_line"


def test_a_copilot_cli_session_is_read():
    found = entries_of(lines(*COPILOT))
    assert outline(found) == [EVENT, USER, CALL, ANSWER]
    assert {entry.session for entry in found} == {"cop1"}
    assert detect_source(lines(*COPILOT)) == ("copilot-cli", "/work")
    assert contents(lines(*COPILOT))[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "no such file", "is_error": True},
            ],
        },
    ]


def test_an_export_of_opencode_is_read():
    raw = json.dumps({**OPENCODE[0], "messages": OPENCODE[1:]}, indent=2).encode()
    assert detect_file(raw) == "opencode"
    found = entries_of(raw)
    assert outline(found) == [USER, CALL]
    assert {entry.session for entry in found} == {"ses_1"}


def test_an_opencode_summary_is_not_a_message():
    summary = {**OPENCODE[2], "info": {**OPENCODE[2]["info"], "summary": True}}
    assert outline(entries_of(lines(*OPENCODE[:2], summary))) == [EVENT, USER, EVENT]


def chatgpt_node(name: str, parent: str | None, children: list[str], role: str, text: str) -> dict[str, object]:
    content = {"content_type": "text", "parts": [text]}
    message = {"id": name, "author": {"role": role}, "create_time": 1794945913.5, "content": content, "metadata": {}}
    return {"id": name, "parent": parent, "children": children, "message": message if role else None}


CHATGPT = {
    "title": "Cranes",
    "create_time": 1794945913.5,
    "mapping": {
        "root": chatgpt_node("root", None, ["s"], "", ""),
        "s": chatgpt_node("s", "root", ["q1", "q2"], "system", ""),
        "q1": chatgpt_node("q1", "s", ["a1"], "user", "Which crane?"),
        "a1": chatgpt_node("a1", "q1", [], "assistant", "Ottilie."),
        "q2": chatgpt_node("q2", "s", ["a2", "q2"], "user", "Which tug?"),
        "a2": chatgpt_node("a2", "q2", [], "tool", "Alma"),
    },
    "conversation_id": "conversation-1",
}
CLAUDE_EXPORT = {
    "uuid": "conversation-2",
    "name": "Cranes",
    "created_at": "2026-11-17T20:05:25.015Z",
    "chat_messages": [
        {
            "uuid": "m1",
            "sender": "human",
            "text": "List.",
            "content": [{"type": "text", "text": "List.", "citations": []}],
            "attachments": [{"file_name": "a.txt", "extracted_content": "Ottilie"}],
        },
        {
            "uuid": "m2",
            "sender": "assistant",
            "text": "",
            "content": [
                {"type": "tool_use", "id": None, "name": "ls", "input": {}},
                {"type": "tool_result", "tool_use_id": None, "content": [{"type": "text", "text": "a.py"}]},
                {"type": "text", "text": "One file."},
            ],
        },
    ],
}


def test_an_export_of_chatgpt_is_read_with_all_branches_of_a_conversation():
    empty = {**CHATGPT, "conversation_id": "conversation-3", "mapping": {}}
    for raw in (json.dumps([CHATGPT, empty]).encode(), json.dumps([CHATGPT, empty], indent=1).encode() + b"\n"):
        assert detect_file(raw) == "chat_export"
        found = entries_of(raw)
        assert outline(found) == [USER, CALL, USER, ANSWER, EVENT]
        assert [entry.session for entry in found] == [*["conversation-1"] * 4, "conversation-3"]
        assert [json.loads(entry.content)["content"] for entry in found[:4]] == [
            *("Which crane?", "Ottilie.", "Which tug?", "Alma"),
        ]
        assert found[0].ts == 1794945913500000


def test_an_export_of_claude_is_read_with_calls_and_results():
    raw = json.dumps([CLAUDE_EXPORT, {**CLAUDE_EXPORT, "uuid": "conversation-4"}], indent=2).encode()
    assert detect_file(raw) == "chat_export"
    found = entries_of(raw)
    assert outline(found) == [USER, CALL, ANSWER, CALL] * 2
    assert {entry.session for entry in found} == {"conversation-2", "conversation-4"}
    made = contents(raw)
    assert made[0]["content"][0]["text"] == "[file a.txt]\nOttilie"
    assert made[1]["content"][0]["id"] == made[2]["content"][0]["tool_use_id"] == "m2-0"


def aider_texts(raw: bytes) -> list[tuple[str, str]]:
    messages = [entry for entry in entries_of(raw) if entry.kind == "message"]
    return [(entry.role, json.loads(entry.content)["content"]) for entry in messages]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_history_of_aider_is_read_chat_by_chat(end):
    raw = AIDER.replace("\n", end).encode()
    assert (detect_file(raw), detect_source(raw)) == ("aider", ("aider", ""))
    found = entries_of(raw)
    assert list(dict.fromkeys(entry.session for entry in found)) == [
        "aider-2026-11-17-21-46-37",
        "aider-2026-11-17-21-46-52",
    ]
    messages = [(role, text.replace("\r", "")) for role, text in aider_texts(raw)]
    assert messages == [
        ("user", "Is the tide high?\n# a heading of mine"),
        ("assistant", "# Tide\n\n> quoted by the model\n\n#### its heading\n\nThe tide is high."),
        ("assistant", "> The tide is high, again."),
        ("user", "And now?"),
        ("assistant", "Now it is low."),
    ]


def test_a_growing_aider_history_keeps_its_earlier_messages():
    def messages_of(text: str) -> list[tuple[str, int, bytes]]:
        places: dict[str, int] = {}
        found = []
        for entry in entries_of(text.encode()):
            places[entry.session] = places.get(entry.session, -1) + 1
            found += [(entry.session, places[entry.session], entry.content)] if entry.kind == "message" else []
        return found

    for following, count in (
        ("#### Is", 0),
        ("\n> Tokens: 2.4k", 2),
        ("\n# aider chat started at 2026-11-17 21:46:52", 3),
    ):
        assert messages_of(AIDER[: AIDER.index(following)]) == messages_of(AIDER)[:count]


def test_an_aider_line_that_is_not_text_is_reported():
    raw = AIDER.encode() + b"\xff\n"
    with pytest.raises(MalformedFile, match="not UTF-8"):
        entries_of(raw)
    problems = []
    assert entries_of(raw, keep_going=True, report=problems.append)[-1].kind == "unreadable_line"
    assert len(problems) == 1


def test_members_of_unexpected_types_are_not_messages():
    for odd in ({}, [], 7, None, True):
        for name, line in (
            *(("pi", PI[1]), ("gemini_cli", GEMINI[1]), ("opencode", OPENCODE[1])),
            *(("goose", GOOSE[2]), ("goose", GOOSE[3])),
        ):
            first = {"pi": PI[0], "gemini_cli": GEMINI[0], "opencode": OPENCODE[0], "goose": GOOSE[0]}[name]
            entries_of(lines(first, line, *({**line, member: odd} for member in line)))
        events = [{**event, member: odd} for event in COPILOT for member in event]
        events += [{**event, "data": {**event["data"], member: odd}} for event in COPILOT for member in event["data"]]
        entries_of(lines(*COPILOT, *events))
    for export in (CHATGPT, CLAUDE_EXPORT):
        changed = [{**export, member: odd} for member in export for odd in ({}, [], 7, None, True)]
        entries_of(json.dumps([export, *changed], indent=1).encode())
