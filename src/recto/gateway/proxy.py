"""Proxies model requests: stores them, bounds the prompt, calls the upstream, stores the response.

There is one path for all wire formats.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from recto.engine.async_session import RunningCall, on_a_thread
from recto.errors import CannotCross, InputError, RectoError, TurnTaken
from recto.formats import Format, ProviderReply, read_reply
from recto.formats.convert.converter import ConvertedStream, convert_request, convert_response, streamed_response
from recto.formats.convert.types import ResponseIds
from recto.formats.errors import INTERNAL, MALFORMED, OVERFLOW, TIMED_OUT, UPSTREAM_FAILED
from recto.formats.json_spans import Json
from recto.formats.message import object_in
from recto.formats.streaming import code_in
from recto.gateway._own_tool_rounds import BufferedRounds, StreamedRounds
from recto.gateway.api_keys import Key
from recto.gateway.context_management import ContextManagement, compaction_in, forwarded_headers, managed, mode_at
from recto.gateway.errors import coded_response, encode_headers, error_code, error_response, response_headers
from recto.gateway.item_references import has_references
from recto.gateway.middleware.auth import BODY, KNOWN
from recto.gateway.request import (
    OWN_HEADER,
    ClientRequest,
    KnownPrefix,
    KnownRequest,
    KnownRequests,
    RetryKey,
    may_come_again,
    named_session,
    open_request,
    retry_key,
)
from recto.gateway.responses import (
    CONNECTION,
    DISCONNECTED,
    DISCONNECTED_CODE,
    REFUSING_CODES,
    STOPPED,
    STOPPED_CODE,
    BufferedResponse,
    StreamConverter,
    StreamedResponse,
    read_body,
    run_to_completion,
    unless_disconnected,
)
from recto.gateway.responses_state import (
    ConversationState,
    HistoryIdStream,
    compaction_response,
    history_ids,
    wants_compaction,
    with_history_ids,
)
from recto.gateway.retries import Attempt, Retries, UpstreamCall, stored_answer
from recto.gateway.scheduler import FairScheduler
from recto.gateway.session_resolver import AlreadyAnswered, SessionHint
from recto.gateway.telemetry import RequestRecord, record_of
from recto.gateway.turn import GatewayTurn, TurnRunner, refuse_defects
from recto.gateway.upstreams.http import HttpUpstream, Upstream, UpstreamResponse, Upstreams, UpstreamUnreachable
from recto.tokens.limits import ModelLimits, limits_in_error

_log = logging.getLogger("recto.gateway")
_MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
"""Limit on a response that is not streamed."""
_MAX_ERROR_BYTES: Final = 1024 * 1024
_LEARNED_FROM: Final = frozenset({400, 413})
"""Statuses of errors from which a model's limits are learned."""
REFUSES_REQUEST: Final = frozenset({400, 406, 411, 412, 413, 414, 415, 416, 417, 418, 422, 431, 451})
"""Statuses that blame the request itself. Others are about keys, models, limits or the provider's state."""
_STORED: Final = "The messages of this request are stored; send the request again."
_NO_REPLY: Final = ProviderReply(messages=(), stop_reason="", usage=None)
"""The stored part of a response that never began."""
_LARGE_REQUEST: Final = 256 * 1024
"""Bytes from which on a request counts as large: storing and indexing it may take seconds."""
_LARGE_SLOTS: Final = 4
_INLINE_BYTES: Final = 32 * 1024
"""Bytes of a request that are parsed on the event loop: it takes less than passing them to a thread and back."""
_INLINE_MESSAGES: Final = 4_000
"""Known messages of such a request; each still takes a little."""
_FEW_REQUESTS: Final = 2
"""Requests that a key may have in flight before its next ones yield to other keys."""
_MIN_PAUSE, _MAX_PAUSE = 0.02, 0.25
"""Seconds between two checks whether another gateway has released a session."""
_STREAM_TYPE: Final = ("content-type", "text/event-stream; charset=utf-8")
_DEFAULT_OUTPUT_TOKENS: Final = 4_096
"""Output limit where the upstream's format requires one and the client's format has none."""


_NO_LANE: Final = nullcontext()
"""The lane of requests that wait for no other."""


