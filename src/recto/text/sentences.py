"""The sentences and lines of prose in a text, each verbatim but for its white space.

Code, tables, quoted lines and blocks between tags are left out: they are data and not said by anybody. No language is
known here; sentences end where its marks say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from recto.text.identifiers import ends_of

LONGEST = 320
"""Characters of one sentence; a longer one is cut where it pauses."""
_MOST = 40_000
"""Characters of a text that are looked at."""
_WRAPPED = 50
"""Characters of a line that may be followed by the rest of its sentence."""

_FENCE = re.compile(r"\s{0,8}(```|~~~)")
_TAG = re.compile(r"\s{0,40}<([a-zA-Z][\w-]{2,40})(?:\s[^<>\n]{0,200})?>")
_MARK = re.compile(r"(?:[-*•+>]\s{1,4}|#{1,6}\s{1,4}|\d{1,2}[.)]\s{1,4}|\[[ xX]\]\s{1,4}){1,4}")
"""What a line of a list, a heading or a quotation begins with."""
_END = re.compile(r"[.!?…]++[\"'”’)\]*_`]*+\s++(?=[^a-z\s])|[。！？؟।]++[」』”’）]*+\s*+")
_NO_END = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|Mr|Ms|Mrs|Dr|No|St)\.$|\s[A-Za-z]\.$")
_NUMBERED = re.compile(r"\W{0,3}(?:\d{1,3}|[A-Za-z])\.")
"""A piece that is only the number of what follows."""
_GOES_ON = re.compile(r"[a-z]{1,20}(?:'[a-z]{1,3})?[ ,.)]")
"""How a line begins that carries on the sentence of the line before."""
_PAUSE = re.compile(r"[;,:](?=\s)|\s[—–-](?=\s)|[，、；：،]")
_WRITTEN = "".join(map(chr, range(0x21, 0x7F)))
"""What words, numbers and paths are written with; other scripts may be cut anywhere."""
_SIGNS = frozenset("{}()[]<>=;|\\$&^%#@+*_/~`")
_CODE_ENDS = ("{", "}", ");", "};", ",}", "],", "=>", "->", "(", "[")
_LINE_NUMBER = re.compile(r"\s*\d+(?:→|\t|\s?[|:]\s|-\s|:(?=[A-Za-z]))")
_RULE = re.compile(r"[\s\W_]*")
_BOX = re.compile("[\u2500-\u259f]")


def sentences(text: str, most: int = _MOST) -> list[str]:
    """What is said in a text, in its order. Of a long text only the beginning and the end are looked at."""
    return [one for line in _paragraphs(ends_of(text, most)) for one in _split(line)]


def one_line(text: str) -> str:
    """The text with single spaces."""
    return " ".join(text.split())


def shortened(text: str, most: int) -> str:
    """At most so many characters from the beginning of a text, cut where it pauses, else between words.

    Nothing is cut in two: half a number or half a path would be another one. What is a single word is left out whole.
    """
    if len(text) <= most:
        return text
    piece = text[: max(most, 0)]
    pauses = [found.start() for found in _PAUSE.finditer(piece, most * 2 // 3)]
    if pauses:
        return piece[: pauses[-1]].rstrip()
    if text[len(piece)] in _WRITTEN:
        whole = piece.rstrip(_WRITTEN)
        piece = whole if whole or not piece.isalpha() else piece
    return piece.rstrip()


def run_on(said: Iterable[str]) -> str:
    """Sentences one after another; what has no mark at its end gets one between."""
    text = ""
    for one in said:
        text += ("" if not text else " " if text[-1] in ".!?:;…。！？" else "; ") + one
    return text


def is_code(line: str) -> bool:
    """Whether a line is rather written for a machine."""
    plain = line.strip()
    if plain.startswith("|") or plain.endswith(_CODE_ENDS) or _LINE_NUMBER.match(plain) or _BOX.search(plain[:80]):
        return True
    looked = plain[:200]
    bare = re.sub(r"`[^`]{1,80}`|\*\*|\S*/\S*", "", looked)
    signs = sum(character in _SIGNS for character in bare)
    return signs > 3 and signs > len(bare) / 12


def _paragraphs(text: str) -> list[str]:
    """Lines of prose; what was broken inside a sentence is joined again."""
    found: list[str] = []
    fence = tag = ""
    joins = False
    for line in text.splitlines():
        if tag:
            tag = "" if f"</{tag}>" in line else tag
            joins = False
        elif opened := _FENCE.match(line):
            fence = "" if fence == opened[1] else fence or opened[1]
            joins = False
        elif fence or not line.strip() or _RULE.fullmatch(line) or is_code(line):
            joins = False
        elif (begun := _TAG.match(line)) and (f"</{begun[1]}>" in text):
            tag = "" if f"</{begun[1]}>" in line else begun[1]
            joins = False
        else:
            plain = line.strip()
            if joins and _GOES_ON.match(plain):
                found[-1] += " " + plain
            else:
                found.append(_unmarked(plain))
            joins = len(plain) >= _WRAPPED and plain[-1:] not in ".!?:;。！？"
    return found


def _unmarked(line: str) -> str:
    marked = _MARK.match(line)
    return line[marked.end() :] if marked else line


def _split(line: str) -> list[str]:
    """The sentences of a line."""
    found: list[str] = []
    start = 0
    for end in _END.finditer(line):
        piece = line[start : end.end()].strip()
        if not _NO_END.search(piece[-8:]) and not _NUMBERED.fullmatch(piece):
            found.append(piece)
            start = end.end()
    found.append(line[start:].strip())
    return [short for piece in found if (short := shortened(one_line(piece), LONGEST))]
