"""Lazy tools: definitions over their token share are left out of requests, and the model finds them by search."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.gateways import Running, gateway
from tests.gateway.test_context_report import CountedPrompt, check_pieces, stored_runs
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

import recto
from recto.config import load
from recto.config.factory import make_meter
from recto.context.window.state import WindowState
from recto.context.window.units import LeftOutTools
from recto.engine.audit import audit
from recto.engine.projection import TOOLS_LEFT_OUT
from recto.engine.report import report
from recto.formats import format_named, open_body, read
from recto.formats.streaming import SseReader
from recto.formats.tool_calls import NewToolResult
from recto.formats.tools import ListedTool, tool_definitions, without_tools
from recto.gateway._lazy_tools import plan_left_out
from recto.gateway.api_keys import Key

MODEL, WINDOW = "gpt-4o", 16_000
CHAT, RESPONSES, MESSAGES, GEMINI = "openai.chat", "openai.responses", "anthropic.messages", "google.gemini"
PATHS = {
    CHAT: "/v1/chat/completions",
    RESPONSES: "/v1/responses",
    MESSAGES: "/v1/messages",
    GEMINI: f"/v1beta/models/{MODEL}:generateContent",
}
SETTINGS: dict[str, Any] = {
    "models": {MODEL: {"window": WINDOW}},
    "recall": {"embedder": {"use": "none"}, "inject": False},
    "window": {"record_percent": 0, "shares": {"tools": 10}, "lazy_tools": True},
}
THINGS = ("invoice", "ticket", "customer", "parcel", "garden", "lamp", "meeting", "recipe", "ledger", "harbour")
NAMES = [f"{verb}_{thing}" for thing in THINGS for verb in ("create", "find", "update", "delete", "archive")]
NAMES += [f"report_{thing}" for thing in THINGS]
FORMATS = pytest.mark.parametrize("wire", PATHS)
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
_NUMBERS = count()


def tool(wire: str, name: str) -> dict[str, Any]:
    verb, thing = name.split("_")
    description = f"Lets you {verb} one {thing} of the company, by its number, with a note that says why it is needed."
    schema = {
        "type": "object",
        "properties": {"number": {"type": "string", "description": f"The {thing}."}, "note": {"type": "string"}},
        "required": ["number"],
    }
    match wire:
        case "openai.chat":
            return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
        case "openai.responses":
            return {"type": "function", "name": name, "description": description, "parameters": schema}
        case "anthropic.messages":
            return {"name": name, "description": description, "input_schema": schema}
    return {"name": name, "description": description, "parametersJsonSchema": schema}


def tools_of(wire: str, names: list[str]) -> list[dict[str, Any]]:
    tools = [tool(wire, name) for name in names]
    return [{"functionDeclarations": tools}] if wire == GEMINI else tools


def names_in(request: Asked) -> list[str]:
    return [tool.name for tool in tool_definitions(tools_in(request))]


def tools_in(request: Asked) -> bytes:
    return open_body(request.raw, request.wire).tools or b""


class Agent:
    """A client with its own format and tools that sends its whole history."""

    def __init__(self, gw: Running, wire: str, *, stream: bool = False, names: list[str] | None = None) -> None:
        self.gw, self.wire, self.stream = gw, wire, stream
        self.format = format_named(wire)
        self.tools = tools_of(wire, NAMES if names is None else names)
        self.history: list[bytes] = []
        self.session = ""
        self.relieved: list[bool] = []
        """For each request: whether messages were evicted for it."""

    def ask(self, text: str = "", **more: Any) -> list[Any]:
        """Ask, or answer the calls of the last response. Returns the calls of the response."""
        text = text or f"Question {next(_NUMBERS)}?"
        self.history.append(self.format.text_message("user", text))
        return self.post(**more)

    def result(self, calls: list[Any], text: str = "Done.") -> list[Any]:
        results = [NewToolResult(call.call_id, text, call.name) for call in calls]
        self.history += self.format.edits.result_messages(results)
        return self.post()

    def post(self, **more: Any) -> list[Any]:
        body: dict[str, Any] = {self.format.body.messages: [json.loads(raw) for raw in self.history]}
        body |= {"tools": self.tools} | more
        path = PATHS[self.wire]
        if self.wire != GEMINI:
            body |= {"model": MODEL, "stream": self.stream}
        elif self.stream:
            path = path.replace(":generateContent", ":streamGenerateContent?alt=sse")
        if self.wire == MESSAGES:
            body["max_tokens"] = 300
        headers = {"authorization": f"Bearer {self.gw.secret}", "x-goog-api-key": self.gw.secret}
        answer = httpx2.post(self.gw.url + path, json=body, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        self.answer, self.session = answer, answer.headers["x-recto-session-id"]
        self.relieved.append(answer.headers["x-recto-decisions"] != "none")
        if self.stream:
            capture = self.format.capture()
            for event in SseReader().feed(answer.content):
                capture.take(event)
            assert capture.ended
            messages = capture.reply().messages
        else:
            messages = self.format.read_response(answer.text, answer.json()).messages
        self.history += messages
        return [part for raw in messages for part in read(raw, self.wire).calls]

    def decisions(self) -> list[dict[str, Any]]:
        entries = self.gw.store.read(self.session)
        return [json.loads(entry.content) for entry in entries if entry.kind == TOOLS_LEFT_OUT]


class World:
    """One upstream, and gateways in front of it that use one store after another."""

    def __init__(self, upstream: ScriptedUpstream, stack: ExitStack, folder: Path) -> None:
        self.upstream, self.stack, self.folder = upstream, stack, folder
        self.meter = make_meter(load(environ={}, arguments={"model": MODEL}))

    @contextmanager
    def restarted(
        self, speaks: tuple[str, ...] = ("chat", "responses", "messages", "gemini"), **more: Any
    ) -> Iterator[Running]:
        """A gateway over the store of the test, with other settings."""
        with gateway(self.folder, self.upstream.url, speaks=speaks, **(SETTINGS | more)) as gw:
            yield gw

    def gateway(self, **more: Any) -> Running:
        return self.stack.enter_context(self.restarted(**more))

    def says(self, *steps: Says) -> None:
        left = list(steps)
        self.upstream.answer = lambda request: left.pop(0) if left else Says(text="Yes.")

    def share(self, gw: Running) -> int:
        with gw.gateway.sessions.use(Key(id="", name="test"), "agent:x:share", MODEL) as session:
            return session.window.budget.limits["tools"].hard


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(lambda request: Says(text="Yes."))))
        yield World(upstream, stack, tmp_path)


@FORMATS
@STREAMED
@pytest.mark.requirement("evict.tools")
def test_unused_definitions_are_left_out_to_meet_the_share_and_the_list_is_stable_for_ten_turns(world, wire, stream):
    gw = world.gateway()
    agent = Agent(gw, wire, stream=stream)
    for _ in range(10):
        agent.ask()
    requests = world.upstream.asked
    assert len(requests) == 10
    assert all(request.problems == [] for request in requests)
    assert len({tools_in(request) for request in requests}) == 1
    assert world.meter.tools(json.dumps(agent.tools)) > world.share(gw)
    assert world.meter.tools(tools_in(requests[0]).decode()) <= world.share(gw)
    sent_names = names_in(requests[0])
    assert sent_names[-1] == "recall"
    assert 3 < len(sent_names) < 30
    assert sent_names[:-1] == [name for name in NAMES if name in sent_names]
    # the names of left-out tools are listed, so that the model knows what it can search for
    own = tool_definitions(tools_in(requests[0]))[-1].description
    assert all((name in own) is (name not in sent_names) for name in NAMES)
    (decision,) = agent.decisions()
    assert decision["names"] == [name for name in NAMES if name not in sent_names]
    assert decision["reason"].startswith("all tools cost ")
    assert agent.answer.headers["x-recto-recall-tool"] == "offered for tools only: nothing is evicted yet"


@FORMATS
@STREAMED
@pytest.mark.requirement("evict.tools")
def test_the_model_searches_for_a_tool_gets_its_definition_and_the_client_gets_the_call(world, wire, stream):
    agent = Agent(world.gateway(), wire, stream=stream)
    agent.ask()
    assert "archive_harbour" not in names_in(world.upstream.asked[0])
    world.says(
        Says(text="Let me see.", calls=(("recall", {"tool": "put harbours into the archive"}),)),
        Says(text="", calls=(("archive_harbour", {"number": "7"}),)),
    )
    calls = agent.ask()
    assert [(call.name, json.loads(call.text)) for call in calls] == [("archive_harbour", {"number": "7"})]
    assert '"recall"' not in agent.answer.text
    first, second, third = world.upstream.asked
    assert tools_in(first) == tools_in(second)
    # the definitions before it keep their bytes, so that the provider's cache of the tools stays valid
    added = [name for name in names_in(third) if name not in names_in(first)]
    assert added[0] == "archive_harbour"
    assert len(added) <= 3
    assert tools_in(third).startswith(tools_in(first).rstrip()[:-1])
    (definition,) = [
        definition for definition in tool_definitions(tools_in(third)) if definition.name == "archive_harbour"
    ]
    whole = tool(wire, "archive_harbour")
    assert json.loads(definition.element) in (whole, {"functionDeclarations": [whole]})
    assert "Lets you archive one harbour" in json.dumps(third.messages[-1])
    # the tool stays for the next turns
    agent.result(calls)
    agent.ask()
    assert {tools_in(request) for request in world.upstream.asked[2:]} == {tools_in(third)}
    assert all(request.problems == [] for request in world.upstream.asked)
    assert [decision["found"][:1] for decision in agent.decisions()] == [[], ["archive_harbour"]]
    assert agent.decisions()[1]["reason"] == "the model searched for them"


@STREAMED
@pytest.mark.parametrize(("wire", "speaks"), [(CHAT, "messages"), (MESSAGES, "responses"), (RESPONSES, "chat")])
def test_a_search_crosses_to_an_upstream_with_another_format(world, wire, speaks, stream):
    agent = Agent(world.gateway(speaks=(speaks,)), wire, stream=stream)
    world.says(
        Says(calls=(("recall", {"tool": "archive_harbour"}),)), Says(calls=(("archive_harbour", {"number": "7"}),))
    )
    assert [call.name for call in agent.ask()] == ["archive_harbour"]
    first, second = world.upstream.asked
    assert first.problems == second.problems == []
    assert "archive_harbour" not in names_in(first)
    assert "archive_harbour" in names_in(second)


@FORMATS
@STREAMED
@pytest.mark.requirement("evict.tools")
def test_a_call_of_a_left_out_tool_reaches_the_client_and_the_tool_is_sent_from_then_on(world, wire, stream):
    agent = Agent(world.gateway(), wire, stream=stream)
    world.says(Says(calls=(("archive_harbour", {"number": "7"}),)))
    calls = agent.ask()
    assert [(call.name, json.loads(call.text)) for call in calls] == [("archive_harbour", {"number": "7"})]
    assert "archive_harbour" not in names_in(world.upstream.asked[0])
    agent.result(calls)
    agent.ask()
    assert [names_in(request)[-1] for request in world.upstream.asked] == [
        "recall",
        "archive_harbour",
        "archive_harbour",
    ]
    assert tools_in(world.upstream.asked[1]) == tools_in(world.upstream.asked[2])


@FORMATS
def test_a_search_along_with_a_client_tool_call_is_answered_in_the_next_request(world, wire):
    agent = Agent(world.gateway(), wire)
    world.says(Says(calls=(("recall", {"tool": "archive_harbour"}), (NAMES[0], {"number": "1"}))))
    calls = agent.ask()
    assert [call.name for call in calls] == [NAMES[0]]
    agent.result(calls)
    second = world.upstream.asked[1]
    assert second.problems == []
    assert "archive_harbour" in names_in(second)
    assert b"among your tools from now on" in second.raw


ALLOWED = {"type": "function", "name": "report_harbour"}
NAMED: dict[str, dict[str, Any]] = {
    CHAT: {"tool_choice": {"type": "function", "function": {"name": "report_harbour"}}},
    RESPONSES: {
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "report_harbour"}],
        }
    },
    MESSAGES: {"tool_choice": {"type": "tool", "name": "report_harbour"}},
    GEMINI: {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["report_harbour"]}}},
}
PROVIDERS: dict[str, list[dict[str, Any]]] = {
    CHAT: [{"type": "custom", "custom": {"name": "shell"}}],
    RESPONSES: [{"type": "web_search"}, {"type": "mcp", "server_label": "s", "server_url": "https://example.com"}],
    MESSAGES: [{"type": "bash_20250124", "name": "bash"}],
    GEMINI: [{"googleSearch": {}}],
}


@FORMATS
@pytest.mark.requirement("evict.tools")
def test_used_and_chosen_tools_tools_of_the_provider_and_cache_marks_stay(world, wire):
    agent = Agent(world.gateway(), wire)
    agent.tools += PROVIDERS[wire]
    if wire == MESSAGES:
        agent.tools[30]["cache_control"] = {"type": "ephemeral"}
    world.upstream.answer = lambda request: Says(calls=(("find_harbour", {"number": "1"}),))
    # the first request of the session has a history with a call of this tool
    other = Agent(agent.gw, wire, names=["find_harbour"])
    calls = other.ask("Find the harbour.")
    agent.history = other.history
    world.says()
    world.upstream.asked.clear()
    agent.history += agent.format.edits.result_messages([NewToolResult(calls[0].call_id, "Found.", calls[0].name)])
    agent.post(**NAMED[wire])
    (request,) = world.upstream.asked
    sent_names = names_in(request)
    assert {"find_harbour", "report_harbour"} <= {*sent_names}
    assert len(sent_names) < 30
    for provided in PROVIDERS[wire]:
        assert provided in request.body["tools"]
    if wire == MESSAGES:
        assert NAMES[30] in sent_names
    # a tool that is chosen later is sent again
    world.upstream.asked.clear()
    late = json.loads(json.dumps(NAMED[wire]).replace("report_harbour", "delete_harbour"))
    agent.ask(**late)
    assert "delete_harbour" not in sent_names
    assert names_in(world.upstream.asked[0])[-1] == "delete_harbour"


@FORMATS
@pytest.mark.requirement("evict.tools")
def test_a_restart_keeps_the_list_byte_for_byte(world, wire):
    with world.restarted() as gw:
        agent = Agent(gw, wire)
        world.says(Says(calls=(("recall", {"tool": "archive_harbour"}),)))
        agent.ask()
        agent.ask()
    with world.restarted() as agent.gw:
        before = agent.session
        agent.gw.secret = agent.gw.key()
        agent.ask()
        assert agent.session == before
        assert len(agent.decisions()) == 2
    lists = [tools_in(request) for request in world.upstream.asked]
    assert len({*lists[1:]}) == 1
    assert "archive_harbour" in names_in(world.upstream.asked[-1])


@FORMATS
@pytest.mark.requirement("evict.tools")
def test_by_default_the_tools_of_a_request_are_not_touched(world, wire):
    window = {name: value for name, value in SETTINGS["window"].items() if name != "lazy_tools"}
    agent = Agent(world.gateway(window=window), wire)
    agent.ask()
    (request,) = world.upstream.asked
    assert json.loads(tools_in(request)) == agent.tools
    assert agent.decisions() == []


@FORMATS
def test_a_list_that_fits_its_share_is_not_touched(world, wire):
    agent = Agent(world.gateway(), wire, names=NAMES[:5])
    agent.ask()
    assert json.loads(tools_in(world.upstream.asked[0])) == agent.tools
    assert agent.decisions() == []


@FORMATS
@pytest.mark.requirement("evict.tools")
def test_the_report_and_the_audit_say_what_is_left_out_and_its_total_is_what_was_sent(world, wire):
    gw = world.gateway()
    agent = Agent(gw, wire)
    world.says(Says(calls=(("recall", {"tool": "archive_harbour"}),)), Says(text="Good."))
    agent.ask()
    agent.ask()
    for (_, composition), request in zip(stored_runs(gw), world.upstream.asked, strict=True):
        check_pieces(composition, CountedPrompt(request, world.meter))
    last = world.upstream.asked[-1]
    with gw.gateway.sessions.use(Key(id="", name="test"), agent.session, MODEL) as session:
        made = report(session.window)
        lines = [line for line in audit(session.store, session.key) if line.kind == TOOLS_LEFT_OUT]
    assert made.tools_left_out == len({*NAMES} - {*names_in(last)})
    saved = world.meter.tools(json.dumps(agent.tools)) - world.meter.tools(tools_in(last).decode())
    assert made.tools_left_out_tokens == saved > 1_000
    assert [line.topic for line in lines] == ["decision", "decision"]
    assert [line.details["tools"] for line in lines] == [made.tools_left_out + 1, made.tools_left_out]
    assert str(lines[0].details["names"]).startswith(agent.decisions()[0]["names"][0])
    sent = [world.meter.tools(tools_in(request).decode()) for request in world.upstream.asked[:2]]
    assert [line.tokens_after for line in lines] == sent
    assert [line.freed for line in lines] == [line.tokens_before - line.tokens_after for line in lines]


def fill(agent: Agent, turns: int) -> None:
    for _ in range(turns):
        agent.ask(f"Question {next(_NUMBERS)}: " + "many words of a long story. " * 200)


@FORMATS
@pytest.mark.requirement("evict.tools")
def test_at_a_relief_the_least_recently_used_are_left_out_and_the_used_come_back(world, wire):
    gw = world.gateway()
    agent = Agent(gw, wire)
    world.says(Says(calls=(("archive_harbour", {"number": "7"}),)))
    agent.result(agent.ask())
    before = tools_in(world.upstream.asked[-1])
    fill(agent, 12)
    lists = [tools_in(request) for request in world.upstream.asked]
    changes = [place for place in range(2, len(lists)) if lists[place] != lists[place - 1]]
    # the list changes only in requests for which messages are evicted; from then on the tool searches messages, too
    assert changes
    assert all(agent.relieved[place] for place in changes)
    assert agent.answer.headers["x-recto-recall-tool"] == "offered"
    assert world.meter.tools(lists[-1].decode()) <= world.share(gw)
    assert b'"query"' in lists[-1]
    assert b'"query"' not in before
    # a used tool whose call is evicted is sent: tools that were never used are left out before it
    assert "archive_harbour" in names_in(world.upstream.asked[-1])
    assert b'"archive_harbour"' not in json.dumps(world.upstream.asked[-1].messages).encode()


@FORMATS
def test_a_changed_tool_list_of_the_client_is_planned_again(world, wire):
    agent = Agent(world.gateway(), wire)
    agent.ask()
    agent.tools = tools_of(wire, NAMES[:5])
    agent.ask()
    assert json.loads(tools_in(world.upstream.asked[1])) == agent.tools
    agent.tools = tools_of(wire, NAMES[::-1])
    agent.ask()
    assert 3 < len(names_in(world.upstream.asked[2])) < 30
    assert [bool(decision["names"]) for decision in agent.decisions()] == [True, False, True]


@FORMATS
def test_with_recall_off_the_recall_tool_finds_tools_only(world, wire):
    gw = world.gateway(gateway={"recall_tool": "never"}, recall={"enabled": False})
    agent = Agent(gw, wire)
    world.says(Says(calls=(("recall", {"query": "archive a harbour"}),)))
    agent.ask()
    first, second = world.upstream.asked
    assert agent.answer.headers["x-recto-recall-tool"] == "offered for tools only: gateway.recall_tool is never"
    assert '"entry"' not in tool_definitions(tools_in(first))[-1].element
    assert "archive_harbour" in names_in(second)
    fill(agent, 12)
    assert any(agent.relieved)
    assert b"call the tool recall" not in world.upstream.asked[-1].raw


@FORMATS
def test_nothing_is_left_out_if_a_search_could_not_be_answered(world, wire):
    agent = Agent(world.gateway(), wire)
    own = json.loads(json.dumps(tools_of(wire, ["create_lamp"])).replace("create_lamp", "recall"))
    agent.tools += own
    agent.ask()
    assert json.loads(tools_in(world.upstream.asked[0])) == agent.tools
    if wire == CHAT:
        agent = Agent(agent.gw, wire)
        agent.ask(n=2)
        assert json.loads(tools_in(world.upstream.asked[1])) == agent.tools


@FORMATS
@pytest.mark.requirement("evict.tools")
def test_a_list_that_was_sent_whole_stays_whole_until_a_relief_and_is_whole_again_when_switched_off(world, wire):
    off = {"window": SETTINGS["window"] | {"lazy_tools": False}}
    with world.restarted(**off) as gw:
        agent = Agent(gw, wire)
        agent.ask()
    with world.restarted() as agent.gw:
        agent.gw.secret = agent.gw.key()
        agent.ask()
        assert tools_in(world.upstream.asked[1]) == tools_in(world.upstream.asked[0])
        fill(agent, 12)
        assert len(names_in(world.upstream.asked[-1])) < 30
    with world.restarted(**off) as agent.gw:
        agent.gw.secret = agent.gw.key()
        agent.ask()
        assert names_in(world.upstream.asked[-1]) == [*NAMES, "recall"]
        assert agent.decisions()[-1]["names"] == []


def test_a_snapshot_keeps_what_is_left_out_and_when_tools_were_used():
    left = LeftOutTools(names=("a", "b"), found=("b",), offered="d1", tokens=70)
    state = WindowState(left_out=left, tool_uses={"c": 7, "b": 3})
    again = WindowState.from_snapshot(json.loads(json.dumps(state.snapshot())), [])
    assert (again.left_out, again.tool_uses) == (left, state.tool_uses)
    state.use_tools([f"t{number}" for number in range(1_000)], 9)
    assert len(state.tool_uses) == 256
    assert "b" not in state.tool_uses


def test_the_library_leaves_the_list_whole(tmp_path):
    tools = tools_of(CHAT, NAMES)
    window, models = SETTINGS["window"], SETTINGS["models"]
    with recto.open(str(tmp_path / "t.db"), model=MODEL, window=window, models=models) as session:
        session.append({"role": "user", "content": "Hello"})
        assert session.prompt(tools).tools == tools


@given(
    sizes=st.lists(st.integers(min_value=20, max_value=400), min_size=1, max_size=40),
    used=st.sets(st.integers(min_value=0, max_value=39)),
    stays=st.sets(st.integers(min_value=0, max_value=39)),
    share=st.integers(min_value=0, max_value=6_000),
)
def test_a_plan_keeps_the_share_if_it_can_and_leaves_out_no_more_than_it_must(sizes, used, stays, share):
    tools = [ListedTool(f"t{place}", "", "x" * size, True) for place, size in enumerate(sizes)]
    uses = {f"t{place}": place + 1 for place in used}
    fixed = {f"t{place}" for place in stays}

    def cost(names: tuple[str, ...]) -> int:
        return sum(len(tool.element) for tool in tools if tool.name not in names) + (10 + len(names) if names else 0)

    names = plan_left_out(tools, stays=fixed, uses=uses, share=share, cost=cost)
    assert fixed.isdisjoint(names)
    assert list(names) == [tool.name for tool in tools if tool.name in names]
    optional = [tool.name for tool in tools if tool.name not in fixed]
    if names:
        assert cost(names) < cost(())
        remaining_uses = [uses.get(name, 0) for name in optional if name not in names]
        assert max(uses.get(name, 0) for name in names) <= min(remaining_uses, default=10_000)
        assert cost(names) <= share or {*names} == {*optional}


@FORMATS
def test_a_list_without_some_tools_keeps_the_bytes_of_the_others(wire):
    raw = json.dumps(tools_of(wire, NAMES[:4]), indent=1).encode()
    rest = without_tools(raw, {NAMES[0], NAMES[2]})
    assert json.loads(rest) == tools_of(wire, [NAMES[1], NAMES[3]])
    assert all(definition in tool_definitions(raw) for definition in tool_definitions(rest))
    assert json.loads(without_tools(raw, NAMES[:4])) == []
