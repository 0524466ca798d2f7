"""A conversation through a gateway: messages, answers, and how full the prompt is. It prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from recto.continuity.memory.proposals import Proposal
from recto.engine.views.models import Caller, SessionOverview
from recto.errors import RequestRefused, SettingsError
from recto.gateway.client import GatewayClient, decode_result
from recto.transcript.entries import session_key

_Value = TypeVar("_Value")
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatExchange:
    """A message and its answer; the fields are the keys of `recto chat --json`."""

    session: str
    model: str
    message: str
    answer: str
    tokens: int | None
    """Size of the prompt and the input budget below; None if the gateway did not report them."""
    room: int | None
    decisions: tuple[int, ...]
    """Entries of the decisions made for this prompt."""
    recalled: int
    """Number of recalled messages."""
    usage: Mapping[str, Any]
    """The provider's token counts."""


@dataclass(slots=True, kw_only=True)
class ChatClient:
    """A client of a gateway in one session, with what was last reported about the session."""

    client: GatewayClient
    agent: str
    session: str
    model: str
    models: Sequence[str]
    now: SessionOverview | None = None
    """The session's state at the last refresh; None if nothing is stored in it yet."""
    recalled: int = 0
    """Messages recalled for the last answer."""
    proposals: Sequence[Proposal] = ()
    """The proposals as they were last listed; the user refers to them by number."""
    shown: set[str] = field(default_factory=set)
    """Digests of proposals that were shown in full."""

    async def get_value(self, kind: type[_Value], path: str, /, **query: Any) -> _Value:  # noqa: ANN401  # parameters
        """Reads something about this session."""
        return decode_result(kind, await self.client.get(path, **{"session": self.session, **query}))

    async def post_value(self, kind: type[_Value], path: str, /, **body: Any) -> _Value:  # noqa: ANN401
        """Changes something in this session."""
        return decode_result(kind, await self.client.post(path, body, session=self.session))

    async def refresh(self) -> None:
        """Refreshes the session's state; a refusal is ignored."""
        self.now = None
        with suppress(RequestRefused):
            self.now = await self.get_value(SessionOverview, "/session")

    async def switch_session(self, session: str) -> None:
        """Switches to another session, which may be new."""
        self.session = qualified_session(session, self.agent)
        self.recalled = 0
        await self.refresh()

    async def send(self, text: str, on_text: Callable[[str], None]) -> ChatExchange:
        """Sends a message and passes the answer on as it arrives. If cancelled, the gateway keeps what arrived so
        far.
        """
        pieces: list[str] = []
        try:
            async with self.client.answer(self.session, text, self.model) as answer:
                async for piece in answer:
                    pieces.append(piece)
                    on_text(piece)
                headers, usage = answer.headers, answer.usage
        finally:
            self.now = None  # out of date from now on
        self.recalled = _number(headers.get("x-recto-recall", "")) or 0
        tokens, _, input_budget = headers.get("x-recto-tokens", "").partition("/")
        decisions = (_number(seq) for seq in headers.get("x-recto-decisions", "").split(","))
        return ChatExchange(
            session=headers.get("x-recto-session-id", self.session),
            model=self.model,
            message=text,
            answer="".join(pieces),
            tokens=_number(tokens),
            room=_number(input_budget),
            decisions=tuple(seq for seq in decisions if seq is not None),
            recalled=self.recalled,
            usage=usage,
        )


async def start_conversation(client: GatewayClient, session: str, model: str) -> ChatClient:
    """Starts a conversation in a session, by default the caller's main session, with a model, by default the first."""
    caller = decode_result(Caller, await client.get("/asker"))
    models = await client.models()
    if not model:
        candidates = [caller.model] if caller.model and (caller.model in models or not models) else models
        if not candidates:
            raise SettingsError("model", "the gateway lists no model; name one with --model")
        model = candidates[0]
    chat = ChatClient(
        client=client,
        agent=caller.agent,
        session=qualified_session(session or caller.main, caller.agent),
        model=model,
        models=models,
    )
    await chat.refresh()
    return chat


def qualified_session(session: str, agent: str) -> str:
    """Returns the full key of a session; a name without an agent belongs to the caller's agent."""
    key = session_key(session)
    return key if key.startswith("agent:") else f"agent:{agent}:{key}"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
