"""The MCP server over streamable HTTP, as a part of somebody else's application, which says whom a request is from.

Every request stands alone: nothing is kept between two of them, so none can take over what another one began, and any
of many gateways can answer it. The SDK is loaded when the first request comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from recto.engine.async_session import on_a_thread
from recto.mcp.context import McpContext

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager


class Mounted:
    """An ASGI application for one path."""

    def __init__(self, desk_of: Callable[[Request], McpContext]) -> None:
        self._desk_of = desk_of
        self._opening = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._runs: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        async with self._opening:
            if self._manager is None:
                self._manager = await self._opened()
        await self._manager.handle_request(scope, receive, send)

    async def close(self) -> None:
        """Lets go of what is under way."""
        self._stop.set()
        if self._runs is not None:
            await self._runs

    async def _opened(self) -> StreamableHTTPSessionManager:
        made = await on_a_thread(self._made)
        ready = asyncio.Event()

        async def run() -> None:  # a task of its own: what is entered in one has to be left in the same
            async with made.run():
                ready.set()
                await self._stop.wait()

        self._runs = asyncio.create_task(run())
        await ready.wait()
        return made

    def _made(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415

        from recto.mcp.server import server_for  # noqa: PLC0415

        server = server_for(lambda context: self._desk_of(cast(Request, context.request)))
        return StreamableHTTPSessionManager(server, json_response=True, stateless=True)
