"""Records the exchanges between an agent and the gateway: ASGI middleware that changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.agents.agents import wire_of

from recto.gateway.request import open_request


@dataclass
class Exchange:
    """One request of an agent and its response."""

    path: str
    raw: bytes
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    error: bytes = b""
    """The body of an error response."""

    @property
    def session(self) -> str:
        return self.headers["x-recto-session-id"]

    @property
    def tokens(self) -> int:
        """Tokens of the forwarded prompt, as counted by Recto."""
        return int(self.headers["x-recto-tokens"].partition("/")[0])

    @property
    def room(self) -> int:
        return int(self.headers["x-recto-tokens"].partition("/")[2])

    @property
    def answer(self) -> int:
        """The output token limit of the request; 0 if it sets none."""
        return open_request(self.raw, wire_of(self.path)).max_output_tokens

    @property
    def decisions(self) -> int:
        decisions = self.headers["x-recto-decisions"]
        return 0 if decisions == "none" else len(decisions.split(","))

    @property
    def recalled(self) -> int:
        return int(self.headers["x-recto-recall"])

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)


class ExchangeRecorder:
    """ASGI middleware that records conversation requests and their responses."""

    def __init__(self, is_conversation: Callable[[str], object]) -> None:
        self.exchanges: list[Exchange] = []
        self.others: list[tuple[str, int]] = []
        self._is_conversation = is_conversation
        self._app: Any = None

    def around(self, app: Any) -> Any:
        self._app = app
        return self

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope["path"], b"")

        async def record_request() -> Any:
            message = await receive()
            exchange.raw += message.get("body", b"")
            return message

        async def record_response(message: Any) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                exchange.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
                if scope["method"] == "POST" and self._is_conversation(scope["path"]):
                    self.exchanges.append(exchange)
                else:
                    self.others.append((f"{scope['method']} {scope['path']}", exchange.status))
            if message["type"] == "http.response.body" and exchange.status >= 400:
                exchange.error += message.get("body", b"")
            await send(message)

        await self._app(scope, record_request, record_response)
