"""A client's request on its way through: stored, bounded, sent on, answered. One path for all three protocols."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from recto.engine.async_session import on_a_thread
from recto.errors import CannotCross, InputError, RectoError, TurnTaken
from recto.formats import Format, ProviderReply, read_reply
from recto.formats.convert.converter import ConvertedStream, convert_request, convert_response
from recto.formats.convert.types import ResponseIds
from recto.formats.errors import OVERFLOW, TIMED_OUT, UPSTREAM_FAILED
from recto.formats.message import object_in
from recto.gateway.api_keys import Key
from recto.gateway.errors import answer_headers, refused, said_no, spelled
from recto.gateway.request import ClientRequest, open_request
from recto.gateway.responses import GONE, STOPPED, Crossing, Streamed, WholeResponse, finished, unless_gone, whole_body
from recto.gateway.responses_state import Naming, held_names, with_names
from recto.gateway.scheduler import Turnstile
from recto.gateway.session_id import OWN_HEADER, named_session
from recto.gateway.session_resolver import Named, compacted_in
from recto.gateway.turn import GatewayTurn, TurnRunner, refuse_defects
from recto.gateway.upstreams.http import Upstream, UpstreamResponse, Upstreams, UpstreamUnreachable
from recto.tokens.limits import limits_in_error

_log = logging.getLogger("recto.gateway")
_WHOLE: Final = 64 * 1024 * 1024
"""Bytes of an answer that comes in one piece."""
_ERROR: Final = 1024 * 1024
"""Bytes of an error."""
_NOTHING: Final = ProviderReply(messages=(), stop_reason="", usage=None)
"""What an answer leaves that never began."""
_LARGE: Final = 256 * 1024
"""Bytes from which on a request is a large one: it may take seconds to store and to index what it brings."""
_LARGE_AT_ONCE: Final = 4
_FEW: Final = 2
"""Requests that a key may have under way without being one of those that let others go before them."""
_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
"""Seconds between two looks at whether another gateway has let go of a session."""
_ANSWER_TOKENS: Final = 4_096
"""Tokens that an answer may have where a format wants a limit and the client's format has none."""


class Lanes:
    """Requests that wait for each other, by what they share."""

    def __init__(self) -> None:
        self._usual = Turnstile(has_many=self._has_many)
        self._large = Turnstile(_LARGE_AT_ONCE, has_many=self._has_many)
        self.ending = Turnstile(apart=0)
        """What those go through whose answers were cut off: a thousand may go away at once."""
        self._under_way: Counter[str] = Counter()
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextmanager
    def request(self, key: str) -> Iterator[None]:
        """One request of a key, from its last byte to the end of its answer."""
        self._under_way[key] += 1
        try:
            yield
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]

    def _has_many(self, key: str) -> bool:
        return self._under_way[key] > _FEW

    def turnstile(self, size: int) -> Turnstile:
        """What a request of so many bytes goes through for what needs the processor: small ones overtake large ones."""
        return self._usual if size < _LARGE else self._large

    @asynccontextmanager
    async def turn(self, lane: str) -> AsyncIterator[None]:
        """Waits until nobody else is in the lane; nobody waits where there is none."""
        if not lane:
            yield
            return
        lock, users = self._locks.get(lane, (asyncio.Lock(), 0))
        self._locks[lane] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[lane]
            if users == 1:
                del self._locks[lane]
            else:
                self._locks[lane] = lock, users - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What is told of a request when it is over; no text, no session."""

    wire: str
    model: str
    upstream: str
    outcome: str
    seconds: float
    ours: float
    """Seconds of it that were the gateway's own work before the upstream was asked."""


