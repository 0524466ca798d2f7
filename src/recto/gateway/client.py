"""Client of a gateway for screens: the inspection API, and chat with streamed responses.

The gateway runs already, or it is a private one in this process over its own store. This module sends requests; it does
not interpret the results. A private gateway listens on a free loopback port and accepts only the temporary key made for
it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import httpx2

from recto.config import Settings
from recto.config.factory import open_store
from recto.engine.views.codec import from_builtins
from recto.errors import RequestRefused
from recto.formats.streaming import DONE, SseReader
from recto.gateway.api_keys import Key
from recto.gateway.app import Gateway
from recto.gateway.request import OWN_HEADER
from recto.gateway.server import Server

_Value = TypeVar("_Value")
_START_SECONDS = 30.0


def decode_result(kind: type[_Value], payload: object) -> _Value:
    """Build a result from a decoded response. Raises `RequestRefused` where the response does not match."""
    try:
        return from_builtins(kind, payload)
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
    """A streamed response of the model: iterate over its chunks of text."""

    headers: Mapping[str, str]
    """Headers of Recto: `x-recto-session-id`, `x-recto-tokens`, `x-recto-decisions`, `x-recto-recall`."""
    usage: Mapping[str, Any] = field(default_factory=dict, init=False)
    """Usage as the provider counts it; set at the end, if at all."""
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
        chunk = json.loads(data)
        if "error" in chunk:
            raise _refusal(502, data.encode())
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices", ()):
            if piece := (choice.get("delta") or {}).get("content"):
                yield piece


class GatewayClient:
    """One gateway and one key. Raises `RequestRefused` for refused requests, and if the gateway is unreachable."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers={"authorization": f"Bearer {key}"},
            timeout=httpx2.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=False,
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def get(self, path: str, **query: Any) -> Any:  # noqa: ANN401  # JSON
        """Query the inspection API: `get("/session/context", session=name)`."""
        return await self._request("GET", f"/api/v1{path}", query)

    async def post(self, path: str, body: Mapping[str, Any], **query: Any) -> Any:  # noqa: ANN401  # JSON
        """Send a command to the inspection API."""
        return await self._request("POST", f"/api/v1{path}", query, body)

    async def delete(self, path: str, **query: Any) -> Any:  # noqa: ANN401  # JSON
        """Undo something through the inspection API."""
        return await self._request("DELETE", f"/api/v1{path}", query)

    async def models(self) -> list[str]:
        """List the available models by name."""
        listed = await self._request("GET", "/v1/models", {})
        return [str(model["id"]) for model in listed.get("data", ())]

    @asynccontextmanager
    async def answer(self, session: str, text: str, model: str) -> AsyncIterator[StreamedAnswer]:
        """Send a message to a session whose history the gateway stores. Leaving early cancels the response."""
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}
        body["stream_options"] = {"include_usage": True}
        try:
            async with self._http.stream(
                "POST", "/v1/chat/completions", json=body, headers={OWN_HEADER: session}
            ) as response:
                if response.status_code != 200:
                    raise _refusal(response.status_code, await response.aread())
                yield StreamedAnswer(headers=dict(response.headers), _chunks=response.aiter_bytes())
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None

    async def _request(
        self, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None = None
    ) -> Any:  # noqa: ANN401  # JSON
        params = {name.rstrip("_"): _encode(value) for name, value in query.items() if value is not None}
        try:
            response = await self._http.request(method, path, params=params, json=body)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        if response.status_code != 200:
            raise _refusal(response.status_code, response.content)
        return response.json()

    def _unreachable(self, error: Exception) -> RequestRefused:
        says = f"the gateway at {self.url} does not answer ({type(error).__name__}); is it running? 'recto serve'"
        return RequestRefused(503, _UNREACHABLE, says)


def _encode(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refusal(status: int, body: bytes) -> RequestRefused:
    try:
        error = json.loads(body)["error"]
        return RequestRefused(status, str(error.get("code") or error.get("type") or status), str(error["message"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return RequestRefused(status, str(status), f"the gateway answered {status} without saying why")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAddress:
    """The URL of a gateway, and the key to use."""

    url: str
    key: str = field(repr=False)


@contextmanager
def connect_gateway(
    settings: Settings, url: str = "", key: str = "", *, name: str = "a screen"
) -> Iterator[GatewayAddress]:
    """Yield the gateway at a URL; without one, start a private gateway. `name` names its key in what it stores."""
    if url:
        yield GatewayAddress(url=url, key=key)
        return
    drain_seconds = min(settings.gateway.drain_seconds, 2.0)
    gateway_settings = replace(
        settings.gateway, host="127.0.0.1", port=0, drain_seconds=drain_seconds, access_log="off"
    )
    own = replace(settings, gateway=gateway_settings)
    with closing(open_store(own)) as store:
        gateway = Gateway(own, store)
        secret = gateway.keys.lend(Key(name=name, tenant=own.tenant, agent=_agent(own.session)))
        listening = threading.Event()
        addresses: list[str] = []
        errors: list[BaseException] = []

        def ready(address: str) -> None:
            addresses.append(address)
            listening.set()

        server = Server(gateway.asgi, own.gateway, ready=ready, draining=gateway.drain)

        def run() -> None:
            try:
                server.run()
            except BaseException as error:  # noqa: BLE001  # raised by the waiting thread
                errors.append(error)
            finally:
                listening.set()

        thread = threading.Thread(target=run, name="recto-gateway", daemon=True)
        thread.start()
        listening.wait(_START_SECONDS)
        if not addresses:
            raise RequestRefused(503, "unreachable", f"the gateway of this process did not come up: {errors or 'late'}")
        try:
            yield GatewayAddress(url=addresses[0], key=secret)
        finally:
            server.should_exit = True
            thread.join(_START_SECONDS)


def _agent(session: str) -> str:
    """Return the agent of the settings' session."""
    parts = session.split(":")
    return parts[1] if len(parts) > 2 and parts[0] == "agent" else Key(name="any").agent
