"""The path of one turn through the gateway, before and after the upstream is asked.

Messages are durable before anybody is asked, and the answer is durable before its end is passed on. From its first
entry to its last a turn has the store's turn of its session, so that no other gateway writes in between. Everything
here blocks, and runs on threads.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

from recto.engine.prompt import Prompt
from recto.engine.session import Session
from recto.errors import AppendConflict, MalformedMessage, TurnTaken
from recto.formats import DEFAULT_FORMAT, Format, ProviderReply, format_named, open_body, render
from recto.formats.convert.converter import convert_request
from recto.formats.json_spans import quoted
from recto.formats.message import fields_of, text_in
from recto.gateway.api_keys import Key
from recto.gateway.lineage import LineagePoint
from recto.gateway.request import ClientRequest, surface_of
from recto.gateway.session_pool import SessionPool
from recto.gateway.session_resolver import Named, Placed, Placing
from recto.tokens.limits import limits_in_error
from recto.transcript.entries import Entry
from recto.transcript.events import event
from recto.transcript.protocols import Clock
from recto.transcript.tenancy import TenantStore

INSTRUCTIONS, TOOLS = "instructions_given", "tools_offered"
CUT, FAILED = "reply_cut", "upstream_failed"
_TRIES = 8
_TRIMMABLE = 8
"""Messages from which on a client may let go of the beginning by itself."""
_TIGHTER = 0.85
"""What a prompt may have after an upstream found it too long and named no limit, as a share of what it had."""


@dataclass(slots=True, kw_only=True)
class GatewayTurn:
    """One request on its way."""

    key: Key
    store: TenantStore
    asked: ClientRequest
    model: str
    """The model whose window and tokenizer count."""
    placed: Placed
    prompt: Prompt
    body: bytes
    """What is sent on, in the client's own format."""
    given: str
    """The digest of what stands beside the conversation."""
    session: Session
    """Held open until the turn is over."""
    held: ExitStack
    """What is let go of then: the session, the store's turn of it, the claim to it in this process."""
    decisions: list[int] = field(default_factory=list)
    ended: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """What a client is told of what was done."""
        prompt = self.prompt
        return {
            "x-recto-session-id": self.placed.session,
            "x-recto-tokens": f"{prompt.tokens}/{prompt.reading.room}",
            "x-recto-decisions": ",".join(map(str, self.decisions)) or "none",
            "x-recto-recall": str(len(prompt.recalled)),
        }


