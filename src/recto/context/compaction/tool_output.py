"""Summaries of tool output: detect its kind, weigh its lines, and show the most informative within a token limit.

Test runs, tracebacks, diffs, files, listings, logs and pages are detected by the form of their lines, and by the file
name if the call names one. JSON is shown by its shape, listings by folder, prose by its sentences, and everything else
by its heaviest lines. Lines are weighed and cut, never rewritten.
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

from recto.context.compaction.extractive import extract_sentences
from recto.context.compaction.levels import fit_text
from recto.context.facts.tool_use import file_uses
from recto.context.facts.types import MessageView, ToolCall
from recto.context.window.units import ToolResult
from recto.formats.json_spans import Json
from recto.text.lazy_re import lazy_re
from recto.text.secrets import mask_secrets
from recto.text.sentences import collapse_spaces, shorten
from recto.text.terms import clip_middle
from recto.text.truncation import CountText

OutputKind: TypeAlias = Literal["diff", "run", "traceback", "paths", "file", "page", "prose", "log"]


class WeighedLine(NamedTuple):
    """A line and how informative it is; 0: not at all."""

    text: str
    weight: float


_SAMPLE_LINES = 300
"""Lines at each end that decide the kind."""
_MAX_REPEATS = 3
"""How often lines that differ only in numbers are shown."""
_MAX_LINE_CHARS = 600
"""Characters of a line that are read."""

_LINE_NUMBER = lazy_re(r"\s{0,8}\d{1,7}(?:→|\t|\s?\|\s|:\s)")
_GREP = lazy_re(r"(?=[^\s:]{0,250}[A-Za-z/])[^\s:]{1,250}[:-]\d{1,7}[:-]|\d{1,7}[:-](?!\d)\s?\S")
_PATH = lazy_re(r"(?:[-dlrwxs@+.]{10,12}\s.{0,80}\s)?[\w.@+~/\\-]{1,250}/?\*?\s*$")
_SEARCH_HIT = lazy_re(r"(?=[^\s:]{0,250}[A-Za-z/])((?:[A-Za-z]:)?[^\s:]{1,250}?)([:-])(\d{1,7})([:-])(.*)")
"""A search hit: file, line and content; a colon after a match, a dash after a context line."""
_HEADING = lazy_re(r"#{1,6}\s+\S")
_DIAGNOSTIC = lazy_re(r"\S{1,200}\.\w{1,8}[:(]\d{1,7}(?:[:,]\d{1,5})?\)?: (?=\S)")
"""Compiler diagnostics: a location, then a message."""
_RUN = lazy_re(
    r"--- (?:FAIL|PASS|SKIP)|=== (?:RUN|PAUSE|CONT)|(?:FAIL|ok|PASS)\s|FAILED\b|error(?:\[\w+\])?:|npm ERR!"
    r"|\S{1,200}::\w.{0,200}\s(?:PASSED|FAILED|ERROR)|=+ .{0,80}(?:passed|failed|error|test session).{0,80} =+"
    r"|test result:|test \S{1,200} \.\.\. |Tests?:\s|\s{0,8}[✓✗✘×●]\s|make(?:\[\d+\])?: |[Ee]xit code [1-9]"
)
_STACK = lazy_re(
    r"Traceback \(most recent call last\)|\s{0,8}File \"[^\"]{1,300}\", line \d+|\s{1,12}at \S.{0,200}[:(]"
    r"|goroutine \d+|panic: |\s{0,4}\d+: 0x|Caused by:"
)
_ERROR = lazy_re(
    r"\b(?:[A-Z]\w{0,60})?(?:Error|Exception|Failure)\b|\b(?:error|fatal|panic|critical|denied|timed out|undefined)\b"
    r"|\babort(?:ed)?\b|\bfail(?:ed|ure|s|ing)?\b|\bERR\b|\bE\d{4}\b|✗|✘|\bnot found\b|\bcannot\b"
    r"|\bexit (?:code|status):? [1-9]",
    re.IGNORECASE,
)
_WARNING = lazy_re(r"\bwarn(?:ing)?\b|\bdeprecat", re.IGNORECASE)
_NO_ERRORS = lazy_re(r"\b(?:0|no) (?:errors?|failed|failures?|warnings?)\b", re.IGNORECASE)
_COMPARISON = lazy_re(r"\s*(?:expected|actual|got|want|left|right|received|assert|E\s{2,})", re.IGNORECASE)
_TOTALS = lazy_re(
    r"\b\d+ (?:passed|failed|errors?|skipped|warnings?|tests?|problems?|files? changed)\b|^FAIL\b|test result:"
    r"|^Tests?:|\bBUILD (?:FAILED|SUCCESS)|\b[Ee]xit (?:code|status)|^Ran \d+|\bissues?:|\bfinished\b|\bcompleted\b",
)
_PASSED = lazy_re(r"\s*(?:--- PASS|=== (?:RUN|PAUSE|CONT|NAME)|PASS\b|ok\s|[✓✔]|test \S+ \.\.\. ok)|.{0,300}\sPASSED\b")
_THIRD_PARTY = lazy_re(
    r"site-packages|node_modules|/lib/python|/usr/|<frozen|/go/pkg/|/rustc/|internal/process|runtime/|\$GOROOT"
)
_FRAME = lazy_re(r"\s{0,8}File \"|\s{1,12}at |\t/?\S{1,250}:\d+|\s{1,12}\d+: ")
_EXCEPTION = lazy_re(
    r"(?:[\w.]{1,120}\.)?\w{0,60}(?:Error|Exception|Warning|Exit|Interrupt)\b(?:: |$)|panic: |Caused by:"
    r"|thread '.{1,80}' panicked"
)
_DEFINITION = lazy_re(
    r"(?P<indent>\s{0,12})(?:@\w[\w.]{0,60}\s+)?(?:(?:export|default|public|private|protected|static|async|abstract"
    r"|final|pub|pub\(\w{1,20}\)|unsafe|inline|extern|override|virtual|declare|sealed|partial|internal)\s+){0,5}"
    r"(?:(?:def|class|func|function|fn|interface|type|struct|enum|trait|impl|module|mod|namespace|record|protocol"
    r"|object|macro|CREATE (?:TABLE|INDEX|VIEW|TRIGGER|FUNCTION))\b|(?P<value>const|var|let|val)\s+\w"
    r"|[A-Z][A-Z0-9_]{2,60}\s*[:=]|(?!default|else|try|finally)\w{1,60}\s*(?::|=)\s*$|\[{1,2}[\w.\"-]{1,80}\]{1,2}\s*$|(?!default|else|try|finally)[\w-]{1,60}:\s*$)"
)
_IMPORT = lazy_re(
    r"\s*(?:import\b|from\s+\S+\s+import|#include|using\s|use\s|require\(|package\s|\"[\w./-]{1,200}\"\s*$|\)\s*$)"
)
_COMMENT = lazy_re(r"\s*(?:\"{3}|'{3}|//[/!]?|#!?\s|\*|/\*\*?|--\s|;;)\s*\w")
_STAMP = lazy_re(r"\d+|0x[0-9a-fA-F]+|[0-9a-f]{8,}")
_HAS_CONTENT = lazy_re(r"[^\W_]{2}|[\u2e80-\ud7ff]")
"""What a line with any content contains."""
_TAG_LINE = lazy_re(r"\s*</?[\w-]{1,40}>\s*")


def detect_output_kind(lines: Sequence[str], path: str) -> OutputKind:
    """The kind of an output; `path` is its file, if known."""
    sample = [line[:_MAX_LINE_CHARS] for line in _sampled(lines) if line.strip()]
    if not sample:
        return "log"

    def share(pattern: re.Pattern[str]) -> float:
        return sum(pattern.match(line) is not None for line in sample) / len(sample)

    if any(line.startswith(("diff --git ", "@@ -")) for line in sample):
        return "diff"
    page = path.endswith((".md", ".mdx", ".rst", ".txt", ".adoc", ".html", ".htm"))
    if share(_LINE_NUMBER) > 0.7:
        return "page" if page else "file"
    if share(_STACK) > 0.15 or any(line.startswith("Traceback (most") for line in sample):
        return "traceback"
    if share(_DIAGNOSTIC) > 0.3 or share(_RUN) > 0.08:
        return "run"
    if share(_GREP) > 0.6 or share(_PATH) > 0.7:
        return "paths"
    if page or share(_HEADING) > 0.03:
        return "page"
    indented = sum(line.startswith((" ", "\t", "}")) for line in sample)
    if path or (share(_DEFINITION) > 0.05 and indented > len(sample) / 3):
        return "file"
    return "prose" if sum(map(_is_prose, sample)) > len(sample) / 2 else "log"


def weigh_lines(lines: Sequence[str], kind: OutputKind) -> list[WeighedLine]:
    """The lines with their weights."""
    lines_weighed = _WEIGHERS[kind](lines)
    return [
        line if _is_informative(strip_line_number(line.text)[:_MAX_LINE_CHARS]) else line._replace(weight=0.0)
        for line in lines_weighed
    ]


def _is_informative(line: str) -> bool:
    return _HAS_CONTENT.search(line) is not None and _TAG_LINE.fullmatch(line) is None


def strip_line_number(line: str) -> str:
    """A line without the line number a tool prepended."""
    match = _LINE_NUMBER.match(line)
    return line[match.end() :] if match else line


def _sampled(lines: Sequence[str]) -> Sequence[str]:
    return lines if len(lines) <= 2 * _SAMPLE_LINES else [*lines[:_SAMPLE_LINES], *lines[-_SAMPLE_LINES:]]


def _is_prose(line: str) -> bool:
    words = line.split()
    return len(words) >= 6 and sum(word.strip(".,;:!?()\"'").isalpha() for word in words) > 0.6 * len(words)


def _is_error(line: str) -> bool:
    clipped = line[:_MAX_LINE_CHARS]
    return _ERROR.search(clipped) is not None and _NO_ERRORS.search(clipped) is None


def _weigh_diff(lines: Sequence[str]) -> list[WeighedLine]:
    """Files first, then hunks and the first changes of each."""
    weighed: list[WeighedLine] = []
    changes = 0
    has_file_names = any(line.startswith("+++ ") for line in lines)
    for line in lines:
        if line.startswith("+++ ") and "/dev/null" not in line:
            weight = 4.0
        elif line.startswith(("diff --git ", "Index: ")):
            weight = 0.1 if has_file_names else 4.0
        elif line.startswith(("commit ", "rename ", "deleted file")) or _TOTALS.search(line[:_MAX_LINE_CHARS]):
            weight = 3.0
        elif line.startswith("@@"):
            weight, changes = 2.2, 0
        elif line.startswith(("+", "-")) and not line.startswith("--- "):
            weight = 2.4 / (1 + changes / 2)
            changes += 1
        else:
            weight = 0.1
        weighed.append(WeighedLine(line, weight))
    return weighed


def _weigh_run(lines: Sequence[str]) -> list[WeighedLine]:
    """Failures with the lines that follow, and totals."""
    weighed: list[WeighedLine] = []
    follow_up = 0
    for index, line in enumerate(lines):
        clipped = line[:_MAX_LINE_CHARS]
        if _PASSED.match(clipped):
            weight, follow_up = 0.2 if clipped.startswith("ok") else 0.02, 0
        elif _is_error(clipped) or _COMPARISON.match(clipped):
            weight, follow_up = 3.0, 6
        elif _TOTALS.search(clipped):
            weight = 2.5
        else:
            weight = 1.0 if follow_up > 0 and line.strip() else 0.3 if _WARNING.search(clipped) else 0.1
            follow_up -= 1
        if _TOTALS.search(clipped) and index >= len(lines) - 12:
            weight += 2.0
        weighed.append(WeighedLine(line, weight))
    return weighed


def _weigh_traceback(lines: Sequence[str]) -> list[WeighedLine]:
    """The exception, and the project's own frames next to it."""
    exceptions = [index for index, line in enumerate(lines) if _EXCEPTION.match(line.strip()[:_MAX_LINE_CHARS])]
    weighed: list[WeighedLine] = []
    for index, line in enumerate(lines):
        clipped = line[:_MAX_LINE_CHARS]
        nearest = bisect_left(exceptions, index)
        distance = min((abs(index - end) for end in exceptions[max(0, nearest - 1) : nearest + 1]), default=index)
        if exceptions and not distance:
            weight = 5.0
        elif _FRAME.match(clipped) or (index and _FRAME.match(lines[index - 1][:_MAX_LINE_CHARS])):
            near = 2.5 / (1 + distance / 8)
            weight = near * (0.2 if _THIRD_PARTY.search(clipped) else 1.0)
        else:
            weight = 3.0 if _is_error(clipped) else 0.3 if line.strip() else 0.0
        weighed.append(WeighedLine(line, weight))
    return weighed


