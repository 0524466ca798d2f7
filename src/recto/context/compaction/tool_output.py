"""What a tool's output looks like, and how much each of its lines tells.

Test runs, tracebacks, diffs, files, listings, logs and pages are told apart by the look of their lines, with the name
of the file where the call names one. Lines are weighed and never rewritten. Which of them are shown, and what a line
means, is decided elsewhere.
"""

from __future__ import annotations

import html
import json
import re
import string
from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import Literal, NamedTuple, TypeAlias

from recto.context.compaction.extractive import extract
from recto.context.compaction.levels import fitted
from recto.context.facts.paths import file_uses
from recto.context.facts.types import MessageView, ToolCall
from recto.context.window.plan import ToolResult
from recto.formats.json_spans import Json
from recto.text.identifiers import clip_middle
from recto.text.secrets import mask_secrets
from recto.text.sentences import collapse_spaces, shorten
from recto.text.truncation import CountText

Look: TypeAlias = Literal["diff", "run", "traceback", "paths", "file", "page", "prose", "log"]


class Weighed(NamedTuple):
    """A line and how much it tells; nothing where it is 0."""

    text: str
    weight: float


_SAMPLE = 300
"""Lines from which the look is told."""
_REPEATS = 3
"""So often a line is shown that differs only in its numbers."""
_LINE = 600
"""Characters of a line that are looked at."""

