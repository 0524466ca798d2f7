"""Evidence of work: what was done with a file, how runs of a command ended, how an error ended, which numbers came up.

Read from stored messages on demand, with the same rules that the working record uses (`record`, `facts.paths`,
`facts.tool_errors`). Nothing is extracted when a message is stored. A message is parsed only where its bytes contain
the words of the question, or where it lies between two runs that are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar, cast

from msgspec import Struct

from recto.context.facts.tool_use import (
    call_outcome,
    describe_call,
    file_uses,
    normalize_path,
    parse_arguments,
    pasted_errors,
    reads_only,
    resolves_failure,
)
from recto.context.facts.types import MessageView, MessageViewReader, ToolCall, plain_output
from recto.context.record import describe_step, shorten_line
from recto.errors import InputError
from recto.formats import read
from recto.formats.message import Message
from recto.text.lazy_re import lazy_re
from recto.text.line_pattern import byte_filter
from recto.text.secrets import mask_secrets
from recto.text.terms import clip_middle
from recto.text.unicode import prompt_safe
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.session_keys import pointer_to

_Item = TypeVar("_Item")
FileChange = Literal["read", "edit", "create", "delete"]
StepState = Literal["ok", "failed", "refused", "unanswered"]

MAX_LINE_CHARS = 400
"""Characters of a command, a line or a reason in a result."""
_MAX_OUTPUT_CHARS = 200_000
"""Characters of an output that are searched for a text."""
_MAX_RESULT_DISTANCE = 64
"""Messages after a call among which its result is searched for."""
_MAX_REASON_DISTANCE = 200
"""Messages before a call among which the assistant's words are searched for."""
_MAX_BETWEEN = 2_000
"""Messages that are read between a failing and a passing run, or after an error."""
_MAX_LISTED = 30
"""Changes and commands that are listed between two runs; the newest."""
_MAX_NUMBERS = 6
_MAX_WORDS = 40
"""Words of a question that are searched for one by one."""
_MAX_SEARCHED_LINE = 4_000
"""Characters of a line that are compared with a question."""
_TEXTS = ("text", "result")
_PYTHON = lazy_re(r"(?<![\w.])python[\d.]*(?=\s)")
_OPENED = lazy_re(
    r"open\(\s{0,4}['\"]([^'\"\n]{1,300})['\"]\s{0,4},\s{0,4}['\"][wa]|Path\(['\"]([^'\"\n]{1,300})['\"]\)\.write_"
)
_HERE_DOCUMENT = lazy_re(r"<<-?[ \t]*['\"]?(\w{1,40})")
_FENCE = lazy_re(r"\s{0,9}(?:```[\w-]{0,20}|<[\w=]{1,30}>|(?:Action|Calling tools):)\s{0,9}\Z")
"""The opening of a command that is written as text."""
_SHELL_PREFIX = lazy_re(r"\A(?:\S*/)?(?:bash|sh|zsh) -l?c ")
_QUANTITY = lazy_re(
    r"(?<![\w.,:/#-])[~<>≈]?[$€£]?\d[\d,_]*(?:\.\d+)?"
    r"(?:\s?%|\s?(?:[nµμm]?s|sec(?:onds?)?|min(?:utes?)?|h(?:ours?)?|days?|[KMGT]i?B|[kKMG]bit|bytes?|[kMG]?Hz|px|tokens?"
    r"|tests?|passed|failed|errors?|warnings?|skipped|requests?|rows?|lines?|files?|messages?|req/s|tok/s|x)"
    r"(?:/\w{1,8})?)(?![\w])"
)
"""A number with its unit."""


class WorkStep(Struct, frozen=True, kw_only=True):
    """One call of the agent and how it ended."""

    pointer: str
    seq: int
    """The entry of the call."""
    ts: int
    tool: str
    call: str
    """The command, or the tool with its arguments, on one line."""
    state: StepState
    exit_code: int | None
    """As the result reports it; null if it reports none."""
    line: str
    """The line of the result that reports the failure."""
    result: int | None
    """The entry of the result."""
    why: str
    """The assistant's last words before the call; the user's, if the assistant said nothing."""


class FileEvent(Struct, frozen=True, kw_only=True):
    """What a step did with a file."""

    path: str
    change: FileChange
    version: int
    """How often the file had been changed by then, as far as the entries show; 0 before the first change."""
    step: WorkStep


