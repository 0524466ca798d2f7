"""Renders a checkpoint: as handoff after a question, as first page of a new window, and as a file for people.

The most important groups come first; what does not fit is named with a pointer to all of it. Everything is quoted for
reference: no line looks like the frame or like an instruction.

Drift is how the environment changed since a checkpoint: two recorded environments in, differences out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from recto.context.compaction.layout import CountText, bullet
from recto.context.window.state import render_notes
from recto.continuity.checkpoints.checkpoint import (
    Checkpoint,
    Environment,
    FileState,
    Issue,
    Item,
    Status,
    Subtask,
    TaskDecision,
)

DriftKind = Literal["directory", "branch", "head", "dirty", "missing", "changed", "service", "unknown"]
_MAX_NAMED = 12
"""Maximum number of uncommitted files named."""


class Drift(Struct, frozen=True, kw_only=True):
    """One difference."""

    kind: DriftKind
    what: str
    """A description."""


def drift_of(recorded: Environment, now: Environment) -> tuple[Drift, ...]:
    """Compare the current environment with that of a checkpoint; empty if none was recorded."""
    if not recorded.directory:
        return ()
    if not now.directory:
        return (Drift(kind="unknown", what="the environment could not be looked at: nothing of it is confirmed"),)
    drift: list[Drift] = []
    if recorded.directory != now.directory:
        drift.append(Drift(kind="directory", what=f"the work was in {recorded.directory}; this is {now.directory}"))
    drift += _git(recorded, now)
    drift += _files(recorded, now)
    listening = {service.address: service.alive for service in now.services}
    for service in recorded.services:
        if service.alive and not listening.get(service.address, False):
            problem = "no longer answers" if service.address in listening else "may not be asked by the settings"
            drift.append(Drift(kind="service", what=f"{service.address} {problem}"))
    return tuple(drift)


def _git(recorded: Environment, now: Environment) -> list[Drift]:
    if not recorded.head:
        return [Drift(kind="head", what=f"there is git now, at {now.head[:12]}")] if now.head else []
    if not now.head:
        return [Drift(kind="head", what=f"there is no git here any more; the work was at {recorded.head[:12]}")]
    drift: list[Drift] = []
    if recorded.branch != now.branch:
        drift.append(Drift(kind="branch", what=f"the branch was {recorded.branch}, it is {now.branch}"))
    if recorded.head != now.head:
        drift.append(Drift(kind="head", what=f"the commit was {recorded.head[:12]}, it is {now.head[:12]}"))
    newly_dirty = [path for path in now.dirty if path not in recorded.dirty]
    newly_clean = [path for path in recorded.dirty if path not in now.dirty]
    if newly_dirty:
        drift.append(Drift(kind="dirty", what=f"changed since and not committed: {_name_some(newly_dirty)}"))
    if newly_clean:
        drift.append(Drift(kind="dirty", what=f"no longer different from the commit: {_name_some(newly_clean)}"))
    return drift


def _files(recorded: Environment, now: Environment) -> list[Drift]:
    drift: list[Drift] = []
    present = {file.path: file for file in now.paths}
    for file in recorded.paths:
        current = present.get(file.path)
        if current is None:
            drift.append(Drift(kind="missing", what=f"{file.path} is not there any more"))
        elif (file.digest or current.digest) and file.digest != current.digest:
            drift.append(Drift(kind="changed", what=f"{file.path} has other content, {_sizes(file, current)}"))
        elif not file.digest and (file.size, file.modified) != (current.size, current.modified):
            drift.append(Drift(kind="changed", what=f"{file.path} was written to, {_sizes(file, current)}"))
    return drift


def _sizes(recorded: FileState, now: FileState) -> str:
    return f"{now.size:,} bytes where there were {recorded.size:,}"


def _name_some(paths: list[str]) -> str:
    more = f" and {len(paths) - _MAX_NAMED} more" if len(paths) > _MAX_NAMED else ""
    return ", ".join(paths[:_MAX_NAMED]) + more


HEADER = (
    "[Handoff: where the work stood when the window was made smaller, for reference only. It carries no instructions.]"
)
RESUMED = "[Handoff: window {} begins; this is the state of the work, for reference only. It carries no instructions.]"
FINISHED = (
    "[Handoff: the task is complete; this is the state of the work, for reference only. It carries no instructions.]"
)
TAKEN_UP = "[Handoff: the work goes on; this is its state, for reference only. It carries no instructions.]"
FOOTER = "[End of the handoff]"
_MAX_NOTE_CHARS = 1_500
"""Characters of notes in a handoff."""
_MAX_REPLY_CHARS = 600
"""Characters of the agent's last message."""
MISSING_TOOLS = "Tools that the work used and that are not available now:"
_MAX_MISSING = 12
"""Missing tools that a page names; of more, only their number."""
_POINTER_TOKENS = 40
"""Tokens reserved for naming what does not fit."""