def _weigh_file(lines: Sequence[str]) -> list[WeighedLine]:
    """Definitions, outer ones first, and the first comment of each; imports are dropped."""
    weighed: list[WeighedLine] = []
    awaits_comment = True
    for line in lines:
        code = strip_line_number(line)[:_MAX_LINE_CHARS]
        if not code.strip() or _IMPORT.match(code):
            weight = 0.0
        elif defined := _DEFINITION.match(code):
            depth = len(defined["indent"].expandtabs(4)) / 4
            weight, awaits_comment = (0.3 if depth and defined["value"] else 3.0 / (1 + depth)), True
        elif awaits_comment and _COMMENT.match(code):
            weight, awaits_comment = 1.2, False
        else:
            weight = 0.15
        weighed.append(WeighedLine(line, weight))
    return weighed


def _weigh_page(lines: Sequence[str]) -> list[WeighedLine]:
    """Headings, and the first line below each."""
    weighed: list[WeighedLine] = []
    lines_below, fenced = 0, False
    for index, line in enumerate(lines):
        text = strip_line_number(line).strip()
        fenced ^= text.startswith("```")
        if _HEADING.match(text) and not fenced:
            weight, lines_below = 3.5 - 0.4 * min(6, text.index(" ")), 0
        elif not text or fenced or text.startswith("```"):
            weight = 0.05 if text else 0.0
        else:
            weight = 1.6 / (1 + lines_below) + (1.5 if index == 0 else 0.0)
            lines_below += 1
        weighed.append(WeighedLine(line, weight))
    return weighed


