"""Work beside what is drawn: nothing that is asked for ever holds up a key or a line."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast

from textual.dom import DOMNode
from textual.worker import Worker, WorkType


def beside(node: DOMNode, job: Callable[[], Coroutine[Any, Any, None]], group: str) -> Worker[None]:
    """Begins something; what was begun before in the same group is ended. It ends with the screen it belongs to."""
    return node.run_worker(cast(WorkType[None], job), group=group, exclusive=True)