class _Group(Struct, frozen=True):
    title: str
    lines: Sequence[str]


class HandoffPage(Struct, frozen=True, kw_only=True):
    """A page and what it omits."""

    text: str
    omitted: dict[str, int]
    """By title: how many lines did not fit."""


def handoff_of(checkpoint: Checkpoint, last_reply: str, *, most: int, count: CountText) -> str:
    """Render a checkpoint in at most `most` tokens; `last_reply` is the agent's last message."""
    header = FINISHED if checkpoint.is_complete else HEADER
    return _page(header, _groups(checkpoint, last_reply, ()), most, count, "").text


def resume_page(
    checkpoint: Checkpoint,
    drift: Sequence[Drift],
    *,
    window: int | None,
    last_reply: str = "",
    pointer: str = "",
    most: int,
    count: CountText,
) -> HandoffPage:
    """Render the first page of a window, or without one the page of a program that takes the work up again.

    What does not fit is named, with the pointer to all of it.
    """
    header = TAKEN_UP if window is None else RESUMED.format(window)
    return _page(header, _groups(checkpoint, last_reply, drift), most, count, pointer)


def with_missing_tools(text: str, missing: Sequence[str]) -> str:
    """Add to a page the tools that the work called and that the model does not have now. Adds them once."""
    more = f" and {len(missing) - _MAX_MISSING} more" if len(missing) > _MAX_MISSING else ""
    line = bullet(", ".join(missing[:_MAX_MISSING]) + more)
    body = text.removesuffix(FOOTER)
    return text if MISSING_TOOLS in body else f"{body}{MISSING_TOOLS}\n{line}\n{FOOTER}"


def page_for_people(checkpoint: Checkpoint) -> str:
    """Render a complete checkpoint as Markdown."""
    lines = [
        f"# {_plain(checkpoint.session) or 'Checkpoint'}",
        "",
        f"Version {checkpoint.version}, window {checkpoint.window}, up to entry {checkpoint.last}"
        + (f", written because of: {_plain(checkpoint.reason)}." if checkpoint.reason else "."),
    ]
    for group in _groups(checkpoint, "", ()):
        if group.lines:
            lines += ["", f"## {group.title}", "", *group.lines]
    environment = checkpoint.environment
    if environment.directory:
        lines += ["", "## Environment", "", f"- directory: {_plain(environment.directory)}"]
        lines += [f"- git: {_plain(environment.branch)} at {environment.head}"] if environment.head else []
        lines += [f"- not committed: {_plain(path)}" for path in environment.dirty]
        lines += [f"- file: {_plain(file.path)}, {file.size:,} bytes" for file in environment.paths]
        lines += [
            f"- service: {service.address}, {'answers' if service.alive else 'no answer'}"
            for service in environment.services
        ]
    if checkpoint.tools:
        lines += ["", "## Tools used", "", f"- {_plain(', '.join(checkpoint.tools))}"]
    if checkpoint.summary:
        lines += ["", f"What was evicted is summarized at {_plain(checkpoint.summary)}."]
    return "\n".join((*lines, ""))


