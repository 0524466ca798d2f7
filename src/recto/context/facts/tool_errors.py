"""Calls that failed: which lines of a result say so, and which later call shows that it is mended.

A tool or a command that only looks at things breaks nothing, and what it shows holds errors of others: it is left out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from recto.context.facts.types import MessageView, ToolCall
from recto.context.facts.user_text import cut
from recto.text.identifiers import clip_middle

_LINES = 2
"""Lines that are kept of one failure."""
_MOST = 20_000
"""Characters of a result that are looked at."""
_SUBJECT = 200
_READS = re.compile(
    r"read|view|grep|glob|search|fetch|list|find|open|cat$|ls$|get_|get[A-Z]|lookup|browse|todo|task|skill|agent"
    r"|plan|ask",
    re.IGNORECASE,
)
_SHOWS = re.compile(
    r"^(?:cd [^&;|]{1,200}(?:&&|;)\s{0,3})?(?:cat|head|tail|less|grep|rg|ag|sed -n|awk|ls|find|tree|git (?:show"
    r"|log|diff|blame|grep|status|branch)"
    r"|gh \w{1,20} (?:view|list|diff|status|checks)|wc|jq|echo|printf|fd|bat)\b"
)
_WHOLE = re.compile(
    r"\s*(?:<tool_use_error>|error:|Error:|ERROR:|fatal:|Traceback \(most recent"
    r"|(?:Error: )?Exit code:? [1-9]\d{0,2}\b|Command failed|\[error\])"
)
_REFUSED = re.compile(
    r"\s*(?:<tool_use_error>)?(?:The user doesn't want to|Sibling tool call|\[Request interrupted"
    r"|Permission to use|This command requires approval|Cancelled)"
)
"""What is no failure of the call: people said no."""
_TELLS = (
    re.compile(
        r"^(?:\w+\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Failure)\b:?|\b(?:error|fatal|panic|ERROR|FATAL"
        r"|Error)(?:\[\w{1,20}\]| TS\d+)?: \S"
        r"|^\s{0,8}(?:---? )?(?:FAILED|FAIL)\b[: \t]|^[^\s:]{1,200}\.\w{1,6}:\d{1,6}:\d{1,6}:? \S|^E  {1,8}\S"
        r"|^npm ERR!|^CONFLICT|: command not found\b"
    ),
    re.compile(
        r"\bNo such file or directory\b|\b[Pp]ermission denied\b|\b(?:cannot|can't|could not|couldn't|unable to"
        r"|failed to) \w+|\bundefined:"
        r"|^[^\s:]{1,200}\.\w{1,6}:\d{1,6}: .{0,200}\b(?:[Ee]xpected|got|want|should|must|invalid|missing"
        r"|unexpected|failed|not)\b|\bnot found\b|\brejected\b"
        r"|^\s{0,8}(?:assert|[Ee]xpected|[Aa]ctual)\b"
    ),
)
"""What a line looks like that says what went wrong, the plainest first."""
_LOGS = re.compile(r"\b(?:INFO|DEBUG|TRACE)\b|^\[Request interrupted")
_STRONG = re.compile(
    r"^Traceback \(most recent call last\)|^(?:\w+\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): \S|^\s{0,4}(?:error"
    r"|fatal|panic)(?:\[\w{1,20}\])?: \S"
    r"|^--- FAIL:|^FAIL\t|^FAILED |\b[1-9]\d{0,5} (?:failed|errors?)\b|\berror TS\d+|: command not found\b"
    r"|^npm ERR!|^make: \*\*\*",
    re.MULTILINE,
)
_CODE = re.compile(r"(?:Error: )?Exit code:? \d+")
_CUES = ("Traceback", "rror", "xception", "fatal", "panic", "FAIL", "failed", "not found", "npm ERR", "***")
_PASTED = re.compile(
    r"^Traceback \(most recent call last\)|^\s{0,12}(?:\w+\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): \S.*"
    r"|^\s{0,12}(?:error|fatal|panic)(?:\[\w{1,20}\])?: \S.*"
    r"|^\s{0,4}--- FAIL: .*|^FAILED .*|^\S{1,200}: command not found.*|^npm ERR! .*"
    r"|^\S{1,200}\.\w{1,6}:\d{1,6}(?::\d{1,6})?: (?:error|undefined|cannot).*"
)
_CHECK = re.compile(
    r"\b(?:go (?:test|build|vet|run)|golangci-lint|gofmt|pytest|tox|nox|ruff|mypy|pyright|black|flake8|(?:npm"
    r"|pnpm|yarn|bun)(?: run)? [\w:-]+"
    r"|npx \w+|cargo \w+|make(?: [\w-]+)?|mise run [\w:-]+|tsc|eslint|jest|vitest|mvn \w+|(?:\./)?gradlew? \w+"
    r"|dotnet \w+|bazel \w+|ctest|cmake"
    r"|rspec|bundle exec \w+|mix \w+|swift \w+|phpunit|composer \w+|just \w+|terraform \w+|docker(?:-compose"
    r"| compose)? \w+|kubectl \w+|git \w+)"
)
_WORDS = re.compile(r"[\w./:-]+")


@dataclass(frozen=True, slots=True)
class Failure:
    """What a result says of its call."""

    call: str
    """The call in a few words; empty where nobody knows it."""
    lines: tuple[str, ...] = ()
    """What failed, in the words of the result; none where it went well."""


def failure_of(one: MessageView) -> Failure:
    """Whether a tool's result is a failure, and which lines say so."""
    call = told_by(one.calls[0]) if one.calls else ""
    looked = clip_middle(one.text, _MOST)
    if _REFUSED.match(looked):
        return Failure("")
    if one.calls and (_READS.search(one.calls[0].tool) or _SHOWS.match(call.partition(" ")[2])):
        return Failure(call)
    failed = _WHOLE.match(looked) is not None
    if not failed and any(cue in looked for cue in _CUES):
        failed = _STRONG.search(looked) is not None
    return Failure(call, _telling(looked)) if failed else Failure(call)


