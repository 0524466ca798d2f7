"""The MCP server over streamable HTTP, mounted in an ASGI application that authenticates the caller.

Requests are stateless: nothing is kept between two of them, so no request can take over the session of another, and
any of several gateways can answer it. The SDK is loaded with the first request.
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


class McpEndpoint:
    """ASGI application for one path."""

    def __init__(self, context_of: Callable[[Request], McpContext]) -> None:
        self._context_of = context_of
        self._lock = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        async with self._lock:
            if self._manager is None:
                self._manager = await self._start()
        await self._manager.handle_request(scope, receive, send)

    async def close(self) -> None:
        """Stop the session manager and wait for it."""
        self._stop.set()
        if self._task is not None:
            await self._task

    async def _start(self) -> StreamableHTTPSessionManager:
        manager = await on_a_thread(self._make_manager)
        ready = asyncio.Event()

        async def run() -> None:  # its own task: a task group must be exited by the task that entered it
            async with manager.run():
                ready.set()
                await self._stop.wait()

        self._task = asyncio.create_task(run())
        await ready.wait()
        return manager

    def _make_manager(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415

        from recto.mcp.server import make_server  # noqa: PLC0415

        server = make_server(lambda request: self._context_of(cast(Request, request.request)))
        return StreamableHTTPSessionManager(server, json_response=True, stateless=True)