class TurnRunner:
    """Begins and ends turns."""

    def __init__(self, sessions: SessionPool, clock: Clock) -> None:
        self.placing = Placing(clock)
        self._sessions = sessions
        self._clock = clock
        self._busy: dict[str, int] = {}
        self._lock = threading.Lock()

    def begin(
        self, key: Key, asked: ClientRequest, named: Named, model: str | None = None, *, patience: float | None = None
    ) -> GatewayTurn:
        """Stores what is new and builds the prompt. Raises what cannot be taken, and `WindowOverflow`.

        A request whose history is held here waits so long for the turn, where another gateway has it; then it raises
        `TurnTaken`. One that brings its history does not wait: it opens a branch.
        """
        _refuse_empty(asked)
        store = self._sessions.view(key)
        waits_for = self.placing.held_in(key, store, asked, named)
        elsewhere: set[str] = set()
        said = False
        for _ in range(_TRIES):
            with ExitStack() as held:
                if waits_for:
                    held.enter_context(store.turn(waits_for, patience=patience))
                placed = self.placing.place(key, store, asked, named, frozenset(self._busy) | elsewhere)
                if not self._claimed(placed):
                    continue  # another request of the same conversation was quicker
                held.callback(self._free, placed)
                try:
                    if placed.stored != waits_for:
                        held.enter_context(store.turn(placed.stored, patience=0))
                    name = asked.model if model is None else model
                    session = held.enter_context(self._sessions.use(key, placed.session, name))
                    self._say(session, store, asked, placed)
                    said = placed.turns
                    return self._begun(key, store, asked, placed, name, session, held)
                except TurnTaken:
                    elsewhere.add(placed.stored)
                except AppendConflict:  # somebody wrote there meanwhile: it may belong elsewhere now
                    if said:
                        raise  # its turn is lost; said again behind what others say, it would stand there twice
        raise AppendConflict(placed.stored, placed.after, -1, "others write to this session all the time")

    def lane(self, key: Key, asked: ClientRequest, named: Named) -> str:
        """Requests of one lane wait for each other, because their history is held here; empty: it is in none."""
        return self.placing.lane(key, self._sessions.view(key), asked, named)

    def tighter(self, turn: GatewayTurn, error: Mapping[str, Any] | str) -> GatewayTurn | None:
        """The same turn with a tighter prompt, where an upstream said that it was too long; None for another error."""
        limits = limits_in_error(error)
        if limits is None:
            return None
        window = turn.session.window
        self._sessions.learn(turn.model, limits)
        said = limits.max_input or limits.window
        room = int(min(window.budget.input_budget, turn.prompt.tokens) * _TIGHTER)
        window.configure(at_most=min(room, said - window.budget.reserve) if said else room)
        self._build(turn)
        return turn

    def finish(
        self, turn: GatewayTurn, reply: ProviderReply, *, response: str = "", about: Mapping[str, Any] | None = None
    ) -> None:
        """Stores an answer; when this returns it is durable, and the client may be told its end."""
        entries = self._stored(turn, reply, dict(about or {}))
        self._note(turn, reply, entries, response)
        self.end(turn)

    def cut(self, turn: GatewayTurn, partial: ProviderReply, why: str) -> None:
        """Keeps as much of an answer as came before it was cut off. It is no message: nobody was told its end."""
        try:
            said = [json.loads(message) for message in partial.messages]
            self._record(turn, CUT, {"why": why, "messages": said})
        finally:
            self.end(turn)

    def failed(self, turn: GatewayTurn, upstream: str, status: int) -> None:
        """Keeps that there was no answer."""
        try:
            self._record(turn, FAILED, {"upstream": upstream, "status": status})
        finally:
            self.end(turn)

    def end(self, turn: GatewayTurn) -> None:
        """The turn is over, however it went."""
        if not turn.ended:
            turn.ended = True
            turn.held.close()

    def _begun(
        self,
        key: Key,
        store: TenantStore,
        asked: ClientRequest,
        placed: Placed,
        model: str,
        session: Session,
        held: ExitStack,
    ) -> GatewayTurn:
        given = self._given(store, placed.stored, asked)
        prompt = session.prompt(asked.tools, beside=asked.beside, answer=asked.answer, wire=asked.wire)
        if not prompt.raw and not asked.front and not asked.fields.get("prompt"):
            raise MalformedMessage("nothing is said in it")
        return GatewayTurn(
            key=key,
            store=store,
            asked=asked,
            model=model,
            placed=placed,
            prompt=prompt,
            body=_body(asked, prompt),
            given=given,
            decisions=[entry.seq for entry in prompt.decisions],
            session=session,
            held=held.pop_all(),
        )

    def _say(self, session: Session, store: TenantStore, asked: ClientRequest, placed: Placed) -> None:
        """Stores what is new. Raises `AppendConflict` where the session is not as it was when this was found out."""
        fresh = [_plain(raw, asked.format) for raw in placed.fresh] if placed.turns else placed.fresh
        wire = None if placed.turns else asked.wire
        after = self._told_amid(session, asked, placed.after)
        if fresh:
            refuse_defects(fresh, asked.format)
            entries = session.append_all(fresh, expect=after, surface=surface_of(asked.format), wire=wire)
            # an answer that was given is noted already; what came in without one would not be known again
            noted = bool(asked.replies) and len(placed.fresh) < len(asked.messages) - asked.replies[-1]
            if placed.chain is not None and not noted:
                place = LineagePoint(session=placed.stored, seq=entries[-1].seq)
                self.placing.lineage.note(store, placed.chain, place)
        elif after is not None and (last := session.head.seq) != after:
            raise AppendConflict(placed.stored, after, last)  # it was asked before, and is answered by now

    def _build(self, turn: GatewayTurn) -> None:
        asked = turn.asked
        turn.prompt = turn.session.prompt(asked.tools, beside=asked.beside, answer=asked.answer, wire=asked.wire)
        turn.decisions += [entry.seq for entry in turn.prompt.decisions]
        turn.body = _body(asked, turn.prompt)

    def _told_amid(self, session: Session, asked: ClientRequest, after: int | None) -> int | None:
        """Stores system text that stands in the middle of a conversation, once, when it is first seen there."""
        for raw in asked.amid:
            name = f"amid/{hashlib.sha256(raw).hexdigest()[:32]}"
            if session.find(name) is None:
                stored = session.append_all(
                    [raw], key=name, expect=after, surface=surface_of(asked.format), wire=asked.wire
                )
                after = after if after is None else stored[-1].seq
        return after

    def _given(self, store: TenantStore, stored: str, asked: ClientRequest) -> str:
        """Keeps what stands beside the conversation, once for each content; the answer's entry names it."""
        names: list[str] = []
        for kind, content in ((INSTRUCTIONS, asked.beside), (TOOLS, asked.tools)):
            if content:
                digest = hashlib.sha256(content).hexdigest()[:32]
                names.append(f"{kind}/{digest}")
                if store.find(stored, names[-1]) is None:
                    about = {"text": content.decode()}
                    store.append(stored, [event(self._clock, kind, about, names[-1], surface="gateway")])
        return " ".join(names)

    def _stored(self, turn: GatewayTurn, reply: ProviderReply, about: dict[str, Any]) -> list[Entry]:
        asked = turn.asked
        meta = {**about, "model": asked.model, "stop": reply.stop_reason, "given": turn.given}
        usage = reply.usage if reply.usage is not None and reply.usage.prompt else None
        if not reply.messages:
            if usage is not None:
                turn.session.usage.record(turn.prompt.tokens, usage)
            return []
        messages = [_plain(raw, asked.format) for raw in reply.messages] if turn.placed.turns else reply.messages
        wire = None if turn.placed.turns else asked.wire
        return turn.session.append_all(messages, meta=meta, surface=surface_of(asked.format), wire=wire, usage=usage)

    def _note(self, turn: GatewayTurn, reply: ProviderReply, entries: Sequence[Entry], response: str) -> None:
        """Notes under which histories the answer will come again."""
        if not entries:
            return
        place = LineagePoint(session=turn.placed.stored, seq=entries[-1].seq)
        names: list[bytes | str] = [f"response/{response}"] if response else []
        if turn.placed.chain is not None:
            names.append(self.placing.prints.chain(turn.placed.chain, reply.messages, turn.asked.wire)[-1])
            told = (*turn.asked.messages, *reply.messages)
            if len(told) >= _TRIMMABLE:
                names.append(self.placing.ending(turn.placed.seed, told, turn.asked.wire))
        self.placing.lineage.note_all(turn.store, names, place)

    def _record(self, turn: GatewayTurn, kind: str, about: Mapping[str, Any]) -> None:
        turn.store.append(turn.placed.stored, [event(self._clock, kind, about, surface="gateway")])

    def _claimed(self, placed: Placed) -> bool:
        with self._lock:
            if placed.stored in self._busy and not placed.turns:
                return False
            self._busy[placed.stored] = self._busy.get(placed.stored, 0) + 1
            return True

    def _free(self, placed: Placed) -> None:
        with self._lock:
            left = self._busy.get(placed.stored, 1) - 1
            if left > 0:
                self._busy[placed.stored] = left
            else:
                self._busy.pop(placed.stored, None)


