"""What one tool result says, in fewer tokens and without a model: its own lines, those that tell most.

Every number, path and message in a digest stands in the output. What kind of output it is, is told by its look
alone. A digest is still a tool's output: nothing in it is an instruction, ours or anybody's.
"""

from __future__ import annotations

import html
import json
import re
import string
from collections.abc import Sequence
from heapq import nlargest

from recto.core.extractive import extract
from recto.core.json_text import Json
from recto.core.levels import fitted
from recto.core.output_looks import Weighed, look_of, weighed
from recto.core.plan import Result
from recto.core.policies.clamp import CountText
from recto.core.references import ends_of
from recto.core.secrets import masked
from recto.core.sentences import one_line, shortened
from recto.core.told import Call, Told
from recto.core.written_paths import uses_in

_LOOKED = 400_000
"""Characters of an output that are looked at."""
_PER_TOKEN = 40
"""An output with more characters than this for each token allowed is not counted: it is too long."""
_DENSE = 10
"""Characters that a token of JSON never has on average."""
_LINE = 200
"""Characters of one line that are shown."""
_LIMITS = (_LINE, 110, 70)
"""The same where many lines tell much: better all of them shorter than some of them whole."""
_HEAVY = 2.0
"""The weight from which a line tells much."""
_USUAL = 3
"""Characters of a token, by a careful guess."""
_NAME = string.ascii_letters + string.digits + "_-./:@~%+#$\\"
"""What names, numbers and paths are written with."""
_ROUNDS = 2
"""Lines cost less together than each by itself, so that more of them fit than it seemed."""
_LEAST = 4
"""Tokens below which no line fits."""
_LONG = 1_000
"""Characters of a line, on average, in an output that has none."""
_LINES = 20_000
"""Lines that are looked at, most of them from the beginning."""
_CONSIDERED = 600
"""Lines that may be shown."""
_GAP = "…"
_OUTLINED = ("file", "page", "diff")
"""Looks of which everybody sees that lines are left out."""
_OTHERS = 3
"""Lines of a listing that are no files: a total, a note."""
_JSON = 2_000_000
"""Characters of JSON that are read."""
_DEPTH = 6
_SHAPES = (
    *(
        (_DEPTH, *shape)
        for shape in ((400, 20), (160, 8), (80, 8), (160, 3), (80, 3), (160, 1), (40, 3), (80, 1), (40, 1), (24, 1))
    ),
    *((depth, 24, 1) for depth in (3, 2, 1)),
)
"""How deep JSON is shown, how many characters of a text, and how many elements of a list: as much as fits."""
_ROOMY = 80
"""Above so many characters for a text, what says nothing is shown too."""
_SAYS_NOTHING = ("null", "", "[]", "{}", "{…}", "[…]", _GAP)
_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")
_HIDDEN = ("script", "style", "svg")
"""What a page holds that is not read."""
_TITLE = re.compile(r"<title[^<>]{0,200}>(.{0,300}?)</title>", re.DOTALL | re.IGNORECASE)
_H = re.compile(r"<h([1-6])\b[^<>]{0,500}>", re.IGNORECASE)
_BLOCK = re.compile(
    r"</?(?:p|div|br|li|ul|ol|tr|td|th|table|section|article|h[1-6]|pre|blockquote)\b[^<>]{0,500}>", re.IGNORECASE
)
_TAG = re.compile(r"<[^<>]{1,500}>")


def digest(result: Result, most: int, count: CountText) -> str:
    """What the result says, without its secrets, in at most so many tokens; a short one as it is."""
    if most <= 0 or not result.output.strip():
        return ""
    is_json = result.output.lstrip()[:1] in ("{", "[") and len(result.output) <= _JSON
    output = masked(_ESCAPE.sub("", result.output if is_json else ends_of(result.output, _LOOKED)))
    if len(result.output) <= min(_LOOKED, most * _PER_TOKEN) and count(output) <= most:
        return output
    output = _without(output, "<system-reminder>", "</system-reminder>")
    made = _as_json(output, most, count) if is_json else ""
    return made or _as_lines(result, output, most, count) or _beginning(output, most, count)


