"""The context report: the composition stored with an answer matches its prompt to the token, in every format."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

from recto.config import load
from recto.config.factory import make_meter
from recto.engine.monitor import composition_in
from recto.engine.runs import prompt_run
from recto.formats import format_named, open_body, read, read_reply
from recto.formats.tool_calls import NewToolResult
from recto.gateway.own_tools import RECALL_TOOL
from recto.health.metrics import PromptComposition
from recto.transcript.entries import Entry

MODEL, WINDOW = "gpt-4o", 10_000
PATHS = {
    "openai.chat": "/v1/chat/completions",
    "openai.responses": "/v1/responses",
    "anthropic.messages": "/v1/messages",
    "google.gemini": f"/v1beta/models/{MODEL}:generateContent",
}
NAMES = (
    "read_file",
    "run",
    "search",
    "write_file",
    "list_files",
    "fetch",
    "ask",
    "plan",
    "test",
    "lint",
    "diff",
    "log",
)
WORDS = ("harbour", "ledger", "shelf", "invoice", "border", "lamp", "river", "copper", "ticket", "garden", "wheel")


class Worker:
    """A gateway in front of a provider that sometimes calls tools, with standing files in every prompt."""

    def __init__(self, gw: Running, upstream: ScriptedUpstream) -> None:
        self.gw = gw
        self.upstream = upstream
        self.random = random.Random(26)
        self.client = httpx2.Client(timeout=60)

    def words(self, most: int) -> str:
        dice = self.random
        return " ".join(f"{dice.choice(WORDS)} {dice.randrange(1000)}" for _ in range(dice.randint(1, most)))

    def answer(self, request: Asked) -> Says:
        dice, tools = self.random, [name for name, _ in _tools(request.body)]
        offered = RECALL_TOOL.name in tools
        if offered and dice.random() < 0.2:
            return Says(calls=((RECALL_TOOL.name, {"query": dice.choice(WORDS)}),))
        own = [name for name in tools if name != RECALL_TOOL.name]
        if own and dice.random() < 0.6:
            calls = tuple((dice.choice(own), {"path": self.words(3)}) for _ in range(dice.randint(1, 3)))
            return Says(text=self.words(10) if dice.random() < 0.5 else "", calls=calls)
        return Says(text=self.words(60))

    def post(self, wire: str, body: dict[str, Any], **headers: str) -> httpx2.Response:
        path, key = PATHS[wire], {"authorization": f"Bearer {self.gw.secret}", "x-goog-api-key": self.gw.secret}
        payload = body if wire == "google.gemini" else {"model": MODEL, **body}
        return self.client.post(self.gw.url + path, json=payload, headers={**key, **headers})


@pytest.fixture
def worker(tmp_path) -> Iterator[Worker]:
    (tmp_path / "USER.md").write_text("# Who I am\n\nI keep the books.\n\n# What I want\n\n" + "Short answers. " * 400)
    (tmp_path / "AGENTS.md").write_text("Never delete a ledger.")
    upstream = ScriptedUpstream(lambda request: Says())
    with ExitStack() as stack:
        stack.enter_context(running(upstream))
        more: dict[str, Any] = {
            "models": {MODEL: {"window": WINDOW}},
            "standing": {"files": [str(tmp_path / "USER.md"), str(tmp_path / "AGENTS.md")]},
        }
        gw = stack.enter_context(
            gateway(tmp_path, upstream.url, speaks=("chat", "responses", "messages", "gemini"), **more)
        )
        worker = Worker(gw, upstream)
        upstream.answer = worker.answer
        stack.callback(worker.client.close)
        yield worker


class Client:
    """An agent with its own format, tools and system text. It sends its whole history."""

    def __init__(self, worker: Worker, wire: str) -> None:
        dice = worker.random
        self.worker, self.wire, self.format = worker, wire, format_named(wire)
        self.names = dice.sample(NAMES, dice.choice((0, 1, 3, 12)) if worker.upstream.asked else 12)
        self.sections = [
            f"# {dice.choice(WORDS)} {place}\n\n{worker.words(40)}\n" for place in range(dice.randint(0, 9))
        ]
        self.history: list[bytes] = []
        self.output = dice.choice((0, 100, 2_000))
        self.edits = wire == "anthropic.messages" and dice.random() < 0.5
        """Whether it lets its provider clear old results."""

    def ask(self) -> httpx2.Response:
        worker, edits = self.worker, self.format.edits
        calls = [part for raw in self.history[-4:] for part in read(raw, self.wire).calls]
        answered = {part.call_id for raw in self.history for part in read(raw, self.wire).results}
        waiting = [part for part in calls if part.call_id not in answered]
        if waiting:
            results = [NewToolResult(part.call_id, worker.words(300)) for part in waiting]
            if self.wire == "google.gemini":
                raw = [
                    json.loads(edits.result_message(part.call_id, part.name, text.text))
                    for part, text in zip(waiting, results, strict=True)
                ]
                parts = [part for content in raw for part in content["parts"]]
                self.history.append(json.dumps({"role": "user", "parts": parts}).encode())
            else:
                self.history += edits.result_messages(results)
        else:
            self.history.append(self.format.text_message("user", worker.words(500)))
        answer = worker.post(self.wire, self.body())
        if answer.status_code == 200:
            self.history += read_reply(answer.content, self.wire).messages
        return answer

    def body(self) -> dict[str, Any]:
        keys, dice = self.format.body, self.worker.random
        messages = [json.loads(raw) for raw in self.history]
        text = "Answer shortly.\n\n" + "\n".join(self.sections)
        body: dict[str, Any] = {}
        match self.wire:
            case "openai.chat":
                messages = [{"role": dice.choice(("system",)), "content": text}, *messages]
            case "openai.responses":
                body["instructions"] = text
            case "anthropic.messages":
                blocks = [{"type": "text", "text": part} for part in [text, *self.sections[:1]]]
                body["system"] = blocks if self.sections else text
            case _:
                body["systemInstruction"] = {"parts": [{"text": text}]}
        if self.edits:
            edit = {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 1}}
            body["context_management"] = {"edits": [{**edit, "trigger": {"type": "input_tokens", "value": 3_000}}]}
        body[keys.messages] = messages
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        tools: list[Any] = [_tool(self.wire, name, schema) for name in self.names]
        if tools and self.wire == "google.gemini":
            tools = [{"functionDeclarations": tools}]
        body |= {"tools": tools} if tools else {}
        if self.wire == "google.gemini":
            body |= {"generationConfig": {"maxOutputTokens": self.output}} if self.output else {}
        elif self.output or self.wire == "anthropic.messages":
            body[keys.output_limits[0]] = self.output or 300
        return body


def _tool(wire: str, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    description = f"{name} does what its name says, {len(name)} times."
    match wire:
        case "openai.chat":
            return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
        case "openai.responses":
            return {"type": "function", "name": name, "description": description, "parameters": schema}
        case "anthropic.messages":
            return {"name": name, "description": description, "input_schema": schema}
    return {
        "name": name,
        "description": description,
        "parameters": {"type": "OBJECT", "properties": {"path": {"type": "STRING"}}},
    }


def _tools(body: dict[str, Any]) -> list[tuple[str, Any]]:
    listed = [declaration for tool in body.get("tools", []) for declaration in tool.get("functionDeclarations", [tool])]
    return [(tool.get("name") or tool["function"]["name"], tool) for tool in listed]


class CountedPrompt:
    """The cost of each kind of piece in a body that reached the provider, counted by the model's own tokenizer."""

    def __init__(self, request: Asked, meter: Any) -> None:
        body = open_body(request.raw, request.wire)
        self.tools = meter.tools((body.tools or b"").decode())
        self.names = [name for name, _ in _tools(request.body)]
        self.by_role: Counter[str] = Counter()
        self.by_tool: Counter[str] = Counter()
        tool_of: dict[str, str] = {}
        for raw in body.messages:
            message, cost = read(raw, request.wire), meter.message(read(raw, request.wire))
            tool_of |= {part.call_id: part.name for part in message.calls}
            tools = {part.name or tool_of[part.call_id] for part in message.results}
            if message.role == "system":
                self.by_role["system"] += cost
            elif len(tools) == 1:
                self.by_tool[tools.pop()] += cost
            elif tools:
                self.by_tool["several"] += cost
            else:
                self.by_role[message.role] += cost
        self.system = sum(map(meter.count, _system_texts(body.system))) + (meter.frame.message if body.system else 0)
        self.tokens = meter.frame.prompt + self.tools + self.system + self.by_role.total() + self.by_tool.total()


