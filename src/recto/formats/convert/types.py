"""Neutral types for requests, responses and stream events: every format is read into them and written from them.

A reader raises `CannotCross` for what these types cannot hold, and a writer for what its format cannot, so no
conversion drops content silently.

Chat may interleave the arguments of several calls and never marks a call as complete. Other formats stream one part
after the other: for them, `SequentialParts` holds events of later parts back until the earlier part is complete.

Signed or encrypted reasoning is carried through other formats and back without changing a byte: the provider that
issued it requires it back unchanged, and no other can read it. Clients of Responses store `encrypted_content` unread,
those of Anthropic store signatures, and Chat has `reasoning_details`, as routers such as OpenRouter write them.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from recto.errors import CannotCross, InputError, MalformedMessage
from recto.formats.json_spans import Json
from recto.formats.message import json_of, object_in, text_in, value_in
from recto.formats.response import Usage, usage_in
from recto.formats.streaming import SseEvent
from recto.text.lazy_re import lazy_re


class TextPart(Struct, frozen=True):
    """Text."""

    text: str


class Picture(Struct, frozen=True, kw_only=True):
    """An image: base64 data, or a URL."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    detail: str = ""


class FilePart(Struct, frozen=True, kw_only=True):
    """A file: base64 data, or a URL."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    name: str = ""


class Thought(Struct, frozen=True, kw_only=True):
    """Reasoning."""

    text: str
    block: Mapping[str, Json] | None = None
    """The signed or encrypted block (Anthropic) or item (Responses), which must be sent back unchanged."""


class RefusalPart(Struct, frozen=True):
    """The text with which a model declines."""

    text: str


class CallPart(Struct, frozen=True, kw_only=True):
    """A tool call; the arguments are JSON text."""

    id: str
    name: str
    arguments: str


class ResultPart(Struct, frozen=True, kw_only=True):
    """The result of a tool call."""

    call_id: str
    parts: tuple[ContentPart, ...]
    failed: bool = False


ContentPart: TypeAlias = TextPart | Picture | FilePart | Thought | RefusalPart | CallPart | ResultPart
TurnRole: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]


class ChatTurn(Struct, frozen=True, kw_only=True):
    """Consecutive content of one role. Results are only ever in turns of the role `tool`, which hold nothing else."""

    role: TurnRole
    parts: tuple[ContentPart, ...]


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A function that the model may call."""

    name: str
    description: str
    schema: Json
    strict: bool | None


class ToolChoice(Struct, frozen=True, kw_only=True):
    """Whether the model must call a tool, and which one."""

    kind: Literal["auto", "none", "any", "tool"]
    name: str = ""


class OutputSchema(Struct, frozen=True, kw_only=True):
    """The JSON schema that the output must follow; without a schema, any object."""

    schema: Json = None
    name: str = ""
    description: str = ""
    strict: bool | None = None


class CompletionRequest(Struct, frozen=True, kw_only=True):
    """A request to a model."""

    model: str
    turns: tuple[ChatTurn, ...]
    tools: tuple[ToolDefinition, ...] = ()
    choice: ToolChoice | None = None
    parallel: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    effort: str = ""
    verbosity: str = ""
    output_schema: OutputSchema | None = None
    hints: Mapping[str, Json] = field(default_factory=dict)
    """Members that do not change the output and mean the same in both of OpenAI's formats."""


Stop: TypeAlias = Literal["ended", "length", "calls", "filtered", "sequence"]


class Cost(Struct, frozen=True, kw_only=True):
    """Token usage of a response."""

    usage: Usage
    reasoning: int = 0


class Ending(Struct, frozen=True, kw_only=True):
    """Why a response ended, and its token usage."""

    stop: Stop = "ended"
    sequence: str = ""
    """The stop sequence that ended it, if one did."""
    cost: Cost | None = None


class Completion(Struct, frozen=True, kw_only=True):
    """A model's response."""

    model: str
    parts: tuple[ContentPart, ...]
    ending: Ending


class ResponseIds(Struct, frozen=True, kw_only=True):
    """Ids and time of a converted response. The caller provides them, because conversion is pure."""

    reply: str
    created: int = 0
    request: bytes = b""
    """The client's request, for formats that repeat its members in their responses."""
    round: int = 0
    """How many times the upstream answered before for this response: the items of all rounds are joined in it."""

    def item(self, kind: str, place: int) -> str:
        """Returns the id of one item of the response."""
        head = f"{kind}_{self.reply.rpartition('_')[2] or 'r'}"
        return f"{head}_{self.round}_{place}" if self.round else f"{head}_{place}"