class FileHistory(Struct, frozen=True, kw_only=True):
    """What was done with a file, newest first."""

    query: str
    paths: tuple[str, ...]
    """The paths that match, as they were written."""
    versions: int
    """How often it was changed; of several files that match, the one that was changed most."""
    events: tuple[FileEvent, ...]
    searched_from: int
    """The first entry that was searched."""
    next: int | None
    """The `before` of the next page; null on the last page."""


class CommandRun(Struct, frozen=True, kw_only=True):
    """A run of a command; of one that passes after failures, what was done in between."""

    step: WorkStep
    numbers: tuple[str, ...]
    """Numbers with units in its output, the last ones."""
    failures: int
    """Failing runs of the same command directly before this passing one."""
    changed: tuple[FileEvent, ...]
    """Files that were changed since the first of these failures, oldest first."""
    ran: tuple[WorkStep, ...]
    """Other commands that were run since then, oldest first."""


class CommandHistory(Struct, frozen=True, kw_only=True):
    """Runs of a command, newest first."""

    query: str
    runs: tuple[CommandRun, ...]
    searched_from: int
    next: int | None


class ErrorEvent(Struct, frozen=True, kw_only=True):
    """A result, or a message of the user, that contains an error."""

    pointer: str
    seq: int
    ts: int
    line: str
    step: WorkStep | None
    """The call whose result it is; null if the user pasted it."""


class ErrorHistory(Struct, frozen=True, kw_only=True):
    """Where an error came from and how it ended."""

    query: str
    count: int
    """How often it came."""
    state: Literal["not_found", "open", "over"]
    """`over`: every command that reported it was run again without it."""
    first: ErrorEvent | None
    events: tuple[ErrorEvent, ...]
    """Where it came, newest first."""
    ended_by: WorkStep | None
    """The run after which it no longer came."""
    followed: tuple[WorkStep, ...]
    """Changes and commands from its first appearance to its end, oldest first."""
    omitted: int
    """Steps that are not listed in `followed`."""
    searched_from: int
    next: int | None


class NumberMention(Struct, frozen=True, kw_only=True):
    """A number with its unit, and the line that states it."""

    pointer: str
    seq: int
    ts: int
    role: str
    number: str
    line: str


class NumberHistory(Struct, frozen=True, kw_only=True):
    """Numbers with units in lines that contain the words of a question, newest first."""

    query: str
    numbers: tuple[NumberMention, ...]
    searched_from: int
    next: int | None


WorkHistory = FileHistory | CommandHistory | ErrorHistory | NumberHistory


class _Run(NamedTuple):
    """A call, before its result and its reason are looked up."""

    at: int
    """Index of the message that makes the call."""
    place: int
    """Its place among the calls of the message."""
    call: ToolCall
    id: str
    """Empty for a command that is written as text."""

    @property
    def subject(self) -> str:
        """What decides whether another call is the same."""
        return describe_call(self.call)


class _Answer(NamedTuple):
    """The result of a call; without one, it has no index."""

    at: int | None = None
    output: str = ""
    state: StepState = "unanswered"
    exit_code: int | None = None
    line: str = ""


class _Touch(NamedTuple):
    """A use of a file by a run."""

    run: _Run
    path: str
    effect: str


