"""What a request or a reply means, whichever format it came in: the ground on which formats cross.

Each format is read into these values and written from them. A reader names what they cannot hold, a writer what its
format cannot; so nothing is lost in silence on any of the six roads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from recto.errors import CannotCross, MalformedMessage
from recto.formats.json_spans import Json
from recto.formats.message import object_in
from recto.formats.response import Usage, usage_in


@dataclass(frozen=True, slots=True)
class TextPart:
    """Words."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image: its data in base64, or its address."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A file: its data in base64, or its address."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """Reasoning."""

    text: str
    block: Mapping[str, Json] | None = None
    """Where its model signed or sealed it: Anthropic's block or Responses' item, which has to go back unchanged."""


@dataclass(frozen=True, slots=True)
class RefusalPart:
    """The words with which a model declines."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPart:
    """A call of a tool, its arguments as JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPart:
    """What a tool gave back."""

    call_id: str
    parts: tuple[Part, ...]
    failed: bool = False


Part: TypeAlias = TextPart | Picture | FilePart | Thought | RefusalPart | CallPart | ResultPart
Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurn:
    """What one side said. The parts of a tool's turn are results, and only theirs are."""

    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A function that the model may call."""

    name: str
    description: str
    schema: Json
    strict: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """Whether the model has to call a tool, and which."""

    kind: Literal["auto", "none", "any", "tool"]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The JSON that the answer has to be. Without a schema, any object."""

    schema: Json = None
    name: str = ""
    description: str = ""
    strict: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """What a client asks for."""

    model: str
    turns: tuple[ChatTurn, ...]
    tools: tuple[ToolDefinition, ...] = ()
    choice: ToolChoice | None = None
    parallel: bool | None = None
    most_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    effort: str = ""
    verbosity: str = ""
    shape: Shape | None = None
    hints: Mapping[str, Json] = field(default_factory=dict)
    """Members that change no word of the answer and mean the same in both of OpenAI's formats."""


Stop: TypeAlias = Literal["ended", "length", "calls", "filtered", "sequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Tokens of an answer."""

    usage: Usage
    reasoning: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why an answer ended, and what it cost."""

    stop: Stop = "ended"
    sequence: str = ""
    """What it ended at, where that was a stop sequence."""
    cost: Cost | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a model said."""

    model: str
    parts: tuple[Part, ...]
    ending: Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """What an answer is called in the format it crosses into. Pure code has no clock and draws no numbers."""

    reply: str
    created: int = 0
    request: bytes = b""
    """The client's own request, where the format repeats it in its answers."""

    def item(self, kind: str, place: int) -> str:
        """The id of one item of the answer."""
        return f"{kind}_{self.reply.rpartition('_')[2] or 'r'}_{place}"


SHARED_HINTS: Final = frozenset(
    {"metadata", "user", "safety_identifier", "service_tier", "prompt_cache_key", "prompt_cache_options"}
) | frozenset({"prompt_cache_retention"})
"""Both of OpenAI's formats have them and mean the same; Anthropic has other words for some and needs none of them."""


@dataclass(frozen=True, slots=True)
class Road:
    """From which format into which. It is asked wherever something has no place."""

    source: str
    target: str
    reply: bool = False
    """Whether what crosses goes to a client, who gives back what it got, and not to a model."""

    def lost(self, what: str) -> CannotCross:
        """The error that names what would be lost."""
        return CannotCross(what, self.source, self.target)

    def only(self, fields: Mapping[str, Json], known: Collection[str], where: str = "") -> None:
        """Refuses members that nobody here knows. Null says nothing, and neither does an empty list or object."""
        for key, value in fields.items():
            if key not in known and value is not None and value not in ([], {}):
                raise self.lost(f"{where}.{key}" if where else f"'{key}'")

    def plain(self, fields: Mapping[str, Json], usual: Mapping[str, Collection[Json]]) -> None:
        """Refuses members that ask for something unusual."""
        for key, values in usual.items():
            value = fields.get(key)
            if value is not None and value not in ([], {}) and value not in values:
                raise self.lost(f"'{key}'")


def number(fields: Mapping[str, Json], key: str) -> float | None:
    """A number, or nothing where there is none."""
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedMessage(f"'{key}' is not a number")
    return value


def count(fields: Mapping[str, Json], key: str) -> int | None:
    """A whole number, or nothing where there is none."""
    value = number(fields, key)
    if value is not None and not math.isfinite(value):
        raise MalformedMessage(f"'{key}' is not a number")
    return None if value is None else int(value)


def tokens(value: Json) -> int:
    """A count of tokens; none where there is no count."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def flag(fields: Mapping[str, Json], key: str) -> bool | None:
    """Yes or no, or nothing where nothing is said."""
    value = fields.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise MalformedMessage(f"'{key}' is neither true nor false")


def objects(value: Json, where: str) -> list[dict[str, Json]]:
    """The objects of a list. What is no list of objects is refused."""
    found: list[dict[str, Json]] = []
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict):
            raise MalformedMessage(f"'{where}' is not a list of objects")
        found.append(item)
    return found


def joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts of an answer, with neighbouring texts as one: where an answer is cut into texts says nothing."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, TextPart) and found and isinstance(found[-1], TextPart):
            found[-1] = TextPart(found[-1].text + part.text)
        elif not (isinstance(part, TextPart) and not part.text):
            found.append(part)
    return tuple(found)


def stopped_for(parts: Iterable[Part], stop: Stop) -> Stop:
    """Why an answer ended, by what is in it: formats that do not say so end at calls all the same."""
    return "calls" if stop == "ended" and any(isinstance(part, CallPart) for part in parts) else stop


def cost_in(value: Json, details: str, reasoning: str = "reasoning_tokens") -> Cost | None:
    """What an answer cost, by a provider's `usage`; in `details` it says under a name how much of it was reasoning."""
    usage = usage_in(value)
    told = object_in(object_in(value).get(details))
    return None if usage is None else Cost(usage=usage, reasoning=tokens(told.get(reasoning)))


def written_content(parts: Sequence[Part], road: Road, write: Callable[[Part, Road], Json]) -> Json:
    """The content of a message in OpenAI's formats: one text as it is, anything else part by part."""
    match parts:
        case [TextPart(text)]:
            return text
        case []:
            return ""
        case _:
            return [write(part, road) for part in parts]
