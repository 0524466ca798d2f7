"""Tool use in messages: the files that texts and calls name, and the calls that failed.

Failed tool calls: which lines of a result report the failure, and which later call shows that it is resolved.

Tools and commands that only read fail where the client marks the result as an error (`is_error`): without that mark,
errors in their output belong to what they show. Such a failure is no open error, since it leaves nothing to repair.

File paths in texts and tool calls, and what a call does with each: read, edit, or only name it.

Paths are recognized by their form and by the names of tools and arguments. The file system is never consulted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from recto.context.facts.statements import cut_words
from recto.context.facts.types import MessageView, ToolCall, exit_status
from recto.formats.json_spans import Json
from recto.text.lazy_re import lazy_re
from recto.text.terms import clip_middle

REFUSAL = "refusal"
"""What a statement is about that the user made in refusing a call."""
PASTED = "pasted"
"""What an error is about that the user pasted."""
_MAX_LINES = 2
"""Lines kept of one failure."""
_MAX_CHARS = 20_000
"""Characters of a result that are read."""
_MAX_REMEMBERED_CHARS = 8_000
"""Characters of a result whose outcome is remembered."""
_MAX_CALL_CHARS = 200
_READ_TOOL = lazy_re(
    r"read|view|grep|glob|search|fetch|list|find|open|cat$|ls$|get_|get[A-Z]|lookup|browse|todo|task|skill|agent"
    r"|plan|ask",
    re.IGNORECASE,
)
_READ_COMMAND = lazy_re(
    r"^(?:cd [^&;|]{1,200}(?:&&|;)\s{0,3})?(?:cat|head|tail|less|grep|rg|ag|sed -n|awk|ls|find|tree|git (?:show"
    r"|log|diff|blame|grep|status|branch)"
    r"|gh \w{1,20} (?:view|list|diff|status|checks)|wc|jq|echo|printf|fd|bat)\b"
)
_FAILED_RESULT = lazy_re(
    r"\s*(?:<tool_use_error>|error:|Error:|ERROR:|fatal:|Traceback \(most recent"
    r"|(?:Error: )?Exit code:? [1-9]\d{0,2}\b|Command failed|\[error\])"
)
_REFUSED = lazy_re(
    r"\s*(?:<tool_use_error>)?(?:The user doesn't want to|Sibling tool call|\[Request interrupted"
    r"|Permission to use|This command requires approval|Cancelled)"
)
"""Not a failure of the call: the user refused or interrupted it."""
_SAID = "the user said:"
"""In a refusal, what comes before the user's own words."""
_REFUSAL = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the"
    " new_string was NOT written to the file). To tell you how to proceed, the user said:\n"
)
_REFUSAL_NOTE = "\n\nNote: The user's next message"
"""What Claude Code writes before, and in some versions behind, the words of a user who refuses a call."""
_CLIENT_TOOLS = frozenset(("Edit", "MultiEdit", "Write", "NotebookEdit", "ExitPlanMode"))
"""Tools of which the client itself writes the beginning of every error: neither a server, nor a command, nor a file
can write it there, so none can pass for the user."""
_RUNNER = r"(?:\[[\w:.-]{1,40}\] )?"
"""What a task runner puts before each line of a task: `[lint:go] `."""
_FAILURE_LINES = (
    lazy_re(
        r"^(?:\w+\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Failure)\b:?|^(?:\w+\.){1,6}[A-Z]\w{0,60}(?:: |$)"
        r"|\b(?:error|fatal|panic|ERROR|FATAL|Error)(?:\[\w{1,20}\]| TS\d+)?: \S"
        r"|^\s{0,8}(?:---? )?(?:FAILED|FAIL)\b[: \t]"
        rf"|^{_RUNNER}[^\s:]{{1,200}}\.\w{{1,6}}:\d{{1,6}}:\d{{1,6}}:? \S|^E  {{1,8}}\S"
        r"|^npm ERR!|^CONFLICT|: command not found\b"
    ),
    lazy_re(
        r"\bNo such file or directory\b|\b[Pp]ermission denied\b|\b(?:cannot|can't|could not|couldn't|unable to"
        r"|failed to) \w+|\bundefined:"
        r"|^[^\s:]{1,200}\.\w{1,6}:\d{1,6}: .{0,200}\b(?:[Ee]xpected|got|want|should|must|invalid|missing"
        r"|unexpected|failed|not)\b|\bnot found\b|\brejected\b"
        r"|^\s{0,8}(?:assert|[Ee]xpected|[Aa]ctual)\b"
    ),
)
"""Lines that say what went wrong, most explicit first."""
_SAYS_NOTHING = lazy_re(rf"^{_RUNNER}\$ |^\W+$|^=== RUN|^Traceback|^=+ |\bFinished in ")
"""Lines that do not say what went wrong: a runner's echo of a command, rules, titles."""
_OUTPUT_TAGS = lazy_re(
    r"<(returncode|exit_code)>[^<]{0,20}</\1>|<warning>[^<]{0,2000}</warning>"
    r"|</?(?:tool_use_error|output\w{0,20}|stdout|stderr|error)>"
)
"""What a client writes around an output."""
_LOG_LINE = lazy_re(r"\b(?:INFO|DEBUG|TRACE)\b|^\[Request interrupted")
_FAILURE_SIGN = lazy_re(
    r"^Traceback \(most recent call last\)|^(?:\w+\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): \S|^\s{0,4}(?:error"
    r"|fatal|panic)(?:\[\w{1,20}\])?: \S"
    r"|^--- FAIL:|^FAIL\t|^FAILED |\b[1-9]\d{0,5} (?:failed|errors?)\b|\berror TS\d+|: command not found\b"
    r"|^npm ERR!|^make: \*\*\*",
    re.MULTILINE,
)
_EXIT_CODE = lazy_re(r"(?:Error: )?Exit code:? \d+")
_CUES = ("Traceback", "rror", "xception", "fatal", "panic", "FAIL", "failed", "not found", "npm ERR", "***")
_PASTED_ERROR = lazy_re(
    r"^Traceback \(most recent call last\)|^\s{0,12}(?:\w+\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): \S.*"
    r"|^\s{0,12}(?:error|fatal|panic)(?:\[\w{1,20}\])?: \S.*"
    r"|^\s{0,4}--- FAIL: .*|^FAILED .*|^\S{1,200}: command not found.*|^npm ERR! .*"
    r"|^\S{1,200}\.\w{1,6}:\d{1,6}(?::\d{1,6})?: (?:error|undefined|cannot).*"
)
_CHECK_COMMAND = lazy_re(
    r"\b(?:go (?:test|build|vet|run)|golangci-lint|gofmt|pytest|tox|nox|ruff|mypy|pyright|black|flake8|(?:npm"
    r"|pnpm|yarn|bun)(?: run)? [\w:-]+"
    r"|npx \w+|cargo \w+|make(?: [\w-]+)?|mise run [\w:-]+|tsc|eslint|jest|vitest|mvn \w+|(?:\./)?gradlew? \w+"
    r"|dotnet \w+|bazel \w+|ctest|cmake"
    r"|rspec|bundle exec \w+|mix \w+|swift \w+|phpunit|composer \w+|just \w+|terraform \w+|docker(?:-compose"
    r"| compose)? \w+|kubectl \w+|git \w+)"
)
_INSTALLATION = lazy_re(r"\b(?:pip3?|uv(?: pip)?|poetry|conda|apt(?:-get)?|brew) (?:install|add) [^&|;\n]{1,400}")
"""Installing a checker is not running it."""
_FAILED_TEST = lazy_re(r"^\s{0,8}(?:---? )?FAIL(?:ED)?:? (\S{4,200})")
_COMPILE_ERROR = lazy_re(rf"^{_RUNNER}[^\s:]{{1,200}}\.\w{{1,6}}:\d{{1,6}}:\d{{1,6}}:? ")
_NO_CHECKS = frozenset(("git add", "git commit"))
_NOT_A_CHECK = lazy_re(
    r"git |docker|kubectl |terraform |composer |make (?:\w+-)?(?:clean|install)\b|cargo (?:add|clean|new|init)\b"
    r"|(?:npm|pnpm|yarn|bun) (?:i|install|ci|add|remove|init)\b"
)
"""Commands that may fail as a check does, and show nothing about another one."""
_WORDS = lazy_re(r"[\w./:-]+")
_TOTALS = lazy_re(
    r"\b\d{1,6} (?:tests? )?(?:passed|failed|failures?|errors?|skipped)\b|^test result: |^Tests?: {1,8}\d"
    r"|^FAILED \(|^BUILD (?:FAILED|SUCCESS)|^Ran \d{1,6} tests?\b"
)
"""Lines with the totals of a run of tests or a build."""
_TOTALS_LINES = 40
"""Lines at the end of a result that may be its totals."""


