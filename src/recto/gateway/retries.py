"""Retries of requests in flight or just answered: a request that comes again gets the answer of its first attempt.

Everything that an attempt sends is recorded, up to a limit. A retry gets the recording, also while it grows. An attempt
that failed is not replayed; but where the upstream had answered and the store failed, the upstream's answer is kept,
and the retry stores it instead of asking again.

An SDK's retry count names no attempt: equal bodies may be samples of one question. A retry therefore continues, in this
order, an attempt whose client has gone, one that failed, one that is running, and one that was delivered.

Recordings are of this process and bounded in number, bytes and time. What they no longer hold, the transcript does: the
session resolver finds it, and `stored_answer` makes a response of it with the messages, the model, the stop reason and
the usage of the first response. Its id is a new one. Recordings belong to one event loop, so nothing is locked.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Send

from recto.engine.projection import USAGE
from recto.errors import AttemptRunning, IdempotencyKeyReused
from recto.formats import Format, Usage
from recto.formats.convert.converter import stored_response, streamed_response
from recto.formats.convert.types import Cost, ResponseIds
from recto.formats.message import object_in, text_in
from recto.gateway.errors import encode_headers
from recto.gateway.lineage import Lineage, LineagePoint
from recto.gateway.request import ClientRequest, RetryKey
from recto.gateway.responses import BufferedResponse, unless_disconnected
from recto.gateway.responses_state import history_ids, with_history_ids
from recto.gateway.turn import GatewayTurn
from recto.gateway.upstreams.http import UpstreamResponse
from recto.transcript.entries import Entry, content_as_sent
from recto.transcript.session_keys import TenantStore

_MAX_BYTES: Final = 12 * 1024 * 1024
"""Memory for all recordings of one wire format, about."""
_MAX_ANSWER: Final = 4 * 1024 * 1024
"""A longer answer is not recorded."""
_MAX_ATTEMPTS: Final = 4_096
_SECONDS: Final = 600.0
"""How long an attempt is remembered once it has ended: the timeout of the SDKs."""
_ATTEMPT_BYTES: Final = 2_000
"""Memory of an attempt beside its bytes."""
_REPLAYED: Final = (b"idempotent-replayed", b"true")
"""Header of a recorded answer, as Stripe names it."""

UpstreamCall: TypeAlias = Callable[[], Awaitable[tuple[Format, UpstreamResponse]]]


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt:
    """One request in flight, and the recording of its answer. It sits between the handler and the client."""

    key: RetryKey
    client_receive: Receive
    client_send: Send
    survives: bool = False
    """Whether the request is finished where its client disconnects, because the client will ask for its answer."""
    answer: KeptAnswer | None = None
    """The upstream's answer to an earlier attempt, which could not be stored."""
    turn: GatewayTurn | None = None
    is_orphan: bool = False
    """Whether its client has disconnected."""
    is_claimed: bool = False
    """Whether a retry of that client has come for its answer."""
    has_ended: bool = False
    is_ok: bool = False
    size: int = 0
    ended_at: float = 0.0
    messages: list[Message] = field(default_factory=list)
    _arriving: KeptAnswer | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _is_abandoned: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_lost(self) -> bool:
        """Whether its answer is too long to be recorded."""
        return self.size > _MAX_ANSWER

    async def receive(self) -> Message:
        """Receive from the client. A disconnect is passed on only if the request ends with it."""
        message = await self.client_receive()
        if message["type"] == "http.disconnect":
            self.is_orphan = True
            if self.survives and not self.is_lost:
                await self._is_abandoned.wait()
        return message

    async def send(self, message: Message) -> None:
        """Record a message and send it to the client, if it is still there."""
        self._record(message)
        if not self.is_orphan:
            try:
                await self.client_send(message)
            except (OSError, ClientDisconnect):
                self.is_orphan = True
                if not self.survives:
                    raise

    def _record(self, message: Message) -> None:
        self.size += len(message.get("body", b""))
        if self.is_lost:
            self.messages.clear()
            if self.is_orphan:
                self._is_abandoned.set()
        else:
            self.messages.append(message)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self, *, ok: bool) -> None:
        """End the attempt. Where the upstream had answered and the store failed, its answer is kept."""
        self.has_ended, self.is_ok = True, ok
        self.ended_at = asyncio.get_running_loop().time()
        if ok:
            self.answer = None
        elif self.turn is not None and self.turn.was_answered and self._arriving is not None:
            self.answer = self._arriving if not self._arriving.is_lost else None
        self._arriving = self.turn = None
        self._notify()

    async def replay(self, send: Send) -> bool:
        """Send the recording, and what is recorded meanwhile. Returns whether there was anything to send.

        Raises:
            ClientDisconnect: The answer has become too long to be recorded: the rest of it cannot be sent.
        """
        at = 0
        while True:
            if self.is_lost:
                raise ClientDisconnect
            while at < len(self.messages):
                message = self.messages[at]
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message["headers"], _REPLAYED]}
                await send(message)
                at += 1
            if self.has_ended:
                return at > 0
            await self._changed.wait()

    def keeping(self, call: UpstreamCall) -> UpstreamCall:
        """Wrap the call of the upstream: its answer is kept, and a kept one is used in its place."""

        async def kept() -> tuple[Format, UpstreamResponse]:
            if (answer := self.answer) is not None:
                format, response = answer.format, answer.response()
            else:
                format, response = await call()
            if response.status not in (200, 201):
                return format, response
            self._arriving = KeptAnswer(format=format, status=response.status, headers=response.headers)
            pieces = self._arriving.taking(response.pieces)
            return format, UpstreamResponse(
                status=response.status, headers=response.headers, pieces=pieces, close=response.close
            )

        return kept


