"""An MCP server with Codex's own calls: `notes`, which Codex asks for a text at each new window, and `history`.

Codex names its thread in the metadata of every call. The thread's session is the one that the gateway or a hook stored;
where there is neither, what is new in Codex's own file is imported before a call is answered.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from recto.engine.async_session import on_a_thread
from recto.engine.threads import CALLS, Namespace, Thread, ThreadCall, call_thread, parameters_schema
from recto.errors import RectoError
from recto.mcp.server import FAILED, SdkRequest, error_message
from recto.version import __version__

_log = logging.getLogger(__name__)
_FOR_THE_HOST = frozenset({"thread_hint"})
"""Calls that the host makes by itself: no model is offered them."""


def make_thread_server(namespace: Namespace, thread_of: Callable[[str], Thread], *, may_change: bool) -> Server[Any]:
    """The server; `thread_of` opens the thread that a call names, or the usual one without a name."""
    calls = {call.name: call for call in CALLS if call.namespace == namespace and (may_change or not call.changes)}

    async def list_tools(request: SdkRequest, args: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_tool(call) for call in calls.values()])

    async def call_tool(request: SdkRequest, args: CallToolRequestParams) -> CallToolResult:
        call = calls.get(args.name)
        if call is None:
            raise MCPError(INVALID_PARAMS, f"there is no such tool; there are: {', '.join(calls)}")
        named = (request.meta or {}).get("threadId")
        try:
            thread_id = named if isinstance(named, str) else ""
            result = await on_a_thread(lambda: call_thread(call, thread_of(thread_id), args.arguments or {}))
        except RectoError as error:
            return _answer(error_message(error), is_error=True)
        except Exception:  # noqa: BLE001  # internal errors are logged, never sent
            _log.exception("the tool %s failed", call.name)
            return _answer(FAILED, is_error=True)
        return _answer(result["text"] if call.name in _FOR_THE_HOST else json.dumps(result, ensure_ascii=False))

    return Server(namespace, version=__version__, title="Recto", on_list_tools=list_tools, on_call_tool=call_tool)


def _tool(call: ThreadCall) -> Tool:
    return Tool(
        name=call.name,
        description=call.description,
        input_schema=parameters_schema(call),
        annotations=ToolAnnotations(
            read_only_hint=not call.changes,
            destructive_hint=call.name == "write_file",
            idempotent_hint=call.name != "append_to_file",
            open_world_hint=False,
        ),
        _meta={"ui": {"visibility": []}} if call.name in _FOR_THE_HOST else None,
    )


def _answer(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)