class WorkLog:
    """The steps in a range of stored entries, read where a question needs them."""

    def __init__(self, entries: Iterable[Entry], first: int = 1) -> None:
        self._entries = [entry for entry in entries if entry.kind == MESSAGE]
        self._first = first
        self._messages: dict[int, Message | None] = {}
        self._runs: dict[int, tuple[_Run, ...]] = {}
        self._answers: dict[tuple[int, int], _Answer] = {}

    def file(self, path: str, limit: int = 20) -> FileHistory:
        """Every read, edit, creation and deletion of a file, newest first.

        A path matches in its relative and absolute forms, and a file name in any folder.
        """
        wanted = normalize_path(path)
        if not wanted:
            raise InputError(f"{path!r:.80} is not a path")
        runs = self._runs_with(wanted.rpartition("/")[2])
        touches = [touch for run in runs for touch in _touches(run) if _same_file(touch.path, wanted)]
        events = self._file_events(touches)
        page, more = self._page([touch.run.at for touch in touches], limit)
        return FileHistory(
            query=path,
            paths=tuple(sorted({touch.path for touch in touches})),
            versions=max((version for _, _, version in events), default=0),
            events=tuple(self._file_event(*event) for event in reversed(events[-page:])) if page else (),
            searched_from=self._first,
            next=more,
        )

    def command(self, text: str, limit: int = 20) -> CommandHistory:
        """The runs of a command, newest first: those that contain the text, or else all of its words."""
        candidates = [(_command_text(run.call), run) for run in self._runs_with(text)]
        runs = _matching(candidates, text)
        page, more = self._page([run.at for run in runs], limit)
        places = range(len(runs) - 1, len(runs) - page - 1, -1)
        return CommandHistory(
            query=text,
            runs=tuple(self._command_run(runs[place], runs[:place]) for place in places),
            searched_from=self._first,
            next=more,
        )

    def error(self, text: str, limit: int = 20, before: int | None = None) -> ErrorHistory:
        """Where an error appeared, how often, what was done about it, and the run after which it no longer came.

        `before` is about the appearances that are listed; how it ended is known from all entries.
        """
        found = _matching([(_fold(line), (at, line, run)) for at, line, run in self._error_lines(text)], text)
        found = list({(at, run): (at, line, run) for at, line, run in reversed(found)}.values())[::-1]
        listed = [each for each in found if before is None or self._entries[each[0]].seq < before]
        page, more = self._page([at for at, _, _ in listed], limit)
        failed = [run for _, _, run in found if run is not None]
        ends = [self._end_of(run, text) for run in _last_of_each(failed)]
        over = [end for end in ends if end is not None]
        is_over = bool(found) and len(over) == len(ends) and len(failed) == len(found)
        ended = max(over) if is_over else None
        events = [self._error_event(*each) for each in (*found[:1], *listed[len(listed) - page :])]
        work = self._work_between(found[0][0], ended.at if ended else len(self._entries) - 1) if found else []
        return ErrorHistory(
            query=text,
            count=len(found),
            state="over" if is_over else "open" if found else "not_found",
            first=events[0] if events else None,
            events=tuple(events[:0:-1]),
            ended_by=self._step(ended) if ended else None,
            followed=tuple(map(self._step, work[-_MAX_LISTED:])),
            omitted=max(len(work) - _MAX_LISTED, 0),
            searched_from=self._first,
            next=more,
        )

    def number(self, text: str, limit: int = 20) -> NumberHistory:
        """Numbers with units in lines that contain a text, or else all of its words, newest first."""
        lines = [
            (_fold(line), (at, line, number)) for at in self._candidates(text) for line, number in self._numbers(at)
        ]
        found = _matching(lines, text)
        page, more = self._page([at for at, _, _ in found], limit)
        numbers = tuple(self._number_mention(*each) for each in reversed(found[len(found) - page :]))
        return NumberHistory(query=text, numbers=numbers, searched_from=self._first, next=more)

    def _page(self, places: Sequence[int], limit: int) -> tuple[int, int | None]:
        """How many of the newest are shown, and the entry before which the next page begins.

        Whatever one entry has is on one page, so that a page can begin before an entry.
        """
        page = min(limit, len(places))
        while 0 < page < len(places) and places[-page - 1] == places[-page]:
            page += 1
        if page < len(places):
            return page, self._entries[places[-page]].seq
        return page, self._first if self._first > 1 else None

    def _candidates(self, text: str) -> list[int]:
        """Indices of the messages whose bytes may contain a text."""
        may_contain = byte_filter(text)
        return [at for at, entry in enumerate(self._entries) if may_contain(entry.content)]

    def _runs_with(self, text: str) -> Iterator[_Run]:
        for at in self._candidates(text):
            yield from self._runs_at(at)

    def _message(self, at: int) -> Message | None:
        if at not in self._messages:
            entry = self._entries[at]
            try:
                self._messages[at] = read(entry.content, entry.wire)
            except InputError:
                self._messages[at] = None
        return self._messages[at]

    def _runs_at(self, at: int) -> tuple[_Run, ...]:
        """The calls that a message makes."""
        if at not in self._runs:
            message = self._message(at) if self._entries[at].role == "assistant" else None
            if message is None:
                runs: tuple[_Run, ...] = ()
            elif message.calls:
                calls = enumerate(message.calls)
                runs = tuple(_Run(at, place, ToolCall(part.name, part.text), part.call_id) for place, part in calls)
            else:
                written = MessageViewReader().view(0, message).calls
                runs = tuple(_Run(at, 0, call, "") for call in written)
            self._runs[at] = runs
        return self._runs[at]

    def _answer(self, run: _Run) -> _Answer:
        """The result of a call."""
        key = run.at, run.place
        if key not in self._answers:
            at, output, failed = self._written_result(run) if not run.id else self._result(run)
            answer = _Answer()
            if at is not None:
                marks = (True,) if failed else ()
                view = MessageView(seq=self._entries[at].seq, role="tool", text=output, calls=(run.call,), failed=marks)
                answer = _Answer(at, output, *call_outcome(view))
            self._answers[key] = answer
        return self._answers[key]

    def _result(self, run: _Run) -> tuple[int | None, str, bool]:
        """Where the result of a call is, its text, and whether it is marked as an error.

        The next question of the user ends the search.
        """
        for at in range(run.at + 1, min(run.at + _MAX_RESULT_DISTANCE, len(self._entries))):
            role = self._entries[at].role
            message = self._message(at) if role == "tool" else None
            for part in message.results if message else ():
                if part.call_id == run.id:
                    return at, plain_output(part.text), part.failed
            if role == "user":
                break
        return None, "", False

    def _written_result(self, run: _Run) -> tuple[int | None, str, bool]:
        """The output of a command that is written as text: the next message, if it looks like one."""
        at = run.at + 1
        reader = MessageViewReader()
        message, following = self._message(run.at), self._message(at) if at < len(self._entries) else None
        if message is None or following is None:
            return None, "", False
        reader.view(0, message)
        view = reader.view(0, following)
        return (at, view.text, False) if view.role == "tool" else (None, "", False)

    def _step(self, run: _Run) -> WorkStep:
        entry, answer, command = self._entries[run.at], self._answer(run), shell_command(run.call)
        return WorkStep(
            pointer=pointer_to(entry.session, entry.seq),
            seq=entry.seq,
            ts=entry.ts,
            tool=_clean(run.call.tool),
            call=_clean(command) if command else describe_step(run.call, MAX_LINE_CHARS),
            state=answer.state,
            exit_code=answer.exit_code,
            line=_clean(answer.line),
            result=None if answer.at is None else self._entries[answer.at].seq,
            why=self._reason(run),
        )

    def _reason(self, run: _Run) -> str:
        """The assistant's last words before a call; the user's request where it said nothing."""
        for at in range(run.at, max(run.at - _MAX_REASON_DISTANCE, -1), -1):
            role = self._entries[at].role
            message = self._message(at) if role in ("assistant", "user") else None
            text = "\n".join(part.text for part in message.parts if part.kind == "text") if message else ""
            if role == "assistant" and text.strip():
                command = shell_command(run.call)
                if at == run.at and not run.id and command in text:
                    before = text.rpartition(command)[0]
                    opening = _FENCE.search(before, max(len(before) - 60, 0))
                    text = before[: opening.start()] if opening else before
                if text.strip():
                    return _last_words(text)
            elif role == "user" and text.strip():
                return _clean(text)
        return ""

    def _file_events(self, touches: Iterable[_Touch]) -> list[tuple[_Touch, FileChange, int]]:
        """Each use with what it changed and the version of its file. Writing a file that was not used creates it."""
        versions: dict[str, int] = {}
        events: list[tuple[_Touch, FileChange, int]] = []
        for touch in touches:
            name = next((known for known in versions if _same_file(known, touch.path)), touch.path)
            change = touch.effect
            if change == "write":
                change = "edit" if name in versions else "create"
            if self._answer(touch.run).state in ("ok", "unanswered"):
                versions[name] = versions.get(name, 0) + (change != "read")
            events.append((touch, cast("FileChange", change), versions.get(name, 0)))
        return events

    def _file_event(self, touch: _Touch, change: FileChange, version: int) -> FileEvent:
        return FileEvent(path=_clean(touch.path), change=change, version=version, step=self._step(touch.run))

    def _command_run(self, run: _Run, earlier: Sequence[_Run]) -> CommandRun:
        """A run, and for one that passes after failures of the same command what was done in between."""
        failures: list[_Run] = []
        for other in reversed(earlier if self._answer(run).state == "ok" else ()):
            if not resolves_failure(run.subject, other.subject):
                continue
            if self._answer(other).state != "failed":
                break
            failures.append(other)
        between = self._work_between(failures[-1].at, run.at) if failures else []
        events = self._file_events(touch for each in between for touch in _touches(each))
        changed = [
            event for event in events if event[1] != "read" and self._answer(event[0].run).state in ("ok", "unanswered")
        ]
        own = {run, *failures}
        ran = [each for each in between if each not in own and _runs_something(each)]
        return CommandRun(
            step=self._step(run),
            numbers=_numbers_in(self._answer(run).output),
            failures=len(failures),
            changed=tuple(self._file_event(*event) for event in changed[-_MAX_LISTED:]),
            ran=tuple(map(self._step, ran[-_MAX_LISTED:])),
        )

    def _work_between(self, start: int, stop: int) -> list[_Run]:
        """The runs after one message up to another that change a file or run a command; of many, the first ones."""
        places = range(start + 1, min(stop, start + _MAX_BETWEEN) + 1)
        return [run for at in places for run in self._runs_at(at) if _changes_something(run) or _runs_something(run)]

    def _error_lines(self, text: str) -> Iterator[tuple[int, str, _Run | None]]:
        """Lines of failed results and pasted errors that may contain a text, with the run that they come from."""
        words = [word.casefold() for word in text.split()]
        for at in self._candidates(text):
            role = self._entries[at].role
            runs = self._runs_answered_by(at) if role in ("tool", "user") else []
            for run in runs:
                yield from ((at, line, run) for line in self._failure_lines(run) if _has_words(line, words))
            if role == "user" and not runs and (message := self._message(at)):
                lines = pasted_errors("\n".join(part.text for part in message.parts if part.kind == "text"))
                yield from ((at, line, None) for line in lines if _has_words(line, words))

    def _failure_lines(self, run: _Run) -> list[str]:
        answer = self._answer(run)
        return clip_middle(answer.output, _MAX_OUTPUT_CHARS).splitlines() if answer.state == "failed" else []

    def _runs_answered_by(self, at: int) -> list[_Run]:
        """The calls whose results a message contains."""
        message = self._message(at)
        ids = {part.call_id for part in message.results} if message else set()
        found: list[_Run] = []
        for place in range(at - 1, max(at - _MAX_RESULT_DISTANCE, -1), -1):
            if not ids and (found or place < at - 1):
                break
            found += [run for run in self._runs_at(place) if (run.id in ids if run.id else place == at - 1)]
            ids -= {run.id for run in found}
        return [run for run in reversed(found) if self._answer(run).at == at]

    def _error_event(self, at: int, line: str, run: _Run | None) -> ErrorEvent:
        entry = self._entries[at]
        pointer, step = pointer_to(entry.session, entry.seq), None if run is None else self._step(run)
        return ErrorEvent(pointer=pointer, seq=entry.seq, ts=entry.ts, line=_clean(line), step=step)

    def _end_of(self, failed: _Run, text: str) -> _Run | None:
        """The first passing run of the same command after its last failure with an error; else the first without it."""
        words, subject = [word.casefold() for word in text.split()], failed.subject
        without: _Run | None = None
        for at in range(failed.at + 1, min(failed.at + _MAX_BETWEEN, len(self._entries))):
            for run in self._runs_at(at):
                if not resolves_failure(run.subject, subject):
                    continue
                if self._answer(run).state == "ok":
                    return run
                if self._answer(run).state == "failed" and without is None:
                    without = None if any(_has_words(line, words) for line in self._failure_lines(run)) else run
        return without

    def _numbers(self, at: int) -> Iterator[tuple[str, str]]:
        """The lines of a message that have a number with a unit, and the first of these numbers."""
        message = self._message(at)
        texts = [plain_output(part.text) for part in message.parts if part.kind in _TEXTS] if message else []
        for text in texts:
            for line in clip_middle(text, _MAX_OUTPUT_CHARS).splitlines():
                if number := _QUANTITY.search(line[:2_000]):
                    yield line, number[0].strip()

    def _number_mention(self, at: int, line: str, number: str) -> NumberMention:
        entry = self._entries[at]
        pointer = pointer_to(entry.session, entry.seq)
        return NumberMention(
            pointer=pointer, seq=entry.seq, ts=entry.ts, role=entry.role, number=_clean(number), line=_clean(line)
        )