class Failure(Struct, frozen=True):
    """The outcome of a call according to its result."""

    call: str
    """Short description of the call; empty if unknown."""
    lines: tuple[str, ...] = ()
    """The lines that report the failure; empty if the call succeeded."""


class CallOutcome(NamedTuple):
    """How a call ended, by its result."""

    state: Literal["ok", "failed", "refused"]
    """`refused`: the user refused or interrupted it."""
    exit_code: int | None
    """The exit code that the result reports, if any."""
    line: str
    """The line that reports the failure, or what the user said in refusing it; empty if there is none."""


def call_outcome(message: MessageView) -> CallOutcome:
    """How the call of a tool result ended."""
    failure = detect_failure(message)
    status = exit_status(message.text)
    exit_code = int(status) if status else None
    if message.calls and not failure.call:
        return CallOutcome("refused", exit_code, clip_middle(message.text, _MAX_CHARS).partition(_SAID)[2].strip())
    lines = failure.lines or (_marked_failure_lines(message) if any(message.failed) or exit_code else ())
    state: Literal["ok", "failed"] = "failed" if lines or exit_code or any(message.failed) else "ok"
    return CallOutcome(state, exit_code, lines[0] if lines else "")


def words_in_refusal(message: MessageView) -> str:
    """What the user said in refusing calls, where it is certain that the client wrote the results; else empty.

    The error of an MCP server or of a shell command may have any text, so words in such results are not the user's.
    """
    return "\n".join(
        result.text.removeprefix(_REFUSAL).partition(_REFUSAL_NOTE)[0]
        for result in message.answers()
        if any(result.failed)
        and result.text.startswith(_REFUSAL)
        and all(call.tool in _CLIENT_TOOLS for call in result.calls)
        and result.calls
    )


