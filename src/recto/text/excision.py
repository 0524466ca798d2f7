"""Remove parts of a text so that what remains is well-formed: whole lines, whole sentences in prose, empty headings.

Lists are renumbered, so that the number of an item carries no information. What is removed, and why, is the caller's
decision.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from msgspec import Struct

from recto.text.lazy_re import lazy_re

TextSpan = tuple[int, int]

_FENCE = lazy_re(r"[ \t]*(```+|~~~+)")
_ITEM = lazy_re(r"[ \t]*(?:[-*+•>|]|\d{1,3}[.)])(?=[ \t]|$)")
_ROW = lazy_re(r"[ \t]*[|>]")
_NUMBERED_ITEM = lazy_re(
    r"^([ \t]*(?:#{1,6}[ \t]+|[-*+>][ \t]+)?[*_]{0,3})(\d{1,3})(?=[.)][*_]{0,3}(?:[ \t]|$))", re.MULTILINE
)
_HEADING = lazy_re(r"[ \t]{0,3}(#{1,6})(?:[ \t]|$)")
_LABEL = lazy_re(r"[^\n]{1,200}:(?:\*\*|__)?[ \t]*$|[ \t]*(?:\*\*|__)[^*\n]{1,160}(?:\*\*|__)[ \t]*$")
_SENTENCE = lazy_re(r"[.!?][\"')\]”*`]{0,3}[ \t\n]+(?=[\"'(\[“*`]{0,3}[^\W\d_a-z])|[。！？]")
_CONTINUATION = lazy_re(r"[ \t]*[a-z0-9(`\"'$&/.]")
_MIN_WRAPPED_CHARS = 60
"""Minimum length of a line whose sentence may continue on the next line."""


def item_numbers(text: str) -> Iterator[tuple[TextSpan, int]]:
    """The numbers of list items: the position of each, and its value when items are counted from 1.

    An item numbered 1 restarts the count. Items with the same prefix are counted together.
    """
    last: dict[str, int] = {}
    for match in _NUMBERED_ITEM.finditer(text):
        number = 1 if match[2] == "1" else last.get(match[1], 0) + 1
        last[match[1]] = number
        yield match.span(2), number


def renumber_items(text: str) -> str:
    """The text with its items counted from 1."""
    parts, at = [], 0
    for (start, end), number in item_numbers(text):
        parts += [text[at:start], str(number)]
        at = end
    return "".join((*parts, text[at:])) if at else text


def remove_spans(text: str, spans: Sequence[TextSpan]) -> str:
    """The text without the lines and sentences that contain these spans."""
    lines = text.split("\n")
    removed_spans = _spans_to_remove(text, lines, sorted(spans))
    remaining = _cut_lines(lines, removed_spans)
    _close_fences(lines, remaining)
    _drop_empty_headings(lines, remaining)
    result: list[str] = []
    follows_removal = False
    for line in remaining:
        if line is None:
            follows_removal = True
        elif line.strip() or not follows_removal or (result and result[-1].strip()):
            result.append(line)
            follows_removal = follows_removal and not line.strip()
    return "\n".join(result)


class _Block(Struct):
    """Lines that are read as one: an item with its continuation lines, a paragraph, a line of code."""

    start: int
    end: int
    ends: list[int]
    """Where its sentences end."""
    needs_start: bool
    """Whether nothing of it may remain without its beginning."""


def _blocks(text: str, lines: Sequence[str]) -> Iterator[_Block]:
    at, fence = 0, ""
    open_block: _Block | None = None
    for line in lines:
        end = at + len(line)
        fence_match = _FENCE.match(line)
        alone = bool(fence or fence_match or _HEADING.match(line) or _ROW.match(line) or not line.strip())
        item = not alone and _ITEM.match(line) is not None
        if open_block and (alone or item or (open_block.needs_start and not line.startswith((" ", "\t")))):
            yield _with_sentences(text, open_block)
            open_block = None
        if fence_match:
            fence = "" if fence and fence_match[1].startswith(fence) else fence or fence_match[1]
        if alone:
            yield _Block(at, end, [end], needs_start=False)
        elif open_block:
            open_block.end = end
        else:
            open_block = _Block(at, end, [], needs_start=item)
        at = end + 1
    if open_block:
        yield _with_sentences(text, open_block)


def _with_sentences(text: str, block: _Block) -> _Block:
    ends = [match.end() for match in _SENTENCE.finditer(text, block.start, block.end)]
    start = block.start
    while (end := text.find("\n", start, block.end)) >= 0:
        if end - start < _MIN_WRAPPED_CHARS or text[end - 1] in ".!?:;。！？" or not _CONTINUATION.match(text, end + 1):
            ends.append(end + 1)
        start = end + 1
    block.ends = sorted({*ends, block.end})
    return block


def _spans_to_remove(text: str, lines: Sequence[str], spans: Sequence[TextSpan]) -> list[TextSpan]:
    """The spans that have to be removed for these spans to disappear."""
    starts = [start for start, _ in spans]
    removed: list[TextSpan] = []
    covered_until = 0
    for block in _blocks(text, lines):
        at = block.start
        for end in block.ends:
            first = bisect_left(starts, at)
            if covered_until > at or (first < len(starts) and starts[first] < max(end, at + 1)):
                for _, stop in spans[first : bisect_right(starts, end - 1, first)]:
                    covered_until = max(covered_until, stop)
                if block.needs_start and at == block.start:
                    removed.append((block.start, block.end))
                    break
                removed.append((at, end))
            at = end
    return removed


def _cut_lines(lines: Sequence[str], removed: Sequence[TextSpan]) -> list[str | None]:
    """The lines without the removed spans; None for a line of which nothing remains."""
    remaining: list[str | None] = []
    at = index = 0
    for line in lines:
        end = at + len(line)
        while index < len(removed) and removed[index][1] <= at:
            index += 1
        if line and index < len(removed) and removed[index][0] <= at and removed[index][1] >= end:
            # All of the line is removed, as are most: nothing of it need be put together.
            while index < len(removed) and removed[index][0] <= end and removed[index][1] <= end:
                index += 1
            fence = _FENCE.match(line)
            if fence:
                remaining.append(fence[0].rstrip() if fence[0] != line else line)
            else:
                remaining.append(None if line.strip() else "")
            at = end + 1
            continue
        parts, copied_until = list[str](), at
        while index < len(removed) and removed[index][0] <= end:
            start, stop = max(removed[index][0], at), min(removed[index][1], end)
            parts.append(line[copied_until - at : max(start, copied_until) - at])
            copied_until = max(copied_until, stop)
            if removed[index][1] > end:
                break
            index += 1
        rest = "".join((*parts, line[copied_until - at :])) if parts else line
        if rest != line and (fence := _FENCE.match(line)):
            rest = fence[0]
        remaining.append(
            None if parts and not rest.strip() and line.strip() else rest.rstrip() if rest != line else line
        )
        at = end + 1
    return remaining


def _close_fences(lines: Sequence[str], remaining: list[str | None]) -> None:
    """Remove fences when the last line between them is removed."""
    opened, had_content, has_content, fence = -1, False, False, ""
    for index, line in enumerate(lines):
        match = _FENCE.match(line)
        if fence and match and match[1].startswith(fence):
            if had_content and not has_content:
                remaining[opened : index + 1] = [None] * (index + 1 - opened)
            fence = ""
        elif fence:
            had_content, has_content = (
                had_content or bool(line.strip()),
                has_content or bool((remaining[index] or "").strip()),
            )
        elif match:
            opened, had_content, has_content, fence = index, False, False, match[1]


class _OpenHeading(Struct):
    index: int
    depth: float
    had_content: bool = False
    has_content: bool = False


def _drop_empty_headings(lines: Sequence[str], remaining: list[str | None]) -> None:
    """Remove headings and introducing lines when everything under them has been removed."""
    open_headings: list[_OpenHeading] = []
    fence = ""

    def close(depth: float, *, has_child: bool = False) -> None:
        while open_headings and (
            open_headings[-1].depth > depth
            or (open_headings[-1].depth == depth and (not has_child or open_headings[-1].had_content))
        ):
            closed = open_headings.pop()
            if closed.had_content and not closed.has_content:
                remaining[closed.index] = None
            if open_headings:
                open_headings[-1].had_content = True
                open_headings[-1].has_content = open_headings[-1].has_content or remaining[closed.index] is not None

    for index, line in enumerate(lines):
        match = _FENCE.match(line)
        if not line.strip():
            continue
        inside = bool(fence)
        if match:
            fence = "" if fence and match[1].startswith(fence) else fence or match[1]
        heading = None if inside or match else _HEADING.match(line)
        is_title = not inside and not match and bool(heading or _LABEL.match(line))
        if not is_title and not open_headings:
            continue
        depth = len(heading[1]) - 10.0 if heading else _depth(line)
        if is_title:
            close(depth)
            open_headings.append(_OpenHeading(index, depth))
        else:
            if not inside:
                close(depth, has_child=True)
            if open_headings:
                open_headings[-1].had_content = True
                open_headings[-1].has_content = open_headings[-1].has_content or remaining[index] is not None
    close(-100.0)


def _depth(line: str) -> float:
    """Indentation of a line; a list item counts as half a step deeper than the line that introduces it."""
    indent = len(line) - len(line.lstrip())
    return indent + (0.5 if _ITEM.match(line) or _FENCE.match(line) else 0.0)