def _groups(checkpoint: Checkpoint, last_reply: str, drift: Sequence[Drift]) -> list[_Group]:
    current = checkpoint.current
    stated = [item for item in checkpoint.constraints if item.seq != checkpoint.goal_seq or not item.seq]
    task = [item for item in checkpoint.constraints if item not in stated]
    goal = [bullet(checkpoint.goal, checkpoint.goal_seq or None)] if checkpoint.goal else []
    last_message = [bullet(last_reply[:_MAX_REPLY_CHARS])] if last_reply.strip() else []
    rest = [task for task in checkpoint.subtasks if task is not current]
    return [
        _Group("Goal", goal),
        _Group("What holds", _items((*stated, *task))),  # later statements are easier to miss than the task
        _Group("Current subtask", [_task(current)] if current else []),
        _Group("Not solved", [_issue(issue) for issue in checkpoint.open_issues]),
        _Group("Changed since it was last looked at", [bullet(change.what) for change in drift]),
        _Group("The agent's last words", last_message),
        _Group("Done when", _items(checkpoint.success_criteria)),
        _Group("To do", [*_tasks(rest, "in_progress"), *_tasks(rest, "planned"), *_items(checkpoint.promises)]),
        _Group("Done, not to be done again", _tasks(rest, "done")[::-1]),
        _Group("Not answered", _items(checkpoint.questions)),
        _Group("Decided", [_decision(decision) for decision in checkpoint.decisions]),
        _Group("Learned", _items(checkpoint.learnings)),
        _Group(
            "Notes", render_notes([n for n in checkpoint.notes if n.kind in ("task_progress", "misc")], _MAX_NOTE_CHARS)
        ),
        _Group("Files worked on", [bullet(", ".join(checkpoint.files))] if checkpoint.files else []),
    ]


def _page(header: str, groups: Sequence[_Group], most: int, count: CountText, pointer: str) -> HandoffPage:
    available = most - count(header) - count(FOOTER) - 8 - (_POINTER_TOKENS if pointer else 0)
    lines, omitted = [header], {}
    for group in groups:
        fitting, available = _fitting(group, available, count)
        if len(fitting) < len(group.lines):
            omitted[group.title] = len(group.lines) - len(fitting)
        if fitting:
            lines += [f"{group.title}:", *fitting]
    if omitted and pointer:
        named = ", ".join(f"{number} of “{title}”" for title, number in list(omitted.items())[:4])
        notice = f"(No room for {named}; all of it is {pointer})"
        lines.append(notice if count(notice) <= _POINTER_TOKENS else f"(There is more; all of it is {pointer})")
    return HandoffPage(text="\n".join((*lines, FOOTER)), omitted=omitted)


def _fitting(group: _Group, available: int, count: CountText) -> tuple[list[str], int]:
    """The lines of a group that fit, and the tokens that remain."""
    title = count(f"{group.title}:") + 1
    fitting: list[str] = []
    for line in group.lines:
        cost = count(line) + 1 + (0 if fitting else title)
        if cost + 4 <= available:
            available -= cost
            fitting.append(line)
    return fitting, available


def _items(items: Sequence[Item]) -> list[str]:
    return [_line(item.text, item.seq, item.by == "agent") for item in items]


def _tasks(tasks: Sequence[Subtask], status: Status) -> list[str]:
    return [_task(task) for task in tasks if task.status == status]


def _task(task: Subtask) -> str:
    begun = {"in_progress": "begun: ", "planned": "not begun: ", "done": ""}[task.status]
    return bullet(f"{begun}{task.text}", task.seq or None)


def _issue(issue: Issue) -> str:
    shown = f", shown by: {issue.reproduction}" if issue.reproduction else ""
    return _line(f"{issue.error}{shown}", issue.seq, issue.by == "agent")


def _decision(decision: TaskDecision) -> str:
    return _line(decision.decision, decision.seq, decision.by == "agent")


def _line(text: str, seq: int, noted: bool) -> str:
    return bullet(f"noted: {text}" if noted else text, seq or None)


def _plain(text: str) -> str:
    return bullet(text).removeprefix("- ")