class RequestLanes:
    """Orders requests: by CPU slots for each API key, and one at a time within a lane."""

    def __init__(self) -> None:
        self._normal = FairScheduler(has_many=self._has_many)
        self._large = FairScheduler(_LARGE_SLOTS, has_many=self._has_many)
        self.cleanup = FairScheduler(spacing=0)
        """Stores responses that were cut off: a thousand clients may disconnect at once."""
        self._in_flight: Counter[str] = Counter()
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def request(self, key: str) -> _CountedRequest:
        """Count a request of a key, from its last byte to the end of its response."""
        return _CountedRequest(self._in_flight, key)

    def _has_many(self, key: str) -> bool:
        return self._in_flight[key] > _FEW_REQUESTS

    def scheduler(self, size: int) -> FairScheduler:
        """Return the scheduler for the CPU work of a request of this size: small requests overtake large ones."""
        return self._normal if size < _LARGE_REQUEST else self._large

    @asynccontextmanager
    async def turn(self, lane: str) -> AsyncIterator[None]:
        """Wait until the lane is free."""
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


class _CountedRequest:
    """Counts a request of a key while it is entered."""

    __slots__ = ("_in_flight", "_key")

    def __init__(self, in_flight: Counter[str], key: str) -> None:
        self._in_flight = in_flight
        self._key = key

    def __enter__(self) -> None:
        self._in_flight[self._key] += 1

    def __exit__(self, *error: object) -> None:
        if self._in_flight[self._key] > 1:
            self._in_flight[self._key] -= 1
        else:
            del self._in_flight[self._key]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """A request as it came over the wire, and what becomes of it."""

    scope: Scope
    id: str
    key: Key
    headers: Mapping[str, str]
    pairs: Sequence[tuple[str, str]]
    """The headers, with all lines of one name."""
    record: RequestRecord


def _release_frames(error: BaseException | None) -> None:
    """Drop the frames of an error that was handled: they hold the request, and the task of the turn holds the error."""
    while error is not None:
        error.__traceback__, error = None, error.__context__


