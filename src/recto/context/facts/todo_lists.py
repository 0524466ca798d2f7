"""The tasks an agent keeps a list of: where a message writes that list, and how far each task is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recto.context.facts.types import MessageView, ToolCall

_LISTS = ("todos", "tasks", "plan", "steps", "items")
_NAMES = ("content", "step", "subject", "title", "text", "description", "task", "name")
_STATES = ("status", "state")
_BOX = re.compile(r"^\s{0,12}(?:[-*+]|\d{1,3}[.)])\s{1,4}\[([ xX~✓✔-])\]\s{1,4}(\S[^\n]{0,600})$", re.MULTILINE)
_MOST = 100
_LONGEST = 200_000
"""Characters of arguments that are read."""
_DONE = frozenset(
    ("completed", "complete", "done", "finished", "cancelled", "canceled", "deleted", "skipped", "closed")
)
_BEGUN = frozenset(("in_progress", "in progress", "inprogress", "active", "doing", "started", "running"))


@dataclass(frozen=True, slots=True)
class TodoItem:
    """Something to do, in the agent's words."""

    text: str
    status: str
    """`pending`, `in_progress` or `completed`."""


def tasks_of(one: MessageView) -> list[TodoItem] | None:
    """The list a message writes, which takes the place of the one before; None where it writes none."""
    if one.role == "assistant":
        for call in reversed(one.calls):
            if (found := _listed(_arguments(call))) is not None:
                return found
    if one.role in ("assistant", "user") and "[" in one.text:
        boxes = _BOX.findall(one.text[:_LONGEST])
        if len(boxes) >= 2:
            return [
                TodoItem(text.strip(), "completed" if box in "xX✓✔" else "in_progress" if box == "~" else "pending")
                for box, text in boxes[:_MOST]
            ]
    return None


def changed_tasks(one: MessageView, known: int) -> Iterator[tuple[int, TodoItem]]:
    """Tasks that are made and changed one by one, each with its place in the list: they are numbered from 1."""
    for call in one.calls if one.role == "assistant" else ():
        name = call.tool.lower().replace("_", "")
        if name not in ("taskcreate", "taskupdate"):
            continue
        given = _arguments(call)
        if name == "taskcreate" and (text := _text(given)):
            yield known, TodoItem(text, _status(given))
            known += 1
        elif name == "taskupdate":
            number = str(given.get("taskId", given.get("task_id", given.get("id", ""))))
            if number.isascii() and number.isdigit() and 0 < len(number) < 5 and "status" in given:
                yield int(number) - 1, TodoItem("", _status(given))


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    if len(call.arguments) > _LONGEST:
        return {}
    try:
        found = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _listed(arguments: Mapping[str, Any]) -> list[TodoItem] | None:
    for name in _LISTS:
        given = arguments.get(name)
        if not isinstance(given, list) or not given:
            continue
        made = [
            TodoItem(text, _status(item))
            for item in given[:_MOST]
            if isinstance(item, dict) and _has_status(item) and (text := _text(item))
        ]
        if made:
            return made
    return None


def _text(item: Mapping[str, Any]) -> str:
    return next((value for name in _NAMES if isinstance(value := item.get(name), str) and value.strip()), "")


def _has_status(item: Mapping[str, Any]) -> bool:
    return any(isinstance(item.get(name), str) for name in _STATES)


def _status(item: Mapping[str, Any]) -> str:
    said = next((value.lower() for name in _STATES if isinstance(value := item.get(name), str)), "")
    return "completed" if said in _DONE else "in_progress" if said in _BEGUN else "pending"