SHARED_HINTS: Final = frozenset(
    {"metadata", "user", "safety_identifier", "service_tier", "prompt_cache_key", "prompt_cache_options"}
) | frozenset({"prompt_cache_retention"})
"""Members that both of OpenAI's formats share. Anthropic has other names for some and requires none of them."""


_SOURCES: Final = frozenset({"annotations", "citations"})
"""Members that say where the text of a response comes from; each format points into the text in its own way."""


class Conversion(Struct, frozen=True):
    """The direction of a conversion, and the errors for what it cannot convert."""

    source: str
    target: str
    reply: bool = False
    """Whether a response is converted for a client, which sends it back later, and not a request for a model."""
    left_out: list[str] = field(default_factory=list)
    """What a response is passed on without."""

    def leave_out(self, what: str) -> None:
        """Reports that a response is passed on without something: it is paid for, and its text is kept."""
        if what not in self.left_out:
            self.left_out.append(what)

    def unsupported(self, what: str) -> CannotCross:
        """Returns the error that names what the target format cannot hold."""
        return CannotCross(what, self.source, self.target)

    def allow_only(self, fields: Mapping[str, Json], known: Collection[str], where: str = "") -> None:
        """Raises `CannotCross` for unknown members. Null and empty lists or objects are ignored.

        The sources of a response's text are left out.
        """
        for key, value in fields.items():
            if key not in known and value is not None and value not in ([], {}):
                if key in _SOURCES and self.reply and self.source != self.target:
                    self.leave_out(key)
                    continue
                raise self.unsupported(f"{where}.{key}" if where else f"'{key}'")

    def require_defaults(self, fields: Mapping[str, Json], defaults: Mapping[str, Collection[Json]]) -> None:
        """Raises `CannotCross` for members whose value is not one of its defaults."""
        for key, values in defaults.items():
            value = fields.get(key)
            if value is not None and value not in ([], {}) and value not in values:
                raise self.unsupported(f"'{key}'")


def number(fields: Mapping[str, Json], key: str) -> float | None:
    """Returns a number; `None` if the member is missing or null. Raises `MalformedMessage`."""
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedMessage(f"'{key}' is not a number")
    return value


def count(fields: Mapping[str, Json], key: str) -> int | None:
    """Returns an integer; `None` if the member is missing or null. Raises `MalformedMessage`."""
    value = number(fields, key)
    if value is not None and not math.isfinite(value):
        raise MalformedMessage(f"'{key}' is not a number")
    return None if value is None else int(value)


def tokens(value: Json) -> int:
    """Returns a token count; 0 if the value is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def flag(fields: Mapping[str, Json], key: str) -> bool | None:
    """Returns a boolean; `None` if the member is missing or null. Raises `MalformedMessage`."""
    value = fields.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise MalformedMessage(f"'{key}' is neither true nor false")


def object_list(value: Json, where: str) -> list[dict[str, Json]]:
    """Returns the objects of a list. Raises `MalformedMessage` for anything else in it."""
    checked: list[dict[str, Json]] = []
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict):
            raise MalformedMessage(f"'{where}' is not a list of objects")
        checked.append(item)
    return checked


def objects_in(body: Mapping[str, Json], key: str) -> list[dict[str, Json]]:
    """Returns the objects of a list member that may be missing."""
    return [] if body.get(key) is None else object_list(body[key], key)


def merge_texts(parts: Iterable[ContentPart]) -> tuple[ContentPart, ...]:
    """Merges adjacent texts of a response and drops empty ones: where a text is split carries no meaning."""
    merged: list[ContentPart] = []
    for part in parts:
        if isinstance(part, TextPart) and merged and isinstance(merged[-1], TextPart):
            merged[-1] = TextPart(merged[-1].text + part.text)
        elif not (isinstance(part, TextPart) and not part.text):
            merged.append(part)
    return tuple(merged)


def stop_for(parts: Iterable[ContentPart], stop: Stop) -> Stop:
    """Returns the stop reason; `calls` if the response has calls, also from formats that do not report it."""
    return "calls" if stop == "ended" and any(isinstance(part, CallPart) for part in parts) else stop


def cost_from_usage(value: Json, details: str, reasoning: str = "reasoning_tokens") -> Cost | None:
    """Reads a `usage` object. Its member `details` holds the reasoning tokens in its member `reasoning`."""
    usage = usage_in(value)
    counts = object_in(object_in(value).get(details))
    return None if usage is None else Cost(usage=usage, reasoning=tokens(counts.get(reasoning)))


def write_content(
    parts: Sequence[ContentPart], conversion: Conversion, write: Callable[[ContentPart, Conversion], Json]
) -> Json:
    """Writes the content of a message in OpenAI's formats: a single text as a string, anything else as parts."""
    match parts:
        case [TextPart(text)]:
            return text
        case []:
            return ""
        case _:
            return [write(part, conversion) for part in parts]