class Proxy:
    """Handles model requests in one wire format."""

    def __init__(
        self,
        format: Format,
        turns: TurnRunner,
        upstreams: Upstreams,
        lanes: RequestLanes,
        known: KnownRequests,
        conversations: ConversationState,
        look_up: Callable[[Upstream, str, Mapping[str, str]], Awaitable[None]],
    ) -> None:
        self._format = format
        self._turns = turns
        self._upstreams = upstreams
        self._lanes = lanes
        self._known = known
        self._retries = Retries()
        self._conversations = conversations
        self._look_up = look_up

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. Errors are sent as responses; only a client that disconnects raises."""
        key: Key = scope["recto.key"]
        record = record_of(scope)
        record.wire = self._format.name
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        headers = dict(reversed(pairs))  # of several lines of one name the first counts
        exchange = _Exchange(scope=scope, id=record.id, key=key, headers=headers, pairs=pairs, record=record)
        with self._lanes.request(key.id):
            if may_come_again(headers):
                await self._reported(exchange, receive, send, partial(self._attempt, exchange, receive, send))
            else:
                await self._reported(exchange, receive, send, partial(self._handle, exchange, receive, send))

    async def _reported(
        self, exchange: _Exchange, receive: Receive, send: Send, handle: Callable[[], Awaitable[None]]
    ) -> None:
        """Handle a request: its errors become responses, and its outcome is reported."""
        record = exchange.record
        try:
            await handle()
        except RectoError as error:
            record.settle("refused", error_code(error))
            _release_frames(error)
            await error_response(error, self._format, exchange.id)(exchange.scope, receive, send)
        except ClientDisconnect:
            raise
        except Exception as error:
            # Only its type: the message of an unexpected error may contain anything.
            _log.error("request %s failed: %s", exchange.id, type(error).__name__)
            record.settle("failed", INTERNAL)
            raise
        finally:
            record.settle("cut", DISCONNECTED_CODE)  # where nothing else was reported

    async def _attempt(self, exchange: _Exchange, receive: Receive, send: Send) -> None:
        """Handle a request that may come again, or give it the answer of its earlier attempt."""
        # It may go on when its client leaves: whether it has left, only the attempt says.
        exchange = replace(exchange, scope={name: one for name, one in exchange.scope.items() if name != CONNECTION})
        scope, record = exchange.scope, exchange.record
        address = f"{exchange.key.id} {scope['path']}?{scope['query_string'].decode('latin-1')}"
        key = retry_key(exchange.headers, address, scope[BODY])
        attempt = Attempt(key=key, client_receive=receive, client_send=send)

        async def run() -> bool:
            handle = partial(self._handle, exchange, attempt.receive, attempt.send, attempt)
            await self._reported(exchange, attempt.receive, attempt.send, handle)
            return record.outcome == "ok"

        def replayed() -> None:
            record.is_replayed = True
            record.settle("ok")

        await self._retries.respond(attempt, run, replayed=replayed)

    async def _handle(self, exchange: _Exchange, receive: Receive, send: Send, attempt: Attempt | None = None) -> None:
        scope, id, key, record = exchange.scope, exchange.id, exchange.key, exchange.record
        request = await self._open(scope[BODY], scope[KNOWN], key)
        if has_references(request):
            request = await on_a_thread(self._turns.with_items, key, request)
        record.model, record.is_streamed = request.model, request.stream
        if attempt is not None:
            # SDKs send a request again before its answer has begun, so a stream ends with its client.
            attempt.survives = bool(attempt.key.name) or not request.stream
        unsupported = _unsupported(request, id)
        if unsupported is not None:
            record.settle("refused", MALFORMED)
            await unsupported(scope, receive, send)
            return
        headers = exchange.headers
        hint = SessionHint(name=named_session(headers, request), is_explicit=OWN_HEADER in headers)
        if wants_compaction(request):
            compacted = await on_a_thread(self._conversations.compact_on_trigger, key, request, hint)
            record.settle("ok")
            await compacted(scope, receive, send)
            return
        upstream = self._upstreams.for_model(request.model, key)
        record.upstream = upstream.name
        await self._look_up(upstream, request.model, headers)
        request = managed(request, self._mode(upstream), upstream.name)
        lane = self._turns.lane(key, request, hint)
        async with self._lanes.turn(lane) if lane else _NO_LANE:
            response = await self._respond(receive, request, hint, upstream, exchange, attempt)
            await response(scope, receive, send)

    def _mode(self, upstream: Upstream) -> ContextManagement:
        return mode_at(upstream.context_management, is_converted=self._format not in upstream.speaks)

    async def _open(self, body: bytes, known: KnownPrefix | None, key: Key) -> ClientRequest:
        """Parse a request: a small one, or a small addition to a known one, without leaving the event loop."""
        wire = self._format.name
        size = known.new_bytes(body) if known else len(body)
        if size <= _INLINE_BYTES and (not known or known.count <= _INLINE_MESSAGES):
            if known is None:
                return open_request(body, wire)
            with suppress(InputError):  # of the whole body, the error says where it is
                return open_request(body, wire, known)
        return await self._lanes.scheduler(len(body)).run(key.id, open_request, body, wire)

    async def _respond(
        self,
        receive: Receive,
        request: ClientRequest,
        hint: SessionHint,
        upstream: Upstream,
        exchange: _Exchange,
        attempt: Attempt | None,
    ) -> ASGIApp:
        record = exchange.record
        retry = attempt.key if attempt is not None else None
        before = record.seconds
        if self._format not in upstream.speaks:  # what cannot be converted is refused before anything is stored
            compacted, rest = compaction_in(request)
            body = request.with_prompt(rest if compacted else request.messages)
            await on_a_thread(convert_request, body, self._format.name, upstream.speaks[0].name)
        model = upstream.counting_model(request.model)
        try:
            turn, waited = await self._begin(exchange, receive, request, hint, model, retry)
        except AlreadyAnswered as answered:
            if (response := await self._stored_answer(request, answered)) is not None:
                record.is_replayed = True
                record.settle("ok")
                return response
            turn, waited = await self._begin(exchange, receive, request, hint, model, None)
        record.turn = turn
        record.gateway_seconds = record.seconds - before - waited
        if request.plan is not None and request.plan.pauses and turn.report is not None and turn.report.compaction:
            return await self._paused(turn, turn.report.compaction, record)
        return await self._answer(turn, receive, upstream, exchange, attempt)

    async def _answer(
        self, turn: GatewayTurn, receive: Receive, upstream: Upstream, exchange: _Exchange, attempt: Attempt | None
    ) -> ASGIApp:
        """Ask the upstream in a turn that has begun, and return the response."""
        id, record = exchange.id, exchange.record
        try:
            query = exchange.scope["query_string"].decode()
            headers = forwarded_headers(_joined(exchange.pairs), turn.request, self._mode(upstream))
            call: UpstreamCall = partial(self._send, turn, upstream, headers, query, record)
            if attempt is not None:
                attempt.turn, call = turn, attempt.keeping(call)
            asking = self._ask(turn, upstream.name, call, id)
            format, answer, raw = await unless_disconnected(asking, receive, exchange.scope.get(CONNECTION))
            if answer.status >= 400:
                record.settle("upstream_error", f"status_{answer.status}")
                return await self._failed(turn, upstream, format, answer, id)
            if raw is None:
                return self._streamed(turn, format, answer, record, upstream.name, call)
            response = await self._buffered(turn, format, answer, raw, id, upstream.name)
        except UpstreamUnreachable as error:
            code = TIMED_OUT if error.late else UPSTREAM_FAILED
            record.settle("upstream_error", code)
            await on_a_thread(self._turns.failed, turn, upstream.name, 0)
            return coded_response(self._format, code, f"{error}. {_STORED}", id, turn.headers)
        except RectoError as error:
            record.settle("refused", error_code(error))
            await run_to_completion(on_a_thread(self._turns.end, turn))
            return error_response(error, self._format, id, turn.headers)
        except (ClientDisconnect, asyncio.CancelledError) as error:
            is_gone = isinstance(error, ClientDisconnect)
            why = DISCONNECTED if is_gone else STOPPED
            try:
                await run_to_completion(self._lanes.cleanup.run(turn.key.id, self._turns.cut, turn, _NO_REPLY, why))
            finally:
                record.settle("cut", DISCONNECTED_CODE if is_gone else STOPPED_CODE)
            raise
        except BaseException:
            record.settle("failed", INTERNAL)
            await run_to_completion(on_a_thread(self._turns.end, turn))
            raise
        record.settle("ok")
        return response

    async def _paused(self, turn: GatewayTurn, item: dict[str, Json], record: RequestRecord) -> BufferedResponse:
        """Return the compaction alone: the client goes on with its next request."""
        record.settle("ok")
        await run_to_completion(on_a_thread(self._turns.end, turn))
        usage: dict[str, Json] = {"input_tokens": turn.prompt.tokens, "output_tokens": 0}
        return compaction_response(turn.request, item, usage, _ids(turn, record.id), encode_headers(turn.headers))

    async def _stored_answer(self, request: ClientRequest, answered: AlreadyAnswered) -> BufferedResponse | None:
        """Return the stored answer to a request; None where the transcript does not hold all of it."""
        if request.fields.get("n") not in (None, 1):
            return None
        try:
            lineage = self._turns.resolver.lineage
            return await on_a_thread(stored_answer, request, answered.store, lineage, answered.replies)
        except CannotCross:  # it holds what no stream can be made of again
            return None

    async def _begin(
        self,
        exchange: _Exchange,
        receive: Receive,
        request: ClientRequest,
        hint: SessionHint,
        model: str,
        retry: RetryKey | None,
    ) -> tuple[GatewayTurn, float]:
        """Begin the turn as soon as no other gateway holds the session. Returns it with the seconds waited.

        No thread is blocked while it waits.
        """
        key = exchange.key
        raw = request.body.raw
        scheduler = self._lanes.scheduler(request.known.new_bytes(raw) if request.known else len(raw))
        waited, pause = 0.0, _MIN_PAUSE
        while True:
            try:
                await scheduler.acquire(key.id)
                try:
                    begin = RunningCall(self._turns.begin, key, request, hint, model, patience=0, retry=retry)
                    turn = await self._begun(begin)
                finally:
                    scheduler.release()
                resolved = turn.resolved
                kept = KnownRequest(body=request.body, seed=resolved.seed, chain=resolved.chain)
                self._known.remember(key.id, kept, request.known)
                return turn, waited
            except TurnTaken:
                await unless_disconnected(asyncio.sleep(pause), receive, exchange.scope.get(CONNECTION))
                waited, pause = waited + pause, min(pause * 1.5, _MAX_PAUSE)

    async def _begun(self, beginning: RunningCall[GatewayTurn]) -> GatewayTurn:
        """Return the turn that begins. If the request is cancelled meanwhile, end it: other requests wait for it."""
        try:
            return await beginning
        except asyncio.CancelledError:
            with suppress(Exception):
                await on_a_thread(self._turns.cut, await beginning, _NO_REPLY, STOPPED)
            raise

    async def _ask(
        self, turn: GatewayTurn, upstream: str, call: UpstreamCall, id: str
    ) -> tuple[Format, UpstreamResponse, bytes | None]:
        """Call the upstream. Returns its response, with the body unless it is an error or streamed to the client.

        Calls of the gateway's own tool are answered, and the upstream is called again, until it answers the client.
        """
        rounds = BufferedRounds(turn)
        while True:
            format, answer = await call()
            if answer.status >= 400 or (answer.streams and turn.request.stream and answer.status in (200, 201)):
                return format, answer, None
            try:
                if answer.status not in (200, 201):
                    raise UpstreamUnreachable(f"upstream '{upstream}' answered with status {answer.status}")
                raw = await read_body(answer, _MAX_RESPONSE_BYTES)
                if answer.is_web_page and raw.lstrip().startswith(b"<"):
                    wrong = f"upstream '{upstream}' answered with a web page (text/html): check its 'url'"
                    raise UpstreamUnreachable(f"{wrong}, with '/v1' if its own clients need that")
            finally:
                await answer.close()
            if not turn.recall_tool.is_offered:
                return format, answer, raw
            raw = await on_a_thread(self._in_own_format, turn, format, raw, id)
            reply = await on_a_thread(rounds.take, raw)
            if reply is None:
                return self._format, answer, await on_a_thread(rounds.joined, raw)
            await run_to_completion(on_a_thread(self._turns.answer_calls, turn, reply))

    def _in_own_format(self, turn: GatewayTurn, format: Format, raw: bytes, id: str) -> bytes:
        """Return a response in the client's format. Blocks."""
        if format is self._format:
            return raw
        try:
            return convert_response(raw, format.name, self._format.name, ids=_ids(turn, id), left_out=turn.left_out)
        except CannotCross:
            raise
        except InputError as error:
            raise UpstreamUnreachable(f"the upstream's answer cannot be understood: {error}") from None

    async def _send(
        self, turn: GatewayTurn, upstream: Upstream, headers: Mapping[str, str], query: str, record: RequestRecord
    ) -> tuple[Format, UpstreamResponse]:
        """Call the upstream, and once more with a smaller prompt if it rejects this one as too long."""
        format = self._format if self._format in upstream.speaks else upstream.speaks[0]
        query = query if format is self._format else ""
        body = await self._converted(turn, format)
        turn.was_sent = True
        answer = await record.timed(upstream.ask(format, body, headers, query))
        if answer.status not in (400, 413, 422):
            return format, answer
        body = await _read_error(answer)
        error = _decoded(body)
        limits = await on_a_thread(_overflow_in, error, turn.request)
        if limits is None:
            return format, _replayed(answer, body)
        structured = answer.status in _LEARNED_FROM and _is_structured(error)
        await on_a_thread(self._turns.tighter, turn, limits, upstream.name, structured=structured)
        body = await self._converted(turn, format)
        return format, await record.timed(upstream.ask(format, body, headers, query))

    async def _converted(self, turn: GatewayTurn, format: Format) -> bytes:
        if format is self._format:
            return turn.body
        source, target = self._format.name, format.name
        return await on_a_thread(convert_request, turn.body, source, target, max_tokens=_DEFAULT_OUTPUT_TOKENS)

    def _streamed(
        self,
        turn: GatewayTurn,
        format: Format,
        answer: UpstreamResponse,
        record: RequestRecord,
        upstream: str,
        call: UpstreamCall,
    ) -> StreamedResponse:
        id = record.id
        converter: StreamConverter | None = None
        if ids := history_ids(turn.request):
            converter = HistoryIdStream(ids)

        def converted() -> StreamConverter | None:
            if format is self._format:
                return None
            source, target = format.name, self._format.name
            ids, with_usage = _ids(turn, id), _with_usage(turn.request)
            return ConvertedStream(source, target, ids=ids, include_usage=with_usage, left_out=turn.left_out)

        if turn.recall_tool.is_offered:
            answer = StreamedRounds(turn, self._turns, partial(_streamed_again, call, upstream), converted).response(
                answer
            )
        else:
            converter = converted() or converter
        kept = [header for header in answer.headers if header[0] != "content-length"]
        return StreamedResponse(
            turn=turn,
            turns=self._turns,
            cleanup=self._lanes.cleanup,
            answer=answer,
            upstream=upstream,
            format=self._format,
            headers=[*kept, *encode_headers(turn.headers)],
            converter=converter,
            decorator=_report_stream(turn),
            meta={"request": id},
            settle=record.settle,
        )

    async def _buffered(
        self, turn: GatewayTurn, format: Format, answer: UpstreamResponse, raw: bytes, id: str, upstream: str
    ) -> BufferedResponse:
        raw = await RunningCall(self._stored, turn, format, raw, id, upstream).complete()
        kept = [header for header in answer.headers if header[0] not in ("content-length", "transfer-encoding")]
        if turn.request.stream and (streamed := await on_a_thread(self._as_stream, turn, raw, id)) is not None:
            raw, kept = streamed, [_STREAM_TYPE, *(header for header in kept if header[0] != "content-type")]
        return BufferedResponse(answer.status, raw, [*kept, *encode_headers(turn.headers)])

    def _as_stream(self, turn: GatewayTurn, raw: bytes, id: str) -> bytes | None:
        """Write a complete response as a stream, for a client that asked for one and an upstream that does not stream.

        A client would take the body for a stream without any event: an empty answer. `None` for what no stream holds.
        Blocks.
        """
        fields = turn.request.fields
        if self._format.api.addressing is not None or fields.get("n") not in (None, 1):
            return None
        try:
            return streamed_response(
                raw, self._format.name, ids=_ids(turn, id), include_usage=_with_usage(turn.request)
            )
        except CannotCross:
            return None

    def _stored(self, turn: GatewayTurn, format: Format, raw: bytes, id: str, upstream: str) -> bytes:
        """Store a complete response. Returns its body as the client gets it. Blocks."""
        raw = self._in_own_format(turn, format, raw, id)
        try:
            raw = with_history_ids(raw, history_ids(turn.request))
            reply = read_reply(raw, self._format.name)
            refuse_defects(reply.messages, self._format)
        except InputError as error:
            raise UpstreamUnreachable(f"the upstream's answer cannot be understood: {error}") from None
        code = _error_code(_decoded(raw)) if not reply.messages else ""
        if code.startswith(REFUSING_CODES):  # a refusal with the status of a success
            self._turns.refused(turn, upstream, 200, code)
        else:
            self._turns.finish(turn, reply, meta={"request": id}, upstream=upstream)
        if turn.report is not None and self._format.context_management is not None:
            raw = self._format.context_management().with_report(raw, turn.report)
        return raw

    async def _failed(
        self, turn: GatewayTurn, upstream: Upstream, format: Format, answer: UpstreamResponse, id: str
    ) -> BufferedResponse:
        """Pass an upstream's error on: unchanged, or in the client's format; of a refused key it says whose it is."""
        raw = await _error_body(answer)
        error = _decoded(raw)
        is_first = not turn.recall_tool.rounds  # what a later one refuses is not what the client sent
        if (
            is_first
            and answer.status in REFUSES_REQUEST
            and await on_a_thread(_overflow_in, error, turn.request) is None
        ):
            await on_a_thread(self._turns.refused, turn, upstream.name, answer.status, _error_code(error))
        else:
            await on_a_thread(self._turns.failed, turn, upstream.name, answer.status)
        kept = [header for header in answer.headers if header[0] not in ("content-length", "transfer-encoding")]
        if format is not self._format or isinstance(
            _decoded(raw), str
        ):  # also an error page of a proxy in front of the upstream
            code, message = _converted_error(raw)
            message = message.strip() or f"upstream '{upstream.name}' answered with status {answer.status} and no text"
            raw = self._format.errors.error_body(answer.status, code, message, request_id=id)
            kept = [("content-type", "application/json"), *(header for header in kept if header[0] == "retry-after")]
        if answer.status in (401, 403) and isinstance(upstream, HttpUpstream):
            raw = _with_note(raw, f"{upstream.key_note} {_STORED}")
        return BufferedResponse(answer.status, raw, [*kept, *encode_headers(turn.headers)])