_NUMBER = re.compile(r"\s{0,8}\d{1,7}(?:→|\t|\s?\|\s|:\s)")
_GREP = re.compile(r"(?=[^\s:]{0,250}[A-Za-z/])[^\s:]{1,250}[:-]\d{1,7}[:-]|\d{1,7}[:-](?!\d)\s?\S")
_PATH = re.compile(r"(?:[-dlrwxs@+.]{10,12}\s.{0,80}\s)?[\w.@+~/\\-]{1,250}/?\*?\s*$")
_FOUND = re.compile(r"(?=[^\s:]{0,250}[A-Za-z/])((?:[A-Za-z]:)?[^\s:]{1,250}?)([:-])(\d{1,7})([:-])(.*)")
"""A line of a search: file, line and content; a colon where it was found, a dash beside it."""
_HEADING = re.compile(r"#{1,6}\s+\S")
_PLACED = re.compile(r"\S{1,200}\.\w{1,8}[:(]\d{1,7}(?:[:,]\d{1,5})?\)?: (?=\S)")
"""What compilers say: a place, then a message."""
_RUN = re.compile(
    r"--- (?:FAIL|PASS|SKIP)|=== (?:RUN|PAUSE|CONT)|(?:FAIL|ok|PASS)\s|FAILED\b|error(?:\[\w+\])?:|npm ERR!"
    r"|\S{1,200}::\w.{0,200}\s(?:PASSED|FAILED|ERROR)|=+ .{0,80}(?:passed|failed|error|test session).{0,80} =+"
    r"|test result:|test \S{1,200} \.\.\. |Tests?:\s|\s{0,8}[✓✗✘×●]\s|make(?:\[\d+\])?: |[Ee]xit code [1-9]"
)
_STACK = re.compile(
    r"Traceback \(most recent call last\)|\s{0,8}File \"[^\"]{1,300}\", line \d+|\s{1,12}at \S.{0,200}[:(]"
    r"|goroutine \d+|panic: |\s{0,4}\d+: 0x|Caused by:"
)
_WRONG = re.compile(
    r"\b(?:[A-Z]\w{0,60})?(?:Error|Exception|Failure)\b|\b(?:error|fatal|panic|critical|denied|timed out|undefined)\b"
    r"|\babort(?:ed)?\b|\bfail(?:ed|ure|s|ing)?\b|\bERR\b|\bE\d{4}\b|✗|✘|\bnot found\b|\bcannot\b"
    r"|\bexit (?:code|status):? [1-9]",
    re.IGNORECASE,
)
_WARNED = re.compile(r"\bwarn(?:ing)?\b|\bdeprecat", re.IGNORECASE)
_NOTHING_WRONG = re.compile(r"\b(?:0|no) (?:errors?|failed|failures?|warnings?)\b", re.IGNORECASE)
_COMPARED = re.compile(r"\s*(?:expected|actual|got|want|left|right|received|assert|E\s{2,})", re.IGNORECASE)
_SUMMED = re.compile(
    r"\b\d+ (?:passed|failed|errors?|skipped|warnings?|tests?|problems?|files? changed)\b|^FAIL\b|test result:"
    r"|^Tests?:|\bBUILD (?:FAILED|SUCCESS)|\b[Ee]xit (?:code|status)|^Ran \d+|\bissues?:|\bfinished\b|\bcompleted\b",
)
_PASSED = re.compile(
    r"\s*(?:--- PASS|=== (?:RUN|PAUSE|CONT|NAME)|PASS\b|ok\s|[✓✔]|test \S+ \.\.\. ok)|.{0,300}\sPASSED\b"
)
_FOREIGN = re.compile(
    r"site-packages|node_modules|/lib/python|/usr/|<frozen|/go/pkg/|/rustc/|internal/process|runtime/|\$GOROOT"
)
_FRAME = re.compile(r"\s{0,8}File \"|\s{1,12}at |\t/?\S{1,250}:\d+|\s{1,12}\d+: ")
_RAISED = re.compile(
    r"(?:[\w.]{1,120}\.)?\w{0,60}(?:Error|Exception|Warning|Exit|Interrupt)\b(?:: |$)|panic: |Caused by:"
    r"|thread '.{1,80}' panicked"
)
_DEFINED = re.compile(
    r"(?P<indent>\s{0,12})(?:@\w[\w.]{0,60}\s+)?(?:(?:export|default|public|private|protected|static|async|abstract"
    r"|final|pub|pub\(\w{1,20}\)|unsafe|inline|extern|override|virtual|declare|sealed|partial|internal)\s+){0,5}"
    r"(?:(?:def|class|func|function|fn|interface|type|struct|enum|trait|impl|module|mod|namespace|record|protocol"
    r"|object|macro|CREATE (?:TABLE|INDEX|VIEW|TRIGGER|FUNCTION))\b|(?P<value>const|var|let|val)\s+\w"
    r"|[A-Z][A-Z0-9_]{2,60}\s*[:=]|(?!default|else|try|finally)\w{1,60}\s*(?::|=)\s*$|\[{1,2}[\w.\"-]{1,80}\]{1,2}\s*$|(?!default|else|try|finally)[\w-]{1,60}:\s*$)"
)
_IMPORTED = re.compile(
    r"\s*(?:import\b|from\s+\S+\s+import|#include|using\s|use\s|require\(|package\s|\"[\w./-]{1,200}\"\s*$|\)\s*$)"
)
_REMARK = re.compile(r"\s*(?:\"{3}|'{3}|//[/!]?|#!?\s|\*|/\*\*?|--\s|;;)\s*\w")
_STAMP = re.compile(r"\d+|0x[0-9a-fA-F]+|[0-9a-f]{8,}")
_TELLS = re.compile(r"[^\W_]{2}|[\u2e80-\ud7ff]")
"""What a line has that says anything."""
_TAG = re.compile(r"\s*</?[\w-]{1,40}>\s*")