def detect_failure(message: MessageView) -> Failure:
    """Whether a tool result is a failure, and which lines report it."""
    find = _find_short if len(message.text) <= _MAX_REMEMBERED_CHARS else _find_failure
    return find(message.text, message.calls[0] if message.calls else None, any(message.failed))


def _marked_failure_lines(message: MessageView) -> tuple[str, ...]:
    return _failure_lines(clip_middle(message.text, _MAX_CHARS))


def result_line(message: MessageView) -> str:
    """The line of a tool result that says how its call ended: the totals of a run, else the failure, else none."""
    called = message.calls[0] if message.calls else None
    if called and _only_reads(called, _subject(called.arguments).lstrip()):
        return next(iter(_marked_failure_lines(message)), "") if any(message.failed) else ""
    newest_first = reversed(message.text[-_MAX_CHARS:].splitlines()[-_TOTALS_LINES:])
    totals = next((line for line in newest_first if _TOTALS.search(line[:_MAX_CALL_CHARS].strip("= "))), "")
    return totals or next(iter(detect_failure(message).lines), "")


def _only_reads(called: ToolCall, subject: str) -> bool:
    return _READ_TOOL.search(called.tool) is not None or reads_only(subject)


def _find_failure(text: str, called: ToolCall | None, is_marked: bool) -> Failure:
    call = describe_call(called) if called else ""
    clipped = clip_middle(text, _MAX_CHARS)
    if _REFUSED.match(clipped):
        return Failure("")
    if called and _only_reads(called, call.partition(" ")[2]):
        return Failure(call)
    failed = is_marked or _FAILED_RESULT.match(clipped) is not None
    if not failed and any(cue in clipped for cue in _CUES):
        failed = _FAILURE_SIGN.search(clipped) is not None
    return Failure(call, _failure_lines(clipped)) if failed else Failure(call)


_find_short = lru_cache(maxsize=1024)(_find_failure)
"""A result is read again with every eviction before its own."""


def pasted_errors(text: str) -> list[str]:
    """Lines of a message that are pasted errors."""
    if not any(cue in text for cue in _CUES) or text.lstrip().startswith(
        ("<", "This session is being continued", "Base directory")
    ):
        return []
    errors = (line.strip() for line in clip_middle(text, _MAX_CHARS).splitlines() if _PASTED_ERROR.match(line))
    lines = list(dict.fromkeys(line for line in errors if not line.startswith("Traceback")))
    return lines[:1] + lines[1:][-1:]