def _report_stream(turn: GatewayTurn) -> StreamConverter | None:
    """Return what adds a report of the context management to a stream; None where there is nothing to report."""
    if turn.report is None or turn.request.format.context_management is None:
        return None
    return turn.request.format.context_management().report_stream(turn.report)


async def _streamed_again(call: UpstreamCall, upstream: str) -> UpstreamResponse:
    """Call the upstream once more for a stream that has begun. Raises `UpstreamUnreachable` for any other response."""
    _, answer = await call()
    if answer.status in (200, 201) and answer.streams:
        return answer
    message = _message_in(await _error_body(answer))
    raise UpstreamUnreachable(f"upstream '{upstream}' answered with status {answer.status}: {message}")


def _overflow_in(error: Mapping[str, object] | str, request: ClientRequest) -> ModelLimits | None:
    """Return the limits in an error about the length of a prompt; None for another error, also if it repeats the
    client's words."""
    if limits_in_error(error) is None:
        return None
    try:
        sent = json.dumps(json.loads(request.body.raw), ensure_ascii=False)
    except (ValueError, RecursionError):
        sent = request.body.raw.decode(errors="replace")
    return limits_in_error(error, sent)


def _is_structured(error: Mapping[str, object] | str) -> bool:
    """Whether an error has a provider's form: an object with a message, and a code or type."""
    inner = error.get("error") if isinstance(error, Mapping) else None
    return isinstance(inner, dict) and isinstance(inner.get("message"), str) and bool(_error_code(error))


