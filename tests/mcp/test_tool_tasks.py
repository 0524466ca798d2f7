"""Long tool calls become tasks for clients that have declared the extension, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from mcp.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    EmptyResult,
    Request,
    TextContent,
)
from tests.mcp.serving import MAIN, SECONDS, SyncClient, opened

from recto.config import load
from recto.config.factory import open_store
from recto.engine.session import Session
from recto.mcp._tasks import EXTENSION, TaskHandle, TaskParams, TaskState, ToolTasks
from recto.mcp.context import McpContext
from recto.mcp.server import make_server
from recto.transcript.session_keys import TenantStore, store_behind

CRANE = "The crane is called Ottilie."


class Handles(ClientExtension):
    """A client that has declared the extension, and stores the handles that it gets."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.handles: list[TaskHandle] = []

    def claims(self) -> list[ResultClaim[TaskHandle]]:
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self._keep)]

    async def _keep(self, handle: TaskHandle, context: ClaimContext) -> CallToolResult:
        self.handles.append(handle)
        return CallToolResult(content=[TextContent(type="text", text="a task")], is_error=True)


@dataclass
class World:
    """A server whose sessions open when the test sets `go_on`."""

    context: McpContext
    tasks: ToolTasks
    go_on: threading.Event = field(default_factory=threading.Event)
    caller: str = "anna"
    tenant: str = ""

    @contextmanager
    def client(self, *extensions: ClientExtension, **options: Any) -> Iterator[SyncClient]:
        def context_of(_: object) -> McpContext:
            store = TenantStore(store_behind(self.context.store), self.tenant) if self.tenant else self.context.store
            return replace(self.context, caller=self.caller, store=store)

        connection = Client(make_server(context_of, self.tasks), extensions=list(extensions), **options)
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(connection) as client:
            yield SyncClient(portal, client, Path())


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    path = tmp_path / "transcript.db"
    with opened(path, session=MAIN) as session:
        session.append({"role": "user", "content": CRANE})
    with closing(open_store(load(environ={}, arguments={"store": str(path)}))) as store:

        @contextmanager
        def use(name: str) -> Iterator[Session]:
            assert made.go_on.wait(SECONDS)
            with opened(path, session=name) as session:
                yield session

        context = McpContext(store=TenantStore(store), use=use, default_session=MAIN)
        made = World(context, ToolTasks(patience=0.01))
        yield made
        made.go_on.set()


def send(client: SyncClient, method: str, task: str, result: type[Any] = TaskState) -> Any:
    request = Request[TaskParams, str](method=method, params=TaskParams(task_id=task))
    return client.portal.call(client.client.session.send_request, request, result)


def wait_until_ended(client: SyncClient, task: str) -> TaskState:
    while (state := send(client, "tasks/get", task)).status == "working":
        pass
    return state


def call_and_await(world: World, client: SyncClient) -> str:
    """Lets a running call finish and returns its result, however long the server takes."""
    call = client.portal.start_task_soon(client.client.call_tool, "recall", {"query": "What is the crane called?"})
    world.go_on.set()
    return str(call.result(SECONDS).content)


def test_a_long_call_becomes_a_task_and_its_result_is_fetched(world):
    with world.client(extension := Handles()) as client:
        client.tool("recall", query="What is the crane called?")
        (handle,) = extension.handles
        assert (handle.status, handle.ttl_ms, handle.result) == ("working", 600_000, None)
        assert send(client, "tasks/get", handle.task_id).status == "working"
        world.go_on.set()
        state = wait_until_ended(client, handle.task_id)
        assert state.status == "completed"
        assert CRANE in str(CallToolResult.model_validate(state.result).content)
        assert EXTENSION in client.client.server_capabilities.extensions


def test_a_call_that_finishes_soon_is_answered_directly(world):
    world.go_on.set()
    world.tasks._patience = SECONDS
    with world.client(extension := Handles()) as client:
        assert CRANE in str(client.tool("recall", query="What is the crane called?").content)
        assert extension.handles == []


@pytest.mark.parametrize("options", [{}, {"mode": "legacy"}])
def test_a_client_that_has_not_declared_the_extension_gets_no_task(world, options):
    with world.client(**options) as client:
        assert CRANE in call_and_await(world, client)
        with pytest.raises(MCPError) as refused:
            send(client, "tasks/get", "x")
        assert refused.value.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY


def test_a_cancelled_task_has_no_result(world):
    with world.client(extension := Handles()) as client:
        client.tool("recall", query="crane")
        (handle,) = extension.handles
        send(client, "tasks/cancel", handle.task_id, EmptyResult)
        world.go_on.set()
        state = wait_until_ended(client, handle.task_id)
        assert (state.status, state.result) == ("cancelled", None)


@pytest.mark.parametrize("other", [{"caller": "bert"}, {"tenant": "acme"}])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_task_of_another_caller_or_tenant_does_not_exist(world, other, method):
    with world.client(extension := Handles()) as client:
        client.tool("recall", query="crane")
        (handle,) = extension.handles
        refusals = []
        for name, value in other.items():
            setattr(world, name, value)
        for task in (handle.task_id, "no such task"):
            with pytest.raises(MCPError) as refused:
                send(client, method, task)
            refusals.append((refused.value.error.code, refused.value.error.message))
        assert refusals[0] == refusals[1]
        assert refusals[0][0] == INVALID_PARAMS


def test_tasks_are_limited_in_number_and_expire(world):
    with world.client(extension := Handles()) as client:
        for _ in range(8):
            client.tool("recall", query="crane")
        assert len(extension.handles) == 8
        assert CRANE in call_and_await(world, client), "there is no room for another one"
        world.tasks._ttl = -1.0
        with pytest.raises(MCPError, match="expired"):
            send(client, "tasks/get", extension.handles[0].task_id)
        assert world.tasks._tasks == {}