def shell_command(call: ToolCall) -> str:
    """The shell command of a call, as it was written; empty if it runs none."""
    arguments = parse_arguments(call)
    if "path" in arguments or "file_path" in arguments:  # an editor whose first argument is called `command`
        return ""
    for key in ("command", "cmd", "script"):
        value = arguments.get(key)
        if isinstance(value, list):
            value = " ".join(part for part in value if isinstance(part, str))
        if isinstance(value, str) and value.strip():
            return _SHELL_PREFIX.sub("", value)
    return ""


def _command_text(call: ToolCall) -> str:
    """What a question for a command is compared with: the command without the files that it writes, or the tool and
    what it is about.
    """
    command = shell_command(call)[:_MAX_OUTPUT_CHARS]
    return _fold("\n".join(_lines_run(command)) if command else describe_call(call))


def _lines_run(command: str) -> Iterator[str]:
    """The lines of a command without the bodies of its here-documents."""
    end = ""
    for line in command.splitlines():
        if end:
            end = "" if line.strip() == end else end
            continue
        yield line
        opening = _HERE_DOCUMENT.search(line[:_MAX_SEARCHED_LINE])
        end = opening[1] if opening else ""


def _touches(run: _Run) -> list[_Touch]:
    """The files that a run reads or changes."""
    uses = {use.path: use.effect or use.action for use in file_uses(run.call) if use.path}
    uses |= dict.fromkeys(_script_edits(shell_command(run.call)), "edit")
    return [_Touch(run, path, effect) for path, effect in uses.items() if effect != "name"]