def look_of(lines: Sequence[str], path: str) -> Look:
    """What the lines look like; `path` is the file they come from, where one is known."""
    sample = [line[:_LINE] for line in _sampled(lines) if line.strip()]
    if not sample:
        return "log"

    def share(pattern: re.Pattern[str]) -> float:
        return sum(pattern.match(line) is not None for line in sample) / len(sample)

    if any(line.startswith(("diff --git ", "@@ -")) for line in sample):
        return "diff"
    page = path.endswith((".md", ".mdx", ".rst", ".txt", ".adoc", ".html", ".htm"))
    if share(_NUMBER) > 0.7:
        return "page" if page else "file"
    if share(_STACK) > 0.15 or any(line.startswith("Traceback (most") for line in sample):
        return "traceback"
    if share(_PLACED) > 0.3 or share(_RUN) > 0.08:
        return "run"
    if share(_GREP) > 0.6 or share(_PATH) > 0.7:
        return "paths"
    if page or share(_HEADING) > 0.03:
        return "page"
    indented = sum(line.startswith((" ", "\t", "}")) for line in sample)
    if path or (share(_DEFINED) > 0.05 and indented > len(sample) / 3):
        return "file"
    return "prose" if sum(map(_is_prose, sample)) > len(sample) / 2 else "log"


def weighed(lines: Sequence[str], look: Look) -> list[Weighed]:
    """The lines with how much each tells."""
    found = _WEIGHERS[look](lines)
    return [one if _says(plain(one.text)[:_LINE]) else one._replace(weight=0.0) for one in found]


def _says(line: str) -> bool:
    return _TELLS.search(line) is not None and _TAG.fullmatch(line) is None


def plain(line: str) -> str:
    """A line without the number that a tool wrote before it."""
    numbered = _NUMBER.match(line)
    return line[numbered.end() :] if numbered else line


def _sampled(lines: Sequence[str]) -> Sequence[str]:
    return lines if len(lines) <= 2 * _SAMPLE else [*lines[:_SAMPLE], *lines[-_SAMPLE:]]


def _is_prose(line: str) -> bool:
    words = line.split()
    return len(words) >= 6 and sum(word.strip(".,;:!?()\"'").isalpha() for word in words) > 0.6 * len(words)


def _is_wrong(line: str) -> bool:
    looked = line[:_LINE]
    return _WRONG.search(looked) is not None and _NOTHING_WRONG.search(looked) is None


def _diff(lines: Sequence[str]) -> list[Weighed]:
    """Files first, then places and the first changes of each."""
    found: list[Weighed] = []
    since = 0
    named = any(line.startswith("+++ ") for line in lines)
    for line in lines:
        if line.startswith("+++ ") and "/dev/null" not in line:
            weight = 4.0
        elif line.startswith(("diff --git ", "Index: ")):
            weight = 0.1 if named else 4.0
        elif line.startswith(("commit ", "rename ", "deleted file")) or _SUMMED.search(line[:_LINE]):
            weight = 3.0
        elif line.startswith("@@"):
            weight, since = 2.2, 0
        elif line.startswith(("+", "-")) and not line.startswith("--- "):
            weight = 2.4 / (1 + since / 2)
            since += 1
        else:
            weight = 0.1
        found.append(Weighed(line, weight))
    return found


def _run(lines: Sequence[str]) -> list[Weighed]:
    """What failed, with the lines that follow it, and what is said in sum."""
    found: list[Weighed] = []
    after = 0
    for at, line in enumerate(lines):
        looked = line[:_LINE]
        if _PASSED.match(looked):
            weight, after = 0.2 if looked.startswith("ok") else 0.02, 0
        elif _is_wrong(looked) or _COMPARED.match(looked):
            weight, after = 3.0, 6
        elif _SUMMED.search(looked):
            weight = 2.5
        else:
            weight = 1.0 if after > 0 and line.strip() else 0.3 if _WARNED.search(looked) else 0.1
            after -= 1
        if _SUMMED.search(looked) and at >= len(lines) - 12:
            weight += 2.0
        found.append(Weighed(line, weight))
    return found


def _traceback(lines: Sequence[str]) -> list[Weighed]:
    """What was raised, and the frames next to it that are the project's own."""
    ends = [at for at, line in enumerate(lines) if _RAISED.match(line.strip()[:_LINE])]
    found: list[Weighed] = []
    for at, line in enumerate(lines):
        looked = line[:_LINE]
        nearest = bisect_left(ends, at)
        distance = min((abs(at - end) for end in ends[max(0, nearest - 1) : nearest + 1]), default=at)
        if ends and not distance:
            weight = 5.0
        elif _FRAME.match(looked) or (at and _FRAME.match(lines[at - 1][:_LINE])):
            near = 2.5 / (1 + distance / 8)
            weight = near * (0.2 if _FOREIGN.search(looked) else 1.0)
        else:
            weight = 3.0 if _is_wrong(looked) else 0.3 if line.strip() else 0.0
        found.append(Weighed(line, weight))
    return found


