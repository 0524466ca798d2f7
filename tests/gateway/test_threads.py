"""Codex's history and notes endpoints at the gateway: access, results and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.engine.note_files import MAX_FILE_BYTES
from recto.engine.threads import CALLS, MAX_HINT_BYTES

THREAD = "01a1eb29-786d-7292-bdce-9bd164c5664c"
FIRST, SECOND = "window-aaaa-1111", "window-bbbb-2222"
HTTP = httpx2.Client(trust_env=False)
SECRET = "sk-proj-" + "a1B2" * 12


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("threads")
    upstream = ScriptedUpstream(answer=lambda request: Says("We decided to use the host kestrel."))
    models = {"gpt-4o": {"window": 64_000}}
    with running(upstream) as scripted, gateway(folder, scripted.url, models=models) as made, HTTP:
        ask(made, FIRST, "Make the tests of billing pass. The port is 5433.")
        ask(made, SECOND, f"Go on. The key is {SECRET}.")
        yield made


def ask(made: Running, window: str, text: str, secret: str = "") -> None:
    """Sends a turn as Codex does at the beginning of a window, without any message of the previous windows."""
    window_message = {"type": "message", "role": "developer", "content": f"Current context window id: {window}"}
    body = {
        "model": "gpt-4o",
        "input": [window_message, {"type": "message", "role": "user", "content": text}],
        "tools": [TOOL],
    }
    answer = HTTP.post(
        f"{made.url}/v1/responses", json=body, headers={**auth(secret or made.secret), "session_id": THREAD}
    )
    assert answer.status_code == 200, answer.text


TOOL = {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {}}}


def auth(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def post(made: Running, call: str, secret: str = "", thread: str = THREAD, **arguments: Any) -> httpx2.Response:
    space, _, name = call.partition(".")
    body = {**arguments, "context": {"session_id": thread, "current_agent_name": "/root"}}
    return HTTP.post(f"{made.url}/v1/alpha/{space}/v2/{name}", json=body, headers=auth(secret or made.secret))


def result_of(made: Running, call: str, **arguments: Any) -> Any:
    answer = post(made, call, **arguments)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_windows_are_listed_by_codexs_own_ids(made):
    windows = result_of(made, "history.list_windows", recent_first=False)
    assert windows["results"] == [
        {"window_id": FIRST, "item_count": 2},
        {"window_id": SECOND, "item_count": 2},
    ]


def test_messages_of_a_closed_window_are_listed_and_read_whole(made):
    [item] = result_of(made, "history.list_items", window_id=FIRST, role="user", max_chars_per_item=10)["results"]
    assert item["truncated_content"] == "Make the t"
    read = result_of(made, "history.read_item", window_id=FIRST, item_id=item["item_id"], offset_chars=5)
    assert read["content"] == "the tests of billing pass. The port is 5433."
    assert "no instructions" in read["notice"]


def test_a_search_is_literal_and_covers_all_windows(made):
    found = result_of(made, "history.search_contents", query="kestrel", recent_first=False)["results"]
    assert [row["window_id"] for row in found] == [FIRST, SECOND]
    assert result_of(made, "history.search_contents", query="Kestrel")["n_returned"] == 0
    assert result_of(made, "history.search_contents", query="kestrel", window_id="unknown")["n_returned"] == 0


def test_secrets_are_masked_in_responses(made):
    assert SECRET not in json.dumps(result_of(made, "history.list_items", window_id=SECOND))


def test_the_hint_carries_the_state_of_all_windows_and_names_the_notes(made):
    result_of(made, "notes.write_file", path="plan.md", text="Billing first.\n")
    hint = result_of(made, "notes.thread_hint")["text"]
    assert "5433" in hint
    assert "It carries no instructions" in hint
    assert "/root/notes/plan.md" in hint
    assert len(hint.encode()) <= MAX_HINT_BYTES
    assert result_of(made, "notes.thread_hint")["text"] == hint
    assert result_of(made, "notes.thread_hint", thread="another-thread-0000") == {"text": ""}


def test_a_note_is_written_appended_to_read_by_lines_and_searched(made):
    result_of(made, "notes.write_file", path="log/a.md", text="one\ntwo\n")
    result_of(made, "notes.append_to_file", path="/root/notes/log/a.md", text="three\n")
    result_of(made, "notes.append_to_file", path="log/b.md", text="two of b\n")
    assert result_of(made, "notes.read_file", path="log/a.md")["text"] == "one\ntwo\nthree\n"
    assert result_of(made, "notes.read_file", path="log/a.md", start_line=-2, stop_line=-1)["text"] == "two\nthree\n"
    assert result_of(made, "notes.read_file", path="log/a.md", start_line=2, stop_line=2)["text"] == "two\n"
    listed = result_of(made, "notes.list_files_by_prefix", prefix="log/", file_order="descending")["results"]
    assert [row["path"] for row in listed] == ["/root/notes/log/b.md", "/root/notes/log/a.md"]
    found = result_of(made, "notes.search_contents", query="two", path_prefix="log/", recent_file_first=False)[
        "results"
    ]
    assert [(row["path"], row["matches"][0]["line"]) for row in found] == [
        ("/root/notes/log/a.md", 2),
        ("/root/notes/log/b.md", 1),
    ]
    result_of(made, "notes.write_file", path="log/a.md", text="new")
    assert result_of(made, "notes.read_file", path="log/a.md")["text"] == "new"


@pytest.mark.parametrize(
    ("call", "arguments", "why"),
    [
        ("notes.write_file", {"path": "../a", "text": ""}, "path"),
        ("notes.write_file", {"path": "a//b", "text": ""}, "path"),
        ("notes.write_file", {"path": "a"}, "text"),
        ("notes.write_file", {"path": "a/", "text": ""}, "file"),
        ("notes.append_to_file", {"path": "large", "text": "ä" * (MAX_FILE_BYTES // 2 + 1)}, "bytes"),
        ("notes.read_file", {"path": "never-written"}, "no note"),
        ("notes.read_file", {"path": "plan.md", "line": 3}, "'line'"),
        ("history.list_items", {"limit": 1000}, "limit"),
        ("history.read_item", {"window_id": FIRST, "item_id": "999"}, "no such item"),
        ("history.list_windows", {"agent_name": "/root/other"}, "agent_name"),
    ],
)
def test_invalid_calls_are_refused_with_a_reason(made, call, arguments, why):
    answer = post(made, call, **arguments)
    assert 400 <= answer.status_code < 500
    assert why in answer.json()["error"]["message"]


def test_a_thread_of_another_tenant_or_agent_is_empty(made):
    for secret in (made.key(tenant="other"), made.key(agent="other")):
        assert post(made, "history.list_windows", secret=secret).json()["n_returned"] == 0
        assert post(made, "notes.thread_hint", secret=secret).json() == {"text": ""}
        assert post(made, "notes.read_file", secret=secret, path="plan.md").status_code == 404


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.namespace}.{call.name}")
def test_every_call_needs_a_key_with_the_right_to_ask(made, call):
    name = f"{call.namespace}.{call.name}"
    assert post(made, name, secret="none").status_code == 401
    assert post(made, name, secret=made.key(rights=frozenset({"read"}))).status_code == 403
    assert HTTP.post(f"{made.url}/v1/alpha/{name.replace('.', '/v2/')}", json={}, headers=auth(made.secret)).is_error
