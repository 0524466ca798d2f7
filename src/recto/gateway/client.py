"""A gateway, as a screen asks it: the inspection API, and a conversation whose answer comes in pieces.

Screens that use it draw what the gateway answers, whether it runs in this process or far away. It knows how to ask;
what the answers mean is not known here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2

from recto.engine.views.codec import from_builtins
from recto.errors import RequestRefused
from recto.formats.sse import DONE, SseReader
from recto.gateway.session_id import OWN_HEADER

_Value = TypeVar("_Value")


def value_of(kind: type[_Value], answer: object) -> _Value:
    """Build a result from a decoded response. Raises `RequestRefused` where the response does not match."""
    try:
        return from_builtins(kind, answer)
    except ValueError as error:
        says = (
            f"the gateway's answer is not what this Recto knows ({kind.__name__}: {error}); is it of another version?"
        )
        raise RequestRefused(502, "unexpected", says) from None


_CONNECT_SECONDS = 10.0
_READ_SECONDS = 600.0
_UNREACHABLE = "unreachable"


@dataclass(slots=True, kw_only=True)
class StreamedAnswer:
    """An answer of the model, while it comes: iterate over its pieces of text."""

    headers: Mapping[str, str]
    """What Recto did for it: `x-recto-session-id`, `x-recto-tokens`, `x-recto-decisions`, `x-recto-recall`."""
    usage: Mapping[str, Any] = field(default_factory=dict, init=False)
    """What it cost, by the provider's own count; there at the end, if at all."""
    _chunks: AsyncIterator[bytes] = field(repr=False)

    async def __aiter__(self) -> AsyncIterator[str]:
        reader = SseReader()
        async for chunk in self._chunks:
            for event in reader.feed(chunk):
                for piece in self._pieces(event.data):
                    yield piece

    def _pieces(self, data: str) -> Iterator[str]:
        if not data or data == DONE:
            return
        told = json.loads(data)
        if "error" in told:
            raise _refused(502, data.encode())
        self.usage = told.get("usage") or self.usage
        for choice in told.get("choices", ()):
            if piece := (choice.get("delta") or {}).get("content"):
                yield piece


class GatewayClient:
    """One gateway and one key. Raises `RequestRefused` for what the gateway refuses, and where it cannot be reached."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers={"authorization": f"Bearer {key}"},
            timeout=httpx2.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=False,
        )

    async def close(self) -> None:
        """Lets go of its connections."""
        await self._http.aclose()

    async def get(self, path: str, **query: Any) -> Any:  # noqa: ANN401  # JSON
        """Asks the inspection API: `get("/session/context", session=name)`."""
        return await self._asked("GET", f"/api/v1{path}", query)

    async def post(self, path: str, body: Mapping[str, Any], **query: Any) -> Any:  # noqa: ANN401  # JSON
        """Asks it to do something."""
        return await self._asked("POST", f"/api/v1{path}", query, body)

    async def delete(self, path: str, **query: Any) -> Any:  # noqa: ANN401  # JSON
        """Asks it to take something back."""
        return await self._asked("DELETE", f"/api/v1{path}", query)

    async def models(self) -> list[str]:
        """The models that can be asked, by name."""
        listed = await self._asked("GET", "/v1/models", {})
        return [str(one["id"]) for one in listed.get("data", ())]

    @asynccontextmanager
    async def answer(self, session: str, text: str, model: str) -> AsyncIterator[StreamedAnswer]:
        """Says something in a session, whose history the gateway holds. Leaving early cancels the answer."""
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}
        body["stream_options"] = {"include_usage": True}
        try:
            async with self._http.stream(
                "POST", "/v1/chat/completions", json=body, headers={OWN_HEADER: session}
            ) as response:
                if response.status_code != 200:
                    raise _refused(response.status_code, await response.aread())
                yield StreamedAnswer(headers=dict(response.headers), _chunks=response.aiter_bytes())
        except httpx2.HTTPError as error:
            raise self._lost(error) from None

    async def _asked(
        self, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None = None
    ) -> Any:  # noqa: ANN401  # JSON
        given = {name.rstrip("_"): _spelled(value) for name, value in query.items() if value is not None}
        try:
            response = await self._http.request(method, path, params=given, json=body)
        except httpx2.HTTPError as error:
            raise self._lost(error) from None
        if response.status_code != 200:
            raise _refused(response.status_code, response.content)
        return response.json()

    def _lost(self, error: Exception) -> RequestRefused:
        says = f"the gateway at {self.url} does not answer ({type(error).__name__}); is it running? 'recto serve'"
        return RequestRefused(503, _UNREACHABLE, says)


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refused(status: int, body: bytes) -> RequestRefused:
    try:
        told = json.loads(body)["error"]
        return RequestRefused(status, str(told.get("code") or told.get("type") or status), str(told["message"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return RequestRefused(status, str(status), f"the gateway answered {status} without saying why")
