"""The MCP server at the gateway: tenant, agent and rights are those of the key that asks.

The guard has looked at address, key, pace and size before anything gets here. It is there where the packages are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from starlette.requests import Request
from starlette.routing import Route

from recto.engine.session import Session
from recto.gateway.api_keys import Key
from recto.gateway.errors import MCP_PATH
from recto.gateway.inspection.queries import Inspection
from recto.gateway.middleware.auth import Rule
from recto.gateway.session_id import own_name
from recto.mcp.context import McpContext
from recto.mcp.http import McpEndpoint

RULES: tuple[Rule, ...] = (Rule("POST", MCP_PATH, "read"),) if find_spec("mcp_types") else ()
"""Reading is enough to come in; a tool that changes something asks for the right to."""


class McpDoor:
    """The route, and what answers it."""

    def __init__(self, inspection: Inspection) -> None:
        self._on = inspection
        self._mounted = McpEndpoint(self._context)

    def routes(self) -> list[Route]:
        """None where the packages are missing."""
        return [Route(MCP_PATH, self._mounted, methods=["POST"])] if RULES else []

    async def close(self) -> None:
        """Lets go of what is under way."""
        await self._mounted.close()

    def _context(self, request: Request) -> McpContext:
        key: Key = request.scope["recto.key"]
        store = self._on.sessions.view(key)
        named = own_name(request.headers)

        @contextmanager
        def use(name: str) -> Iterator[Session]:
            model = self._on.last_model(store, store.key(name))
            with self._on.sessions.use(key, name, model) as session:
                yield session

        return McpContext(
            store=store,
            use=use,
            default_session=named if named.startswith("agent:") else f"agent:{key.agent}:{named or 'main'}",
            caller=f"{key.name} (key {key.id})",
            may_change="change" in key.rights,
        )