def pasted_errors(text: str) -> list[str]:
    """The lines of a message that are errors somebody pasted."""
    if not any(cue in text for cue in _CUES) or text.lstrip().startswith(
        ("<", "This session is being continued", "Base directory")
    ):
        return []
    found = (line.strip() for line in clip_middle(text, _MOST).splitlines() if _PASTED.match(line))
    lines = list(dict.fromkeys(line for line in found if not line.startswith("Traceback")))
    return lines[:1] + lines[1:][-1:]


def told_by(call: ToolCall) -> str:
    """A call in a few words: the tool, and the command or the file it is about."""
    return cut(f"{call.tool} {_subject(call.arguments)}", _SUBJECT)


def settles(call: str, failed: str) -> bool:
    """Whether a call that went well shows that another is mended: the same tool on the same, or the same check."""
    tool, _, subject = call.partition(" ")
    other, _, before = failed.partition(" ")
    if tool != other:
        return False
    if subject == before or not before:
        return True
    checks = set(_CHECK.findall(before)) - {"git add", "git commit"}
    if checks:
        return bool(checks & set(_CHECK.findall(subject)))
    words, own = set(_WORDS.findall(subject)), set(_WORDS.findall(before))
    return bool(words | own) and len(words & own) / len(words | own) >= 0.6


def _subject(arguments: str) -> str:
    try:
        given = json.loads(arguments[:50_000])
    except (ValueError, RecursionError):
        return arguments[:1_000]
    if not isinstance(given, dict):
        return arguments[:1_000]
    for name in ("command", "cmd", "file_path", "path", "notebook_path", "pattern", "query", "url", "script", "code"):
        value = given.get(name)
        if isinstance(value, list):
            value = " ".join(map(str, value))
        if isinstance(value, str) and value:
            return value[:1_000]
    return arguments[:1_000]


def _telling(text: str) -> tuple[str, ...]:
    lines = [line.strip() for line in re.sub(r"</?tool_use_error>", "", text).splitlines() if line.strip()]
    lines = [line for line in dict.fromkeys(lines) if not _CODE.fullmatch(line) and not _LOGS.search(line[:200])]
    telling = [line for tells in _TELLS for line in lines if tells.search(line[:600])]
    return tuple(dict.fromkeys(telling[:_LINES])) or tuple(lines[:1])