FAILED: Final = "[The call failed.]"
"""Starts the result of a failed call in formats without a flag for it."""

_DATA_URL = lazy_re(r"data:([^;,]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)


def data_url(part: Picture | FilePart) -> str:
    """Returns the URL of a file, or its data as a data URL."""
    return part.url or f"data:{part.media_type};base64,{part.data}"


def split_url(url: str) -> tuple[str, str, str]:
    """Returns media type, data and an empty URL for a data URL; for any other, two empty strings and the URL."""
    match = _DATA_URL.match(url)
    return (match[1], url[match.end() :], "") if match else ("", "", url)


def read_output_schema(fields: Mapping[str, Json], conversion: Conversion, where: str) -> OutputSchema:
    """Reads a named schema of OpenAI's formats."""
    conversion.allow_only(fields, {"type", "schema", "name", "description", "strict"}, where)
    name, description = text_in(fields.get("name")), text_in(fields.get("description"))
    return OutputSchema(schema=fields.get("schema"), name=name, description=description, strict=flag(fields, "strict"))


class StreamStart(Struct, frozen=True):
    """The response starts."""

    model: str


class TextDelta(Struct, frozen=True):
    """The next characters of text, of reasoning, or of a refusal."""

    kind: Literal["text", "thought", "refusal"]
    text: str


class ReasoningSealed(Struct, frozen=True):
    """Reasoning is complete; the client must send this block back."""

    block: dict[str, Json]


class CallStart(Struct, frozen=True):
    """A call starts; `key` identifies it in this stream."""

    key: int
    id: str
    name: str


class CallDelta(Struct, frozen=True):
    """The next characters of a call's arguments."""

    key: int
    text: str


class CallEnd(Struct, frozen=True):
    """A call is complete."""

    key: int


class PartEnd(Struct, frozen=True):
    """The current part is complete. Readers emit it only for reasoning, which nothing else ends."""


class StreamEnd(Struct, frozen=True):
    """The response is complete."""

    ending: Ending


class StreamFailure(Struct, frozen=True):
    """The provider reported an error."""

    message: str


StreamEvent: TypeAlias = (
    StreamStart | TextDelta | ReasoningSealed | CallStart | CallDelta | CallEnd | PartEnd | StreamEnd | StreamFailure
)


class StreamReader(Protocol):
    """Reads one stream of a format."""

    def read(self, event: SseEvent) -> Iterator[StreamEvent]:
        """Yields what an event holds. Raises `CannotCross` for what neutral events cannot hold."""
        ...

    def finish(self) -> Iterator[StreamEvent]:
        """Yields what remains when the stream is over."""
        ...


class StreamWriter(Protocol):
    """Writes one stream of a format."""

    def write(self, event: StreamEvent) -> Iterator[bytes]:
        """Yields the format's events for a neutral one."""
        ...

    def fail(self, code: str, message: str) -> bytes:
        """Returns the last events of a stream that cannot go on."""
        ...


class _StreamPart(Struct):
    key: int | str
    events: list[StreamEvent] = field(default_factory=list)
    ended: bool = False


class SequentialParts:
    """Reorders events so that one part follows the other."""

    def __init__(self) -> None:
        self._parts: list[_StreamPart] = []

    def feed(self, events: Iterable[StreamEvent]) -> Iterator[StreamEvent]:
        """Takes events, and yields those that no earlier part holds back any more."""
        for event in events:
            match event:
                case TextDelta(kind=kind):
                    self._part_for(kind).events.append(event)
                case ReasoningSealed():
                    part = self._part_for("thought")
                    part.events.append(event)
                    part.ended = True
                case PartEnd():
                    if self._parts and self._parts[-1].key == "thought":
                        self._parts[-1].ended = True
                case CallStart(key=key):
                    self._part_for(key).events.append(event)
                case CallDelta(key=key) | CallEnd(key=key):
                    self._add_to_call(key, event)
                case _:
                    if isinstance(event, StreamEnd):
                        for part in self._parts:
                            part.ended = True
                    yield from self._released()
                    yield event
        yield from self._released()

    def _part_for(self, key: int | str) -> _StreamPart:
        last = self._parts[-1] if self._parts else None
        if last is not None and last.key == key and not last.ended:
            return last
        if last is not None and isinstance(last.key, str):
            last.ended = True
        self._parts.append(_StreamPart(key))
        return self._parts[-1]

    def _add_to_call(self, key: int, event: StreamEvent) -> None:
        for part in self._parts:
            if part.key == key:
                if isinstance(event, CallEnd):
                    part.ended = True
                else:
                    part.events.append(event)
                return

    def _released(self) -> Iterator[StreamEvent]:
        while self._parts:
            part = self._parts[0]
            yield from part.events
            part.events = []
            if not part.ended:
                return
            yield PartEnd()
            self._parts.pop(0)


_CHUNK: Final = 4096
"""Characters of one delta, for text that is complete already."""


def text_chunks(text: str) -> Iterator[str]:
    """Splits a text into the deltas of a stream."""
    for at in range(0, len(text), _CHUNK):
        yield text[at : at + _CHUNK]


_MARK: Final = "recto.sealed.1."
_ANTHROPIC: Final = "anthropic-claude-v1"
_RESPONSES: Final = "openai-responses-v1"
_GEMINI: Final = "google-gemini-v1"
SIGNATURE: Final = "gemini_signature"
"""The type of the block that represents one of Gemini's signatures, which its API has on other parts."""


def seal(block: Mapping[str, Json]) -> str:
    """Encodes a block or an item as one opaque string."""
    return _MARK + base64.urlsafe_b64encode(json_of(dict(block)).encode()).decode()


def unseal(text: str) -> dict[str, Json] | None:
    """Decodes the block or item of an opaque string; `None` if `seal` did not create it."""
    if not text.startswith(_MARK):
        return None
    try:
        value = value_in(base64.urlsafe_b64decode(text.removeprefix(_MARK).encode()).decode())
    except (InputError, binascii.Error, ValueError):
        return None
    return value if isinstance(value, dict) else None


def sealed_in(item: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Returns what must be sent back for a reasoning item: the block sealed in it, or the item; `None` if neither."""
    sealed = text_in(item.get("encrypted_content"))
    if not sealed:
        return None
    return unseal(sealed) or {key: value for key, value in item.items() if key != "status"}


def write_detail(block: Mapping[str, Json], index: int) -> dict[str, Json]:
    """Writes a block or an item as one of Chat's reasoning details."""
    if block.get("type") == "reasoning":
        encrypted: dict[str, Json] = {"data": block.get("encrypted_content"), "id": block.get("id")}
        return {"type": "reasoning.encrypted", **encrypted, "format": _RESPONSES, "index": index}
    if block.get("type") == SIGNATURE:
        return {"type": "reasoning.encrypted", "data": block.get("signature"), "format": _GEMINI, "index": index}
    origin: dict[str, Json] = {"format": _ANTHROPIC, "index": index}
    if block.get("type") == "redacted_thinking":
        return {"type": "reasoning.encrypted", "data": block.get("data"), **origin}
    return {"type": "reasoning.text", "text": block.get("thinking"), "signature": block.get("signature"), **origin}


def signs_earlier_text(fields: Mapping[str, Json]) -> bool:
    """Whether a detail is only a signature, of text that came in earlier details."""
    return bool(fields.get("signature")) and not fields.get("text")


def read_detail(fields: Mapping[str, Json], conversion: Conversion, where: str, before: str = "") -> Thought:
    """Reads one of Chat's reasoning details. Raises `CannotCross` for reasoning sealed by any other vendor.

    `before` is the text of earlier details that this one signs.
    """
    text = before + (text_in(fields.get("text")) or text_in(fields.get("summary")))
    signature, data = text_in(fields.get("signature")), text_in(fields.get("data"))
    match fields.get("format"):
        case _ if not signature and not data:
            return Thought(text=text)
        case "anthropic-claude-v1" if data:
            return Thought(text="", block={"type": "redacted_thinking", "data": data})
        case "anthropic-claude-v1":
            return Thought(text=text, block={"type": "thinking", "thinking": text, "signature": signature})
        case "openai-responses-v1" if data:
            named: dict[str, Json] = {"id": fields["id"]} if fields.get("id") else {}
            return Thought(text="", block={"type": "reasoning", **named, "summary": [], "encrypted_content": data})
        case "google-gemini-v1" if data:
            return Thought(text="", block={"type": SIGNATURE, "signature": data})
        case _:
            raise conversion.unsupported(where)