def _error_code(error: Mapping[str, object] | str) -> str:
    """Return the code of a provider's error, or its type; empty where it has neither."""
    return code_in(error.get("error")) if isinstance(error, Mapping) else ""  # type: ignore[arg-type]  # JSON


def _unsupported(request: ClientRequest, id: str) -> BufferedResponse | None:
    """Return an error for a request that a gateway with stored histories cannot pass on."""
    unsupported = request.format.errors.unsupported_request(request.fields, id)
    return BufferedResponse(*unsupported, response_headers({}, id)) if unsupported else None


async def _read_error(answer: UpstreamResponse) -> bytes:
    try:
        return await read_body(answer, _MAX_ERROR_BYTES)
    finally:
        await answer.close()


async def _error_body(answer: UpstreamResponse) -> bytes:
    try:
        return await _read_error(answer)
    except UpstreamUnreachable:
        return b""


def _replayed(answer: UpstreamResponse, body: bytes) -> UpstreamResponse:
    """Return a response whose body was read, to be read again."""

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    return UpstreamResponse(status=answer.status, headers=answer.headers, pieces=pieces(), close=answer.close)


def _decoded(body: bytes) -> Mapping[str, object] | str:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return body.decode(errors="replace")[:10_000]
    return found if isinstance(found, dict) else ""