def _beginning(output: str, most: int, count: CountText) -> str:
    return fitted(one_line(shortened(output, most * _PER_TOKEN)), most, count)


def _as_lines(result: Result, output: str, most: int, count: CountText) -> str:
    if "<html" in output[:2_000].lower() or "<!doctype html" in output[:200].lower():
        lines, path = _page_lines(output), "page.html"
    else:
        lines, path = output.splitlines(), _path_of(result)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES // 4 * 3], *lines[-_LINES // 4 :]]
    look = look_of(lines, path)
    if look == "prose":
        said = extract([Told(seq=0, role="assistant", text=output)], tokens=most, count=count)
        made = "\n".join(one.text for one in said)
        if made and count(made) <= most:
            return made
    if len(output) > _LONG * max(1, len(lines)):
        return ""  # not written in lines
    if look == "paths":
        made = _as_folders(lines, most, count)
        if made:
            return made
    return _told(weighed(lines, look), most, count, "" if look in _OUTLINED else _GAP)


def _path_of(result: Result) -> str:
    uses = [use for use in uses_in(Call(result.tool, result.arguments)) if use.deed == "read"]
    return uses[0].path if len(uses) == 1 else ""


def _told(lines: Sequence[Weighed], most: int, count: CountText, gap: str) -> str:
    """The lines that tell most, in their order, with a mark where some are left out."""
    heavy = [one.text for one in lines if one.weight >= _HEAVY]
    room = most * _USUAL
    limit = next((limit for limit in _LIMITS if sum(min(len(text), limit) for text in heavy) <= room), _LIMITS[-1])
    best = nlargest(min(_CONSIDERED, 2 * most), range(len(lines)), key=lambda at: (lines[at].weight, -at))
    chosen: dict[int, str] = {}
    made, left = "", most
    for _ in range(_ROUNDS):
        for at in best:
            if left < _LEAST:
                break
            text = _line(lines[at].text, limit) if at not in chosen and lines[at].weight > 0 else ""
            cost = count(text) + 1 if text else 0
            if text and cost <= left:
                chosen[at] = text
                left -= cost
        made = _fewer(best, chosen, most, count, gap)
        left = most - count(made) if made else 0
    return made


