"""The MCP server: dispatches requests to tools, resources and prompts, and answers in the protocol.

Each request brings its own `McpContext`. No input of a client ends in a server error: a request that cannot be served
gets a message that says what to do instead, and internal errors are logged, never sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from recto.engine.async_session import on_a_thread
from recto.engine.views.codec import to_builtins
from recto.errors import AppendConflict, KeyReused, RectoError, StoreError
from recto.formats.tools import MCP_SERVER
from recto.mcp import _prompts, _resources, _tasks, tools, window_app
from recto.mcp.context import McpContext
from recto.mcp.result_text import render
from recto.version import __version__

_log = logging.getLogger(__name__)
SdkRequest = ServerRequestContext[Any, Any]
_T = TypeVar("_T")
_INSTRUCTIONS = (
    "Recto keeps everything that was ever said in this work. Ask 'recall' before you guess or ask the user again; "
    "'read' shows what a recto:// pointer leads to, whole. Write down with 'note' what must not be lost, with "
    "'checkpoint' the state of the work, and begin with 'resume' when you go on with earlier work."
)
FAILED = "a part of Recto failed. Nothing was lost; try again later."
_MAX_FAULTS = 5
"""Wrong arguments named in one error."""


def make_server(context_of: Callable[[SdkRequest], McpContext], tasks: _tasks.ToolTasks | None = None) -> Server[Any]:
    """The server; `context_of` identifies the caller of a request."""
    handlers = _Handlers(context_of, tasks or _tasks.ToolTasks())
    server: Server[Any] = Server(
        MCP_SERVER,
        version=__version__,
        title="Recto",
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=tools.input_schema,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,  # type: ignore[arg-type]  # the SDK sends results of extensions as they are
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )
    server.add_request_handler("tasks/get", _tasks.TaskParams, handlers.get_task)
    server.add_request_handler("tasks/update", _tasks.TaskParams, handlers.update_task)
    server.add_request_handler("tasks/cancel", _tasks.TaskParams, handlers.cancel_task)
    server.extensions |= {window_app.EXTENSION: {}, _tasks.EXTENSION: {}}
    return server


class _Handlers:
    """Handlers of the protocol's requests."""

    def __init__(self, context_of: Callable[[SdkRequest], McpContext], tasks: _tasks.ToolTasks) -> None:
        self._context_of = context_of
        self._tasks = tasks

    async def list_tools(self, request: SdkRequest, args: PaginatedRequestParams | None) -> ListToolsResult:
        """The tools that this client may use."""
        return ListToolsResult(tools=tools.listed_tools(self._context_of(request).may_change))

    async def call_tool(self, request: SdkRequest, args: CallToolRequestParams) -> CallToolResult | _tasks.TaskHandle:
        """Run a tool. Failures are results too, so that the model can correct its call."""
        tool = tools.BY_NAME.get(args.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no such tool; there are: {', '.join(tools.BY_NAME)}")
        try:
            context = self._context_of(request)
        except RectoError as error:
            return _refused(error_message(error))
        capabilities = request.session.client_capabilities
        draws = tool.draws_window and window_app.draws_apps(capabilities)
        call = _call(tool, context, args.arguments or {}, draws=draws)
        is_modern = request.protocol_version in MODERN_PROTOCOL_VERSIONS
        return await (self._tasks.run(context, call) if is_modern and _tasks.has_tasks(capabilities) else call)

    async def get_task(self, request: SdkRequest, args: _tasks.TaskParams) -> _tasks.TaskState:
        """A task of the caller, with its result if it has one."""
        _tasks.require_extension(request.session.client_capabilities)
        return self._tasks.get(self._context_of(request), args.task_id)

    async def update_task(self, request: SdkRequest, args: _tasks.TaskParams) -> EmptyResult:
        """Acknowledge input for a task; no task here asks for any."""
        _tasks.require_extension(request.session.client_capabilities)
        self._tasks.require(self._context_of(request), args.task_id)
        return EmptyResult()

    async def cancel_task(self, request: SdkRequest, args: _tasks.TaskParams) -> EmptyResult:
        """Cancel a task of the caller."""
        _tasks.require_extension(request.session.client_capabilities)
        self._tasks.cancel(self._context_of(request), args.task_id)
        return EmptyResult()

    async def list_resources(self, request: SdkRequest, args: PaginatedRequestParams | None) -> ListResourcesResult:
        """The sessions, a page at a time."""
        cursor = (args.cursor if args else None) or ""
        return await _run(_resources.list_resources, self._context_of(request), cursor[:256])

    async def list_templates(
        self, request: SdkRequest, args: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """The templates of resource URIs."""
        return ListResourceTemplatesResult(resource_templates=list(_resources.TEMPLATES))

    async def read_resource(self, request: SdkRequest, args: ReadResourceRequestParams) -> ReadResourceResult:
        """The contents of a resource."""
        contents = await _run(_resources.read_resource, self._context_of(request), str(args.uri))
        return ReadResourceResult(contents=[contents])

    async def list_prompts(self, request: SdkRequest, args: PaginatedRequestParams | None) -> ListPromptsResult:
        """The prompts that a user can pick."""
        return ListPromptsResult(prompts=list(_prompts.PROMPTS))

    async def get_prompt(self, request: SdkRequest, args: GetPromptRequestParams) -> GetPromptResult:
        """One prompt, filled in."""
        return await _run(_prompts.get_prompt, self._context_of(request), args.name, args.arguments or {})


async def _call(tool: tools.McpTool, context: McpContext, arguments: dict[str, Any], *, draws: bool) -> CallToolResult:
    try:
        params = tool.params.model_validate(arguments)
        result = await on_a_thread(copy_context().run, tool.handler, context, params)
        meta = await on_a_thread(_drawing, context, getattr(params, "session", "")) if draws else None
    except ValidationError as error:
        return _refused(f"{tool.name} got invalid arguments: {_faults(error, tool)}. Nothing was done.")
    except RectoError as error:
        return _refused(error_message(error))
    except Exception:  # noqa: BLE001  # internal errors are logged, never sent
        _log.exception("the tool %s failed", tool.name)
        return _refused(FAILED)
    return CallToolResult(content=[_text(render(result))], structured_content=to_builtins(result), _meta=meta)


async def _run(function: Callable[..., _T], *args: object) -> _T:
    """Run a function on a thread; errors become protocol errors, as the protocol requires outside of tools."""
    try:
        return await on_a_thread(function, *args)
    except RectoError as error:
        raise MCPError(INVALID_PARAMS, error_message(error)) from None
    except Exception:  # noqa: BLE001  # internal errors are logged, never sent
        _log.exception("%s failed", function.__name__)
        raise MCPError(INTERNAL_ERROR, FAILED) from None


def error_message(error: RectoError) -> str:
    """The message for the client about a typed error."""
    match error:
        case AppendConflict() | KeyReused():
            return "another writer was first. Nothing was changed; read again and repeat the request."
        case StoreError():  # its message names files of this machine
            _log.error("the store: %s", error)
            return "the store cannot do this now; what it holds is safe. Try again later."
        case _:
            return str(error)


def _drawing(context: McpContext, session: str) -> dict[str, Any]:
    """The `_meta` of a context report for hosts that draw the window."""
    with context.open_session(session) as opened:
        return {window_app.DRAWING: window_app.drawing(opened.window)}


def _refused(message: str) -> CallToolResult:
    return CallToolResult(content=[_text(message)], is_error=True)


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _faults(error: ValidationError, tool: tools.McpTool) -> str:
    """What is wrong with the arguments, without repeating their values."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    known = ", ".join(tool.params.model_fields)
    said = {"extra_forbidden": f"there is no such argument; there are {known}", "tuple_type": "it is a list"}
    return "; ".join(
        f"'{'.'.join(map(str, fault['loc']))[:80]}': {said.get(fault['type'], fault['msg'][:200])}"
        for fault in faults[:_MAX_FAULTS]
    )
