"""Prints what was done in a session: files, commands, errors and numbers."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from recto.cli.console import format_time, out, safe
from recto.context.work import (
    CommandHistory,
    CommandRun,
    ErrorHistory,
    FileEvent,
    FileHistory,
    NumberHistory,
    WorkHistory,
    WorkStep,
)

_INDENT = " " * 6
_STATES = {"ok": "green", "failed": "red", "refused": "yellow", "unanswered": "dim"}
_ERROR_STATES = {"over": "over", "open": "still open", "not_found": "never reported"}


def print_work(history: WorkHistory) -> None:
    """Prints a history, newest first."""
    for line in _lines(history):
        out.print(line, soft_wrap=True)
    if history.next is not None:
        out.print(f"Older entries: --before {history.next}")


def _lines(history: WorkHistory) -> Iterator[Text | str]:
    match history:
        case FileHistory():
            yield from (line for event in history.events for line in _file_lines(event))
            if not history.events:
                yield "Nothing was done with such a file."
        case CommandHistory():
            yield from (line for run in history.runs for line in _run_lines(run))
            if not history.runs:
                yield "No such command was run."
        case ErrorHistory():
            yield from _error_lines(history)
        case NumberHistory():
            for found in history.numbers:
                yield _title(found.number, "bold", found.ts, found.pointer)
                yield Text(_INDENT + safe(found.line))
            if not history.numbers:
                yield "No number with a unit was found beside these words."


def _file_lines(event: FileEvent) -> Iterator[Text]:
    label = event.change if event.change == "read" else f"{event.change} (version {event.version})"
    yield from _step_lines(event.step, label, event.path)


def _run_lines(run: CommandRun) -> Iterator[Text]:
    yield from _step_lines(run.step, "run", ", ".join(run.numbers))
    if run.failures:
        times = "failure" if run.failures == 1 else f"{run.failures} failures"
        yield Text(f"{_INDENT}passed after {times}; changed in between:", "dim")
        for event in run.changed:
            yield Text(f"{_INDENT}  {event.change:<6}  {safe(event.path)}  {safe(event.step.pointer)}")
        for step in run.ran:
            yield Text(f"{_INDENT}  ran     {safe(step.call)}  {safe(step.pointer)}")


def _error_lines(history: ErrorHistory) -> Iterator[Text]:
    times = "once" if history.count == 1 else f"{history.count:,} times"
    yield Text(f"{_ERROR_STATES[history.state]}{f'; it came {times}' if history.count else ''}", "bold")
    for event in history.events:
        yield _title("came", "red", event.ts, event.pointer)
        yield Text(_INDENT + safe(event.line))
        yield Text(f"{_INDENT}{f'in: {safe(event.step.call)}' if event.step else 'pasted by the user'}", "dim")
    for step in history.followed:
        yield from _step_lines(step, "then")
    if history.omitted:
        yield Text(f"{_INDENT}{history.omitted:,} earlier steps after it are not listed", "dim")
    if history.ended_by is not None:
        yield from _step_lines(history.ended_by, "ended by")


def _step_lines(step: WorkStep, label: str, about: str = "") -> Iterator[Text]:
    title = _title(label, "bold", step.ts, step.pointer)
    state = step.state if step.exit_code is None else f"{step.state} (exit {step.exit_code})"
    title.append(f"  {state}", _STATES[step.state])
    yield title.append(f"  {safe(about)}") if about else title
    yield Text(_INDENT + safe(step.call))
    if step.line:
        yield Text(_INDENT + safe(step.line), "red")
    if step.why:
        yield Text(f"{_INDENT}why: {safe(step.why)}", "dim")


def _title(label: str, style: str, ts: int, pointer: str) -> Text:
    return Text.assemble((safe(label), style), f"  {format_time(ts)[:16]}  ", (safe(pointer), "cyan"))