def reads_only(command: str) -> bool:
    """Whether a shell command only reads: what its output says is about what it shows."""
    return _READ_COMMAND.match(command) is not None


def describe_call(call: ToolCall) -> str:
    """A call in a few words: the tool, and the command or file it is about."""
    return cut_words(f"{call.tool} {_subject(call.arguments)}", _MAX_CALL_CHARS)


def resolves_failure(call: str, failed: str) -> bool:
    """Whether a successful call shows that a failed one is resolved: the same call, or the same check."""
    tool, _, subject = call.partition(" ")
    failed_tool, _, failed_subject = failed.partition(" ")
    if tool != failed_tool:
        return False
    if subject == failed_subject or not failed_subject:
        return True
    checks = _checks_in(failed_subject) - _NO_CHECKS
    if checks:
        return bool(checks & _checks_in(subject))
    words, failed_words = set(_WORDS.findall(subject)), set(_WORDS.findall(failed_subject))
    return bool(words | failed_words) and len(words & failed_words) / len(words | failed_words) >= 0.6


def resolves_error(call: str, failed: str, line: str) -> bool:
    """Whether a successful call shows that the error in a line is resolved. `failed` is the call that reported it.

    Besides what `resolves_failure` finds: a check that names the failed test; where the line names no test, one of the
    same task (`npm run test:unit` and `npm run test:all`); for a file that did not compile, any check of the same
    program. The call behind an error that the user pasted is not known: `failed` is then `PASTED`.
    """
    if failed != PASTED and resolves_failure(call, failed):
        return True
    subject = call.partition(" ")[2]
    checks, before = (
        {check for check in _checks_in(each) if not _NOT_A_CHECK.match(check)} for each in (subject, failed)
    )
    if not checks or reads_only(subject):
        return False
    if test := _FAILED_TEST.search(line):
        name = re.split(r"::|/", test[1].rstrip("/:"))[-1]
        return bool(name) and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", subject) is not None
    if {_task(check) for check in checks} & {_task(check) for check in before}:
        return True
    programs = {check.split()[0] for check in checks} & {check.split()[0] for check in before}
    return bool(programs) and _COMPILE_ERROR.search(line) is not None


def _task(check: str) -> str:
    return check.partition(":")[0]


def _checks_in(subject: str) -> set[str]:
    return set(_CHECK_COMMAND.findall(_INSTALLATION.sub("", subject)))


def _subject(arguments: str) -> str:
    try:
        parsed = json.loads(arguments[:50_000])
    except (ValueError, RecursionError):
        return arguments[:1_000]
    if not isinstance(parsed, dict):
        return arguments[:1_000]
    for name in ("command", "cmd", "file_path", "path", "notebook_path", "pattern", "query", "url", "script", "code"):
        value = parsed.get(name)
        if isinstance(value, list):
            value = " ".join(map(str, value))
        if isinstance(value, str) and value:
            return value[:1_000]
    return arguments[:1_000]


def _failure_lines(text: str) -> tuple[str, ...]:
    lines = [line.strip() for line in _OUTPUT_TAGS.sub("", text).splitlines() if line.strip()]
    lines = [
        line for line in dict.fromkeys(lines) if not _EXIT_CODE.fullmatch(line) and not _LOG_LINE.search(line[:200])
    ]
    reporting = [line for pattern in _FAILURE_LINES for line in lines if pattern.search(line[:600])]
    saying = (line for line in lines if not _SAYS_NOTHING.search(line[:200]))
    return tuple(dict.fromkeys(reporting[:_MAX_LINES])) or tuple(islice(chain(saying, lines), 1))


FileAction: TypeAlias = Literal["edit", "read", "name"]
FileEffect: TypeAlias = Literal["", "read", "edit", "write", "create", "delete"]
"""What a use does to a file, where it is known more closely than the action; `write` replaces or creates it."""


class FileUse(NamedTuple):
    """A path, and what is done with it."""

    path: str
    action: FileAction
    shows: bool = False
    """Whether the call itself contains the file's content."""
    effect: FileEffect = ""


