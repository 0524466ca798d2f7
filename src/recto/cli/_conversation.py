"""One conversation through a gateway: what is said, what is answered, and how full its prompt is.

It asks and keeps what was told; how that looks, and what somebody types, is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from recto.continuity.memory.proposals import Proposal
from recto.engine.views.models import Caller, SessionOverview
from recto.errors import RequestRefused, SettingsError
from recto.gateway.client import GatewayClient, value_of
from recto.transcript.entries import session_key

_Value = TypeVar("_Value")
_NOT_THERE = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatExchange:
    """A message and its answer."""

    session: str
    model: str
    message: str
    answer: str
    tokens: int | None
    """Of the prompt that was sent, and what it might have had; None where the gateway did not say."""
    room: int | None
    decisions: tuple[int, ...]
    """Entries of the decisions that were made for it."""
    recalled: int
    """Messages that came back for it."""
    usage: Mapping[str, Any]
    """By the provider's own count."""


@dataclass(slots=True, kw_only=True)
class ChatClient:
    """Who is asked, in which session, and what is known of it."""

    client: GatewayClient
    agent: str
    session: str
    model: str
    models: Sequence[str]
    now: SessionOverview | None = None
    """How it stood when it was last looked at; None where nothing was said in it yet."""
    recalled: int = 0
    """Messages that came back for the last answer."""
    proposals: Sequence[Proposal] = ()
    """What waited for a decision when that was last listed: people name it by its number, which stays."""
    shown: set[str] = field(default_factory=set)
    """Digests of proposals that were shown whole."""

    async def ask(self, kind: type[_Value], path: str, /, **query: Any) -> _Value:  # noqa: ANN401  # parameters
        """Something about this session, as a value."""
        return value_of(kind, await self.client.get(path, **{"session": self.session, **query}))

    async def change(self, kind: type[_Value], path: str, /, **body: Any) -> _Value:  # noqa: ANN401
        """Has something done to this session."""
        return value_of(kind, await self.client.post(path, body, session=self.session))

    async def look(self) -> None:
        """Looks again how full its prompt is. Not being told is no reason to stop."""
        self.now = None
        with suppress(RequestRefused):
            self.now = await self.ask(SessionOverview, "/session")

    async def go_to(self, session: str) -> None:
        """Goes on in another session, which may be new."""
        self.session = named(session, self.agent)
        self.recalled = 0
        await self.look()

    async def say(self, text: str, told: Callable[[str], None]) -> ChatExchange:
        """Says something and tells the answer as it comes. Cancelled, what came so far is kept by the gateway."""
        pieces: list[str] = []
        try:
            async with self.client.answer(self.session, text, self.model) as answer:
                async for piece in answer:
                    pieces.append(piece)
                    told(piece)
                headers, usage = answer.headers, answer.usage
        finally:
            self.now = None  # as it was, it is no longer
        self.recalled = _number(headers.get("x-recto-recall", "")) or 0
        tokens, _, room = headers.get("x-recto-tokens", "").partition("/")
        decided = (_number(one) for one in headers.get("x-recto-decisions", "").split(","))
        return ChatExchange(
            session=headers.get("x-recto-session-id", self.session),
            model=self.model,
            message=text,
            answer="".join(pieces),
            tokens=_number(tokens),
            room=_number(room),
            decisions=tuple(one for one in decided if one is not None),
            recalled=self.recalled,
            usage=usage,
        )


async def begun(client: GatewayClient, session: str, model: str) -> ChatClient:
    """A conversation in a session, the asker's main one without a name; with the model that is named, or the first."""
    who = value_of(Caller, await client.get("/asker"))
    models = await client.models()
    if not model:
        usual = [who.model] if who.model and (who.model in models or not models) else models
        if not usual:
            raise SettingsError("model", "the gateway lists no model; name one with --model")
        model = usual[0]
    talk = ChatClient(
        client=client, agent=who.agent, session=named(session or who.main, who.agent), model=model, models=models
    )
    await talk.look()
    return talk


def named(session: str, agent: str) -> str:
    """A session as the gateway names it: one without an agent is that of the agent who asks."""
    key = session_key(session)
    return key if key.startswith("agent:") else f"agent:{agent}:{key}"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
