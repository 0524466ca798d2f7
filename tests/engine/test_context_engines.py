"""The context engine server: fits the prompts of hosts and keeps their message lists apart."""

from __future__ import annotations

import json

import pytest

from recto.adapters import context_engines
from recto.adapters.context_engines import ContextEngineServer
from recto.config import load


def message(role: str, text: str, **more: object) -> dict[str, object]:
    return {"role": role, "content": text, **more}


def turns(count: int) -> list[dict[str, object]]:
    """Returns a number of turns, followed by a question."""
    messages = [
        entry
        for n in range(count)
        for entry in (message("user", f"Step {n}?"), message("assistant", f"{n}: " + "dust " * 400))
    ]
    return [*messages, message("user", "And now?")]


@pytest.fixture
def server(tmp_path):
    settings = load(arguments={"store": str(tmp_path / "engine.db"), "recall": {"embedder": {"use": "none"}}})
    with ContextEngineServer(settings, surface="hermes") as opened:
        yield opened


def ask(server: ContextEngineServer, **request: object) -> dict[str, object]:
    return server.answer(json.dumps({"session": "a", "model": "gpt-4o", "window": 8_000, **request}))


def stored(server: ContextEngineServer, key: str) -> list[str]:
    entries = server._store.read(key)
    return [json.loads(entry.content)["content"] for entry in entries if entry.kind == "message"]


def test_a_prompt_fits_and_the_whole_list_is_stored(server):
    messages = turns(40)
    sent = ask(server, op="fit", messages=messages)["messages"]
    assert len(json.dumps(sent)) < len(json.dumps(messages)) / 2
    assert sent[-1] == messages[-1]
    assert stored(server, "agent:default:a") == [entry["content"] for entry in messages]


def test_an_answer_is_stored_once_when_the_host_sends_it_again(server):
    messages = turns(1)
    ask(server, op="fit", messages=messages)
    assert ask(server, op="heard", message=message("assistant", "Now it works."), usage={"prompt_tokens": 9}) == {}
    longer = [*messages, message("assistant", "Now it works."), message("user", "Thanks.")]
    ask(server, op="fit", messages=longer)
    assert stored(server, "agent:default:a") == [entry["content"] for entry in longer]


def test_idle_sessions_of_a_long_lived_host_are_closed(server, monkeypatch):
    monkeypatch.setattr(context_engines, "_MAX_SESSIONS", 3)
    for name in "abcdef":
        ask(server, op="fit", session=name, messages=turns(1))
    assert len(server._views) == 3
    longer = [*turns(1), message("assistant", "Dust."), message("user", "Thanks.")]
    ask(server, op="fit", session="a", messages=longer)
    assert stored(server, "agent:default:a") == [entry["content"] for entry in longer], "found again in the store"


def test_two_lists_under_one_id_do_not_mix(server):
    messages = turns(2)
    ask(server, op="fit", turn="1", messages=messages)
    aside = [*messages[:-1], message("user", "What is worth remembering of this?")]
    ask(server, op="fit", turn="2", messages=aside)  # background work of the host
    ask(server, op="heard", turn="2", message=message("assistant", "Nothing."))
    ask(server, op="heard", turn="1", message=message("assistant", "Now it works."))
    ask(
        server,
        op="fit",
        turn="3",
        messages=[*messages, message("assistant", "Now it works."), message("user", "Thanks.")],
    )
    assert stored(server, "agent:default:a")[-3:] == ["And now?", "Now it works.", "Thanks."]
    [branch] = [row.session for row in server._store.sessions() if "~" in row.session]
    assert stored(server, branch)[-2:] == ["What is worth remembering of this?", "Nothing."]


def test_results_sent_again_without_their_tool_name_are_recognised(server):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    beginning = [message("user", "Look."), message("assistant", "", tool_calls=[call])]
    sent = ask(server, op="fit", messages=[*beginning, message("tool", "Dust.", tool_call_id="c1", name="look")])[
        "messages"
    ]
    assert sent[-1]["name"] == "look"
    ask(
        server, op="fit", messages=[*beginning, message("tool", "Dust.", tool_call_id="c1"), message("user", "Thanks.")]
    )
    assert [row.session for row in server._store.sessions()] == ["agent:default:a"]


def test_a_turn_repeated_by_the_host_is_stored_once(server):
    turn = [message("user", "Step 0?"), message("assistant", "Done.")]
    assert ask(server, op="stored", key="turn-1", messages=turn) == {"stored": 2}
    assert ask(server, op="stored", key="turn-1", messages=turn) == {"stored": 0}
    answer = ask(server, op="fit", messages=turn)
    assert answer == {"messages": turn, "places": [0, 1]}
    assert stored(server, "agent:default:a") == ["Step 0?", "Done."]


def test_messages_written_by_recto_have_no_position_in_the_list_of_the_host(server):
    messages = turns(40)
    answer = ask(server, op="fit", messages=messages)
    own = [place for place in answer["places"] if place is not None]
    assert [messages[place] for place in own] == [
        entry for entry, place in zip(answer["messages"], answer["places"], strict=True) if place is not None
    ]
    assert None in answer["places"]
    assert ask(server, op="fit", session="b", messages=[]) == {"messages": [], "places": []}


def test_an_answer_limit_as_large_as_the_window_still_yields_a_prompt(server):
    assert "messages" in ask(server, op="fit", model="of-nobody", answer=8_000, messages=turns(40))


@pytest.mark.parametrize(
    "line",
    ["", "[]", "{", '{"op": "fit"}', '{"op": "fly"}', '{"op": "heard", "session": "new", "message": {}}', "7"],
)
def test_an_invalid_request_is_an_error_and_the_server_keeps_running(server, line):
    assert list(server.answer(line)) == ["error"]
    assert "messages" in ask(server, op="fit", messages=turns(1))


def test_a_prompt_that_cannot_fit_is_an_error(server):
    assert "error" in ask(server, op="fit", messages=[message("user", "Hi")], system="rules " * 9_000)