MAX_PATH_CHARS = 300
"""Characters of a path; anything longer is data."""
_MAX_TEXT_CHARS = 400_000
"""Characters of a text that are searched for paths."""
_MAX_ARGUMENT_CHARS = 4_000_000
_MAX_COMMAND_CHARS = 8_000
_MAX_VALUES = 200
"""Number of argument values of one call that are read."""

_PART = r"[\w.@+~-]"
_PATH = lazy_re(
    rf"(?<![\w.@+~:/-])(?:{_PART}{{0,128}}+(?:/{_PART}{{1,128}}+){{1,32}}+|[A-Za-z]:\\[\w.@+~\\-]{{1,260}})"
)
"""Words with a slash; a URL's path follows a colon and does not match."""
_BARE = lazy_re(r"(?<![\w.@+~:/\\-])[\w@+~-][\w.@+~-]{0,80}\.[a-z][a-z0-9]{0,9}(?![\w/(-])")
_FILE = lazy_re(r"\.?[\w@+~-][\w.@+~-]*\.[A-Za-z][A-Za-z0-9]{0,9}")
_HOST = lazy_re(r"[\w-]+(?:\.[\w-]+)*\.(?:com|org|io|net|dev|edu|gov|sh|ai|co|in)")
_PATCHED = lazy_re(r"^\*\*\* (Update|Add|Delete|Move) (?:File|to): (.{1,300})$", re.MULTILINE)
_DIFFED = lazy_re(r"^(?:--- (\S{1,300})[^\n]{0,80}\n)?\+\+\+ b/(\S{1,300})", re.MULTILINE)
_SEPARATORS = lazy_re(r"&&|\|\|?|;|\n")
_REDIRECTED = lazy_re(r"(?<![<=-])(>{1,2})\s{0,3}([\w./@+~-]{2,300})")

_EXTENSIONS = frozenset(
    """
    go py pyi js mjs cjs ts tsx jsx rs java kt kts c h cc cpp hpp m mm cs rb php swift scala sh bash zsh fish ps1 bat
    sql md mdx rst txt adoc json jsonl yaml yml toml ini cfg conf html htm css scss less vue svelte proto lock mod sum
    xml gradle lua ex exs erl hs ml mli r jl ipynb csv tsv tf hcl env dart zig nix graphql cmake mk pl diff patch log
    """.split()  # noqa: SIM905  read as prose
)
"""Extensions by which a word without a slash is a file."""
_NOT_FILES = frozenset(("node.js", "next.js", "vue.js", "react.js", "three.js", "d3.js", "package.path", "asp.net"))
_EXTENSIONLESS = frozenset(
    ("Makefile", "Dockerfile", "LICENSE", "Gemfile", "Rakefile", "Procfile", "Justfile", "CODEOWNERS")
)

_PATH_KEYS = frozenset(
    """
    file_path filepath path file filename file_name notebook_path target_file source_file absolute_path abs_path
    relative_path relative_workspace_path old_path new_path files paths file_paths filenames target source destination
    src dst uri documents
    """.split()  # noqa: SIM905  read as prose
)
_CERTAIN_PATH_KEYS = frozenset(("file_path", "filepath", "notebook_path", "filename", "target_file", "absolute_path"))
"""Arguments that are always files."""
_COMMAND_KEYS = frozenset(("command", "cmd", "script", "commands", "shell"))
_CONTENT_KEYS = frozenset(("content", "file_text", "contents", "new_source"))
_REPLACED_KEYS = frozenset(("old_string", "old_str", "old_text", "search", "insert_line", "cell_id"))
"""Arguments of calls that change a part of a file."""
_PATCH_KEYS = frozenset(("patch", "diff", "input", "command", "cmd"))
_EDIT_TOOL = lazy_re(r"edit|write|patch|replace|insert|create|save|delete|remove|rename|move|append|update|modify")
_DELETE_TOOL = lazy_re(r"delete|remove")
_CREATE_TOOL = lazy_re(r"create|add_file|new_file")
_SEARCH_TOOL = lazy_re(r"grep|glob|find|search|list|ls\b|tree|rg\b")
_VIEW_COMMANDS = frozenset(("view", "read", "open", "cat"))
_READ_COMMANDS = frozenset(
    "cat head tail less more sed awk nl bat grep rg egrep wc diff jq xxd hexdump view strings".split()  # noqa: SIM905
)
_COMMAND_PREFIXES = frozenset("sudo time env nohup command bash sh zsh -c -lc -l exec xargs (".split())  # noqa: SIM905
_WRITE_COMMANDS = frozenset("mv cp rm tee touch truncate patch install ln dd".split())  # noqa: SIM905
_PATCH_EFFECTS: dict[str, FileEffect] = {"Update": "edit", "Add": "create", "Delete": "delete", "Move": "create"}
_COMMAND_EFFECTS: dict[str, FileEffect] = {
    "rm": "delete", "unlink": "delete", "git rm": "delete", "tee": "write", "touch": "write", "git checkout": "edit",
    "git restore": "edit", "git apply": "edit", "git stash": "edit",
}  # fmt: skip
_COPY_EFFECTS: dict[str, FileEffect] = {"mv": "delete", "git mv": "delete", "cp": "read"}
"""What a command does to its sources; its last path is written."""


