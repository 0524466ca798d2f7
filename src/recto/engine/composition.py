"""What a prompt consists of, piece by piece: tool schemas by name, system text by section, results by tool, and so on.

The pieces of a prompt add up to its tokens. They are stored with its answer (`PromptComposition`), in about a kilobyte:
of many pieces of one kind the largest are kept, and the others are added up. Most of what is counted here is counted
for the prompt anyway; the pieces of tool schemas and system text are counted once for each content.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress, count
from operator import attrgetter, ne
from typing import Any, NamedTuple

from msgspec.structs import replace

from recto.context.window.report import PieceKind, PromptPiece
from recto.context.window.units import WindowMessage
from recto.formats import detect, read
from recto.formats.message import Message, text_in
from recto.text.lazy_re import lazy_re
from recto.text.unicode import one_line
from recto.tokens.meter import Meter

TOOLS_OFFERED, INSTRUCTIONS = "tools_offered", "instructions_given"
"""Events of the gateway: the tool schemas and the system text of its requests, each content once."""

_MOST: Mapping[PieceKind, int] = {"tool": 10, "system": 6, "file": 5, "result": 6}
"""Pieces of a kind that are kept by name."""
_MAX_NAME = 40
"""Characters of a name."""
_MAX_MEMOISED = 1024 * 1024
"""Bytes of tool schemas or system text above which their pieces are not kept in memory."""
_HEADING = lazy_re(r"(?m)^(?:#{1,6}[ \t]+(?P<title>\S.*?)|<(?P<tag>[A-Za-z][\w.:-]{0,60})>)[ \t]*$")
"""A heading, or the tag that opens a block, on a line of its own."""

Tally = dict[tuple[PieceKind, str], int]
"""Tokens by kind and name."""


def first_difference(before: Sequence[object], after: Sequence[object]) -> int:
    """The first place at which two sequences differ, or the length of the shorter one. For every prompt: no loop."""
    return next(compress(count(), map(ne, before, after)), min(len(before), len(after)))


def total_of(pieces: Iterable[PromptPiece]) -> int:
    """The tokens of all pieces."""
    return sum([piece.tokens for piece in pieces])


def folded(pieces: Iterable[PromptPiece]) -> tuple[PromptPiece, ...]:
    """The pieces as they are stored: the largest of each kind by name, the others of that kind in one."""
    kept: list[PromptPiece] = []
    by_kind: dict[PieceKind, list[PromptPiece]] = {}
    for piece in pieces:
        by_kind.setdefault(piece.kind, []).append(piece)
    for kind, several in by_kind.items():
        most = _MOST.get(kind, len(several))
        if len(several) <= most:
            kept += several
            continue
        several.sort(key=lambda piece: -piece.tokens)
        rest = several[most - 1 :]
        raw = sum(piece.raw or 0 for piece in rest) if kind == "file" else None
        kept += several[: most - 1]
        kept.append(PromptPiece(kind=kind, name=f"{len(rest)} others", tokens=total_of(rest), raw=raw))
    return tuple(piece for piece in kept if piece.tokens or piece.raw)


def pieces_of(tally: Mapping[tuple[PieceKind, str], int]) -> list[PromptPiece]:
    """A tally as pieces."""
    return [PromptPiece(kind=kind, name=name, tokens=tokens) for (kind, name), tokens in tally.items() if tokens]


def with_less(pieces: list[PromptPiece], tokens: int) -> list[PromptPiece]:
    """The pieces without frames of system texts that are sent as one: each of these was counted with its own."""
    for kind, name in (("frame", "system"), ("frame", ""), ("system", None)):
        for place, piece in enumerate(pieces):
            if tokens and piece.kind == kind and name in (None, piece.name):
                taken = min(tokens, max(piece.tokens, 0))
                pieces[place], tokens = replace(piece, tokens=piece.tokens - taken), tokens - taken
    return pieces


def tool_pieces(meter: Meter, schemas: bytes) -> tuple[PromptPiece, ...]:
    """What tool schemas cost, by tool. The last piece is what they cost together, besides."""
    return (_tool_pieces if len(schemas) > _MAX_MEMOISED else _memoised_tools)(meter, schemas)


def system_pieces(meter: Meter, text: bytes, wire: str = "") -> tuple[PromptPiece, ...]:
    """What system text costs that is sent outside the messages of a session, by section.

    Args:
        meter: Counts it.
        text: JSON values one after another: a string, a list of blocks, an object with parts, or system messages. What
            is no JSON is text.
        wire: The format of system messages in it; without one, it is detected.
    """
    return (_system_pieces if len(text) > _MAX_MEMOISED else _memoised_system)(meter, text, wire)


def section_pieces(meter: Meter, texts: Sequence[str], total: int) -> list[PromptPiece]:
    """The sections of system text that costs `total` tokens: from one heading, or opening tag, to the next."""
    tally: Tally = {}
    for text in texts:
        for name, section in _sections(text):
            key: tuple[PieceKind, str] = "system", name
            tally[key] = tally.get(key, 0) + meter.count(section)
    return _adding_up(pieces_of(tally) or [PromptPiece(kind="system", name="", tokens=0)], total)


class MessageTally:
    """The tokens of the messages of a prompt, by what they are. Extended as the prompt grows."""

    def __init__(self, meter: Meter, tool_of: dict[str, str] | None = None) -> None:
        self.tokens: Tally = {}
        self._meter = meter
        self._tool_of = {} if tool_of is None else tool_of
        """The tools of calls, by the id of the call."""

    def add(self, line: WindowMessage, cost: int, message: Callable[[], Message]) -> None:
        """Adds a message. It is parsed only where it is system text or holds results of several tools."""
        if line.calls:
            self._tool_of.update(zip(line.calls, line.tools, strict=False))
        if line.role == "system":
            for piece in section_pieces(self._meter, [part.text for part in message().parts], cost):
                self._count("system", piece.name, piece.tokens)
        elif not line.has_result and line.role != "tool":
            self._count("history", line.role, cost)
        else:
            named = zip(line.answers, line.tools[len(line.calls) :], strict=False)
            tools = [name or self._tool_of.get(call, "") for call, name in named]
            self._results(tools, cost, message)

    def add_message(self, message: Message, cost: int) -> None:
        """Adds a message of which only the content is known."""
        self._tool_of.update((part.call_id, part.name) for part in message.calls)
        results = message.results
        if message.role == "system":
            for piece in section_pieces(self._meter, [part.text for part in message.parts], cost):
                self._count("system", piece.name, piece.tokens)
        elif message.role == "tool" or (results and message.role != "assistant"):
            tools = [part.name or self._tool_of.get(part.call_id, "") for part in results]
            self._results(tools, cost, lambda: message)
        else:
            self._count("history", message.role, cost)

    def _results(self, tools: list[str], cost: int, message: Callable[[], Message]) -> None:
        if len(set(tools)) <= 1:
            self._count("result", tools[0] if tools else "", cost)
            return
        # each tool gets the share that its output has of the text of all of them
        sizes = [len(part.text) + 1 for part in message().results]
        if len(sizes) != len(tools):
            sizes = [1] * len(tools)
        left, weight = cost, sum(sizes)
        for tool, size in zip(tools, sizes, strict=True):
            share = left * size // weight
            left, weight = left - share, weight - size
            self._count("result", tool, share)

    def _count(self, kind: PieceKind, name: str, tokens: int) -> None:
        key = kind, _name(name)
        self.tokens[key] = self.tokens.get(key, 0) + tokens


class _ReadMessage(NamedTuple):
    """What is known of a message that was sent."""

    text: str
    """Of a user message: one that Recto wrote is recognised by it."""
    tokens: Tally
    own: Sequence[PromptPiece]
    calls: Mapping[str, str] = {}
    """The tools of its calls, by the id of the call."""
    replaced: Mapping[str, str] = {}
    """The tools of earlier calls with the same ids."""


_TEXT_OF = attrgetter("text")


class SentTally:
    """The pieces of messages as they are sent, whatever was left out or added to keep them valid.

    Messages that were there the last time are not read again, up to the first one that differs. Thread-safe: an answer
    may be stored while another thread builds a prompt.
    """

    def __init__(self, meter: Meter, wire: str) -> None:
        self.wire = wire
        self._meter = meter
        self._gate = threading.Lock()
        self._messages: tuple[bytes, ...] = ()
        self._costs: tuple[int, ...] = ()
        self._generated: Mapping[str, Sequence[PromptPiece]] = {}
        self._read: list[_ReadMessage] = []
        self._tool_of: dict[str, str] = {}
        self._tally = MessageTally(meter, self._tool_of)
        """Reads one message at a time."""
        self._tokens: Tally = {}
        self._own: list[PromptPiece] = []

    def pieces(
        self, messages: Sequence[bytes], costs: Sequence[int], generated: Mapping[str, Sequence[PromptPiece]]
    ) -> list[PromptPiece]:
        """The pieces of messages. `generated` are those that Recto wrote, by their text."""
        messages, costs = tuple(messages), tuple(costs)
        with self._gate:
            known = self._unchanged(messages, costs, generated)
            while len(self._read) > known:
                self._remove(self._read.pop())
            for raw, cost in zip(messages[known:], costs[known:], strict=True):
                self._add(self._read_message(raw, cost, generated))
            self._messages, self._costs, self._generated = messages, costs, generated
            return [*pieces_of(self._tokens), *self._own]

    def _unchanged(
        self, messages: Sequence[bytes], costs: Sequence[int], generated: Mapping[str, Sequence[PromptPiece]]
    ) -> int:
        """How many messages are the same as the last time, and mean the same."""
        known = len(self._messages)
        if (messages[:known], costs[:known], generated) == (self._messages, self._costs, self._generated):
            return known
        texts = {*generated, *self._generated}
        changed = {text for text in texts if generated.get(text) != self._generated.get(text)}
        same = min(first_difference(self._messages, messages), first_difference(self._costs, costs))
        rewritten = compress(count(), map(changed.__contains__, map(_TEXT_OF, self._read)))
        return min(same, next(rewritten, same))

    def _read_message(self, raw: bytes, cost: int, generated: Mapping[str, Sequence[PromptPiece]]) -> _ReadMessage:
        message = read(raw, self.wire)
        text = message.text if message.role == "user" else ""
        written = generated.get(text) if message.role == "user" else None
        if written is not None:
            return _ReadMessage(text, {}, _adding_up(list(written), cost))
        calls = {part.call_id: part.name for part in message.calls}
        replaced = {call: self._tool_of[call] for call in calls if call in self._tool_of} if calls else {}
        tally = self._tally
        tally.tokens = {}
        tally.add_message(message, cost)
        return _ReadMessage(text, tally.tokens, (), calls, replaced)

    def _add(self, message: _ReadMessage) -> None:
        self._read.append(message)
        for key, tokens in message.tokens.items():
            self._tokens[key] = self._tokens.get(key, 0) + tokens
        self._own += message.own

    def _remove(self, message: _ReadMessage) -> None:
        for key, tokens in message.tokens.items():
            left = self._tokens.get(key, 0) - tokens
            if left:
                self._tokens[key] = left
            else:
                self._tokens.pop(key, None)  # pieces are in the order of the first message of their kind
        del self._own[len(self._own) - len(message.own) :]
        for call in message.calls:
            del self._tool_of[call]
        self._tool_of.update(message.replaced)


def _tool_pieces(meter: Meter, schemas: bytes) -> tuple[PromptPiece, ...]:
    text = schemas.decode()
    total = meter.tools(text)
    if not total:
        return ()
    tally: Tally = {}
    for name, schema in _tools_in(text):
        key: tuple[PieceKind, str] = "tool", _name(name)
        tally[key] = tally.get(key, 0) + meter.count(json.dumps(schema, ensure_ascii=False, indent=meter.frame.indent))
    pieces = pieces_of(tally)
    rest = total - total_of(pieces)
    if rest > 0:
        return (*pieces, PromptPiece(kind="frame", name="tools", tokens=rest))
    return tuple(_adding_up(pieces, total))


def _tools_in(schemas: str) -> Iterable[tuple[str, Any]]:
    """The name and the schema of each tool."""
    try:
        parsed = json.loads(schemas)
    except (ValueError, RecursionError):
        return
    for tool in parsed if isinstance(parsed, list) else [parsed]:
        fields = tool if isinstance(tool, dict) else {}
        declared = fields.get("functionDeclarations", fields.get("function_declarations"))
        if isinstance(declared, list) and declared:
            yield from ((_tool_name(function), function) for function in declared)
        else:
            yield _tool_name(fields), tool


def _tool_name(tool: object) -> str:
    """The name of a tool; of one that the provider runs, its type."""
    fields = tool if isinstance(tool, dict) else {}
    kinds = (fields, fields.get("function"), fields.get("custom"))
    named = (text_in(kind.get("name")) for kind in kinds if isinstance(kind, dict))
    return next((name for name in named if name), "") or text_in(fields.get("type")) or next(map(str, fields), "")


def _system_pieces(meter: Meter, text: bytes, wire: str) -> tuple[PromptPiece, ...]:
    pieces: list[PromptPiece] = []
    framed = 0
    for value, raw in _values(text.decode()):
        if isinstance(value, dict) and "role" in value:
            message = read(raw, wire or detect(raw))
            texts, total = [part.text for part in message.parts], meter.message(message)
        else:
            texts = _texts(value)
            total = sum(map(meter.count, texts))
            framed = meter.frame.message
        pieces += section_pieces(meter, texts, total)
    tally: Tally = {}
    for piece in pieces:
        tally[piece.kind, piece.name] = tally.get((piece.kind, piece.name), 0) + piece.tokens
    frame = [PromptPiece(kind="frame", name="system", tokens=framed)] if framed else []
    return (*pieces_of(tally), *frame)


_memoised_tools = lru_cache(maxsize=64)(_tool_pieces)
_memoised_system = lru_cache(maxsize=64)(_system_pieces)


def _values(text: str) -> Iterable[tuple[Any, bytes]]:
    """JSON values one after another, with their bytes. From where it is no JSON, the rest is one text."""
    decoder, start = json.JSONDecoder(), 0
    while start < len(text):
        if text[start].isspace():
            start += 1
            continue
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            yield text[start:], b""
            return
        if not isinstance(value, str | list | dict):  # text that begins like a number
            yield text[start:], b""
            return
        yield value, text[start:end].encode()
        start = end


def _texts(value: Any) -> list[str]:  # noqa: ANN401  # JSON
    """The texts of a system value: a string, blocks, or an object with parts."""
    if isinstance(value, str):
        return [value]
    blocks = value.get("parts", [value]) if isinstance(value, dict) else value
    found = []
    for block in blocks if isinstance(blocks, list) else [blocks]:
        text = block.get("text") if isinstance(block, dict) else block
        found.append(text if isinstance(text, str) else json.dumps(block, ensure_ascii=False))
    return found


def _sections(text: str) -> Iterable[tuple[str, str]]:
    """The sections of a text, each with its heading; what comes before the first has none."""
    start, name = 0, ""
    for match in _HEADING.finditer(text):
        if match.start() > start:
            yield name, text[start : match.start()]
        start, name = match.start(), _name(match["title"] or match["tag"])
    if start < len(text):
        yield name, text[start:]


def _adding_up(pieces: list[PromptPiece], total: int) -> list[PromptPiece]:
    """The pieces with as many tokens as they have together: where texts meet, tokens may span both."""
    difference = total - total_of(pieces)
    while difference and pieces:
        largest = max(range(len(pieces)), key=lambda place: pieces[place].tokens)
        tokens = max(pieces[largest].tokens + difference, 0)
        difference -= tokens - pieces[largest].tokens
        pieces[largest] = replace(pieces[largest], tokens=tokens)
        if not tokens and difference < 0 and not total_of(pieces):
            break
    return pieces


@lru_cache(maxsize=4096)
def _name(name: str) -> str:
    """A name as it is stored: one short line."""
    return one_line(name, _MAX_NAME)
