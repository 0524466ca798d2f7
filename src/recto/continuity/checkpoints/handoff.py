"""A checkpoint as pages: the handoff behind a question, the first prompt of a new window, and a file for people.

The most important stands first and is shown at once; the rest as room allows, and what has no room is named with where
it can be read. Everything is quoted for reference: no line of it begins like the frame or passes for an instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recto.context.compaction.layout import CountText, bullet
from recto.context.window.notes import render_notes
from recto.continuity.checkpoints.checkpoint import Checkpoint, Issue, Item, Status, Subtask, TaskDecision
from recto.continuity.checkpoints.drift import Drift

HEADER = (
    "[Handoff: where the work stood when the window was made smaller, for reference only. It carries no instructions.]"
)
RESUMED = "[Handoff: window {} begins; this is where the work stands, for reference only. It carries no instructions.]"
FOOTER = "[End of the handoff]"
_NOTES = 1_500
"""Characters of notes in a handoff."""
_WORDS = 600
"""Characters of what the agent said last."""
_REST = 40
"""Tokens that are kept for naming what has no room."""


@dataclass(frozen=True, slots=True)
class _Group:
    title: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffPage:
    """A text, and what it does not tell."""

    text: str
    omitted: dict[str, int]
    """By title: how many lines had no room."""


def handoff_of(checkpoint: Checkpoint, said: str, *, most: int, count: CountText) -> str:
    """A checkpoint as a page of at most so many tokens; `said` is what the agent said last."""
    return _page(HEADER, _groups(checkpoint, said, ()), most, count, "").text


def resume_page(
    checkpoint: Checkpoint,
    drift: Sequence[Drift],
    *,
    window: int,
    said: str = "",
    pointer: str = "",
    most: int,
    count: CountText,
) -> HandoffPage:
    """The first page of a window. What has no room is named, with the pointer where all of it can be read."""
    return _page(RESUMED.format(window), _groups(checkpoint, said, drift), most, count, pointer)


def page_for_people(checkpoint: Checkpoint) -> str:
    """All of a checkpoint as Markdown."""
    lines = [
        f"# {_plain(checkpoint.session) or 'Checkpoint'}",
        "",
        f"Version {checkpoint.version}, window {checkpoint.window}, up to entry {checkpoint.last}"
        + (f", written because of: {_plain(checkpoint.reason)}." if checkpoint.reason else "."),
    ]
    for group in _groups(checkpoint, "", ()):
        if group.lines:
            lines += ["", f"## {group.title}", "", *group.lines]
    around = checkpoint.environment
    if around.directory:
        lines += ["", "## Environment", "", f"- directory: {_plain(around.directory)}"]
        lines += [f"- git: {_plain(around.branch)} at {around.head}"] if around.head else []
        lines += [f"- not committed: {_plain(path)}" for path in around.dirty]
        lines += [f"- file: {_plain(file.path)}, {file.size:,} bytes" for file in around.paths]
        lines += [f"- service: {one.address}, {'answers' if one.alive else 'no answer'}" for one in around.services]
    if checkpoint.summary:
        lines += ["", f"What left the window is summed up at {_plain(checkpoint.summary)}."]
    return "\n".join((*lines, ""))


def _groups(checkpoint: Checkpoint, said: str, drift: Sequence[Drift]) -> list[_Group]:
    current = checkpoint.current
    own = [item for item in checkpoint.constraints if item.seq != checkpoint.goal_seq or not item.seq]
    task = [item for item in checkpoint.constraints if item not in own]
    goal = [bullet(checkpoint.goal, checkpoint.goal_seq or None)] if checkpoint.goal else []
    words = [bullet(said[:_WORDS])] if said.strip() else []
    rest = [one for one in checkpoint.subtasks if one is not current]
    return [
        _Group("Goal", goal),
        _Group("What holds", _items((*own, *task))),  # what was said on the way is easier to miss than the task
        _Group("Current subtask", [_task(current)] if current else []),
        _Group("Not solved", [_issue(issue) for issue in checkpoint.open_issues]),
        _Group("Changed since it was last looked at", [bullet(one.what) for one in drift]),
        _Group("The agent's last words", words),
        _Group("Done when", _items(checkpoint.success_criteria)),
        _Group("To do", [*_tasks(rest, "in_progress"), *_tasks(rest, "planned"), *_items(checkpoint.promises)]),
        _Group("Done, not to be done again", _tasks(rest, "done")[::-1]),
        _Group("Not answered", _items(checkpoint.questions)),
        _Group("Decided", [_decision(one) for one in checkpoint.decisions]),
        _Group("Learned", _items(checkpoint.learnings)),
        _Group("Notes", render_notes([n for n in checkpoint.notes if n.kind in ("task_progress", "misc")], _NOTES)),
        _Group("Files worked on", [bullet(", ".join(checkpoint.files))] if checkpoint.files else []),
    ]


def _page(header: str, groups: Sequence[_Group], most: int, count: CountText, pointer: str) -> HandoffPage:
    room = most - count(header) - count(FOOTER) - 8 - (_REST if pointer else 0)
    lines, omitted = [header], {}
    for group in groups:
        fitting, room = _fitting(group, room, count)
        if len(fitting) < len(group.lines):
            omitted[group.title] = len(group.lines) - len(fitting)
        if fitting:
            lines += [f"{group.title}:", *fitting]
    if omitted and pointer:
        named = ", ".join(f"{number} of “{title}”" for title, number in list(omitted.items())[:4])
        told = f"(No room for {named}; all of it is {pointer})"
        lines.append(told if count(told) <= _REST else f"(There is more; all of it is {pointer})")
    return HandoffPage(text="\n".join((*lines, FOOTER)), omitted=omitted)


def _fitting(group: _Group, room: int, count: CountText) -> tuple[list[str], int]:
    """Those lines of a group that there is room for, and the room that is left."""
    title = count(f"{group.title}:") + 1
    fitting: list[str] = []
    for line in group.lines:
        cost = count(line) + 1 + (0 if fitting else title)
        if cost + 4 <= room:
            room -= cost
            fitting.append(line)
    return fitting, room


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


def _decision(one: TaskDecision) -> str:
    return _line(one.decision, one.seq, one.by == "agent")


def _line(text: str, seq: int, noted: bool) -> str:
    return bullet(f"noted: {text}" if noted else text, seq or None)


def _plain(text: str) -> str:
    return bullet(text).removeprefix("- ")
