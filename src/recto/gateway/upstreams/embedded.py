"""The embedded model as an upstream with the Chat format, used when no other is configured."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from recto.engine.async_session import on_a_thread
from recto.errors import ModelFailed
from recto.formats import Format
from recto.formats.openai_chat import OPENAI_CHAT
from recto.formats.streaming import SseReader, sse
from recto.gateway.context_management import ContextManagement
from recto.gateway.upstreams.http import UpstreamResponse, UpstreamUnreachable
from recto.models.chat.llama_cpp import EmbeddedModel

_OPTIONS: Final = ("temperature", "top_p", "stop", "seed", "tools", "tool_choice", "response_format")
_DEFAULT_OUTPUT_TOKENS: Final = 2_048
"""Output limit where the client sets none: a laptop writes this many tokens in a minute or two."""


class EmbeddedUpstream:
    """Handles one request at a time; others wait."""

    name = "embedded"
    speaks = (OPENAI_CHAT,)
    context_management: ContextManagement = "serve"

    def __init__(self, model: EmbeddedModel) -> None:
        self.model = model

    def counting_model(self, model: str) -> str:
        """Return the embedded model, whatever name the client uses."""
        return self.model.name

    async def ask(self, format: Format, body: bytes, headers: Mapping[str, str], query: str = "") -> UpstreamResponse:
        """Start a response."""
        request = json.loads(body)
        pieces = _Generation(self.model, request)
        if request.get("stream") is True:
            found = [("content-type", "text/event-stream; charset=utf-8")]
            return UpstreamResponse(status=200, headers=found, pieces=pieces.events(), close=pieces.close)
        return UpstreamResponse(
            status=200, headers=[("content-type", "application/json")], pieces=pieces.complete(), close=pieces.close
        )

    async def close(self) -> None:
        """Free its memory."""
        await on_a_thread(self.model.close)


class _Generation:
    """One response being generated on the model's thread."""

    def __init__(self, model: EmbeddedModel, request: Mapping[str, Any]) -> None:
        self._model = model
        self._request = request
        self._stop = threading.Event()
        self._queue: asyncio.Queue[dict[str, Any] | ModelFailed | None] = asyncio.Queue()

    async def close(self) -> None:
        """Stop generating."""
        self._stop.set()

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the response as it is generated."""
        options = self._request.get("stream_options")
        with_usage = isinstance(options, dict) and options.get("include_usage") is True
        async for chunk in self._chunks():
            if chunk.get("choices") or with_usage:
                yield sse(None, json.dumps(chunk))
        yield sse(None, "[DONE]")

    async def complete(self) -> AsyncIterator[bytes]:
        """Yield the complete response."""
        capture, reader, usage, last = OPENAI_CHAT.capture(), SseReader(), None, {}
        async for chunk in self._chunks():
            for event in reader.feed(sse(None, json.dumps(chunk))):
                capture.take(event)
            usage = chunk.get("usage") or usage
            last = chunk
        reply = capture.reply()
        message = json.loads(reply.messages[0]) if reply.messages else {"role": "assistant", "content": ""}
        choice = {"index": 0, "message": message, "finish_reason": reply.stop_reason or "stop", "logprobs": None}
        found = {name: last.get(name) for name in ("id", "created", "model")}
        yield json.dumps({**found, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()

    async def _chunks(self) -> AsyncIterator[dict[str, Any]]:
        loop = asyncio.get_running_loop()

        def take(chunk: dict[str, Any]) -> None:
            if "prompt_progress" not in chunk:
                loop.call_soon_threadsafe(self._queue.put_nowait, {**chunk, "model": self._model.name})

        work = asyncio.ensure_future(on_a_thread(self._write, take))
        work.add_done_callback(lambda _: self._queue.put_nowait(None))
        try:
            while (chunk := await self._queue.get()) is not None:
                if isinstance(chunk, dict):
                    yield chunk
            await work
        except ModelFailed as error:
            raise UpstreamUnreachable(f"the model in this process gave no answer: {error.detail}") from None
        finally:
            self._stop.set()

    def _write(self, take: Any) -> None:  # noqa: ANN401
        request = self._request
        options = {name: request[name] for name in _OPTIONS if request.get(name) is not None}
        limit = request.get("max_completion_tokens") or request.get("max_tokens") or _DEFAULT_OUTPUT_TOKENS
        self._model.converse(request["messages"], {**options, "max_tokens": limit}, take, self._stop)