def _script_edits(command: str) -> list[str]:
    """The files that a Python script within a command opens for writing."""
    if not _PYTHON.search(command[:_MAX_OUTPUT_CHARS]):
        return []
    found: list[str] = []
    end, is_script = "", True
    for line in command[:_MAX_OUTPUT_CHARS].splitlines():
        if end and line.strip() == end:
            end, is_script = "", True
        elif is_script:
            found += (normalize_path(match[1] or match[2]) for match in _OPENED.finditer(line[:_MAX_SEARCHED_LINE]))
        if not end and (opening := _HERE_DOCUMENT.search(line[:_MAX_SEARCHED_LINE])):
            end, is_script = opening[1], _PYTHON.search(line) is not None  # else it is the content of a file
    return [path for path in found if path]


def _changes_something(run: _Run) -> bool:
    return any(touch.effect != "read" for touch in _touches(run))


def _runs_something(run: _Run) -> bool:
    """Whether a run is a shell command that does more than read."""
    command = shell_command(run.call)
    return bool(command) and not reads_only(command)


def _same_file(used: str, wanted: str) -> bool:
    return used == wanted or used.endswith(f"/{wanted}") or wanted.endswith(f"/{used}")


def _last_of_each(runs: Iterable[_Run]) -> list[_Run]:
    """The last failing run of each command that reported an error."""
    last: list[_Run] = []
    for run in runs:
        last = [other for other in last if not resolves_failure(run.subject, other.subject)]
        last.append(run)
    return last