@dataclass(slots=True, kw_only=True)
class KeptAnswer:
    """The answer of an upstream."""

    format: Format
    status: int
    headers: Sequence[tuple[str, str]]
    body: bytearray = field(default_factory=bytearray)
    is_lost: bool = False

    async def taking(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Pass the pieces of a body on, and keep them."""
        try:
            async for piece in pieces:
                if len(self.body) + len(piece) > _MAX_ANSWER:
                    self.is_lost = True
                    self.body.clear()
                elif not self.is_lost:
                    self.body += piece
                yield piece
        finally:
            if callable(end := getattr(pieces, "aclose", None)):
                await end()

    def response(self) -> UpstreamResponse:
        """Return the answer as if the upstream had just given it."""

        async def pieces() -> AsyncIterator[bytes]:
            yield bytes(self.body)

        async def close() -> None:
            return None

        return UpstreamResponse(status=self.status, headers=self.headers, pieces=pieces(), close=close)


class Retries:
    """The attempts of one wire format."""

    def __init__(self, max_bytes: int = _MAX_BYTES, seconds: float = _SECONDS) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._running: dict[tuple[str, bytes], list[Attempt]] = {}
        self._ended: dict[tuple[str, bytes], list[Attempt]] = {}
        self._order: OrderedDict[int, tuple[Attempt, int]] = OrderedDict()
        """Those that have ended, the oldest first, with their size."""
        self._size = 0

    async def respond(self, attempt: Attempt, run: Callable[[], Awaitable[bool]], replayed: Callable[[], None]) -> None:
        """Answer a request: from an earlier attempt, or by running it. `run` returns whether it was answered.

        Raises:
            IdempotencyKeyReused: The key was used for another request.
            AttemptRunning: Its first attempt is running, and its answer is too long to be recorded.
            ClientDisconnect: The client has disconnected.
        """
        earlier = self._earlier(attempt.key)
        if earlier is not None and not earlier.is_lost and not (earlier.has_ended and not earlier.is_ok):
            earlier.is_claimed = True
            try:
                if await unless_disconnected(earlier.replay(attempt.client_send), attempt.client_receive):
                    replayed()
                    return
            except ClientDisconnect:
                earlier.is_claimed = False
                raise
        if earlier is not None and not earlier.has_ended and attempt.key.name:
            raise AttemptRunning
        if earlier is not None and earlier.has_ended and not earlier.is_ok:
            self._forget(earlier)
            attempt.answer = earlier.answer
            attempt.key = replace(attempt.key, is_new=earlier.answer is None)
        place = _place(attempt.key)
        self._running.setdefault(place, []).append(attempt)
        ok = False
        try:
            ok = await run()
        finally:
            attempt.end(ok=ok)
            _remove(self._running, place, attempt)
            self._remember(attempt, place)

    def _earlier(self, key: RetryKey) -> Attempt | None:
        """Return the attempt that a request repeats, if it is known here."""
        place = _place(key)
        if not key.name and not key.count:
            return None
        self._expire()
        running, ended = self._running.get(place, ()), self._ended.get(place, ())
        if key.name:
            known = next(iter((*running, *reversed(ended))), None)
            if known is not None and known.key.body != key.body and (not known.has_ended or known.is_ok):
                raise IdempotencyKeyReused
            return known if known is not None and known.key.body == key.body else None
        orphans = [one for one in (*running, *ended) if one.is_orphan and one.survives and not one.is_claimed]
        failed = [one for one in ended if not one.is_ok]
        alive = [one for one in orphans if not one.has_ended or one.is_ok]
        return next(iter((*alive, *failed, *running, *reversed(ended))), None)

    def _remember(self, attempt: Attempt, place: tuple[str, bytes]) -> None:
        size = _ATTEMPT_BYTES + (0 if attempt.is_lost else attempt.size)
        size += len(attempt.answer.body) if attempt.answer else 0
        if not attempt.is_ok:
            attempt.messages.clear()
        self._ended.setdefault(place, []).append(attempt)
        self._order[id(attempt)] = attempt, size
        self._size += size
        while len(self._order) > 1 and (self._size > self._max_bytes or len(self._order) > _MAX_ATTEMPTS):
            self._forget(next(iter(self._order.values()))[0])

    def _expire(self) -> None:
        before = asyncio.get_running_loop().time() - self._seconds
        while self._order and (oldest := next(iter(self._order.values()))[0]).ended_at < before:
            self._forget(oldest)

    def _forget(self, attempt: Attempt) -> None:
        kept = self._order.pop(id(attempt), None)
        if kept is not None:
            self._size -= kept[1]
            _remove(self._ended, _place(attempt.key), attempt)


def _place(key: RetryKey) -> tuple[str, bytes]:
    """Return where attempts of one request meet: by the client's key, or by the body."""
    return (key.owner, key.name.encode("utf-8", "surrogatepass")) if key.name else (f"body {key.owner}", key.body)


def _remove(attempts: dict[tuple[str, bytes], list[Attempt]], place: tuple[str, bytes], attempt: Attempt) -> None:
    attempts[place].remove(attempt)
    if not attempts[place]:
        del attempts[place]


def stored_answer(
    request: ClientRequest, store: TenantStore, lineage: Lineage, replies: Sequence[Entry]
) -> BufferedResponse:
    """Build the response to a request from the stored messages of its answer. Blocks.

    Raises:
        CannotCross: The messages hold something that the client's format cannot.
    """
    last = replies[-1]
    meta = json.loads(last.meta)
    api = request.format.api
    ids = ResponseIds(
        reply=f"{api.response_id_prefix}_{secrets.token_hex(16)}", created=int(time.time()), request=request.body.raw
    )
    body = stored_response(
        [content_as_sent(entry) for entry in replies],
        last.wire,
        request.wire,
        ids=ids,
        model=text_in(meta.get("model")) or request.model,
        stop=text_in(meta.get("stop")),
        cost=_cost(store, replies[0]),
    )
    body = with_history_ids(body, history_ids(request))
    kind = "application/json"
    if request.stream:
        options = object_in(request.fields.get("stream_options"))
        body = streamed_response(body, request.wire, ids=ids, include_usage=options.get("include_usage") is True)
        kind = "text/event-stream; charset=utf-8"
    if request.format.body.stored_history:
        lineage.record(store, f"response/{ids.reply}", LineagePoint(session=last.session, seq=last.seq))
    headers = {"content-type": kind, "x-recto-session-id": store.name(last.session), "idempotent-replayed": "true"}
    return BufferedResponse(200, body, encode_headers(headers))


def _cost(store: TenantStore, first: Entry) -> Cost | None:
    """Return the usage that the provider reported with a response: it is stored in front of it."""
    before = next(iter(store.read(first.session, first.seq - 1, first.seq - 1)), None)
    if before is None or before.kind != USAGE:
        return None
    found = json.loads(before.content)
    cached = {name: found[name] for name in ("cache_read", "cache_write")}
    return Cost(usage=Usage(prompt=found["reported"], output=found["output"], **cached))