def _file(lines: Sequence[str]) -> list[Weighed]:
    """Definitions, outer ones first, and the first remark of each part; what is imported is left out."""
    found: list[Weighed] = []
    fresh = True
    for line in lines:
        code = plain(line)[:_LINE]
        if not code.strip() or _IMPORTED.match(code):
            weight = 0.0
        elif defined := _DEFINED.match(code):
            depth = len(defined["indent"].expandtabs(4)) / 4
            weight, fresh = (0.3 if depth and defined["value"] else 3.0 / (1 + depth)), True
        elif fresh and _REMARK.match(code):
            weight, fresh = 1.2, False
        else:
            weight = 0.15
        found.append(Weighed(line, weight))
    return found


def _page(lines: Sequence[str]) -> list[Weighed]:
    """Headings, and the first line of what stands below each."""
    found: list[Weighed] = []
    place, fenced = 0, False
    for at, line in enumerate(lines):
        text = plain(line).strip()
        fenced ^= text.startswith("```")
        if _HEADING.match(text) and not fenced:
            weight, place = 3.5 - 0.4 * min(6, text.index(" ")), 0
        elif not text or fenced or text.startswith("```"):
            weight = 0.05 if text else 0.0
        else:
            weight = 1.6 / (1 + place) + (1.5 if at == 0 else 0.0)
            place += 1
        found.append(Weighed(line, weight))
    return found


def _paths(lines: Sequence[str]) -> list[Weighed]:
    """What a search found, below the name of each file; how it begins and ends before what is between."""
    found: list[Weighed] = []
    file = ""
    for at, line in enumerate(lines):
        edge = 1.0 / (1 + min(at, len(lines) - 1 - at))
        match = _FOUND.match(line[:_LINE])
        if match is None:
            found.append(Weighed(line, 0.6 + edge + (0.5 if _is_wrong(line) else 0.0)))
            continue
        # One search may name a file in full and not in full.
        fresh = not file or not (match[1].endswith(file) or file.endswith(match[1]))
        if fresh:
            file = match[1]
            found.append(Weighed(file, 2.0 + edge))
        weight = (1.0 if fresh else 0.7) + edge if match[4] == ":" else 0.1 + edge / 4
        told = match[5].strip()
        found.append(Weighed(f"{match[3]}{match[4]} {told}", weight if _TELLS.search(told) else 0.0))
    return found


def _log(lines: Sequence[str]) -> list[Weighed]:
    """Errors, warnings, how it begins and ends; what differs only in its numbers once."""
    found: list[Weighed] = []
    seen: dict[str, int] = {}
    whole: set[str] = set()
    for at, line in enumerate(lines):
        looked = line[:_LINE]
        alike = _STAMP.sub("0", looked)
        times = seen[alike] = seen.get(alike, 0) + 1
        weight = 3.0 if _is_wrong(looked) else 1.5 if _WARNED.search(looked) or _SUMMED.search(looked) else 0.4
        if (times == 1 and line.strip()) or at == len(lines) - 1:
            weight += 2.0 / (1 + min(at, len(lines) - 1 - at))
        elif times > _REPEATS or looked in whole:
            weight = 0.0
        whole.add(looked)
        found.append(Weighed(line, weight / times**2 if at < len(lines) - 1 else weight))
    return found


_WEIGHERS: dict[Look, Callable[[Sequence[str]], list[Weighed]]] = {
    "diff": _diff,
    "run": _run,
    "traceback": _traceback,
    "file": _file,
    "page": _page,
    "paths": _paths,
    "prose": _log,
    "log": _log,
}