def _with_note(body: bytes, note: str) -> bytes:
    """Return an error with a note behind its message; unchanged where it has none."""
    decoded = _decoded(body)
    error = decoded.get("error") if not isinstance(decoded, str) else None
    if isinstance(error, dict) and isinstance(message := error.get("message"), str):
        error["message"] = f"{message.rstrip('. ')}. {note}"
        return json.dumps(decoded).encode()
    return body


def _message_in(body: bytes) -> str:
    decoded = _decoded(body)
    if isinstance(decoded, str):
        return decoded[:2_000]
    error = decoded.get("error")
    message = error.get("message") if isinstance(error, dict) else decoded.get("message", error)
    if message is None:  # as the `detail` of servers that are built with FastAPI
        return json.dumps(decoded, ensure_ascii=False)[:2_000] if decoded else ""
    return str(message)[:2_000]


def _converted_error(body: bytes) -> tuple[str, str]:
    """Return the code and message of an upstream's error for clients of another format; they match on both."""
    if limits_in_error(_decoded(body)) is None:
        return UPSTREAM_FAILED, _message_in(body)
    return OVERFLOW, f"prompt is too long: {_message_in(body).removeprefix('prompt is too long: ')}"


def _joined(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of a client; several lines of one name become a list."""
    found: dict[str, str] = {}
    for name, value in headers:
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _ids(turn: GatewayTurn, id: str) -> ResponseIds:
    """Return the ids of a response in the client's format: a converter has no clock and no randomness of its own."""
    start = turn.request.format.api.response_id_prefix
    return ResponseIds(
        reply=f"{start}_{id.removeprefix('req_')}",
        created=int(time.time()),
        request=turn.request.body.raw,
        round=turn.recall_tool.rounds,
    )


def _with_usage(request: ClientRequest) -> bool:
    return object_in(request.fields.get("stream_options")).get("include_usage") is True