_MAX_LINE_CHARS = 400
_MAX_SHORT_TEXT = 10_000
"""Characters of texts whose paths are remembered: many short ones, some longer ones."""


def file_uses(call: ToolCall) -> Sequence[FileUse]:
    """What a call does with which files, each path once with its strongest action."""
    return _short_uses(call) if len(call.arguments) <= _MAX_SHORT_TEXT else _strongest_uses(call)


def _strongest_uses(call: ToolCall) -> tuple[FileUse, ...]:
    strongest: dict[str, FileUse] = {}
    strength = {"edit": 2, "read": 1, "name": 0}
    for use in _all_uses(call):
        known = strongest.get(use.path)
        if known is None or strength[use.action] > strength[known.action]:
            strongest[use.path] = use
    return tuple(strongest.values())


_short_uses = lru_cache(2048)(_strongest_uses)
"""A call is read again with every relief until it is evicted, and when the text about it becomes shorter."""


def find_paths(text: str, *, bare: bool = False) -> Sequence[str]:
    """The file paths in a text, each once, in order; with `bare`, also names without a folder."""
    if len(text) <= _MAX_LINE_CHARS:
        return _paths_of_line(text, bare)
    return _paths_of_message(text, bare) if len(text) <= _MAX_SHORT_TEXT else _find_paths(text, bare)


def _find_paths(text: str, bare: bool) -> tuple[str, ...]:
    clipped = clip_middle(text, _MAX_TEXT_CHARS).replace("\\n/", "\n/")  # an escaped line break
    paths: dict[str, None] = {}
    if "/" in clipped or ":\\" in clipped:
        is_diff = "\n+++ " in clipped or "diff --git " in clipped
        for match in dict.fromkeys(_PATH.findall(clipped)):
            path = normalize_path(match)
            if is_diff and path.startswith(("a/", "b/")):
                path = path[2:]
            if looks_like_file(path):
                paths[path] = None
    if bare:
        for name in dict.fromkeys(_BARE.findall(clipped)):
            if name.rpartition(".")[2] in _EXTENSIONS and name.lower() not in _NOT_FILES:
                paths[name] = None
    return tuple(paths)


_paths_of_line = lru_cache(8192)(_find_paths)
_paths_of_message = lru_cache(512)(_find_paths)


def normalize_path(text: str) -> str:
    """A path with forward slashes, without `.` and `..`; empty if the text is not a path."""
    path = text.strip().strip("\"'`").replace("\\", "/")
    if len(path) > MAX_PATH_CHARS or "\n" in path or "://" in path:
        return ""
    path = path.removeprefix("~/").rstrip(".,;:")  # the home directory is unknown: treat the path as relative
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part.strip("."):
            parts.append(part)
    return ("/" if path.startswith("/") else "") + "/".join(parts)


def looks_like_file(path: str) -> bool:
    """Whether a path looks like that of a file rather than a folder, a host or a package."""
    folder, _, name = path.rpartition("/")
    if not (name in _EXTENSIONLESS or _FILE.fullmatch(name)) or ".." in name:
        return False
    return not _HOST.fullmatch(folder.partition("/")[0]) and not name.endswith((".io", ".com", ".org", ".net"))


