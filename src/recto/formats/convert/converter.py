"""Converts requests, responses and streams from one wire format to another, wherever nothing is lost.

What has no equivalent in the target format raises `CannotCross` with its name; nothing is dropped silently. The
exceptions are members that do not change the output:

- cache marks, and the hints `metadata`, `user`, `safety_identifier`, `service_tier`, `prompt_cache_key`,
  `prompt_cache_options`, `prompt_cache_retention`, `store`, `stream_options`, `client_metadata`, `diagnostics`, except
  between OpenAI's two formats, which share most of them;
- the detail level of images towards Anthropic, which has none; how much of its reasoning a model summarises;
- where the text of a response is split into parts and, towards Chat, where calls and reasoning are between them;
- the role `developer` towards Anthropic, which only has system text;
- the role of system text inside a conversation towards Anthropic and Gemini: it becomes the user's.

The sources of a response's text (`citations`, `annotations`) are left out and named in `left_out`: the response is paid
for, and its text is whole.

Anthropic and Gemini require a user message first: where there is none, the text `OPENING` is one.
Anthropic flags the result of a failed call; in the other formats such a result starts with a text (`FAILED`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recto.errors import CannotCross, InputError
from recto.formats.convert.types import (
    CallDelta,
    CallEnd,
    CallPart,
    CallStart,
    ContentPart,
    Conversion,
    Cost,
    PartEnd,
    ReasoningSealed,
    RefusalPart,
    ResponseIds,
    SequentialParts,
    StreamEnd,
    StreamEvent,
    StreamFailure,
    StreamStart,
    TextDelta,
    TextPart,
    Thought,
    text_chunks,
)
from recto.formats.errors import CANNOT_CROSS, UPSTREAM_FAILED
from recto.formats.message import fields_of, json_of
from recto.formats.registry import format_named
from recto.formats.streaming import SseEvent


def convert_request(body: bytes, source: str, target: str, *, max_tokens: int = 8192) -> bytes:
    """Converts a request. `max_tokens` limits the output if the client does not and the target requires a limit."""
    reader, writer = format_named(source), format_named(target)
    if reader is writer:
        return body
    conversion = Conversion(source, target)
    request = reader.converter().read_request(fields_of(body), conversion)
    return json_of(writer.converter().write_request(request, conversion, max_tokens)).encode()


def convert_response(
    body: bytes, source: str, target: str, *, ids: ResponseIds, left_out: list[str] | None = None
) -> bytes:
    """Converts a complete response. The names of what its text is passed on without are added to `left_out`."""
    reader, writer = format_named(source), format_named(target)
    if reader is writer:
        return body
    conversion = Conversion(source, target, reply=True, left_out=[] if left_out is None else left_out)
    completion = reader.converter().read_completion(fields_of(body), conversion)
    return json_of(writer.converter().write_completion(completion, ids, conversion)).encode()


def stored_response(
    messages: Sequence[bytes], source: str, target: str, *, ids: ResponseIds, model: str, stop: str, cost: Cost | None
) -> bytes:
    """Builds a complete response from messages as they are stored, in the target format."""
    parsed = [fields_of(raw) for raw in messages]
    body = format_named(source).converter().stored_completion(parsed, ids, model, stop, cost)
    return convert_response(json_of(body).encode(), source, target, ids=ids)


def streamed_response(body: bytes, wire: str, *, ids: ResponseIds, include_usage: bool = False) -> bytes:
    """Writes a complete response as the stream that a client of its format expects.

    Raises:
        CannotCross: It holds something that neutral events cannot.
    """
    conversion = Conversion(wire, wire, reply=True)
    converter = format_named(wire).converter()
    completion = converter.read_completion(fields_of(body), conversion)
    writer = converter.writer(conversion, ids, include_usage)
    events: list[StreamEvent] = [StreamStart(completion.model)]
    for key, part in enumerate(completion.parts):
        events += _events_of(key, part, conversion)
    events.append(StreamEnd(completion.ending))
    in_sequence = events if format_named(wire).interleaves_calls else SequentialParts().feed(events)
    return b"".join(raw for event in in_sequence for raw in writer.write(event))


def _events_of(key: int, part: ContentPart, conversion: Conversion) -> Iterator[StreamEvent]:
    match part:
        case TextPart(text):
            yield from (TextDelta("text", chunk) for chunk in text_chunks(text))
        case RefusalPart(text):
            yield from (TextDelta("refusal", chunk) for chunk in text_chunks(text))
        case Thought(text=text, block=block):
            yield from (TextDelta("thought", chunk) for chunk in text_chunks(text))
            yield PartEnd() if block is None else ReasoningSealed(dict(block))
        case CallPart(id=id, name=name, arguments=arguments):
            yield CallStart(key, id, name)
            yield from (CallDelta(key, chunk) for chunk in text_chunks(arguments))
            yield CallEnd(key)
        case _:
            raise conversion.unsupported("a part of the response that streams do not have")


class ConvertedStream:
    """Converts a stream while it arrives."""

    def __init__(
        self,
        source: str,
        target: str,
        *,
        ids: ResponseIds,
        include_usage: bool = False,
        left_out: list[str] | None = None,
    ) -> None:
        """Prepare a conversion. The names of what the text is passed on without are added to `left_out`."""
        reader, writer = format_named(source), format_named(target)
        conversion = Conversion(source, target, reply=True, left_out=[] if left_out is None else left_out)
        self.ended = False
        """The last event was written; later input is ignored."""
        self._reader = reader.converter().reader(conversion)
        self._writer = writer.converter().writer(conversion, ids, include_usage)
        self._sequence = None if writer.interleaves_calls else SequentialParts()
        self._has_started = False

    def feed(self, event: SseEvent) -> list[bytes]:
        """Converts an event.

        What cannot be converted ends the stream with an error event: the client already received the beginning.
        """
        if self.ended:
            return []
        written: list[bytes] = []
        try:
            for neutral in self._reader.read(event):
                written += self._write(neutral)
        except CannotCross as error:
            written.append(self._fail(CANNOT_CROSS, str(error)))
        except InputError as error:
            written.append(self._fail(UPSTREAM_FAILED, str(error)))
        return written

    def finish(self) -> list[bytes]:
        """Returns the remaining events when the input is over. A stream that was cut ends with an error event."""
        if self.ended:
            return []
        written: list[bytes] = []
        try:
            for neutral in self._reader.finish():
                written += self._write(neutral)
        except CannotCross as error:
            written.append(self._fail(CANNOT_CROSS, str(error)))
        if not self.ended:
            written.append(self._fail(UPSTREAM_FAILED, "The model's answer broke off."))
        return written

    def _write(self, event: StreamEvent) -> list[bytes]:
        if self.ended:
            return []
        if isinstance(event, StreamFailure):
            return [self._fail(UPSTREAM_FAILED, event.message or "The model's answer broke off.")]
        if isinstance(event, TextDelta) and not event.text:
            return []
        events: list[StreamEvent] = [event]
        if isinstance(event, StreamStart):
            if self._has_started:
                return []
            self._has_started = True
        elif not self._has_started:
            self._has_started = True
            events = [StreamStart(""), event]
        in_sequence = events if self._sequence is None else self._sequence.feed(events)
        written = [raw for neutral in in_sequence for raw in self._writer.write(neutral)]
        self.ended = isinstance(event, StreamEnd)
        return written

    def _fail(self, code: str, message: str) -> bytes:
        self.ended = True
        return self._writer.fail(code, message)
