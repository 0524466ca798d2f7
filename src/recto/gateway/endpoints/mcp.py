"""The MCP server at the gateway: tenant, agent and rights are those of the caller's API key.

The guard has checked address, key, rate and size before a request arrives here. Needs the packages of the MCP server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from starlette.requests import Request
from starlette.routing import Route

from recto.engine.runs import last_model
from recto.engine.session import Session
from recto.gateway.api_keys import Key
from recto.gateway.errors import MCP_PATH
from recto.gateway.inspection.queries import Inspection
from recto.gateway.middleware.auth import Rule
from recto.gateway.request import own_name
from recto.mcp.context import McpContext
from recto.mcp.http import McpEndpoint

RULES: tuple[Rule, ...] = (Rule("POST", MCP_PATH, "read"),) if find_spec("mcp_types") else ()
"""The route needs the right to read; tools that change something check for the right to change."""


class GatewayMcp:
    """The MCP endpoint of a gateway."""

    def __init__(self, inspection: Inspection) -> None:
        self._inspection = inspection
        self._mounted = McpEndpoint(self._context)

    def routes(self) -> list[Route]:
        """Return the route; none where the packages are missing."""
        return [Route(MCP_PATH, self._mounted, methods=["POST"])] if RULES else []

    async def close(self) -> None:
        """Cancel requests in flight."""
        await self._mounted.close()

    def _context(self, request: Request) -> McpContext:
        key: Key = request.scope["recto.key"]
        named = own_name(request.headers)
        store = self._inspection.sessions.view(key)

        @contextmanager
        def use(name: str) -> Iterator[Session]:
            model = last_model(store, store.key(name))
            with self._inspection.sessions.use(key, name, model) as session:
                yield session

        return McpContext(
            store=store,
            use=use,
            default_session=named if named.startswith("agent:") else f"agent:{key.agent}:{named or 'main'}",
            is_chosen=bool(named),
            caller=f"{key.name} (key {key.id})",
            may_change="change" in key.rights,
        )