class Proxy:
    """Answers requests to models in one protocol."""

    def __init__(
        self,
        format: Format,
        turns: TurnRunner,
        upstreams: Upstreams,
        lanes: Lanes,
        told: Callable[[Asking], None] = lambda asking: None,
    ) -> None:
        self._format = format
        self._turns = turns
        self._upstreams = upstreams
        self._lanes = lanes
        self._told = told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, whatever comes of it. It raises nothing but for a client that went away."""
        request = Request(scope, receive)
        id = f"req_{uuid.uuid4().hex}"
        key: Key = scope["recto.key"]
        try:
            with self._lanes.request(key.id):
                await self._through(request, key, id, send)
        except RectoError as error:
            await refused(error, self._format, id)(scope, receive, send)
        except ClientDisconnect:
            raise
        except Exception as error:
            # Only its kind: what the message of a strange error holds is not known.
            _log.error("request %s failed: %s", id, type(error).__name__)
            raise

    async def _through(self, request: Request, key: Key, id: str, send: Send) -> None:
        body = await request.body()
        asked = await self._lanes.turnstile(len(body)).work(key.id, open_request, body, self._format.name)
        refusal_of = _unsupported(asked, id)
        if refusal_of is not None:
            await refusal_of(request.scope, request.receive, send)
            return
        headers = dict(request.headers)
        named = Named(name=named_session(headers, asked), own=OWN_HEADER in headers)
        upstream = self._upstreams.for_model(asked.model, key)
        async with self._lanes.turn(self._turns.lane(key, asked, named)):
            response = await self._answered(request, asked, named, upstream, id)
            await response(request.scope, request.receive, send)

    async def _answered(
        self, request: Request, asked: ClientRequest, named: Named, upstream: Upstream, id: str
    ) -> ASGIApp:
        begun = time.monotonic()
        if self._format not in upstream.speaks:  # what cannot cross over is refused before anything is stored
            told = asked.with_prompt(asked.messages[compacted_in(asked.messages)[0] + 1 :])
            await on_a_thread(convert_request, told, self._format.name, upstream.speaks[0].name)
        turn, waited = await self._begun(request, asked, named, upstream.counted_as(asked.model))
        ours = time.monotonic() - begun - waited

        def over(outcome: str) -> None:
            seconds = time.monotonic() - begun
            about = Asking(
                wire=asked.wire, model=asked.model, upstream=upstream.name, outcome=outcome, seconds=seconds, ours=ours
            )
            self._told(about)

        try:
            asking = self._sent(turn, upstream, _headers(request), request.url.query)
            format, answer = await unless_gone(asking, request.receive)
            if answer.status >= 400:
                over("upstream_error")
                return await self._failed(turn, upstream, format, answer, id)
            if answer.status not in (200, 201):
                await answer.close()
                raise UpstreamUnreachable(f"upstream '{upstream.name}' answered with status {answer.status}")
            if answer.streams and asked.stream:
                return self._streamed(turn, format, answer, id, over)
            response = await unless_gone(self._whole(turn, format, answer, id), request.receive)
        except UpstreamUnreachable as error:
            over("upstream_error")
            await on_a_thread(self._turns.failed, turn, upstream.name, 0)
            return said_no(self._format, TIMED_OUT if error.late else UPSTREAM_FAILED, str(error), id, turn.headers)
        except RectoError as error:
            over("refused")
            await finished(on_a_thread(self._turns.end, turn))
            return refused(error, self._format, id, turn.headers)
        except (ClientDisconnect, asyncio.CancelledError) as error:
            over("cut")
            why = GONE if isinstance(error, ClientDisconnect) else STOPPED
            await finished(self._lanes.ending.work(turn.key.id, self._turns.cut, turn, _NOTHING, why))
            raise
        except BaseException:
            over("cut")
            await finished(on_a_thread(self._turns.end, turn))
            raise
        over("ok")
        return response

    async def _begun(
        self, request: Request, asked: ClientRequest, named: Named, model: str
    ) -> tuple[GatewayTurn, float]:
        """Begins the turn, as soon as no other gateway has one in the session; and how many seconds that took.

        No thread waits for it.
        """
        key: Key = request.scope["recto.key"]
        turnstile = self._lanes.turnstile(len(asked.body.raw))
        waited, pause = 0.0, _PAUSE
        while True:
            try:
                async with turnstile.passed(key.id):
                    begin = on_a_thread(self._turns.begin, key, asked, named, model, patience=0)
                    return await self._not_left_begun(begin), waited
            except TurnTaken:
                await unless_gone(asyncio.sleep(pause), request.receive)
                waited, pause = waited + pause, min(pause * 1.5, _LONGEST_PAUSE)

    async def _not_left_begun(self, begin: Coroutine[Any, Any, GatewayTurn]) -> GatewayTurn:
        """A turn that a thread begins for somebody who is told to stop meanwhile is ended: others wait for it."""
        beginning = asyncio.ensure_future(begin)
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            with suppress(Exception):
                await on_a_thread(self._turns.cut, await beginning, _NOTHING, STOPPED)
            raise

    async def _sent(
        self, turn: GatewayTurn, upstream: Upstream, headers: Mapping[str, str], query: str
    ) -> tuple[Format, UpstreamResponse]:
        """Asks the upstream, and once more with a tighter prompt where it says that this one is too long."""
        format = self._format if self._format in upstream.speaks else upstream.speaks[0]
        query = query if format is self._format else ""
        body = await self._crossed(turn, format)
        answer = await upstream.ask(format, body, headers, query)
        if answer.status not in (400, 413, 422):
            return format, answer
        said = await _read_error(answer)
        told = _told(said)
        if limits_in_error(told) is None or await on_a_thread(self._turns.tighter, turn, told) is None:
            return format, _again(answer, said)
        body = await self._crossed(turn, format)
        return format, await upstream.ask(format, body, headers, query)

    async def _crossed(self, turn: GatewayTurn, format: Format) -> bytes:
        if format is self._format:
            return turn.body
        source, target = self._format.name, format.name
        return await on_a_thread(convert_request, turn.body, source, target, max_tokens=_ANSWER_TOKENS)

    def _streamed(
        self, turn: GatewayTurn, format: Format, answer: UpstreamResponse, id: str, told: Callable[[str], None]
    ) -> Streamed:
        crossing: Crossing | None = None
        if names := held_names(turn.asked):
            crossing = Naming(names)
        if format is not self._format:
            source, target = format.name, self._format.name
            crossing = ConvertedStream(source, target, ids=_ids(turn, id), include_usage=_with_usage(turn.asked))
        kept = [one for one in answer.headers if one[0] != "content-length"]
        return Streamed(
            turn=turn,
            turns=self._turns,
            ending=self._lanes.ending,
            answer=answer,
            format=self._format,
            headers=[*kept, *spelled(turn.headers)],
            crossing=crossing,
            about={"request": id},
            ended=told,
        )

    async def _whole(self, turn: GatewayTurn, format: Format, answer: UpstreamResponse, id: str) -> WholeResponse:
        try:
            raw = await whole_body(answer, _WHOLE)
        finally:
            await answer.close()
        try:
            if format is not self._format:
                source, target = format.name, self._format.name
                raw = await on_a_thread(convert_response, raw, source, target, ids=_ids(turn, id))
            raw = with_names(raw, held_names(turn.asked))
            reply = await on_a_thread(read_reply, raw, self._format.name)
            refuse_defects(reply.messages, self._format)
        except CannotCross:
            raise
        except InputError as error:
            raise UpstreamUnreachable(f"the upstream's answer cannot be understood: {error}") from None
        await finished(on_a_thread(self._turns.finish, turn, reply, response=_id_in(raw), about={"request": id}))
        kept = [one for one in answer.headers if one[0] not in ("content-length", "transfer-encoding")]
        return WholeResponse(answer.status, raw, [*kept, *spelled(turn.headers)])

    async def _failed(
        self, turn: GatewayTurn, upstream: Upstream, format: Format, answer: UpstreamResponse, id: str
    ) -> WholeResponse:
        """Passes an upstream's refusal on: as it is, or in the client's own shape."""
        raw = await _error_body(answer)
        await on_a_thread(self._turns.failed, turn, upstream.name, answer.status)
        kept = [one for one in answer.headers if one[0] not in ("content-length", "transfer-encoding")]
        if format is not self._format or isinstance(
            _told(raw), str
        ):  # also a page of whoever stands before the upstream
            raw = self._format.errors.error_body(answer.status, *_crossed_error(raw), request_id=id)
            kept = [("content-type", "application/json"), *(one for one in kept if one[0] == "retry-after")]
        return WholeResponse(answer.status, raw, [*kept, *spelled(turn.headers)])


def _unsupported(asked: ClientRequest, id: str) -> WholeResponse | None:
    """What no gateway that holds histories can pass on."""
    unsupported = asked.format.errors.unsupported_request(asked.fields, id)
    return WholeResponse(*unsupported, answer_headers({}, id)) if unsupported else None


async def _read_error(answer: UpstreamResponse) -> bytes:
    try:
        return await whole_body(answer, _ERROR)
    finally:
        await answer.close()


async def _error_body(answer: UpstreamResponse) -> bytes:
    try:
        return await _read_error(answer)
    except UpstreamUnreachable:
        return b""


def _again(answer: UpstreamResponse, body: bytes) -> UpstreamResponse:
    """An answer that was read, to be read once more."""

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    return UpstreamResponse(status=answer.status, headers=answer.headers, pieces=pieces(), close=answer.close)


def _told(body: bytes) -> Mapping[str, object] | str:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return body.decode(errors="replace")[:10_000]
    return found if isinstance(found, dict) else ""


def _message_in(body: bytes) -> str:
    told = _told(body)
    if isinstance(told, str):
        return told[:2_000]
    error = told.get("error")
    message = error.get("message") if isinstance(error, dict) else told.get("message", error)
    return str(message)[:2_000]


def _crossed_error(body: bytes) -> tuple[str, str]:
    """The code and the words of an upstream's error for clients of another format, who look for both in an overflow."""
    if limits_in_error(_told(body)) is None:
        return UPSTREAM_FAILED, _message_in(body)
    return OVERFLOW, f"prompt is too long: {_message_in(body).removeprefix('prompt is too long: ')}"


def _headers(request: Request) -> dict[str, str]:
    """A client's headers; several lines of one name are one list."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _id_in(raw: bytes) -> str:
    found = _told(raw)
    given = found.get("id") if isinstance(found, dict) else None
    return given if isinstance(given, str) else ""


def _ids(turn: GatewayTurn, id: str) -> ResponseIds:
    """What an answer is called in the client's format: a crossing has neither a clock nor chance of its own."""
    start = turn.asked.format.api.response_id_prefix
    return ResponseIds(
        reply=f"{start}_{id.removeprefix('req_')}", created=int(time.time()), request=turn.asked.body.raw
    )


def _with_usage(asked: ClientRequest) -> bool:
    return object_in(asked.fields.get("stream_options")).get("include_usage") is True