def _system_texts(raw: bytes | None) -> list[str]:
    value = json.loads(raw or b'""')
    blocks = value["parts"] if isinstance(value, dict) else value if isinstance(value, list) else [{"text": value}]
    return [block["text"] for block in blocks]


def stored_runs(gw: Running) -> list[tuple[Entry, PromptComposition]]:
    """Returns every answer in the store with the composition of its prompt, oldest first."""
    entries = [entry for summary in gw.store.sessions() for entry in gw.store.read(summary.session)]
    found = [(entry, PromptComposition.from_json(composition_in(entry))) for entry in entries]
    answers = [(entry, composition) for entry, composition in found if composition is not None]
    return sorted(answers, key=lambda answer: answer[0].id)


def check_pieces(composition: PromptComposition, counted: CountedPrompt) -> None:
    """Checks that the pieces add up to the tokens of the body, kind by kind."""
    pieces = composition.pieces
    assert sum(piece.tokens for piece in pieces) == composition.tokens == counted.tokens
    assert all(piece.tokens > 0 for piece in pieces)
    tokens = Counter[str]()
    for piece in pieces:
        tokens[piece.kind] += piece.tokens
    frames = {piece.name: piece.tokens for piece in pieces if piece.kind == "frame"}
    assert tokens["tool"] + frames.get("tools", 0) == counted.tools
    listed = {piece.name for piece in pieces if piece.kind == "tool"}
    assert listed <= {*counted.names, f"{len(counted.names) - 9} others"}
    assert len(listed) == min(len(counted.names), 10)
    assert tokens["result"] == counted.by_tool.total()
    results = {piece.name: piece.tokens for piece in pieces if piece.kind == "result"}
    if "several" not in counted.by_tool and len(counted.by_tool) <= 6:
        assert results == counted.by_tool
    history = {piece.name: piece.tokens for piece in pieces if piece.kind == "history"}
    assert history.get("assistant", 0) == counted.by_role["assistant"]
    written = sum(tokens[kind] for kind in ("recalled", "handoff", "record", "notes", "summary", "marker", "generated"))
    assert history.get("user", 0) + written == counted.by_role["user"]


