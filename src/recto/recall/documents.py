"""What an entry contributes to the word index, and how texts are split into passages and excerpts.

Entries may be imported with arbitrary bytes. Anything unreadable is skipped; nothing here raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from recto.context.facts.statements import is_reported, without_injected
from recto.errors import InputError
from recto.formats import entry_text, read
from recto.text.terms import clip_middle
from recto.transcript.entries import MESSAGE, Draft, Entry, Role, is_hidden

_PAUSES = (
    re.compile(r"\n[^\S\n]*\n\s*"),
    re.compile(r"[\n\r\u2028\u2029]+"),
    re.compile(r"[.!?…]++[\"'”’)\]]*+\s+|[。！？؟।]++[」』”’）]*+\s*"),
    re.compile(r"\s+|[,;:，、；：،]+"),
)
"""Where a text may be cut, best first. East Asian and Arabic sentence marks need no space after them."""
_MAX_EXCERPT_SOURCE = 200_000
_PIECE_CHARACTERS = 240
"""Size of the pieces an excerpt is made of: a sentence or two."""
_MAX_HEADING = 160
_GAP = "…"

Relevance: TypeAlias = Callable[[Sequence[str]], Sequence[float]]
"""Returns how relevant each of some pieces of a text is."""


def passages(text: str, size: int = 1000, limit: int = 8) -> list[str]:
    """Split a text into pieces of at most `size` characters, as few as the pauses allow.

    Joined they are the text again, unless there are more than `limit`: then the first ones and the last are returned.
    """
    if not text.strip():
        return []
    # Of a very long text only the ends are split, so that the cost does not grow with its length.
    if len(text) <= 2 * size * (limit + 1):
        pieces = list(_split(text, size))
        return pieces if len(pieces) <= limit else [*pieces[: limit - 1], pieces[-1]]
    head = list(_split(text[: 2 * size * limit], size))
    *_, last = _split(text[-2 * size :], size)
    return [*head[: limit - 1], last]


def _split(text: str, size: int, level: int = 0) -> Iterator[str]:
    """Split at one kind of pause, joining neighbours up to the size; split longer pieces at the next kind."""
    if len(text) <= size:
        yield text
        return
    if level == len(_PAUSES):
        yield from (text[at : at + size] for at in range(0, len(text), size))
        return
    start = end = 0
    for pause in (*(match.end() for match in _PAUSES[level].finditer(text)), len(text)):
        if pause - start > size and end > start:
            yield from _split(text[start:end], size, level + 1)
            start = end
        end = pause
    if end > start:
        yield from _split(text[start:end], size, level + 1)


def excerpt(text: str, relevance: Relevance, limit: int) -> str:
    """Return the most relevant pieces of a text in their order, in at most `limit` characters; a short text unchanged.

    A short first line is always included: it tends to name the speaker or the subject. Pieces of zero relevance are
    left out; if there are no others, the excerpt is the beginning of the text.
    """
    if len(text) <= limit:
        return text
    if limit < 4 * len(_GAP):
        return text[: max(limit, 0)]
    pieces = _pieces(clip_middle(text, _MAX_EXCERPT_SOURCE), limit)
    scores = relevance(pieces)
    first_line = 0 < len(pieces[0].strip()) <= min(_MAX_HEADING, limit // 3) and pieces[0].endswith("\n")
    ranked = sorted(range(len(pieces)), key=lambda place: (not (first_line and place == 0), -scores[place], place))
    chosen, available = set[int](), limit - 2 * len(_GAP)
    for place in ranked:
        cost = len(pieces[place].strip()) + len(_GAP) + 2
        if cost <= available and (scores[place] > 0 or (first_line and place == 0)):
            chosen.add(place)
            available -= cost
    if not any(scores[place] > 0 for place in chosen):
        best = ranked[0] if scores[ranked[0]] > 0 else 0
        return text[: limit - 2].rstrip() + " " + _GAP if best == 0 else f"{_GAP} {pieces[best].strip()}"[:limit]
    return _join_chosen(pieces, chosen)


def _pieces(text: str, limit: int) -> list[str]:
    """Split into sentences or lines, joined up to a readable length, with the first line separate."""
    text = text.lstrip()
    size = min(_PIECE_CHARACTERS, max(limit // 3, 1))
    heading, newline, rest = text.partition("\n")
    if newline and heading and len(heading) < _MAX_HEADING and rest.strip():
        return [heading + newline, *_split(rest, size)]
    return list(_split(text, size)) or [text]


def _join_chosen(pieces: list[str], chosen: set[int]) -> str:
    """Join the chosen pieces: neighbours continue as in the text, everything between is one gap mark."""
    parts: list[str] = []
    for place, piece in enumerate(pieces):
        if place not in chosen:
            if not parts or parts[-1] != _GAP:
                parts.append(_GAP)
        elif parts and parts[-1] != _GAP:
            break_ = "\n" if pieces[place - 1].endswith("\n") else " "
            parts[-1] = parts[-1].rstrip() + break_ + piece.strip()
        else:
            parts.append(piece.strip())
    return " ".join(part for part in parts if part)


def recall_text(entry: Draft) -> str:
    """Return what recall finds and quotes of an entry: of a user's message what the user said, not what a client added.

    Empty where a client wrote all of it, as the body of a skill.
    """
    if entry.kind != MESSAGE or entry.role not in ("user", "tool"):
        return entry_text(entry)
    try:
        message = read(entry.content, entry.wire)
    except InputError:
        return entry_text(entry)
    parts = [replace(part, text=without_injected(part.text)) if part.kind == "text" else part for part in message.parts]
    return replace(message, parts=tuple(parts)).text


def spoken_by(role: Role, text: str) -> Role:
    """Return who speaks in a message: what a client reports in the role of the user is the output of a tool."""
    return "tool" if role == "user" and is_reported(text) else role


_RECAP_KEYS = ("compact_summary", "isCompactSummary")


def is_original_message(entry: Entry) -> bool:
    """Whether an entry is a message of the conversation, not one that repeats it (`is_repetition`)."""
    return entry.kind == MESSAGE and not is_repetition(entry.meta)


def is_repetition(meta: bytes) -> bool:
    """Whether the metadata of a message mark it as a recap that a client wrote, or as a search that Recto answered.

    Both repeat the history and would outrank the messages that they repeat.
    """
    return is_hidden(meta) or _is_recap(meta)


def _is_recap(meta: bytes) -> bool:
    if b"ompact" not in meta:
        return False
    parsed = _parse_object(meta)
    return any(parsed.get(name) for name in _RECAP_KEYS)


def _parse_object(raw: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
