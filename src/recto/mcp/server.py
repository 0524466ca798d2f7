"""The MCP server itself: hands what a client asks to tools, resources and prompts, and answers in the protocol.

It works at a desk that each request brings. Nothing a client sends ends in an error of the server: what cannot be done
is answered with what to do instead, and what went wrong inside is told on standard error alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
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
from pydantic import ValidationError

from recto.engine.async_session import on_a_thread
from recto.errors import AppendConflict, KeyReused, RectoError, StoreError
from recto.formats.recto_tools import SERVER
from recto.mcp import prompts, resources, tools
from recto.mcp.context import McpContext
from recto.version import __version__

_log = logging.getLogger(__name__)
Context = ServerRequestContext[Any, Any]
_T = TypeVar("_T")
_INSTRUCTIONS = (
    "Recto keeps everything that was ever said in this work. Ask 'recall' before you guess or ask the user again; "
    "'read' shows what a recto:// pointer leads to, whole. Write down with 'note' what must not be lost, with "
    "'checkpoint' where the work stands, and begin with 'resume' when you go on with earlier work."
)
_FAILED = "a part of Recto failed. Nothing was lost; try again later."
_FAULTS = 5
"""Wrong arguments that are told of at once."""


def server_for(desk_of: Callable[[Context], McpContext]) -> Server[Any]:
    """The server; `desk_of` says whom a request comes from."""
    face = _Face(desk_of)
    return Server(
        SERVER,
        version=__version__,
        title="Recto",
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=tools.schema_of_input,
        on_list_tools=face.list_tools,
        on_call_tool=face.call_tool,
        on_list_resources=face.list_resources,
        on_list_resource_templates=face.list_templates,
        on_read_resource=face.read_resource,
        on_list_prompts=face.list_prompts,
        on_get_prompt=face.get_prompt,
    )


class _Face:
    """What the protocol asks for."""

    def __init__(self, desk_of: Callable[[Context], McpContext]) -> None:
        self._desk_of = desk_of

    async def list_tools(self, context: Context, given: PaginatedRequestParams | None) -> ListToolsResult:
        """The tools that this client may use."""
        return ListToolsResult(tools=tools.listed(self._desk_of(context).may_change))

    async def call_tool(self, context: Context, given: CallToolRequestParams) -> CallToolResult:
        """Does what a tool does. What it could not do is an answer too, so that the model can do better."""
        tool = tools.BY_NAME.get(given.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no such tool; there are: {', '.join(tools.BY_NAME)}")
        try:
            asked = tool.takes.model_validate(given.arguments or {})
            answer = await on_a_thread(tool.does, self._desk_of(context), asked)
        except ValidationError as error:
            return _refused(f"{tool.name} was not asked right: {_faults(error)}. Nothing was done.")
        except RectoError as error:
            return _refused(told(error))
        except Exception:  # noqa: BLE001  # whatever it is, the client hears nothing of it
            _log.exception("the tool %s failed", tool.name)
            return _refused(_FAILED)
        return CallToolResult(content=[_text(answer.words())], structured_content=tools.plain(tool, answer))

    async def list_resources(self, context: Context, given: PaginatedRequestParams | None) -> ListResourcesResult:
        """The sessions, a page at a time."""
        cursor = (given.cursor if given else None) or ""
        return await _asked(resources.listed, self._desk_of(context), cursor[:256])

    async def list_templates(
        self, context: Context, given: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """What addresses there are."""
        return ListResourceTemplatesResult(resource_templates=list(resources.TEMPLATES))

    async def read_resource(self, context: Context, given: ReadResourceRequestParams) -> ReadResourceResult:
        """What is at an address."""
        found = await _asked(resources.read, self._desk_of(context), str(given.uri))
        return ReadResourceResult(contents=[found])

    async def list_prompts(self, context: Context, given: PaginatedRequestParams | None) -> ListPromptsResult:
        """What a person can pick."""
        return ListPromptsResult(prompts=list(prompts.PROMPTS))

    async def get_prompt(self, context: Context, given: GetPromptRequestParams) -> GetPromptResult:
        """A prompt that was picked."""
        return await _asked(prompts.given, self._desk_of(context), given.name, given.arguments or {})


async def _asked(does: Callable[..., _T], *args: object) -> _T:
    """Does it, and says what was wrong as the protocol does outside of tools."""
    try:
        return await on_a_thread(does, *args)
    except RectoError as error:
        raise MCPError(INVALID_PARAMS, told(error)) from None
    except Exception:  # noqa: BLE001  # whatever it is, the client hears nothing of it
        _log.exception("%s failed", does.__name__)
        raise MCPError(INTERNAL_ERROR, _FAILED) from None


def told(error: RectoError) -> str:
    """What a typed error is answered with."""
    match error:
        case AppendConflict() | KeyReused():
            return "somebody else wrote meanwhile. Nothing was changed; look again and ask again."
        case StoreError():  # its message names files of this machine
            _log.error("the store: %s", error)
            return "the store cannot do this now; what it holds is safe. Try again later."
        case _:
            return str(error)


def _refused(says: str) -> CallToolResult:
    return CallToolResult(content=[_text(says)], is_error=True)


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _faults(error: ValidationError) -> str:
    """What is wrong with arguments, without repeating them."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    named = [f"'{'.'.join(map(str, one['loc']))[:80]}': {one['msg'][:200]}" for one in faults[:_FAULTS]]
    return "; ".join(named)
