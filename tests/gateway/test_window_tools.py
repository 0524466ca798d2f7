"""Window tools: a model opens a new window for itself with tools that the gateway answers, and continues its task."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from tests.cli.calling import called
from tests.gateway.clients import file
from tests.gateway.test_recall_tool import (
    CROSSINGS,
    FORMATS,
    MODEL,
    RESTRICTED,
    TOOLS,
    WINDOW,
    ask,
    built,  # noqa: F401  # a fixture
    format_of,
    history,
    messages_in,
    messages_of,
    names_in,
    reply_in,
    results_of,
    says,
    text_of,
    with_answer,
    world,  # noqa: F401  # a fixture
)
from tests.gateway.upstream import Says

from recto.formats.tool_calls import NewToolResult
from recto.gateway.own_tools import MAX_WINDOW_ROUNDS, WINDOW_TOOLS
from recto.transcript.entries import is_hidden

NAMES = [tool.name for tool in WINDOW_TOOLS]
ON: dict[str, Any] = {"gateway": {"new_windows": True}}
NEW = ("new_context", {"done": ["chapters one to eleven"], "plan": ["write chapter twelve"]})
SHELF = "Part 33 is on shelf 231."
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def work() -> list[dict[str, Any]]:
    """Returns a conversation with a long list in one of its messages."""
    messages = history(4)
    messages[4]["content"] += " ".join(f"Part {number} is on shelf {number * 7}." for number in range(60))
    return messages


def events_in(gw: Any, answer: Any, kind: str) -> list[dict[str, Any]]:
    entries = gw.store.read(answer.headers["x-recto-session-id"])
    return [json.loads(entry.content) | {"seq": entry.seq} for entry in entries if entry.kind == kind]


def calls_in(reply: Any, wire: str) -> list[Any]:
    return [part for raw in reply.messages for part in format_of(wire).messages.read(raw).calls]


@BOTH_WAYS
@pytest.mark.parametrize(("wire", "speaks"), CROSSINGS)
def test_a_model_requests_a_new_window_and_continues_its_task(world, wire, speaks, stream):  # noqa: F811
    gw, messages = world.gateway(speaks, **ON), work()
    says(
        world,
        Says(text="A fresh page.", calls=(NEW,)),
        Says(calls=(("history_search", {"query": "shelf of part 33"}),)),
        Says(text="It is 231.", calls=(("read_file", {"path": "twelve.txt"}),)),
    )
    answer = ask(gw, wire, messages, stream=stream)
    reply = reply_in(answer, wire, stream)

    first, second, third = world.upstream.asked
    assert first.problems == second.problems == third.problems == []
    assert names_in(first) == names_in(second) == names_in(third) == ["read_file", *NAMES]
    # the new window has the task, the question and the first page, but not the earlier messages
    text = second.raw.decode()
    assert messages[4]["content"] in first.raw.decode()
    assert messages[4]["content"] not in text
    assert messages[0]["content"] in text
    assert messages[-1]["content"] in text
    assert "window 1 begins" in text
    assert "write chapter twelve" in text
    assert "call the tool history_search" in text
    assert second.tokens < first.tokens
    assert third.raw.decode().count(SHELF) > text.count(SHELF)
    # the client gets one answer with the call of its own tool, and nothing of the others
    assert " ".join(text_of(reply, wire).replace("|", " ").split()) == "A fresh page. It is 231."
    (call,) = calls_in(reply, wire)
    assert call.name == "read_file"
    assert not any(f'"{name}"' in answer.text for name in NAMES)
    assert reply.usage.prompt == sum(request.tokens for request in world.upstream.asked)
    # the transcript keeps every message, and the decision records who requested the window
    (decision,) = events_in(gw, answer, "window_opened")
    assert decision["by"] == "the model"
    assert decision["reason"].startswith("the model asked for a new window")
    stored = messages_of(gw, answer)
    assert [json.loads(entry.content) for entry in stored[: len(messages)]] == messages
    assert sum(is_hidden(entry.meta) for entry in stored) >= 4 - (wire != "responses")

    # the client sends its whole history: the window stays the new one, in the same session
    world.upstream.asked.clear()
    results = results_of(wire, NewToolResult(call.call_id, "Chapter twelve.", "read_file"))
    later = ask(gw, wire, [*messages, *messages_in(reply), *results], stream=stream)
    reply_in(later, wire, stream)
    assert later.headers["x-recto-session-id"] == answer.headers["x-recto-session-id"]
    (fourth,) = world.upstream.asked
    assert fourth.problems == []
    assert messages[4]["content"] not in fourth.raw.decode()
    assert "window 1 begins" in fourth.raw.decode()
    assert "Chapter twelve." in fourth.raw.decode()


@BOTH_WAYS
@pytest.mark.parametrize("wire", FORMATS)
def test_along_with_a_client_tool_call_the_window_opens_with_the_next_request(world, wire, stream):  # noqa: F811
    gw, messages = world.gateway(**ON), work()
    says(world, Says(calls=(NEW, ("read_file", {"path": "a.txt"}))))
    answer = ask(gw, wire, messages, stream=stream)
    reply = reply_in(answer, wire, stream)
    (call,) = calls_in(reply, wire)
    assert call.name == "read_file"
    results = results_of(wire, NewToolResult(call.call_id, "File a.", "read_file"))
    later = ask(gw, wire, [*messages, *messages_in(reply), *results], stream=stream)
    reply_in(later, wire, stream)
    assert later.headers["x-recto-session-id"] == answer.headers["x-recto-session-id"]
    first, second = world.upstream.asked
    assert first.problems == second.problems == []
    assert messages[4]["content"] in first.raw.decode()
    assert messages[4]["content"] not in second.raw.decode()
    assert "File a." in second.raw.decode()
    assert "window 1 begins" in second.raw.decode()


def test_a_new_window_is_undone_like_any_decision_and_the_audit_shows_it(world):  # noqa: F811
    gw, messages = world.gateway(**ON), work()
    says(world, Says(calls=(NEW, ("note", {"text": "The keel is oak.", "kind": "decisions"}))), Says(text="On it."))
    answer = ask(gw, "chat", messages)
    name = answer.headers["x-recto-session-id"]
    (decision,) = events_in(gw, answer, "window_opened")
    printed = called("--store", gw.gateway.settings.store, "audit", "--session", name, "--json").stdout
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [(line["kind"], line["by"]) for line in lines if line.get("by") == "the model"] == [
        ("window_tools_answered", "the model"),
        ("window_opened", "the model"),
    ]
    (round_,) = [line for line in lines if line.get("kind") == "window_tools_answered"]
    assert "new_context, note" in json.dumps(round_)

    with gw.gateway.sessions.use(gw.gateway.keys.find(gw.secret), name, MODEL) as session:
        session.restore(decision["seq"])
    world.upstream.asked.clear()
    ask(gw, "chat", with_answer("chat", messages, reply_in(answer, "chat", False), "And?"))
    assert messages[4]["content"] in world.upstream.asked[0].raw.decode()
    assert world.upstream.asked[0].problems == []


@pytest.mark.parametrize("wire", FORMATS)
def test_a_note_is_in_the_windows_that_follow(world, wire):  # noqa: F811
    gw, messages = world.gateway(**ON), work()
    note = ("note", {"text": "The keel is oak.", "important": True})
    says(world, Says(calls=(note,)), Says(calls=(("note", {"text": ""}),)), Says(calls=(NEW,)), Says(text="On it."))
    answer = ask(gw, wire, messages)
    _, second, third, fourth = world.upstream.asked
    assert "[Noted as entry" in second.raw.decode()
    assert "[note failed: a note has 1 to" in third.raw.decode()
    assert "The keel is oak." in fourth.raw.decode()
    world.upstream.asked.clear()
    ask(gw, wire, with_answer(wire, messages, reply_in(answer, wire, False), "And?"))
    assert "The keel is oak." in world.upstream.asked[0].raw.decode()
    assert world.upstream.asked[0].problems == []


@pytest.mark.parametrize("wire", FORMATS)
def test_an_entry_is_read_whole_and_a_wrong_call_is_answered(world, wire):  # noqa: F811
    gw, messages = world.gateway(**ON), work()
    says(
        world,
        Says(calls=(NEW,)),
        Says(calls=(("history_read", {"entry": "5"}), ("history_search", {}))),
        Says(text="Yes."),
    )
    reply_in(ask(gw, wire, messages), wire, False)
    last = world.upstream.asked[2].raw.decode()
    assert "Chapter 2 of" in last
    assert "[history_search needs a 'query'.]" in last


@BOTH_WAYS
def test_a_model_that_only_manages_its_window_has_to_answer_and_gets_one_window(world, stream):  # noqa: F811
    gw, messages = world.gateway(**ON), work()
    world.upstream.answer = lambda request: (
        Says(text="At last.") if request.body.get("tool_choice") == "none" else Says(calls=(NEW,))
    )
    answer = ask(gw, "chat", messages, stream=stream)
    assert text_of(reply_in(answer, "chat", stream), "chat") == "At last."
    assert len(world.upstream.asked) == MAX_WINDOW_ROUNDS + 1
    assert all(request.problems == [] for request in world.upstream.asked)
    assert len(events_in(gw, answer, "window_opened")) == 1
    assert "a new window was opened for this request already" in world.upstream.asked[-1].raw.decode()


@pytest.mark.parametrize("wire", FORMATS)
def test_the_tools_are_off_by_default_and_a_key_can_differ_from_the_setting(world, wire):  # noqa: F811
    off, on = world.gateway(), world.gateway(**ON)
    for gw, key_fields, offered in (
        (off, {}, []),
        (off, {"new_windows": True}, NAMES),
        (on, {}, NAMES),
        (on, {"new_windows": False}, []),
    ):
        world.upstream.asked.clear()
        answer = ask(gw, wire, history(1), secret=gw.key(**key_fields))
        assert names_in(world.upstream.asked[0]) == ["read_file", *offered]
        assert answer.headers.get("x-recto-window-tools", "") == ",".join(offered)


@pytest.mark.parametrize("wire", FORMATS)
def test_a_name_that_the_client_uses_is_not_shadowed(world, wire):  # noqa: F811
    gw = world.gateway(**ON)
    own = json.loads(json.dumps([*TOOLS[wire], *TOOLS[wire]]).replace("read_file", "note", 1))
    says(world, Says(calls=(("note", {"path": "mine"}),)))
    reply = reply_in(ask(gw, wire, history(1), tools=own), wire, False)
    assert names_in(world.upstream.asked[0]) == ["note", "read_file", "new_context", "history_search", "history_read"]
    assert [call.name for call in calls_in(reply, wire)] == ["note"]
    by_mcp = json.loads(json.dumps(TOOLS[wire]).replace("read_file", "mcp__recto__recall"))
    ask(gw, wire, history(1), tools=by_mcp)
    assert names_in(world.upstream.asked[1]) == ["mcp__recto__recall", "new_context"]
    for more in ({"tools": []}, {"tool_choice": RESTRICTED[wire][1]}):
        assert "x-recto-window-tools" not in ask(gw, wire, history(1), **more).headers


@BOTH_WAYS
@pytest.mark.parametrize("wire", FORMATS)
def test_prompts_stay_valid_and_within_budget_whenever_new_windows_are_opened(world, wire, stream):  # noqa: F811
    gw, dice = world.gateway(**ON), random.Random(f"{wire} {stream}")
    messages = [{"role": "user", "content": f"Read all files of {dice.random()} and say what they have in common."}]
    windows = 0
    for step in range(14):
        asks = dice.random() < 0.4
        windows += asks
        read = ("read_file", {"path": f"{step}.txt"})
        with_client_call = asks and dice.random() < 0.5
        says(
            world,
            *([Says(calls=(NEW, read))] if with_client_call else [Says(calls=(NEW,))] if asks else []),
            Says(calls=(read,)),
        )
        answer = ask(gw, wire, messages, stream=stream)
        reply = reply_in(answer, wire, stream)
        (call,) = calls_in(reply, wire)
        messages += [
            *messages_in(reply),
            *results_of(wire, NewToolResult(call.call_id, file(f"{step}.txt"), "read_file")),
        ]
        used, room = map(int, answer.headers["x-recto-tokens"].split("/"))
        assert used <= room < WINDOW
    assert len(events_in(gw, answer, "window_opened")) == windows > 2
    assert all(request.problems == [] for request in world.upstream.asked)
    assert all(messages[0]["content"] in request.raw.decode() for request in world.upstream.asked)
