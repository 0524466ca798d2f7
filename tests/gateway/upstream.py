"""A scripted provider: a real HTTP server that speaks all formats, and records and checks every request.

A function of the request returns the model's response: text, tool calls, or both. The server counts tokens as a
provider would, and refuses prompts over its window with the provider's own error message. Every received request lists
its violations of the format.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from recto.formats import problems
from recto.formats.anthropic import ANTHROPIC
from recto.formats.gemini import GEMINI
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES

_REPEATED: dict[str, Any] = {
    "previous_response_id": None,
    "instructions": None,
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "top_p": 1.0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "reasoning": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": True,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}
"""Members that a response repeats from its request, with their defaults."""


_KEYS = {RESPONSES: "input", GEMINI.name: "contents"}
_SIGNED = "c2lnbmVkIGJ5IHRoZSBtb2RlbA=="
"""The signature that newer Gemini models put on the first call of a step, and require in the next request."""


@dataclass(frozen=True)
class Says:
    """A response of the model: text, tool calls, or both. In Responses, `a/b` is the tool b of the namespace a."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


@dataclass
class Asked:
    """A request as it was received."""

    wire: str
    body: dict[str, Any]
    headers: dict[str, str]
    raw: bytes
    tokens: int
    problems: list[str]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body[_KEYS.get(self.wire, "messages")]