def _fewer(best: Sequence[int], chosen: dict[int, str], most: int, count: CountText, gap: str) -> str:
    """The chosen lines joined; while that is too much, the least of them goes."""
    order = [at for at in best if at in chosen]
    while order:
        made = _joined(sorted(order), chosen, gap)
        over = count(made) - most
        if over <= 0:
            return made
        for _ in range(max(1, min(len(order) // 2, over // 8))):
            del chosen[order.pop()]
    return ""


def _joined(places: Sequence[int], texts: dict[int, str], gap: str) -> str:
    parts: list[str] = []
    before = -1
    for at in places:
        if gap and at > before + 1:
            parts.append(gap)
        parts.append(texts[at])
        before = at
    return "\n".join(parts)


def _line(text: str, limit: int = _LINE) -> str:
    """A line as it stands, its indentation kept; a long one is cut behind a word or a sign, never inside a name."""
    kept = text.rstrip()
    if len(kept) <= limit:
        return kept
    piece = kept[:limit]
    if kept[limit] in _NAME:
        piece = piece.rstrip(_NAME)
    return f"{piece.rstrip()}{_GAP}" if piece.strip() else ""


def _as_folders(lines: Sequence[str], most: int, count: CountText) -> str:
    """A listing of files, a line for each folder below the one they share; empty where the lines are something else."""
    folders: dict[str, list[str]] = {}
    others: list[str] = []
    for line in filter(str.strip, lines):
        path = line.strip()
        if " " in path or ":" in path or len(path) > _LINE:
            others.append(_line(path))
            if len(others) > _OTHERS:
                return ""
            continue
        folder, slash, name = path.rpartition("/")
        folders.setdefault(folder + slash, []).append(name or path)
    shared = _shared(list(folders))
    for shown in (64, 24, 12, 6, 3, 1):
        rows = [f"{folder[len(shared) :] or './'} {_names(names, shown)}" for folder, names in folders.items()]
        made = "\n".join((*([shared] if shared else []), *rows, *others))
        if len(made) <= most * _PER_TOKEN and count(made) <= most:
            return made
    return ""


def _shared(folders: Sequence[str]) -> str:
    """The folder that all of these lie in."""
    if not folders:
        return ""
    first, last = min(folders), max(folders)
    same = next((at for at, sign in enumerate(first) if at >= len(last) or last[at] != sign), len(first))
    return first[: first.rfind("/", 0, same) + 1]


def _names(names: Sequence[str], shown: int) -> str:
    """How a folder's list begins and how it ends."""
    if len(names) <= shown + 1:
        return ", ".join(names)
    return ", ".join((*names[:shown], _GAP, names[-1]))


class _Number(str):
    """A number of JSON as it is written."""

    __slots__ = ()


def _as_json(output: str, most: int, count: CountText) -> str:
    """Keys, shapes and first values of JSON; empty where it is none."""
    try:
        read = json.loads(output, parse_int=_Number, parse_float=_Number)
    except (ValueError, RecursionError):
        return ""
    made = ""
    for depth, characters, elements in _SHAPES:
        made = _shape(read, depth, elements, characters)
        if len(made) <= most * _DENSE and count(made) <= most:
            return made
    return fitted(made, most, count)


def _shape(value: Json, depth: int, elements: int, characters: int) -> str:
    if isinstance(value, dict):
        if not depth and value:
            return "{…}"
        members = [
            (one_line(str(key)[:60]), _shape(one, depth - 1, elements, characters)) for key, one in value.items()
        ]
        told = [f"{key}: {shape}" for key, shape in members if characters > _ROOMY or shape not in _SAYS_NOTHING]
        return "{" + ", ".join([*told, *([_GAP] if len(told) < len(members) else [])]) + "}"
    if isinstance(value, list):
        if not depth and value:
            return "[…]"
        inner = [_shape(one, depth - 1, elements, characters) for one in value[:elements]]
        return "[" + ", ".join([*inner, *([_GAP] if len(value) > elements else [])]) + "]"
    if isinstance(value, str):
        flat = str(value) if isinstance(value, _Number) else one_line(value[: 4 * characters])
        if len(flat) <= characters:
            return flat
        # Half a name, a path or an address would be a wrong one.
        return f"{shortened(flat, characters)}…" if " " in flat[:characters] else _GAP
    return json.dumps(value)


def _page_lines(output: str) -> list[str]:
    """The text of a page line by line, its headings marked as in Markdown."""
    title = _TITLE.search(output[:20_000])
    text = output
    for name in _HIDDEN:
        text = _without(text, f"<{name}", f"</{name}>")
    text = _H.sub(lambda found: "\n" + "#" * int(found[1]) + " ", text)
    text = html.unescape(_TAG.sub("", _BLOCK.sub("\n", text)))
    lines = [flat for line in text.splitlines() if (flat := one_line(line))]
    return [f"# {one_line(html.unescape(title[1]))}", *lines] if title else lines


def _without(text: str, opens: str, closes: str) -> str:
    """The text without what stands between two marks."""
    lowered = text.lower()
    if len(lowered) != len(text):
        return text
    parts, at = list[str](), 0
    while (start := lowered.find(opens, at)) >= 0 and (end := lowered.find(closes, start)) >= 0:
        parts.append(text[at:start])
        at = end + len(closes)
    return "\n".join((*parts, text[at:]))
