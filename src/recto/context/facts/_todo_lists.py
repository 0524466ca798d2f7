"""To-do lists kept by the agent: where a message writes the list, and the status of each task."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from recto.context.facts.types import MessageView
from recto.text.lazy_re import lazy_re

_LIST_KEYS = ("todos", "tasks", "plan", "steps", "items")
_TEXT_KEYS = ("content", "step", "subject", "title", "text", "description", "task", "name")
_STATUS_KEYS = ("status", "state")
_CHECKBOX = lazy_re(r"^\s{0,12}(?:[-*+]|\d{1,3}[.)])\s{1,4}\[([ xX~✓✔-])\]\s{1,4}(\S[^\n]{0,600})$", re.MULTILINE)
_MAX_ITEMS = 100
_MAX_ARGUMENT_CHARS = 200_000
"""Characters of arguments that are read."""
_MAX_REMEMBERED_CHARS = 8_000
"""Characters of arguments whose list is remembered."""
_DONE = frozenset(
    ("completed", "complete", "done", "finished", "cancelled", "canceled", "deleted", "skipped", "closed")
)
_STARTED = frozenset(("in_progress", "in progress", "inprogress", "active", "doing", "started", "running"))


@dataclass(frozen=True, slots=True)
class TodoItem:
    """Something to do, in the agent's words."""

    text: str
    status: str
    """`pending`, `in_progress` or `completed`."""


def todo_list_in(message: MessageView) -> Sequence[TodoItem] | None:
    """The list a message writes, which replaces the previous one; None if it writes none."""
    if message.role == "assistant":
        for call in reversed(message.calls):
            read = _read_short_items if len(call.arguments) <= _MAX_REMEMBERED_CHARS else _read_items
            if (items := read(call.arguments)) is not None:
                return items
    if message.role in ("assistant", "user") and "[" in message.text:
        boxes = _CHECKBOX.findall(message.text[:_MAX_ARGUMENT_CHARS])
        if len(boxes) >= 2:
            return [
                TodoItem(text.strip(), "completed" if box in "xX✓✔" else "in_progress" if box == "~" else "pending")
                for box, text in boxes[:_MAX_ITEMS]
            ]
    return None


def todo_changes(message: MessageView) -> list[tuple[int | None, TodoItem]]:
    """Tasks created or updated individually; updated ones with their index in the list."""
    changes: list[tuple[int | None, TodoItem]] = []
    for call in message.calls if message.role == "assistant" else ():
        name = call.tool.lower().replace("_", "")
        if name not in ("taskcreate", "taskupdate"):
            continue
        arguments = _parse_arguments(call.arguments)
        if name == "taskcreate" and (text := _text(arguments)):
            changes.append((None, TodoItem(text, _status(arguments))))
        elif name == "taskupdate":
            number = str(arguments.get("taskId", arguments.get("task_id", arguments.get("id", ""))))
            if number.isascii() and number.isdigit() and 0 < len(number) < 5 and "status" in arguments:
                changes.append((int(number) - 1, TodoItem("", _status(arguments))))
    return changes


def _parse_arguments(arguments: str) -> Mapping[str, Any]:
    if len(arguments) > _MAX_ARGUMENT_CHARS:
        return {}
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _read_items(arguments: str) -> Sequence[TodoItem] | None:
    parsed = _parse_arguments(arguments)
    for name in _LIST_KEYS:
        items = parsed.get(name)
        if not isinstance(items, list) or not items:
            continue
        tasks = [
            TodoItem(text, _status(item))
            for item in items[:_MAX_ITEMS]
            if isinstance(item, dict) and _has_status(item) and (text := _text(item))
        ]
        if tasks:
            return tasks
    return None


_read_short_items = lru_cache(1024)(_read_items)
"""A call is read again with every eviction before its own."""


def _text(item: Mapping[str, Any]) -> str:
    return next((value for name in _TEXT_KEYS if isinstance(value := item.get(name), str) and value.strip()), "")


def _has_status(item: Mapping[str, Any]) -> bool:
    return any(isinstance(item.get(name), str) for name in _STATUS_KEYS)


def _status(item: Mapping[str, Any]) -> str:
    status = next((value.lower() for name in _STATUS_KEYS if isinstance(value := item.get(name), str)), "")
    return "completed" if status in _DONE else "in_progress" if status in _STARTED else "pending"
