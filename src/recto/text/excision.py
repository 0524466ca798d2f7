"""Takes parts out of a text and leaves a text: whole lines, in prose whole sentences, and headings with nothing left.

Lists are numbered anew, so that the number of an item never says anything by itself. What is taken out, and why, is not
known here.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Span = tuple[int, int]

_FENCE = re.compile(r"[ \t]*(```+|~~~+)")
_ITEM = re.compile(r"[ \t]*(?:[-*+•>|]|\d{1,3}[.)])(?=[ \t]|$)")
_ROW = re.compile(r"[ \t]*[|>]")
_NUMBERED = re.compile(
    r"^([ \t]*(?:#{1,6}[ \t]+|[-*+>][ \t]+)?[*_]{0,3})(\d{1,3})(?=[.)][*_]{0,3}(?:[ \t]|$))", re.MULTILINE
)
_HEADING = re.compile(r"[ \t]{0,3}(#{1,6})(?:[ \t]|$)")
_LABEL = re.compile(r"[^\n]{1,200}:(?:\*\*|__)?[ \t]*$|[ \t]*(?:\*\*|__)[^*\n]{1,160}(?:\*\*|__)[ \t]*$")
_SENTENCE = re.compile(r"[.!?][\"')\]”*`]{0,3}[ \t\n]+(?=[\"'(\[“*`]{0,3}[^\W\d_a-z])|[。！？]")
_GOES_ON = re.compile(r"[ \t]*[a-z0-9(`\"'$&/.]")
_WRAPPED = 60
"""Characters of a line from which on the next one may carry on its sentence."""


def markers(text: str) -> Iterator[tuple[Span, int]]:
    """The numbers of items: where each stands, and what it is when items are counted from 1.

    One that says 1 begins to count anew. Items are counted together that begin the same way.
    """
    last: dict[str, int] = {}
    for found in _NUMBERED.finditer(text):
        number = 1 if found[2] == "1" else last.get(found[1], 0) + 1
        last[found[1]] = number
        yield found.span(2), number


def renumbered(text: str) -> str:
    """The text with its items counted from 1."""
    parts, at = [], 0
    for (start, end), number in markers(text):
        parts += [text[at:start], str(number)]
        at = end
    return "".join((*parts, text[at:])) if at else text


def without(text: str, spans: Sequence[Span]) -> str:
    """The text without the lines and sentences in which these places are."""
    lines = text.split("\n")
    gone = _gone(text, lines, sorted(spans))
    kept = _cut(lines, gone)
    _close_fences(lines, kept)
    _drop_empty_headings(lines, kept)
    shown: list[str] = []
    removed = False
    for line in kept:
        if line is None:
            removed = True
        elif line.strip() or not removed or (shown and shown[-1].strip()):
            shown.append(line)
            removed = removed and not line.strip()
    return "\n".join(shown)


@dataclass(slots=True)
class _Block:
    """Lines that are read as one: an item with what belongs to it, a paragraph, a line of code."""

    start: int
    end: int
    ends: list[int]
    """Where its sentences end."""
    hangs: bool
    """Whether nothing of it may stay without its beginning."""


def _blocks(text: str, lines: Sequence[str]) -> Iterator[_Block]:
    at, fence = 0, ""
    begun: _Block | None = None
    for line in lines:
        end = at + len(line)
        found = _FENCE.match(line)
        alone = bool(fence or found or _HEADING.match(line) or _ROW.match(line) or not line.strip())
        item = not alone and _ITEM.match(line) is not None
        if begun and (alone or item or (begun.hangs and not line.startswith((" ", "\t")))):
            yield _with_sentences(text, begun)
            begun = None
        if found:
            fence = "" if fence and found[1].startswith(fence) else fence or found[1]
        if alone:
            yield _Block(at, end, [end], hangs=False)
        elif begun:
            begun.end = end
        else:
            begun = _Block(at, end, [], hangs=item)
        at = end + 1
    if begun:
        yield _with_sentences(text, begun)


def _with_sentences(text: str, block: _Block) -> _Block:
    ends = [found.end() for found in _SENTENCE.finditer(text, block.start, block.end)]
    start = block.start
    while (end := text.find("\n", start, block.end)) >= 0:
        if end - start < _WRAPPED or text[end - 1] in ".!?:;。！？" or not _GOES_ON.match(text, end + 1):
            ends.append(end + 1)
        start = end + 1
    block.ends = sorted({*ends, block.end})
    return block


def _gone(text: str, lines: Sequence[str], spans: Sequence[Span]) -> list[Span]:
    """What goes for these places to go."""
    starts = [start for start, _ in spans]
    gone: list[Span] = []
    reach = 0
    for block in _blocks(text, lines):
        at = block.start
        for end in block.ends:
            first = bisect_left(starts, at)
            if reach > at or (first < len(starts) and starts[first] < max(end, at + 1)):
                reach = max([reach, *(stop for _, stop in spans[first : bisect_right(starts, end - 1)])])
                if block.hangs and at == block.start:
                    gone.append((block.start, block.end))
                    break
                gone.append((at, end))
            at = end
    return gone


def _cut(lines: Sequence[str], gone: Sequence[Span]) -> list[str | None]:
    """The lines without what goes; None for a line of which nothing is left."""
    kept: list[str | None] = []
    at = place = 0
    for line in lines:
        end, parts, begun = at + len(line), [], at
        while place < len(gone) and gone[place][0] <= end:
            start, stop = max(gone[place][0], at), min(gone[place][1], end)
            parts.append(line[begun - at : max(start, begun) - at])
            begun = max(begun, stop)
            if gone[place][1] > end:
                break
            place += 1
        left = "".join((*parts, line[begun - at :])) if parts else line
        if left != line and (fence := _FENCE.match(line)):
            left = fence[0]
        kept.append(None if parts and not left.strip() and line.strip() else left.rstrip() if left != line else line)
        at = end + 1
    return kept


def _close_fences(lines: Sequence[str], kept: list[str | None]) -> None:
    """Fences go with the last line between them."""
    opened, had, has, fence = -1, False, False, ""
    for place, line in enumerate(lines):
        found = _FENCE.match(line)
        if fence and found and found[1].startswith(fence):
            if had and not has:
                kept[opened : place + 1] = [None] * (place + 1 - opened)
            fence = ""
        elif fence:
            had, has = had or bool(line.strip()), has or bool((kept[place] or "").strip())
        elif found:
            opened, had, has, fence = place, False, False, found[1]


@dataclass(slots=True)
class _Open:
    place: int
    depth: float
    had: bool = False
    has: bool = False


def _drop_empty_headings(lines: Sequence[str], kept: list[str | None]) -> None:
    """Headings and lines that announce something go when all that stood under them has gone."""
    above: list[_Open] = []
    fence = ""

    def close(depth: float, *, fed: bool = False) -> None:
        while above and (above[-1].depth > depth or (above[-1].depth == depth and (not fed or above[-1].had))):
            done = above.pop()
            if done.had and not done.has:
                kept[done.place] = None
            if above:
                above[-1].had = True
                above[-1].has = above[-1].has or kept[done.place] is not None

    for place, line in enumerate(lines):
        found = _FENCE.match(line)
        if not line.strip():
            continue
        inside = bool(fence)
        if found:
            fence = "" if fence and found[1].startswith(fence) else fence or found[1]
        heading = None if inside or found else _HEADING.match(line)
        depth = len(heading[1]) - 10.0 if heading else _depth(line)
        if not inside and not found and (heading or _LABEL.match(line)):
            close(depth)
            above.append(_Open(place, depth))
        else:
            if not inside:
                close(depth, fed=True)
            if above:
                above[-1].had = True
                above[-1].has = above[-1].has or kept[place] is not None
    close(-100.0)


def _depth(line: str) -> float:
    """How far a line is set in; an item stands half a step below what announces it."""
    indent = len(line) - len(line.lstrip())
    return indent + (0.5 if _ITEM.match(line) or _FENCE.match(line) else 0.0)
