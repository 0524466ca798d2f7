"""Real MCP clients, the newest and an older one, call every tool, resource and prompt over stdio and HTTP."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4

import pytest
from mcp.client.extension import advertise
from mcp.shared.exceptions import MCPError
from mcp_types import Request
from tests.context.worked_sessions import messages
from tests.mcp import older_environment
from tests.mcp.serving import (
    ENVIRONMENT,
    MAIN,
    PROGRAM,
    SECONDS,
    Served,
    SyncClient,
    opened,
    over_http,
    over_stdio,
    served,
    sync_client,
)

from recto.config.factory import SystemClock
from recto.formats.tools import MCP_TOOLS
from recto.mcp._tasks import EXTENSION, TaskParams, TaskState
from recto.recall.types import FOOTER, HEADER
from recto.stores.sqlite import SqliteStore
from recto.transcript.session_keys import TenantStore
from recto.transcript.sources import SessionSource, SessionSources

LONG = "\n".join(f"line {number} of the log of kestrel" for number in range(3_200))
"""More than 100,000 characters."""
OTHER = "agent:other:main"
LARGEST = 40_000
"""Characters of any answer."""
READING = {"sessions", "recall", "read", "outline", "grep", "work", "resume", "context_report", "decisions"}


def begin(store: Path, name: str = MAIN, long: str = "") -> str:
    """Creates a session with a fact, a checkpoint and a decision that can be undone; entry 3 may be a long one."""
    with opened(store, session=name, window={"keep_recent_tokens": 400}) as session:
        session.append({"role": "user", "content": "We deploy to the host kestrel on port 8443, on Tuesdays only."})
        session.append({"role": "assistant", "content": "Understood: kestrel, port 8443, Tuesdays."})
        session.append({"role": "user", "content": long or "Go on with step 0."})
        for number in range(6):
            session.append({"role": "assistant", "content": f"Step {number} is done. {'It took a while. ' * 300}"})
            session.append({"role": "user", "content": f"Go on with step {number + 1}."})
        session.checkpoint(goal="Move the service to kestrel", done=["the config"], plan=["the switch"])
        assert session.compact()
    return name


def begin_both(store: Path) -> Path:
    begin(store, long=LONG)
    with opened(store, session=OTHER) as session:
        session.append({"role": "user", "content": "Nothing of this is about birds."})
    return store


@pytest.fixture(scope="module")
def gateway(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with served(folder, begin_both(folder / "transcript.db")) as running:
        yield running


@pytest.fixture(scope="module", params=["stdio", "http"])
def client(request, tmp_path_factory) -> Iterator[SyncClient]:
    with ExitStack() as stack:
        if request.param == "stdio":
            store = begin_both(tmp_path_factory.mktemp("stdio") / "transcript.db")
            transport = over_stdio(store)
        else:
            running = request.getfixturevalue("gateway")
            store, transport = running.store, over_http(running.url, running.key())
        yield stack.enter_context(sync_client(transport, store))


@pytest.fixture
def fresh(client) -> str:
    """A session that no other test changes."""
    return begin(client.store, f"agent:default:{uuid4().hex}")


def test_every_tool_declares_its_effects_and_its_schemas(client):
    listed = {tool.name: tool for tool in client.request("list_tools").tools}
    assert tuple(listed) == MCP_TOOLS
    for name, tool in listed.items():
        assert tool.title
        assert len(tool.description) > 40
        assert tool.annotations.read_only_hint is (name in READING)
        assert tool.annotations.destructive_hint is False
        assert tool.annotations.open_world_hint is False
        assert tool.annotations.idempotent_hint is (name not in {"note", "unpin", "checkpoint"})
        assert tool.output_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False


def test_recall_finds_a_message_and_quotes_it_with_its_pointer(client):
    answer = client.tool("recall", query="which port does kestrel use", most=3)
    found = answer.structured_content
    text = answer.content[0].text
    assert any(hit["pointer"] == f"recto://{MAIN}/1" for hit in found["hits"])
    assert found["quotation"] in text
    assert text.startswith(HEADER)
    assert "\n> We deploy to the host kestrel on port 8443, on Tuesdays only." in text
    assert FOOTER in text


def test_recall_continues_after_its_last_hit_without_repeating_one(client):
    first = client.call("recall", query="step done", most=2)
    assert first["next"] == 2
    second = client.call("recall", query="step done", most=2, skip=2)
    pointers = [hit["pointer"] for hit in (*first["hits"], *second["hits"])]
    assert len(pointers) == len(set(pointers)) == 4


def test_recall_searches_other_sessions_only_if_requested(client):
    near = client.call("recall", query="birds")
    assert all(hit["session"] == MAIN for hit in near["hits"])
    client.call("recall", query="birds", session=OTHER)  # indexes that session
    far = client.call("recall", query="Nothing of this is about birds", scope="tenant")
    assert OTHER in {hit["session"] for hit in far["hits"]}


def test_an_entry_of_a_hundred_thousand_characters_is_read_whole_in_pages(client):
    assert len(LONG) > 100_000
    parts: list[str] = []
    start: int | None = 0
    while start is not None:
        answer = client.tool("read", pointer=f"recto://{MAIN}/3", start=start)
        assert len(answer.content[0].text) <= LARGEST
        assert len(json.dumps(answer.structured_content)) <= LARGEST
        (page,) = answer.structured_content["pages"]
        assert page["start"] == start
        assert page["characters"] == len(LONG)
        lines = answer.structured_content["quotation"].split("\n")
        parts.append("\n".join(line.removeprefix("> ") for line in lines if line.startswith("> ")))
        start = page["next"]
    assert "".join(parts) == LONG


def test_entries_around_an_entry_are_shown_if_requested(client):
    found = client.call("read", pointer=f"recto://{MAIN}/2", around=1)
    assert [page["pointer"] for page in found["pages"]] == [f"recto://{MAIN}/{seq}" for seq in (1, 2, 3)]
    assert found["pages"][2]["next"] is not None


def test_a_range_of_entries_is_read_at_once(client):
    found = client.call("read", pointer=f"recto://{MAIN}/1", through=4)
    assert [page["pointer"].rpartition("/")[2] for page in found["pages"]] == ["1", "2", "3", "4"]
    assert found["pages"][2]["next"], "the long entry has another page"
    assert len(client.call("read", pointer=f"recto://{MAIN}/1", through=10_000)["pages"]) <= 20


def test_entries_are_listed_by_range_with_their_sizes(client):
    found = client.call("outline", limit=3)
    assert [entry["seq"] for entry in found["entries"]] == [1, 2, 3]
    assert found["entries"][2]["characters"] == len(LONG)
    assert "> line 0 of the log of kestrel" in found["quotation"]
    assert client.call("outline", start=found["next"], limit=1)["entries"][0]["seq"] == 4
    newest = client.call("outline", limit=2, newest_first=True)["entries"]
    assert newest[0]["seq"] > newest[1]["seq"]


def test_a_search_without_hits_explains_how_to_search_all_sessions(client):
    assert "with scope 'tenant' all sessions are" in client.tool("recall", query="zzqqxx").content[0].text
    assert "scope" not in client.tool("recall", query="zzqqxx", scope="tenant").content[0].text


def test_lines_are_searched_with_context_and_regular_expressions(client):
    found = client.call("grep", pattern="line 77 of", context=1)
    assert [match["seq"] for match in found["matches"]] == [3]
    assert "> 77- line 76 of the log of kestrel" in found["quotation"]
    assert "> 78: line 77 of the log of kestrel" in found["quotation"]
    assert client.call("grep", pattern=r"port \d{4}, on \w+s only", regex=True)["matches"][0]["seq"] == 1
    assert client.call("grep", pattern="nowhere")["matches"] == []
    assert "No line matches" in client.tool("grep", pattern="nowhere").content[0].text
    assert "cannot be searched for" in client.refused("grep", pattern="(?=a)", regex=True)


def test_work_is_found_with_its_outcome_and_quoted(client):
    name = f"agent:default:{uuid4().hex}"
    with opened(client.store, session=name) as session:
        for message in messages("openai.chat"):
            session.append(message)
    found = client.call("work", session=name, file="src/parser.py")
    assert [(step["what"], step["version"]) for step in found["steps"]] == [("edit", 1), ("read", 0)]
    assert "> why: The default port is missing." in found["quotation"]
    runs = client.call("work", session=name, command="pytest tests")["steps"]
    assert [(step["state"], step["exit_code"]) for step in runs] == [("ok", None), ("failed", 1), ("failed", 1)]
    error = client.call("work", session=name, error="KeyError")
    assert (error["state"], error["count"]) == ("over", 2)
    assert error["steps"][0]["what"] == "ended_by"
    assert client.call("work", session=name, number="passed in")["count"] == 1
    assert "Nothing of the kind" in client.tool("work", session=name, file="nowhere.py").content[0].text
    assert "exactly one" in client.refused("work", session=name)
    assert "exactly one" in client.refused("work", session=name, file="a.py", error="b")


def test_a_note_is_stored_with_its_surface_and_requester(client, fresh):
    made = client.call("note", session=fresh, text="The switch needs two people.", kind="constraints", critical=True)
    whole = client.call("read", pointer=made["pointer"])
    assert "The switch needs two people." in whole["quotation"]
    assert whole["pages"][0]["role"] == "note"
    with opened(client.store, session=fresh) as session:
        (entry,) = session.read(made["seq"], made["seq"])
        assert entry.surface == "mcp"
        assert json.loads(entry.meta)["asked_by"]


def test_a_message_is_pinned_and_unpinned(client, fresh):
    pinned = client.call("pin", session=fresh, entries=[1, 2])
    assert client.call("pin", session=fresh, entries=[2]) == {**pinned, "done": "Pinned: 2."}
    with opened(client.store, session=fresh) as session:
        assert session.window.state.pins == {1, 2}
    client.call("unpin", session=fresh, entries=[1, 2])
    assert "not pinned" in client.refused("unpin", session=fresh, entries=[1])
    assert "only messages can be pinned" in client.refused("pin", session=fresh, entries=[16])
    assert "there is no entry 900000" in client.refused("pin", session=fresh, entries=[900_000])


def test_a_recalled_message_is_judged(client, fresh):
    client.call("judge", session=fresh, pointer=f"recto://{fresh}/1", verdict="not_helpful")
    with opened(client.store, session=fresh) as session:
        assert session.window.state.judged == {"1": False}
    assert "no message" in client.refused("judge", session=fresh, pointer=f"recto://{fresh}/900", verdict="helpful")


def test_a_checkpoint_is_saved_and_resumed(client, fresh):
    doing, decided = ["watch the switch"], ["roll back after ten minutes"]
    before = client.call("resume", session=fresh)["version"]
    made = client.call("checkpoint", session=fresh, doing=doing, decisions=decided)
    assert made["version"] == before + 1
    after = client.tool("resume", session=fresh)
    assert after.structured_content["version"] == made["version"]
    assert "watch the switch" in after.content[0].text
    assert "Move the service to kestrel" in after.content[0].text
    assert "stale" in client.refused("checkpoint", session=fresh, goal="another", expect=before)


def test_a_report_shows_what_the_prompt_contains_and_what_was_evicted(client, fresh):
    answer = client.tool("context_report", session=fresh)
    report = answer.structured_content
    assert report["session"] == fresh
    assert report["left_messages"] >= 2
    assert report["tokens"] <= report["room"]
    assert report["largest"]
    assert f"{report['tokens']:,} of {report['room']:,} tokens" in answer.content[0].text


def test_a_decision_is_listed_and_undone(client, fresh):
    (made,) = client.call("decisions", session=fresh)["decisions"]
    assert not made["undone"]
    client.call("restore", session=fresh, decision=made["seq"])
    assert client.call("context_report", session=fresh)["left_messages"] == 0
    (made,) = client.call("decisions", session=fresh)["decisions"]
    assert made["undone"]


def test_a_session_in_the_list_names_the_agent_and_the_project_it_comes_from(client, fresh):
    with closing(SqliteStore(client.store)) as store:
        source = SessionSource(agent="codex", project="/srv/shop")
        SessionSources(TenantStore(store)).record(SystemClock(), fresh, source)
    (listed,) = [row for row in client.call("sessions", limit=100)["sessions"] if row["session"] == fresh]
    assert (listed["agent"], listed["project"]) == ("codex", "/srv/shop")
    assert ", codex in /srv/shop" in str(client.request("call_tool", "sessions", {"limit": 100}).content)


def test_the_list_of_sessions_shows_their_titles(client):
    titles = [row["title"] for row in client.call("sessions", limit=100)["sessions"] if row["title"]]
    listed = client.request("call_tool", "sessions", {"limit": 100}).content[0].text
    assert titles
    assert all(f'"{title}", ' in listed for title in titles)


def test_sessions_are_listed_in_pages(client):
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = client.call("sessions", limit=1, after=after)
        assert len(page["sessions"]) == 1
        seen.append(page["sessions"][0]["session"])
        after = page["next"]
    assert seen == sorted(set(seen))
    assert {MAIN, OTHER} <= set(seen)


def test_every_resource_that_is_listed_can_be_read(client):
    listed = client.request("list_resources").resources
    assert [resource.uri for resource in listed][:1] == ["recto://sessions"]
    assert len(listed) >= 5
    for resource in listed[:5]:
        text = client.read(resource.uri)
        assert len(text) <= LARGEST
        if resource.mime_type == "application/json":
            assert json.loads(text)
    templates = [resource.uri_template for resource in client.request("list_resource_templates").resource_templates]
    assert "recto://session/{name}/transcript{?after}" in templates


def test_a_transcript_is_read_page_by_page_to_its_end(client, fresh):
    listed = json.loads(client.read("recto://sessions"))["sessions"]
    entries = next(row["entries"] for row in listed if row["session"] == fresh)
    seen: list[int] = []
    uri = f"recto://session/{fresh}/transcript"
    while uri:
        text = client.read(uri)
        seen += [int(line.split(" ")[0].rpartition("/")[2]) for line in text.split("\n") if line.startswith("recto://")]
        uri = text.partition("\nThe next page: ")[2]
    assert seen == list(range(1, entries + 1))


def test_prompts_contain_the_state_of_the_work(client):
    listed = client.request("list_prompts").prompts
    assert [prompt.name for prompt in listed] == ["handoff", "resume"]
    for name in ("handoff", "resume"):
        (message,) = client.request("get_prompt", name, {"session": MAIN}).messages
        assert "Move the service to kestrel" in message.content.text
    (message,) = client.request("get_prompt", "resume", {"session": OTHER}).messages
    assert "no checkpoint" in message.content.text


def test_errors_explain_the_reason_and_what_to_do(client):
    assert "'query': Field required" in client.refused("recall")
    assert "'most'" in client.refused("recall", query="x", most=10_000)
    unknown = client.refused("recall", query="x", surprise=1)
    assert "'surprise': there is no such argument; there are session, query, most, skip, scope" in unknown
    assert "'done': it is a list" in client.refused("checkpoint", done="the config")
    unknown = client.refused("context_report", session="agent:nobody:main")
    assert unknown == client.refused("context_report", session="tenant:acme/agent:default:main")
    assert unknown == client.refused("recall", query="x", session="recto:keys")
    assert "'sessions' lists" in unknown
    assert "ends at entry" in client.refused("read", pointer=f"recto://{MAIN}/900000")
    nothing = client.refused("read", pointer="recto://agent:nobody:main/1")
    assert nothing == client.refused("read", pointer="recto://recto:keys/1")
    assert "is not a pointer" in client.refused("read", pointer="/etc/passwd")
    assert "not a decision" in client.refused("restore", decision=1)
    for uri in ("recto://session/nobody/report", "recto://session//report", "recto://elsewhere", "file:///etc/passwd"):
        with pytest.raises(MCPError, match="there is no such"):
            client.request("read_resource", uri)
    with pytest.raises(MCPError, match="there is no such prompt"):
        client.request("get_prompt", "surprise", {})


def test_an_unknown_tool_is_a_protocol_error(client):
    with pytest.raises(MCPError, match="no such tool"):
        client.tool("drop_everything")


@pytest.fixture(scope="module")
def older() -> Path:
    if reason := older_environment.missing():
        pytest.skip(f"no older MCP client: {reason}")
    return older_environment.OLDER.python


def run_older_client(python: Path, *arguments: str) -> dict:
    command = [str(python), str(older_environment.PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=3 * SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_an_older_client_gets_every_answer_too(older, transport, tmp_path, request):
    if transport == "stdio":
        begin_both(tmp_path / "transcript.db")
        results = run_older_client(older, "stdio", PROGRAM, "--store", str(tmp_path / "transcript.db"), "mcp")
    else:
        gateway = request.getfixturevalue("gateway")
        results = run_older_client(older, "http", f"{gateway.url}/mcp", gateway.key())
    assert results["sdk"].startswith("1.")
    assert results["protocol"] < "2026"
    assert results["server"] == "recto"
    assert tuple(results["tools"]) == MCP_TOOLS
    assert all(hints == [name in READING, False, True] for name, hints in results["tools"].items())
    failed = {name for name, call in results["called"].items() if call["error"]}
    assert failed == {"restore"}  # entry 1 is not a decision
    assert "kestrel on port 8443" in results["called"]["recall"]["text"]
    assert "the older client is served" in results["called"]["resume"]["text"]
    assert len(results["resources"]) >= 5
    assert len(results["templates"]) == 3
    assert f"recto://{MAIN}/2" in results["page"]
    assert all("the older client is served" in text for text in results["prompts"].values())
    assert "no such session" in results["refused"]


def test_tasks_can_be_requested_over_http(gateway):
    transport = over_http(gateway.url, gateway.key())
    with sync_client(transport, gateway.store, extensions=[advertise(EXTENSION)]) as client:
        request = Request[TaskParams, str](method="tasks/get", params=TaskParams(task_id="no such task"))
        with pytest.raises(MCPError, match="no such task"):
            client.portal.call(client.client.session.send_request, request, TaskState)