_LOOKED = 400_000
"""Characters of an output that are looked at."""
_PER_TOKEN = 40
"""An output with more characters than this for each token allowed is not counted: it is too long."""
_DENSE = 10
"""Characters that a token of JSON never has on average."""
_LINE_RESULT_DIGEST = 200
"""Characters of one line that are shown."""
_LIMITS = (_LINE_RESULT_DIGEST, 110, 70)
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
_TAG_RESULT_DIGEST = re.compile(r"<[^<>]{1,500}>")


def digest(result: ToolResult, most: int, count: CountText) -> str:
    """What the result says, without its secrets, in at most so many tokens; a short one as it is."""
    if most <= 0 or not result.output.strip():
        return ""
    is_json = result.output.lstrip()[:1] in ("{", "[") and len(result.output) <= _JSON
    output = mask_secrets(_ESCAPE.sub("", result.output if is_json else clip_middle(result.output, _LOOKED)))
    if len(result.output) <= min(_LOOKED, most * _PER_TOKEN) and count(output) <= most:
        return output
    output = _without(output, "<system-reminder>", "</system-reminder>")
    made = _as_json(output, most, count) if is_json else ""
    return made or _as_lines(result, output, most, count) or _beginning(output, most, count)


def _beginning(output: str, most: int, count: CountText) -> str:
    return fitted(collapse_spaces(shorten(output, most * _PER_TOKEN)), most, count)


def _as_lines(result: ToolResult, output: str, most: int, count: CountText) -> str:
    if "<html" in output[:2_000].lower() or "<!doctype html" in output[:200].lower():
        lines, path = _page_lines(output), "page.html"
    else:
        lines, path = output.splitlines(), _path_of(result)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES // 4 * 3], *lines[-_LINES // 4 :]]
    look = look_of(lines, path)
    if look == "prose":
        said = extract([MessageView(seq=0, role="assistant", text=output)], tokens=most, count=count)
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


def _path_of(result: ToolResult) -> str:
    uses = [use for use in file_uses(ToolCall(result.tool, result.arguments)) if use.action == "read"]
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


def _line(text: str, limit: int = _LINE_RESULT_DIGEST) -> str:
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
        if " " in path or ":" in path or len(path) > _LINE_RESULT_DIGEST:
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
            (collapse_spaces(str(key)[:60]), _shape(one, depth - 1, elements, characters)) for key, one in value.items()
        ]
        told = [f"{key}: {shape}" for key, shape in members if characters > _ROOMY or shape not in _SAYS_NOTHING]
        return "{" + ", ".join([*told, *([_GAP] if len(told) < len(members) else [])]) + "}"
    if isinstance(value, list):
        if not depth and value:
            return "[…]"
        inner = [_shape(one, depth - 1, elements, characters) for one in value[:elements]]
        return "[" + ", ".join([*inner, *([_GAP] if len(value) > elements else [])]) + "]"
    if isinstance(value, str):
        flat = str(value) if isinstance(value, _Number) else collapse_spaces(value[: 4 * characters])
        if len(flat) <= characters:
            return flat
        # Half a name, a path or an address would be a wrong one.
        return f"{shorten(flat, characters)}…" if " " in flat[:characters] else _GAP
    return json.dumps(value)


def _page_lines(output: str) -> list[str]:
    """The text of a page line by line, its headings marked as in Markdown."""
    title = _TITLE.search(output[:20_000])
    text = output
    for name in _HIDDEN:
        text = _without(text, f"<{name}", f"</{name}>")
    text = _H.sub(lambda found: "\n" + "#" * int(found[1]) + " ", text)
    text = html.unescape(_TAG_RESULT_DIGEST.sub("", _BLOCK.sub("\n", text)))
    lines = [flat for line in text.splitlines() if (flat := collapse_spaces(line))]
    return [f"# {collapse_spaces(html.unescape(title[1]))}", *lines] if title else lines


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