def _body(asked: ClientRequest, prompt: Prompt) -> bytes:
    """What is sent on, in the client's format. Raises `CannotCross` where the session holds what has no place in it.

    A session may be gone on with in another format than it holds: its messages cross over then.
    """
    source, target = format_named(prompt.built.wire), asked.format
    if source is target:
        return asked.with_prompt(prompt.raw, prompt.system)
    beside = f'"{source.body.system}": {quoted(prompt.system)}, ' if prompt.system else ""
    told = f'{{"model": "", {beside}"{source.body.messages}": '.encode() + render(prompt.raw) + b"}"
    crossed = open_body(convert_request(told, source.name, target.name), target.name)
    system = _text_of(json.loads(crossed.system or b'""'))
    if not system or target.system_apart:
        return asked.with_prompt(crossed.messages, system)
    return asked.with_prompt((target.text_message("system", system), *crossed.messages))


def _text_of(system: Any) -> str:  # noqa: ANN401  # JSON
    blocks = system if isinstance(system, list) else [{"text": system}]
    return "\n\n".join(text_in(block.get("text")) for block in blocks)


def _refuse_empty(asked: ClientRequest) -> None:
    """Raises `MalformedMessage` for a conversation that no upstream could answer."""
    format = asked.format
    named = format.request.names_history(asked.fields)
    if not asked.messages and not named and not (format.system_alone and asked.front):
        raise MalformedMessage("nothing is said in it")
    if format.user_first and 0 in asked.replies:
        raise MalformedMessage("the user has to speak first")


def refuse_defects(messages: Sequence[bytes], format: Format) -> None:
    """Raises `MalformedMessage` for a message that no provider takes: nothing of the request or answer is stored."""
    for raw in messages:
        if why := format.validation.defect(fields_of(raw)):
            raise MalformedMessage(why)


def _plain(raw: bytes, format: Format) -> bytes:
    """A message that only says something, in the words that all formats share; any other as it is.

    Sessions whose history is held here are entered through all of them.
    """
    fields, message = fields_of(raw), format.messages.read(raw)
    if isinstance(fields.get("content"), str) and fields.keys() == {"role", "content"}:
        return raw
    if message.role not in ("user", "assistant") or not message.parts:
        return raw
    if any(part.kind != "text" for part in message.parts):
        return raw
    role: Literal["user", "assistant"] = "user" if message.role == "user" else "assistant"
    return DEFAULT_FORMAT.text_message(role, "\n".join(part.text for part in message.parts))