def _weigh_paths(lines: Sequence[str]) -> list[WeighedLine]:
    """Search hits below the name of each file; the beginning and the end weigh more than the middle."""
    weighed: list[WeighedLine] = []
    file = ""
    for index, line in enumerate(lines):
        edge = 1.0 / (1 + min(index, len(lines) - 1 - index))
        match = _SEARCH_HIT.match(line[:_MAX_LINE_CHARS])
        if match is None:
            weighed.append(WeighedLine(line, 0.6 + edge + (0.5 if _is_error(line) else 0.0)))
            continue
        # One search may name a file by its full path and by a shorter one.
        is_new_file = not file or not (match[1].endswith(file) or file.endswith(match[1]))
        if is_new_file:
            file = match[1]
            weighed.append(WeighedLine(file, 2.0 + edge))
        weight = (1.0 if is_new_file else 0.7) + edge if match[4] == ":" else 0.1 + edge / 4
        content = match[5].strip()
        weighed.append(WeighedLine(f"{match[3]}{match[4]} {content}", weight if _HAS_CONTENT.search(content) else 0.0))
    return weighed


def _weigh_log(lines: Sequence[str]) -> list[WeighedLine]:
    """Errors, warnings, the beginning and the end; lines that differ only in numbers count once."""
    weighed: list[WeighedLine] = []
    seen: dict[str, int] = {}
    seen_lines: set[str] = set()
    for index, line in enumerate(lines):
        clipped = line[:_MAX_LINE_CHARS]
        pattern = _STAMP.sub("0", clipped)
        times = seen[pattern] = seen.get(pattern, 0) + 1
        weight = 3.0 if _is_error(clipped) else 1.5 if _WARNING.search(clipped) or _TOTALS.search(clipped) else 0.4
        if (times == 1 and line.strip()) or index == len(lines) - 1:
            weight += 2.0 / (1 + min(index, len(lines) - 1 - index))
        elif times > _MAX_REPEATS or clipped in seen_lines:
            weight = 0.0
        seen_lines.add(clipped)
        weighed.append(WeighedLine(line, weight / times**2 if index < len(lines) - 1 else weight))
    return weighed


