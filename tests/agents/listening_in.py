"""What an agent and the gateway told each other: a layer around the gateway that keeps it and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.agents.agents import wire_of

from recto.gateway.request import open_request


@dataclass
class Told:
    """One request of an agent, and how it was answered."""

    path: str
    raw: bytes
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    error: bytes = b""
    """The body of a refusal."""

    @property
    def session(self) -> str:
        return self.headers["x-recto-session-id"]

    @property
    def tokens(self) -> int:
        """Tokens of the prompt that was sent on, as Recto counted them."""
        return int(self.headers["x-recto-tokens"].partition("/")[0])

    @property
    def room(self) -> int:
        return int(self.headers["x-recto-tokens"].partition("/")[2])

    @property
    def answer(self) -> int:
        """Tokens that the agent lets the model answer with; 0 where it does not say."""
        return open_request(self.raw, wire_of(self.path)).max_output_tokens

    @property
    def decisions(self) -> int:
        given = self.headers["x-recto-decisions"]
        return 0 if given == "none" else len(given.split(","))

    @property
    def recalled(self) -> int:
        return int(self.headers["x-recto-recall"])

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)


class Listening:
    """An ASGI application around another."""

    def __init__(self, is_conversation: Callable[[str], object]) -> None:
        self.told: list[Told] = []
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
        told = Told(scope["path"], b"")

        async def heard() -> Any:
            message = await receive()
            told.raw += message.get("body", b"")
            return message

        async def said(message: Any) -> None:
            if message["type"] == "http.response.start":
                told.status = message["status"]
                told.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
                if scope["method"] == "POST" and self._is_conversation(scope["path"]):
                    self.told.append(told)
                else:
                    self.others.append((f"{scope['method']} {scope['path']}", told.status))
            if message["type"] == "http.response.body" and told.status >= 400:
                told.error += message.get("body", b"")
            await send(message)

        await self._app(scope, heard, said)
