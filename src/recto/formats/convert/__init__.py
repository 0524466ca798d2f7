"""A client in one format, a model in another: requests, replies and streams cross over where nothing is lost.

What has no place on the other side is refused by name with `CannotCross`; nothing is dropped in silence. What does not
cross, because it changes no word of the answer and everybody can do without:

- marks that steer a provider's cache, and the hints `metadata`, `user`, `safety_identifier`, `service_tier`,
  `prompt_cache_key`, `prompt_cache_options`, `prompt_cache_retention`, `store`, `stream_options`, `client_metadata`,
  `diagnostics`, except between OpenAI's two formats, which share most of them;
- how closely an image is looked at, towards Anthropic, which always does; how much of its reasoning a model summarises;
- where an answer's text is cut into parts, and, towards Chat, where in it calls and reasoning stand;
- the word `developer` towards Anthropic, which knows only a system.

A result that failed has a flag in Anthropic's format; elsewhere it begins with words that say so.
"""

from __future__ import annotations

from recto.errors import CannotCross, InputError, MalformedMessage
from recto.formats.convert import anthropic, openai_chat, openai_responses
from recto.formats.convert.stream_reader import LISTENERS
from recto.formats.convert.stream_types import Begin, Broke, End, InOrder, Piece, TextDelta
from recto.formats.convert.stream_writer import TELLERS, told
from recto.formats.convert.types import Completion, CompletionRequest, Ids, Road
from recto.formats.errors import CANNOT_CROSS, UPSTREAM_FAILED
from recto.formats.json_spans import Json
from recto.formats.message import ANTHROPIC, CHAT, RESPONSES, fields_of, json_of
from recto.formats.sse import SseEvent

__all__ = ["Ids", "StreamCrossing", "cross_reply", "cross_request"]

_KNOWN = (CHAT, RESPONSES, ANTHROPIC)


def cross_request(body: bytes, source: str, target: str, *, max_tokens: int = 8192) -> bytes:
    """A request in another format. `max_tokens` is for Anthropic, where the client set no limit of its own."""
    road = _road(source, target)
    if source == target:
        return body
    request = _read_request(fields_of(body), road)
    return json_of(_write_request(request, road, max_tokens)).encode()


def cross_reply(body: bytes, source: str, target: str, *, ids: Ids) -> bytes:
    """A whole reply in another format."""
    road = _road(source, target, reply=True)
    if source == target:
        return body
    answer = _read_answer(fields_of(body), road)
    return json_of(_write_answer(answer, ids, road)).encode()


class StreamCrossing:
    """A stream in another format, told as it is heard."""

    def __init__(self, source: str, target: str, *, ids: Ids, include_usage: bool = False) -> None:
        road = _road(source, target, reply=True)
        self.ended = False
        """The last event was told; what comes after it is not heard."""
        self._listener = LISTENERS[source](road)
        self._teller = TELLERS[target](road, ids, include_usage)
        self._order = None if target == CHAT else InOrder()
        self._began = False

    def feed(self, event: SseEvent) -> list[bytes]:
        """What an event says, as events of the other format.

        What would be lost ends the stream with an error in its own words: the client has seen the beginning already.
        """
        if self.ended:
            return []
        found: list[bytes] = []
        try:
            for piece in self._listener.hear(event):
                found += self._tell(piece)
        except CannotCross as error:
            found.append(self._refuse(CANNOT_CROSS, str(error)))
        except InputError as error:
            found.append(self._refuse(UPSTREAM_FAILED, str(error)))
        return found

    def finish(self) -> list[bytes]:
        """What is still to be told when the stream is over. One that was cut ends with an error."""
        if self.ended:
            return []
        found: list[bytes] = []
        try:
            for piece in self._listener.finish():
                found += self._tell(piece)
        except CannotCross as error:
            found.append(self._refuse(CANNOT_CROSS, str(error)))
        if not self.ended:
            found.append(self._refuse(UPSTREAM_FAILED, "The model's answer broke off."))
        return found

    def _tell(self, piece: Piece) -> list[bytes]:
        if self.ended:
            return []
        if isinstance(piece, Broke):
            return [self._refuse(UPSTREAM_FAILED, piece.message or "The model's answer broke off.")]
        if isinstance(piece, TextDelta) and not piece.text:
            return []
        pieces: list[Piece] = [piece]
        if isinstance(piece, Begin):
            if self._began:
                return []
            self._began = True
        elif not self._began:
            self._began = True
            pieces = [Begin(""), piece]
        found = told(self._teller, pieces if self._order is None else self._order.feed(pieces))
        self.ended = isinstance(piece, End)
        return found

    def _refuse(self, code: str, message: str) -> bytes:
        self.ended = True
        return self._teller.refuse(code, message)


def _road(source: str, target: str, *, reply: bool = False) -> Road:
    for wire in (source, target):
        if wire not in _KNOWN:
            raise MalformedMessage(f"'{wire}' is not a wire format; known are {', '.join(_KNOWN)}")
    return Road(source, target, reply)


def _read_request(body: dict[str, Json], road: Road) -> CompletionRequest:
    if road.source == CHAT:
        return openai_chat.read_request(body, road)
    if road.source == RESPONSES:
        return openai_responses.read_request(body, road)
    return anthropic.read_request(body, road)


def _write_request(request: CompletionRequest, road: Road, max_tokens: int) -> dict[str, Json]:
    if road.target == CHAT:
        return openai_chat.write_request(request, road)
    if road.target == RESPONSES:
        return openai_responses.write_request(request, road)
    return anthropic.write_request(request, road, max_tokens)


def _read_answer(body: dict[str, Json], road: Road) -> Completion:
    if road.source == CHAT:
        return openai_chat.read_answer(body, road)
    if road.source == RESPONSES:
        return openai_responses.read_answer(body, road)
    return anthropic.read_answer(body, road)


def _write_answer(answer: Completion, ids: Ids, road: Road) -> dict[str, Json]:
    if road.target == CHAT:
        return openai_chat.write_answer(answer, ids, road)
    if road.target == RESPONSES:
        return openai_responses.write_answer(answer, ids, road)
    return anthropic.write_answer(answer, ids, road)