_WEIGHERS: dict[OutputKind, Callable[[Sequence[str]], list[WeighedLine]]] = {
    "diff": _weigh_diff,
    "run": _weigh_run,
    "traceback": _weigh_traceback,
    "file": _weigh_file,
    "page": _weigh_page,
    "paths": _weigh_paths,
    "prose": _weigh_log,
    "log": _weigh_log,
}


_MAX_OUTPUT_CHARS = 400_000
"""Characters of an output that are read."""
_MAX_CHARS_PER_TOKEN = 40
"""An output with more characters per allowed token than this is not counted: it is too long."""
_MAX_JSON_CHARS_PER_TOKEN = 10
"""Average characters per token that JSON never exceeds."""
_MAX_SHOWN_CHARS = 200
"""Characters of one line that are shown."""
_SHOWN_LIMITS = (_MAX_SHOWN_CHARS, 110, 70)
"""Lower limits for many heavy lines: better all of them shorter than some of them in full."""
_HEAVY_WEIGHT = 2.0
"""The weight from which a line is heavy."""
_CHARS_PER_TOKEN = 3
"""Characters of a token, conservatively."""
_NAME_CHARS = string.ascii_letters + string.digits + "_-./:@~%+#$\\"
"""Characters of names, numbers and paths."""
_ROUNDS = 2
"""Lines cost less together than separately, so more of them fit than the first round assumes."""
_MIN_LINE_TOKENS = 4
"""Tokens below which no line fits."""
_MAX_AVERAGE_LINE = 1_000
"""Average line length above which an output is not made of lines."""
_MAX_LINES = 20_000
"""Lines that are read, most of them from the beginning."""
_MAX_CANDIDATES = 600
"""Lines that may be shown."""
_GAP = "…"
_OUTLINE_KINDS = ("file", "page", "diff")
"""Kinds for which omissions are obvious and need no mark."""
_MAX_OTHER_LINES = 3
"""Lines of a listing that are not files: a total, a note."""
_MAX_JSON_CHARS = 2_000_000
"""Characters of JSON that are parsed."""
_MAX_DEPTH = 6
_SHAPES = (
    *(
        (_MAX_DEPTH, *shape)
        for shape in ((400, 20), (160, 8), (80, 8), (160, 3), (80, 3), (160, 1), (40, 3), (80, 1), (40, 1), (24, 1))
    ),
    *((depth, 24, 1) for depth in (3, 2, 1)),
)
"""Depth, characters per string and elements per list for JSON, from most to least detailed."""
_VERBOSE_CHARS = 80
"""Above this many characters per string, empty values are shown too."""
_EMPTY_VALUES = ("null", "", "[]", "{}", "{…}", "[…]", _GAP)
_ESCAPE = lazy_re(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")
_HIDDEN_TAGS = ("script", "style", "svg")
"""Elements of a page that are not displayed."""
_TITLE = lazy_re(r"<title[^<>]{0,200}>(.{0,300}?)</title>", re.DOTALL | re.IGNORECASE)
_HEADING_TAG = lazy_re(r"<h([1-6])\b[^<>]{0,500}>", re.IGNORECASE)
_BLOCK_TAG = lazy_re(
    r"</?(?:p|div|br|li|ul|ol|tr|td|th|table|section|article|h[1-6]|pre|blockquote)\b[^<>]{0,500}>", re.IGNORECASE
)
_ANY_TAG = lazy_re(r"<[^<>]{1,500}>")


def digest_result(result: ToolResult, max_tokens: int, count: CountText) -> str:
    """The content of a result in at most `max_tokens`, without secrets; a short one as it is."""
    if max_tokens <= 0 or not result.output.strip():
        return ""
    is_json = result.output.lstrip()[:1] in ("{", "[") and len(result.output) <= _MAX_JSON_CHARS
    output = mask_secrets(_ESCAPE.sub("", result.output if is_json else clip_middle(result.output, _MAX_OUTPUT_CHARS)))
    if len(result.output) <= min(_MAX_OUTPUT_CHARS, max_tokens * _MAX_CHARS_PER_TOKEN) and count(output) <= max_tokens:
        return output
    output = _remove_between(output, "<system-reminder>", "</system-reminder>")
    digest = _digest_json(output, max_tokens, count) if is_json else ""
    return digest or _digest_lines(result, output, max_tokens, count) or _first_words(output, max_tokens, count)


def _first_words(output: str, max_tokens: int, count: CountText) -> str:
    return fit_text(collapse_spaces(shorten(output, max_tokens * _MAX_CHARS_PER_TOKEN)), max_tokens, count)


def _digest_lines(result: ToolResult, output: str, max_tokens: int, count: CountText) -> str:
    if "<html" in output[:2_000].lower() or "<!doctype html" in output[:200].lower():
        lines, path = _page_lines(output), "page.html"
    else:
        lines, path = output.splitlines(), _path_of(result)
    if len(lines) > _MAX_LINES:
        lines = [*lines[: _MAX_LINES // 4 * 3], *lines[-_MAX_LINES // 4 :]]
    kind = detect_output_kind(lines, path)
    if kind == "prose":
        sentences = extract_sentences(
            [MessageView(seq=0, role="assistant", text=output)], tokens=max_tokens, count=count
        )
        digest = "\n".join(sentence.text for sentence in sentences)
        if digest and count(digest) <= max_tokens:
            return digest
    if len(output) > _MAX_AVERAGE_LINE * max(1, len(lines)):
        return ""  # not made of lines
    if kind == "paths":
        digest = _digest_listing(lines, max_tokens, count)
        if digest:
            return digest
    return _heaviest_lines(weigh_lines(lines, kind), max_tokens, count, "" if kind in _OUTLINE_KINDS else _GAP)


def _path_of(result: ToolResult) -> str:
    uses = [use for use in file_uses(ToolCall(result.tool, result.arguments)) if use.action == "read"]
    return uses[0].path if len(uses) == 1 else ""


def _heaviest_lines(lines: Sequence[WeighedLine], max_tokens: int, count: CountText, gap: str) -> str:
    """The heaviest lines, in order, with a mark where some are omitted."""
    heavy = [line.text for line in lines if line.weight >= _HEAVY_WEIGHT]
    available_chars = max_tokens * _CHARS_PER_TOKEN
    limit = next(
        (limit for limit in _SHOWN_LIMITS if sum(min(len(text), limit) for text in heavy) <= available_chars),
        _SHOWN_LIMITS[-1],
    )
    best = nlargest(
        min(_MAX_CANDIDATES, 2 * max_tokens), range(len(lines)), key=lambda index: (lines[index].weight, -index)
    )
    chosen: dict[int, str] = {}
    joined, available = "", max_tokens
    for _ in range(_ROUNDS):
        for index in best:
            if available < _MIN_LINE_TOKENS:
                break
            text = _cut_line(lines[index].text, limit) if index not in chosen and lines[index].weight > 0 else ""
            cost = count(text) + 1 if text else 0
            if text and cost <= available:
                chosen[index] = text
                available -= cost
        joined = _drop_until_fitting(best, chosen, max_tokens, count, gap)
        available = max_tokens - count(joined) if joined else 0
    return joined


def _drop_until_fitting(
    best: Sequence[int], chosen: dict[int, str], max_tokens: int, count: CountText, gap: str
) -> str:
    """The chosen lines joined; while they are too long, the lightest is dropped."""
    order = [index for index in best if index in chosen]
    while order:
        joined = _join_lines(sorted(order), chosen, gap)
        over = count(joined) - max_tokens
        if over <= 0:
            return joined
        for _ in range(max(1, min(len(order) // 2, over // 8))):
            del chosen[order.pop()]
    return ""


def _join_lines(indexes: Sequence[int], texts: dict[int, str], gap: str) -> str:
    parts: list[str] = []
    previous = -1
    for index in indexes:
        if gap and index > previous + 1:
            parts.append(gap)
        parts.append(texts[index])
        previous = index
    return "\n".join(parts)


def _cut_line(text: str, limit: int = _MAX_SHOWN_CHARS) -> str:
    """A line with its indentation; a long one is cut after a word or a sign, never inside a name."""
    line = text.rstrip()
    if len(line) <= limit:
        return line
    piece = line[:limit]
    if line[limit] in _NAME_CHARS:
        piece = piece.rstrip(_NAME_CHARS)
    return f"{piece.rstrip()}{_GAP}" if piece.strip() else ""


def _digest_listing(lines: Sequence[str], max_tokens: int, count: CountText) -> str:
    """A file listing, one line per folder below the common one; empty if the lines are something else."""
    folders: dict[str, list[str]] = {}
    others: list[str] = []
    for line in filter(str.strip, lines):
        path = line.strip()
        if " " in path or ":" in path or len(path) > _MAX_SHOWN_CHARS:
            others.append(_cut_line(path))
            if len(others) > _MAX_OTHER_LINES:
                return ""
            continue
        folder, slash, name = path.rpartition("/")
        folders.setdefault(folder + slash, []).append(name or path)
    common = _common_folder(list(folders))
    for max_names in (64, 24, 12, 6, 3, 1):
        rows = [
            f"{folder[len(common) :] or './'} {_shorten_names(names, max_names)}" for folder, names in folders.items()
        ]
        listing = "\n".join((*([common] if common else []), *rows, *others))
        if len(listing) <= max_tokens * _MAX_CHARS_PER_TOKEN and count(listing) <= max_tokens:
            return listing
    return ""


def _common_folder(folders: Sequence[str]) -> str:
    """The folder that contains all of these."""
    if not folders:
        return ""
    first, last = min(folders), max(folders)
    difference = next(
        (index for index, character in enumerate(first) if index >= len(last) or last[index] != character), len(first)
    )
    return first[: first.rfind("/", 0, difference) + 1]


def _shorten_names(names: Sequence[str], max_names: int) -> str:
    """The first names of a folder and the last."""
    if len(names) <= max_names + 1:
        return ", ".join(names)
    return ", ".join((*names[:max_names], _GAP, names[-1]))


class _JsonNumber(str):
    """A JSON number as it is written."""

    __slots__ = ()


def _digest_json(output: str, max_tokens: int, count: CountText) -> str:
    """Keys, shapes and first values of JSON; empty if it is not JSON."""
    try:
        parsed = json.loads(output, parse_int=_JsonNumber, parse_float=_JsonNumber)
    except (ValueError, RecursionError):
        return ""
    shape = ""
    for depth, characters, elements in _SHAPES:
        shape = _render_shape(parsed, depth, elements, characters)
        if len(shape) <= max_tokens * _MAX_JSON_CHARS_PER_TOKEN and count(shape) <= max_tokens:
            return shape
    return fit_text(shape, max_tokens, count)


def _render_shape(value: Json, depth: int, elements: int, characters: int) -> str:
    if isinstance(value, dict):
        if not depth and value:
            return "{…}"
        members = [
            (collapse_spaces(str(key)[:60]), _render_shape(item, depth - 1, elements, characters))
            for key, item in value.items()
        ]
        shown = [
            f"{key}: {shape}" for key, shape in members if characters > _VERBOSE_CHARS or shape not in _EMPTY_VALUES
        ]
        return "{" + ", ".join([*shown, *([_GAP] if len(shown) < len(members) else [])]) + "}"
    if isinstance(value, list):
        if not depth and value:
            return "[…]"
        inner = [_render_shape(item, depth - 1, elements, characters) for item in value[:elements]]
        return "[" + ", ".join([*inner, *([_GAP] if len(value) > elements else [])]) + "]"
    if isinstance(value, str):
        flat = str(value) if isinstance(value, _JsonNumber) else collapse_spaces(value[: 4 * characters])
        if len(flat) <= characters:
            return flat
        # Half a name, path or URL would be wrong.
        return f"{shorten(flat, characters)}…" if " " in flat[:characters] else _GAP
    return json.dumps(value)


def _page_lines(output: str) -> list[str]:
    """The text of a page line by line, with Markdown headings."""
    title = _TITLE.search(output[:20_000])
    text = output
    for name in _HIDDEN_TAGS:
        text = _remove_between(text, f"<{name}", f"</{name}>")
    text = _HEADING_TAG.sub(lambda match: "\n" + "#" * int(match[1]) + " ", text)
    text = html.unescape(_ANY_TAG.sub("", _BLOCK_TAG.sub("\n", text)))
    lines = [flat for line in text.splitlines() if (flat := collapse_spaces(line))]
    return [f"# {collapse_spaces(html.unescape(title[1]))}", *lines] if title else lines


def _remove_between(text: str, opens: str, closes: str) -> str:
    """The text without everything between two marks."""
    lowered = text.lower()
    if len(lowered) != len(text):
        return text
    parts, at = list[str](), 0
    while (start := lowered.find(opens, at)) >= 0 and (end := lowered.find(closes, start)) >= 0:
        parts.append(text[at:start])
        at = end + len(closes)
    return "\n".join((*parts, text[at:]))
