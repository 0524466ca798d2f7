"""Tool calls that take long, as tasks: the client gets a handle, and asks for the result when it likes.

The Tasks extension of MCP as of 2026-07-28, over the public handlers of the SDK's server. A call that is not ready
after a few seconds becomes a task, if the client has declared the extension; calls of other clients are answered when
they are ready. Tasks are kept in this process, for a limited time and in a limited number. A task belongs to the tenant
and the caller that began it: to others it does not exist.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    ClientCapabilities,
    RequestParams,
    Result,
)

from recto.mcp.context import McpContext

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_PATIENCE = 3.0
"""Seconds that a call may take before it becomes a task."""
_TTL = 600.0
"""Seconds that a task is kept."""
_MAX_TASKS = 64
_MAX_OWN_TASKS = 8
"""Tasks of one caller. A call that finds no room is answered when it is ready."""
_POLL_MS = 1_000

Status = Literal["working", "completed", "cancelled"]


class TaskParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`; `tasks/update` has more, which no task here asks for."""

    task_id: str


class TaskState(Result):
    """A task as it is now."""

    task_id: str
    status: Status
    created_at: str
    last_updated_at: str
    ttl_ms: int
    poll_interval_ms: int = _POLL_MS
    result: dict[str, Any] | None = None


class TaskHandle(TaskState):
    """The result of a call that has become a task."""

    result_type: Literal["task"] = "task"


@dataclass(slots=True)
class _ToolTask:
    owner: tuple[str, str]
    work: asyncio.Task[CallToolResult]
    created: float
    changed: float

    @property
    def status(self) -> Status:
        if self.work.cancelled() or self.work.cancelling():
            return "cancelled"
        return "completed" if self.work.done() else "working"


def has_tasks(capabilities: ClientCapabilities | None) -> bool:
    """Whether a client has declared the extension with its request."""
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


class ToolTasks:
    """The tasks of a server."""

    def __init__(self, *, patience: float = _PATIENCE, ttl: float = _TTL) -> None:
        self._patience = patience
        self._ttl = ttl
        self._tasks: dict[str, _ToolTask] = {}

    async def run(self, context: McpContext, call: Coroutine[Any, Any, CallToolResult]) -> CallToolResult | TaskHandle:
        """Return the result of a call, or its handle if it is not ready soon."""
        work = asyncio.ensure_future(call)
        try:
            await asyncio.wait({work}, timeout=self._patience)
            owner = _owner(context)
            if work.done() or not self._has_room(owner):
                return await work
        except asyncio.CancelledError:
            work.cancel()
            raise
        name, now = secrets.token_urlsafe(24), time.time()
        task = self._tasks[name] = _ToolTask(owner, work, now, now)
        work.add_done_callback(lambda _: setattr(task, "changed", time.time()))
        return TaskHandle(**self._fields(name, task))

    def get(self, context: McpContext, name: str) -> TaskState:
        """Return a task, with the result if it is completed. Raises `MCPError` for one that is not the caller's."""
        task = self._find(context, name)
        result = None
        if task.status == "completed":
            result = task.work.result().model_dump(mode="json", by_alias=True, exclude_none=True)
        return TaskState(**self._fields(name, task), result=result)

    def cancel(self, context: McpContext, name: str) -> None:
        """Cancel a task that has not ended. A call that has begun is not interrupted; its result is dropped."""
        task = self._find(context, name)
        if not task.work.done():
            task.work.cancel()
            task.changed = time.time()

    def require(self, context: McpContext, name: str) -> None:
        """Check that the caller has such a task. Raises `MCPError`."""
        self._find(context, name)

    def _fields(self, name: str, task: _ToolTask) -> dict[str, Any]:
        return {
            "task_id": name,
            "status": task.status,
            "created_at": _iso(task.created),
            "last_updated_at": _iso(task.changed),
            "ttl_ms": int(self._ttl * 1_000),
        }

    def _find(self, context: McpContext, name: str) -> _ToolTask:
        self._expire()
        task = self._tasks.get(name)
        if task is None or task.owner != _owner(context):
            raise MCPError(INVALID_PARAMS, "there is no such task; it may have expired")
        return task

    def _has_room(self, owner: tuple[str, str]) -> bool:
        self._expire()
        own = sum(task.owner == owner for task in self._tasks.values())
        return own < _MAX_OWN_TASKS and len(self._tasks) < _MAX_TASKS

    def _expire(self) -> None:
        oldest = time.time() - self._ttl
        for name in [name for name, task in self._tasks.items() if task.created < oldest]:
            self._tasks.pop(name).work.cancel()


def require_extension(capabilities: ClientCapabilities | None) -> None:
    """Refuse a request about tasks whose client has not declared the extension. Raises `MCPError`."""
    if not has_tasks(capabilities):
        required: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"the client must declare {EXTENSION}", required)


def _owner(context: McpContext) -> tuple[str, str]:
    return context.store.tenant, context.caller


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
