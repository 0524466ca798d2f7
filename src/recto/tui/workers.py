"""Background work, so that requests never block keys or drawing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from textual.dom import DOMNode
from textual.worker import Worker, WorkType


def run_exclusive(node: DOMNode, job: Callable[[], Coroutine[Any, Any, None]], group: str) -> Worker[None]:
    """Starts a worker that replaces earlier ones of its group. It ends with its screen."""
    return node.run_worker(cast(WorkType[None], job), group=group, exclusive=True)
