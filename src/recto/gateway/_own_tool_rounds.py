"""Rounds in which the gateway answers calls of its own tools, before the client gets the response.

A response that only calls them is stored with the results, the prompt is built again, and the upstream is asked
again; the client gets the responses of all rounds as one. A response that calls tools of the client, too, is passed on
without the call, which is answered when it is stored: the result is in the prompt of the client's next request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final

from recto.engine.async_session import on_a_thread
from recto.errors import InputError, RectoError
from recto.formats import Format, ProviderReply, read_reply
from recto.formats.json_spans import Json
from recto.formats.message import json_of
from recto.formats.streaming import DONE, SseEvent, SseReader
from recto.formats.tools import StreamRounds
from recto.gateway.own_tools import own_calls
from recto.gateway.responses import StreamConverter, close_response, run_to_completion
from recto.gateway.turn import GatewayTurn, TurnRunner
from recto.gateway.upstreams.http import UpstreamResponse, UpstreamUnreachable

_TRAILER_SECONDS: Final = 5.0
"""How long to wait for the usage of a round whose calls are complete."""


def calls_only_own(turn: GatewayTurn, reply: ProviderReply) -> bool:
    """Whether a response has to be answered before the client gets anything of it."""
    if turn.recall_tool.rounds >= turn.recall_tool.max_rounds:
        return False
    calls = own_calls(reply, turn.request, turn.recall_tool.names)
    return bool(calls.own) and not calls.others


class BufferedRounds:
    """The responses of one turn that come in one piece, in the client's format."""

    def __init__(self, turn: GatewayTurn) -> None:
        self._turn = turn
        self._names = [name.encode() for name in turn.recall_tool.names]
        self._bodies: list[dict[str, Json]] = []
        self._last: ProviderReply | None = None

    def take(self, raw: bytes) -> ProviderReply | None:
        """Take a response. Returns it if its calls have to be answered first. Blocks."""
        format = self._turn.request.format
        reply = self._read(raw, format) if self._bodies or any(name in raw for name in self._names) else None
        if reply is None:
            return None
        self._bodies.append(json.loads(raw))
        self._last = reply
        self._turn.recall_tool.last_reply = lambda: self._last
        return reply if calls_only_own(self._turn, reply) else None

    def joined(self, raw: bytes) -> bytes:
        """Return the response for the client; the last one as it is where no own tool was called. Blocks."""
        if not self._bodies:
            return raw
        return json_of(self._turn.request.format.own_tool().join(self._bodies, self._turn.recall_tool.names)).encode()

    def _read(self, raw: bytes, format: Format) -> ProviderReply | None:
        try:
            return read_reply(raw, format.name)
        except InputError:
            return None  # whoever stores it reports the error


class StreamedRounds:
    """The responses of one turn that are streamed, as one stream in the client's format."""

    def __init__(
        self,
        turn: GatewayTurn,
        turns: TurnRunner,
        ask: Callable[[], Awaitable[UpstreamResponse]],
        converter: Callable[[], StreamConverter | None],
    ) -> None:
        """`ask` calls the upstream with the body of the turn; `converter` converts a stream to the client's format."""
        self._turn = turn
        self._turns = turns
        self._ask = ask
        self._converter = converter
        self._rounds: StreamRounds = turn.request.format.own_tool().rounds(turn.recall_tool.names)
        self._events: list[SseEvent] = []
        """The events of the round under way: its response is read only where it differs from what the client gets."""
        turn.recall_tool.last_reply = self._last_reply

    def response(self, first: UpstreamResponse) -> UpstreamResponse:
        """Return the joined response, from the first one on."""

        async def close() -> None:
            await first.close()

        return UpstreamResponse(status=first.status, headers=first.headers, pieces=self._pieces(first), close=close)

    async def _pieces(self, answer: UpstreamResponse) -> AsyncGenerator[bytes]:
        while True:
            try:
                async with aclosing(self._round(answer)) as passing:
                    async for out in passing:
                        yield out
                reply = self._hidden_reply()
            finally:
                await close_response(answer)
            if reply is None:
                return
            try:
                await run_to_completion(on_a_thread(self._turns.answer_calls, self._turn, reply))
            except RectoError as error:
                raise UpstreamUnreachable(f"a call of a tool of the gateway could not be answered: {error}") from None
            self._rounds.next_round()
            self._events.clear()
            answer = await self._ask()

    async def _round(self, answer: UpstreamResponse) -> AsyncGenerator[bytes]:
        """Pass a round on: to its end or, where all of its calls are answered here, up to where they are complete."""
        async with aclosing(_events(answer, self._converter())) as events:
            async for event in events:
                self._events.append(event)
                if self._rounds.ends_round(event) and self._rounds.has_own_calls and self._hidden_reply():
                    self._rounds.observe(event)
                    await self._drain(events)
                    return
                for out in self._rounds.feed(event):
                    yield out

    async def _drain(self, events: AsyncIterator[SseEvent]) -> None:
        """Read the rest of a round that is not passed on: its usage may follow the last call."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TRAILER_SECONDS):
                async for event in events:
                    self._events.append(event)
                    self._rounds.observe(event)
                    if event.data == DONE:
                        return

    def _last_reply(self) -> ProviderReply | None:
        if not self._turn.recall_tool.rounds and not self._rounds.has_own_calls:
            return None
        capture = self._turn.request.format.capture()
        for event in self._events:
            capture.take(event)
        return capture.reply()

    def _hidden_reply(self) -> ProviderReply | None:
        """Return the response of the round if all of its calls are answered here."""
        reply = self._last_reply() if self._rounds.has_own_calls else None
        return reply if reply is not None and calls_only_own(self._turn, reply) else None


async def _events(answer: UpstreamResponse, converter: StreamConverter | None) -> AsyncGenerator[SseEvent]:
    """The events of a response, in the client's format."""
    reader, own = SseReader(), SseReader()
    async for piece in answer.pieces:
        for event in reader.feed(piece):
            for converted in [event] if converter is None else own.feed(b"".join(converter.feed(event))):
                yield converted
    if converter is not None:
        for converted in own.feed(b"".join(converter.finish())):
            yield converted
    elif reader.rest:
        yield SseEvent(name="", data="", raw=reader.rest)