@pytest.mark.promise
@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.requirement("report.run")
def test_the_pieces_of_random_requests_add_up_to_the_tokens_that_were_sent(worker, scale, wire):
    """A quarter of the 1,000 requests in each format, to a provider that records each body."""
    meter = make_meter(load(environ={}, arguments={"model": MODEL}))
    assert meter.exact
    dice, requests = worker.random, worker.upstream.asked
    clients: list[Client] = []
    for _ in range(scale(15, ci=250, release=2_500)):
        clients = [client for client in clients if dice.random() < 0.97] or [Client(worker, wire)]
        clients += [Client(worker, wire)] if len(clients) < 2 and dice.random() < 0.2 else []
        before = len(requests)
        client = dice.choice(clients)
        answer = client.ask()
        if "context_length_exceeded" in answer.text:  # its last turn is protected, and too long
            clients.remove(client)
            continue
        assert answer.status_code == 200, answer.text
        assert int(answer.headers["x-recto-tokens"].split("/")[0]) in {
            CountedPrompt(request, meter).tokens for request in requests[before:]
        }
    stored, kinds = stored_runs(worker.gw), set()
    assert len(stored) == len(requests)
    for (_, composition), request in zip(stored, requests, strict=True):
        assert request.wire == wire
        check_pieces(composition, CountedPrompt(request, meter))
        assert len(json.dumps(composition.to_json())) < 1_800
        kinds |= {piece.kind for piece in composition.pieces}
    assert kinds >= {"tool", "system", "file", "history", "result", "marker", "record", "frame"}
    last, _ = stored[-1]
    run = prompt_run(worker.gw.store, last.session, last.seq)
    assert run is not None
    assert (run.seq, run.window, run.tokens) == (last.seq, WINDOW, CountedPrompt(requests[-1], meter).tokens)
