"""The MCP server over standard input and output, for one client and a store of one's own.

Standard output carries the protocol and nothing else; whatever is logged goes to standard error.
"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from mcp.server.stdio import stdio_server

from recto.config import Settings
from recto.config.factory import make_indexer, open_session, open_store
from recto.engine.session import Session
from recto.mcp.context import McpContext
from recto.mcp.server import server_for
from recto.recall.indexer import Indexer
from recto.transcript.protocols import TranscriptStore
from recto.transcript.tenancy import TenantStore


def serve(settings: Settings, *, read_only: bool = False) -> None:
    """Answers until the client closes its end."""
    with closing(open_store(settings)) as store, closing(make_indexer(settings, store)) as indexer:
        desk = desk_for(settings, store, indexer, may_change=not read_only)
        asyncio.run(_serve(desk))


def desk_for(settings: Settings, store: TranscriptStore, indexer: Indexer, *, may_change: bool) -> McpContext:
    """A desk with the sessions of the settings' tenant."""

    @contextmanager
    def use(name: str) -> Iterator[Session]:
        with open_session(replace(settings, session=name), store, indexer) as session:
            yield session

    return McpContext(
        store=TenantStore(store, settings.tenant),
        use=use,
        own=settings.session,
        who=_user(),
        may_change=may_change,
    )


async def _serve(desk: McpContext) -> None:
    server = server_for(lambda _: desk)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process whose user has no name
        return ""