def parse_arguments(call: ToolCall) -> dict[str, Json]:
    """The arguments of a call by name; empty if they are not an object."""
    if len(call.arguments) > _MAX_ARGUMENT_CHARS or not call.arguments.lstrip().startswith("{"):
        return {}
    try:
        parsed = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _all_uses(call: ToolCall) -> Iterator[FileUse]:
    arguments = parse_arguments(call)
    tool = call.tool.lower()
    if not arguments:
        yield from _patch_uses(call.arguments)
        return
    searches = _SEARCH_TOOL.search(tool) is not None
    edits = _EDIT_TOOL.search(tool) is not None and arguments.get("command") not in _VIEW_COMMANDS
    action: FileAction = "edit" if edits else "read"
    shows = edits and not _CONTENT_KEYS.isdisjoint(arguments)
    effect = _tool_effect(tool, arguments, shows) if edits else ""
    for key, value in _string_values(arguments):
        if key in _COMMAND_KEYS and " " in value:
            yield from _command_uses(value)
        if key in _PATCH_KEYS:
            yield from _patch_uses(value)
        if key in _PATH_KEYS:
            path = normalize_path(value)
            if path and (looks_like_file(path) or (key in _CERTAIN_PATH_KEYS and not value.endswith("/"))):
                yield FileUse(path, "read", shows) if searches else FileUse(path, action, shows, effect)


def _tool_effect(tool: str, arguments: dict[str, Json], shows: bool) -> FileEffect:
    if arguments.get("command") == "create" or _CREATE_TOOL.search(tool):
        return "create"
    if _DELETE_TOOL.search(tool):
        return "delete"
    return "write" if shows and not _REPLACED_KEYS & arguments.keys() else "edit"


def _string_values(arguments: dict[str, Json]) -> Iterator[tuple[str, str]]:
    """All strings among the arguments with their keys; lists and objects are opened two levels deep."""
    remaining = _MAX_VALUES
    level: list[tuple[str, Json]] = list(arguments.items())
    for _ in range(3):
        deeper: list[tuple[str, Json]] = []
        for key, value in level[:remaining]:
            if isinstance(value, str):
                yield _snake_case(key), value
            elif isinstance(value, list):
                if _snake_case(key) in _COMMAND_KEYS:
                    yield _snake_case(key), " ".join(part for part in value if isinstance(part, str))
                else:
                    deeper += [(key, item) for item in value[:remaining]]
            elif isinstance(value, dict):
                deeper += value.items()
        remaining, level = remaining - len(level[:remaining]), deeper


def _snake_case(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key[:60]).lower().replace("-", "_")


def _patch_uses(text: str) -> Iterator[FileUse]:
    """The files of a patch."""
    if "*** " in text:
        text = text if "\n" in text else text.replace("\\n", "\n")
        for change, path in dict.fromkeys(_PATCHED.findall(text)):
            yield FileUse(normalize_path(path), "edit", effect=_PATCH_EFFECTS[change])
    elif "\n+++ b/" in text:
        for before, path in dict.fromkeys(_DIFFED.findall(text)):
            yield FileUse(normalize_path(path), "edit", effect="create" if before == "/dev/null" else "edit")


def _command_uses(command: str) -> Iterator[FileUse]:
    """The files of a shell command. The body of a here-document is content and is skipped."""
    command, here, _ = command[:_MAX_COMMAND_CHARS].partition("<<")
    if here:
        command = command.rpartition("\n")[2] + " " + command
    for sign, target in _REDIRECTED.findall(command):
        path = normalize_path(target)
        if looks_like_file(path) and not path.startswith("/dev/"):
            yield FileUse(path, "edit", bool(here), "write" if sign == ">" else "edit")
    for part in _SEPARATORS.split(command):
        words = [word.rpartition("/")[2] for word in part.split()[:8]]
        words = [word for word in words if word not in _COMMAND_PREFIXES and "=" not in word]
        verb = words[0] if words else ""
        in_place = verb in ("sed", "perl", "gofmt", "prettier", "black") and re.search(r"\s-(?:[pn]?i|w)\b", part)
        action: FileAction = (
            "edit" if verb in _WRITE_COMMANDS or in_place else "read" if verb in _READ_COMMANDS else "name"
        )
        name = f"git {words[1]}" if verb == "git" and len(words) > 1 else verb
        paths = find_paths(part, bare=True)
        for place, path in enumerate(paths, 1):
            effect = _COMMAND_EFFECTS.get(name, "")
            if name in _COPY_EFFECTS and len(paths) > 1:
                effect = "write" if place == len(paths) else _COPY_EFFECTS[name]
            yield FileUse(path, action, effect=effect)
