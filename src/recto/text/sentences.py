"""The sentences and prose lines of a text, verbatim except for white space.

Code, tables, quoted lines and tagged blocks are skipped: they are data. Language-independent: sentences end at
punctuation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from recto.text.lazy_re import lazy_re
from recto.text.terms import clip_middle

MAX_SENTENCE_CHARS = 320
"""Characters of one sentence; a longer one is cut at a pause."""
_MAX_CHARS = 40_000
"""Characters of a text that are read."""
_MIN_WRAPPED_CHARS = 50
"""Minimum length of a line whose sentence may continue on the next line."""

_FENCE = lazy_re(r"\s{0,8}(```|~~~)")
_TAG = lazy_re(r"\s{0,40}<([a-zA-Z][\w-]{2,40})(?:\s[^<>\n]{0,200})?>")
_LIST_MARKER = lazy_re(r"(?:[-*•+>]\s{1,4}|#{1,6}\s{1,4}|\d{1,2}[.)]\s{1,4}|\[[ xX]\]\s{1,4}){1,4}")
"""Markers at the beginning of list items, headings and quotations."""
_END = lazy_re(r"[.!?…]++[\"'”’)\]*_`]*+\s++(?=[^a-z\s])|[。！？؟।]++[」』”’）]*+\s*+")
_ABBREVIATION = lazy_re(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|Mr|Ms|Mrs|Dr|No|St)\.$|\s[A-Za-z]\.$")
_NUMBER_ONLY = lazy_re(r"\W{0,3}(?:\d{1,3}|[A-Za-z])\.")
"""A piece that is only the number of what follows."""
_CONTINUATION = lazy_re(r"[a-z]{1,20}(?:'[a-z]{1,3})?[ ,.)]")
"""How a line begins that continues the previous line's sentence."""
_PAUSE = lazy_re(r"[;,:](?=\s)|\s[—–-](?=\s)|[，、；：،]")
_WORD_CHARS = "".join(map(chr, range(0x21, 0x7F)))
"""Characters of words, numbers and paths; other scripts may be cut anywhere."""
_CODE_CHARS = frozenset("{}()[]<>=;|\\$&^%#@+*_/~`")
_CODE_LINE_ENDS = ("{", "}", ");", "};", ",}", "],", "=>", "->", "(", "[")
_LINE_NUMBER = lazy_re(r"\s*\d+(?:→|\t|\s?[|:]\s|-\s|:(?=[A-Za-z]))")
_HORIZONTAL_RULE = lazy_re(r"[\s\W_]*")
_BOX = lazy_re("[\u2500-\u259f]")


def split_sentences(text: str, max_chars: int = _MAX_CHARS) -> list[str]:
    """The sentences of a text, in order. Of a long text only the beginning and the end are read."""
    return [sentence for line in _paragraphs(clip_middle(text, max_chars)) for sentence in _split_line(line)]


def collapse_spaces(text: str) -> str:
    """The text with single spaces."""
    return " ".join(text.split())


def shorten(text: str, max_chars: int) -> str:
    """At most `max_chars` characters from the beginning of a text, cut at a pause, else between words.

    No word is cut in two: half a number or half a path would be a different one. A single long word is dropped.
    """
    if len(text) <= max_chars:
        return text
    piece = text[: max(max_chars, 0)]
    pauses = [pause.start() for pause in _PAUSE.finditer(piece, max_chars * 2 // 3)]
    if pauses:
        return piece[: pauses[-1]].rstrip()
    if text[len(piece)] in _WORD_CHARS:
        complete = piece.rstrip(_WORD_CHARS)
        piece = complete if complete or not piece.isalpha() else piece
    return piece.rstrip()


def join_sentences(parts: Iterable[str]) -> str:
    """Join sentences; those without a final punctuation mark are separated by a semicolon."""
    text = ""
    for part in parts:
        text += ("" if not text else " " if text[-1] in ".!?:;…。！？" else "; ") + part
    return text


def is_code(line: str) -> bool:
    """Whether a line looks like code or other machine output."""
    plain = line.strip()
    if plain.startswith("|") or plain.endswith(_CODE_LINE_ENDS) or _LINE_NUMBER.match(plain) or _BOX.search(plain[:80]):
        return True
    head = plain[:200]
    bare = re.sub(r"`[^`]{1,80}`|\*\*|\S*/\S*", "", head)
    signs = sum(character in _CODE_CHARS for character in bare)
    return signs > 3 and signs > len(bare) / 12


def _paragraphs(text: str) -> list[str]:
    """Lines of prose; sentences that were broken across lines are joined."""
    paragraphs: list[str] = []
    fence = tag = ""
    joins = False
    for line in text.splitlines():
        if tag:
            tag = "" if f"</{tag}>" in line else tag
            joins = False
        elif opened := _FENCE.match(line):
            fence = "" if fence == opened[1] else fence or opened[1]
            joins = False
        elif fence or not line.strip() or _HORIZONTAL_RULE.fullmatch(line) or is_code(line):
            joins = False
        elif (opened_tag := _TAG.match(line)) and (f"</{opened_tag[1]}>" in text):
            tag = "" if f"</{opened_tag[1]}>" in line else opened_tag[1]
            joins = False
        else:
            plain = line.strip()
            if joins and _CONTINUATION.match(plain):
                paragraphs[-1] += " " + plain
            else:
                paragraphs.append(_strip_list_marker(plain))
            joins = len(plain) >= _MIN_WRAPPED_CHARS and plain[-1:] not in ".!?:;。！？"
    return paragraphs


def _strip_list_marker(line: str) -> str:
    marker = _LIST_MARKER.match(line)
    return line[marker.end() :] if marker else line


def _split_line(line: str) -> list[str]:
    """The sentences of a line."""
    pieces: list[str] = []
    start = 0
    for end in _END.finditer(line):
        piece = line[start : end.end()].strip()
        if not _ABBREVIATION.search(piece[-8:]) and not _NUMBER_ONLY.fullmatch(piece):
            pieces.append(piece)
            start = end.end()
    pieces.append(line[start:].strip())
    return [shortened for piece in pieces if (shortened := shorten(collapse_spaces(piece), MAX_SENTENCE_CHARS))]