@dataclass
class ScriptedUpstream:
    """A provider's script, and the requests that it received."""

    answer: Callable[[Asked], Says]
    window: int = 1_000_000
    asked: list[Asked] = field(default_factory=list, repr=False)
    url: str = ""
    fail: Callable[[Asked], Response | None] = lambda received: None
    count: Callable[[bytes, str], int] = lambda raw, wire: len(raw) // 4
    """Returns the token count that is reported for a request in a format."""
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "gpt-4o", "max_model_len": 128_000}])
    """The models of its list."""
    gives_ids: bool = True
    """Whether calls have ids where a format may leave them out, as Gemini's older models do."""
    lists: int = 0
    """How often its list of models was requested."""
    listed: threading.Event = field(default_factory=threading.Event)
    """Set when its list of models was requested."""
    _calls: int = 0
    _request_count: int = 0
    """Counts requests for unique ids, even when a test clears `asked`."""

    def routes(self) -> list[Route]:
        return [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/responses", self._responses, methods=["POST"]),
            Route("/v1/messages", self._messages, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/v1beta/models", self._gemini_models),
            Route("/v1beta/models/{model:path}:generateContent", self._gemini, methods=["POST"]),
            Route("/v1beta/models/{model:path}:streamGenerateContent", self._gemini, methods=["POST"]),
            Route("/v1/embeddings", self._embeddings, methods=["POST"]),
        ]

    async def _receive(self, request: Request, wire: str) -> Asked:
        raw = await request.body()
        body = json.loads(raw)
        key = _KEYS.get(wire, "messages")
        messages = body.get(key, [])
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body[key] = messages
        found = problems([json.dumps(message).encode() for message in messages], wire)
        if wire == GEMINI.name:
            found += _unsigned(messages) + [f"a member '{name}'" for name in body if name not in _GEMINI_MEMBERS]
            streams = request.url.path.endswith(":streamGenerateContent")
            body |= {"model": request.path_params["model"], "stream": streams}
        received = Asked(wire, body, dict(request.headers), raw, self.count(raw, wire), found)
        self.asked.append(received)
        self._request_count += 1
        return received

    def _step(self, received: Asked) -> Says:
        return self.answer(received)

    def _id(self) -> str:
        self._calls += 1
        return f"call_{self._calls:04d}"

    async def _chat(self, request: Request) -> Response:
        received = await self._receive(request, CHAT)
        if (failed := self._refusal(received)) is not None:
            return failed
        says = self._step(received)
        calls = [
            {"id": self._id(), "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for name, arguments in says.calls
        ]
        usage = {"prompt_tokens": received.tokens, "completion_tokens": 7, "total_tokens": received.tokens + 7}
        finish = "tool_calls" if calls else "stop"
        head = {"id": f"chatcmpl-{self._request_count}", "created": 1, "model": received.body.get("model", "")}
        if not received.body.get("stream"):
            message = {"role": "assistant", "content": says.text or None, "refusal": None, "annotations": []}
            message |= {"tool_calls": calls} if calls else {}
            choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
            return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": usage})

        def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return _data({**head, "object": "chat.completion.chunk", "choices": [choice]})

        def stream() -> Iterator[str]:
            yield chunk({"role": "assistant", "content": ""})
            for piece in _pieces(says.text):
                yield chunk({"content": piece})
            for index, call in enumerate(calls):
                function = {"name": call["function"]["name"], "arguments": ""}
                yield chunk({"tool_calls": [{"index": index, **call, "function": function}]})
                for piece in _pieces(call["function"]["arguments"]):
                    yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            yield chunk({}, finish)
            if (received.body.get("stream_options") or {}).get("include_usage"):
                yield _data({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
            yield "data: [DONE]\n\n"

        return _streamed(stream())

    async def _messages(self, request: Request) -> Response:
        received = await self._receive(request, ANTHROPIC)
        if (failed := self._refusal(received)) is not None:
            return failed
        says = self._step(received)
        blocks: list[dict[str, Any]] = [{"type": "text", "text": says.text}] if says.text else []
        blocks += [
            {"type": "tool_use", "id": f"toolu_{self._id()}", "name": name, "input": arguments}
            for name, arguments in says.calls
        ]
        stop = "tool_use" if says.calls else "end_turn"
        message = {
            "id": f"msg_{self._request_count}",
            "type": "message",
            "role": "assistant",
            "model": received.body.get("model", ""),
            "content": blocks,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": received.tokens, "output_tokens": 7},
        }
        if not received.body.get("stream"):
            return JSONResponse(message)

        def event(kind: str, **fields: Any) -> str:
            return f"event: {kind}\n{_data({'type': kind, **fields})}"

        def stream() -> Iterator[str]:
            start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
            yield event("message_start", message=start)
            yield event("ping")
            for index, block in enumerate(blocks):
                if block["type"] == "text":
                    yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
                    for piece in _pieces(block["text"]):
                        yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
                else:
                    yield event("content_block_start", index=index, content_block={**block, "input": {}})
                    for piece in _pieces(json.dumps(block["input"])):
                        delta = {"type": "input_json_delta", "partial_json": piece}
                        yield event("content_block_delta", index=index, delta=delta)
                yield event("content_block_stop", index=index)
            delta = {"stop_reason": stop, "stop_sequence": None}
            yield event("message_delta", delta=delta, usage={"output_tokens": 7})
            yield event("message_stop")

        return _streamed(stream())

    async def _responses(self, request: Request) -> Response:
        received = await self._receive(request, RESPONSES)
        if (failed := self._refusal(received)) is not None:
            return failed
        says = self._step(received)
        number = self._request_count
        items: list[dict[str, Any]] = []
        if says.text:
            part = {"type": "output_text", "text": says.text, "annotations": []}
            items.append(
                {
                    "id": f"msg_{number}",
                    "type": "message",
                    "role": "assistant",
                    "status": "completed",
                    "content": [part],
                }
            )
        for name, arguments in says.calls:
            call = self._id()
            namespace, _, plain = name.rpartition("/")
            items.append(
                {
                    "id": f"fc_{call}",
                    "type": "function_call",
                    "call_id": call,
                    "name": plain,
                    **({"namespace": namespace} if namespace else {}),
                    "arguments": json.dumps(arguments),
                    "status": "completed",
                }
            )
        usage = {
            "input_tokens": received.tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": received.tokens + 7,
        }
        tools = received.body.get("tools") or []
        response = {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1,
            "completed_at": 2,
            "status": "completed",
            "model": received.body.get("model", ""),
            "output": items,
            "usage": usage,
            "error": None,
            "incomplete_details": None,
            "tools": [{"description": None, "parameters": None, "strict": None, **tool} for tool in tools],
            **{name: received.body.get(name, usual) for name, usual in _REPEATED.items()},
        }
        if not received.body.get("stream"):
            return JSONResponse(response)
        return _streamed(_response_events(response, items))

    async def _gemini(self, request: Request) -> Response:
        received = await self._receive(request, GEMINI.name)
        if (failed := self._refusal(received)) is not None:
            return failed
        says = self._step(received)
        parts: list[dict[str, Any]] = [{"text": says.text}] if says.text else []
        for place, (name, arguments) in enumerate(says.calls):
            signature = {} if place else {"thoughtSignature": _SIGNED}
            id = {"id": self._id()} if self.gives_ids else {}
            parts.append({"functionCall": {**id, "name": name, "args": arguments}, **signature})
        usage = {
            "promptTokenCount": received.tokens,
            "candidatesTokenCount": 7,
            "totalTokenCount": received.tokens + 10,
            "thoughtsTokenCount": 3,
        }
        head = {"modelVersion": received.body["model"], "responseId": f"gen-{self._request_count}"}

        def chunk(parts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
            candidate = {"content": {"parts": parts, "role": "model"}, "index": 0, **more}
            return {"candidates": [candidate], "usageMetadata": usage, **head}

        if not received.body["stream"]:
            return JSONResponse(chunk(parts, finishReason="STOP"))
        assert request.query_params.get("alt") == "sse"

        def stream() -> Iterator[str]:
            for piece in _pieces(says.text):
                yield _data(chunk([{"text": piece}]))
            calls = [part for part in parts if "functionCall" in part]
            yield _data(chunk(calls or [{"text": ""}], finishReason="STOP"))

        return _streamed(stream())

    async def _gemini_models(self, request: Request) -> Response:
        self.lists += 1
        return JSONResponse({"models": [{"name": "models/gemini-3.8-flash", "inputTokenLimit": 1_048_576}]})

    async def _models(self, request: Request) -> Response:
        self.lists += 1
        self.listed.set()
        return JSONResponse({"object": "list", "data": self.models})

    async def _embeddings(self, request: Request) -> Response:
        body = await request.json()
        many = 1 if isinstance(body["input"], str) else len(body["input"])
        data = [{"object": "embedding", "index": place, "embedding": [0.5, 0.5]} for place in range(many)]
        return JSONResponse({"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 1}})

    def _refusal(self, sent: Asked) -> Response | None:
        if (failed := self.fail(sent)) is not None:
            return failed
        if not isinstance(sent.body.get("stream") or False, bool):
            return _invalid(sent.wire, "stream: Input should be a valid boolean", "stream", "invalid_type")
        if sent.tokens <= self.window:
            return None
        message = f"This model's maximum context length is {self.window} tokens. However, you requested {sent.tokens}."
        if sent.wire == ANTHROPIC:
            message = f"prompt is too long: {sent.tokens} tokens > {self.window} maximum"
        if sent.wire == GEMINI.name:
            message = (
                f"The input token count ({sent.tokens}) exceeds the maximum number of tokens allowed ({self.window})."
            )
        return _invalid(sent.wire, message, "messages", "context_length_exceeded")


def _invalid(wire: str, message: str, param: str, code: str) -> Response:
    """Returns a provider's response to an invalid request."""
    error = {"message": message, "type": "invalid_request_error"}
    if wire == ANTHROPIC:
        return JSONResponse({"type": "error", "error": error}, 400)
    if wire == GEMINI.name:
        return JSONResponse({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}, 400)
    return JSONResponse({"error": {**error, "param": param, "code": code}}, 400)


_GEMINI_MEMBERS = frozenset(
    {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent"}
) | {"vendor_note"}


def _unsigned(contents: list[dict[str, Any]]) -> list[str]:
    """Returns the steps of the current turn whose first call has no signature, which newer models refuse."""
    questions = [
        n
        for n, content in enumerate(contents)
        if content.get("role") != "model" and "functionResponse" not in str(content)
    ]
    found = []
    for place, content in enumerate(contents[questions[-1] :] if questions else []):
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and "thoughtSignature" not in calls[0]:
            found.append(f"content {place}: Function call is missing a thought_signature in functionCall parts.")
    return found


def _response_events(response: dict[str, Any], items: list[dict[str, Any]]) -> Iterator[str]:
    number = 0

    def event(kind: str, **fields: Any) -> str:
        nonlocal number
        number += 1
        return f"event: {kind}\n{_data({'type': kind, 'sequence_number': number - 1, **fields})}"

    begun = {**response, "status": "in_progress", "completed_at": None, "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(items):
        where = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            empty = {"type": "output_text", "text": "", "annotations": []}
            added = {**item, "status": "in_progress", "content": []}
            yield event("response.output_item.added", output_index=index, item=added)
            yield event("response.content_part.added", **where, content_index=0, part=empty)
            for piece in _pieces(text):
                yield event("response.output_text.delta", **where, content_index=0, delta=piece, logprobs=[])
            yield event("response.output_text.done", **where, content_index=0, text=text, logprobs=[])
            yield event("response.content_part.done", **where, content_index=0, part={**empty, "text": text})
        else:
            added = {**item, "status": "in_progress", "arguments": ""}
            yield event("response.output_item.added", output_index=index, item=added)
            for piece in _pieces(item["arguments"]):
                yield event("response.function_call_arguments.delta", **where, delta=piece)
            yield event("response.function_call_arguments.done", **where, arguments=item["arguments"])
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=response)
    yield "data: [DONE]\n\n"


def _pieces(text: str) -> Iterator[str]:
    for at in range(0, len(text), 9):
        yield text[at : at + 9]


def _data(value: Any) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _streamed(events: Iterator[str]) -> Response:
    async def one_by_one() -> AsyncIterator[str]:  # a plain iterator would run on another thread for each event
        for event in events:
            yield event

    return StreamingResponse(one_by_one(), media_type="text/event-stream")


@contextmanager
def running(upstream: ScriptedUpstream) -> Iterator[ScriptedUpstream]:
    """Runs the provider on a port of its own and sets its URL."""
    with serving(Starlette(routes=upstream.routes())) as url:
        upstream.url = url
        yield upstream


class _Server(uvicorn.Server):
    """Stops as soon as its requests are answered; uvicorn's own waits at least 100 ms, even where there are none."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:
                    await asyncio.sleep(0.005)
        for task in list(self.server_state.tasks):
            task.cancel()


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serves any ASGI application on a port of its own, in a thread. Yields its URL."""
    # The protocol is named because asyncio disables Nagle's algorithm only then: else each answer may take 40 ms more.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    server = _Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    sock.listen(128)
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        sock.close()