def _matching(candidates: Sequence[tuple[str, _Item]], text: str) -> list[_Item]:
    """The items whose folded text contains a text; where none does, those with all of its words."""
    phrase = _fold(text)
    if not phrase:
        return []
    literal = re.compile(_word_start(phrase))
    found = [item for folded, item in candidates if literal.search(folded)]
    if found:
        return found
    words = [re.compile(_word_start(word)) for word in phrase.split()[:_MAX_WORDS]]
    return [item for folded, item in candidates if all(word.search(folded) for word in words)]


def _word_start(text: str) -> str:
    """A pattern for a text that begins where a word does: `go test` is not found in `cargo test`."""
    return rf"(?<!\w){re.escape(text)}" if text[0].isalnum() else re.escape(text)


def _has_words(line: str, words: Sequence[str]) -> bool:
    folded = line[:_MAX_SEARCHED_LINE].casefold()
    return all(word in folded for word in words)


def _numbers_in(output: str) -> tuple[str, ...]:
    found = [match[0].strip() for match in _QUANTITY.finditer(output[-4_000:])]
    return tuple(dict.fromkeys(found[-_MAX_NUMBERS:]))


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())


def _last_words(text: str) -> str:
    """The end of a text, from the beginning of a sentence where there is one."""
    plain = " ".join(text[-4_000:].split())
    if len(plain) <= MAX_LINE_CHARS:
        return _clean(plain)
    tail = plain[-MAX_LINE_CHARS:]
    start = re.search(r"[.!?:] (?=\S)", tail[: MAX_LINE_CHARS // 2])
    return _clean(tail[start.end() :] if start else f"…{tail}")


def _clean(text: str) -> str:
    """A short text on one line, without control characters and secrets."""
    return shorten_line(mask_secrets(prompt_safe(" ".join(text[:4_000].split()))), MAX_LINE_CHARS)
