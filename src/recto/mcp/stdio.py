"""The MCP server over standard input and output, for one client and a local store.

Standard output carries the protocol and nothing else; logs go to standard error.
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
from recto.mcp.server import make_server
from recto.recall.indexer import Indexer
from recto.transcript.protocols import TranscriptStore
from recto.transcript.tenancy import TenantStore


def serve(settings: Settings, *, read_only: bool = False) -> None:
    """Serve until the client closes its end."""
    with closing(open_store(settings)) as store, closing(make_indexer(settings, store)) as indexer:
        asyncio.run(_serve(local_context(settings, store, indexer, may_change=not read_only)))


def local_context(settings: Settings, store: TranscriptStore, indexer: Indexer, *, may_change: bool) -> McpContext:
    """A context with the sessions of the settings' tenant."""

    @contextmanager
    def use(name: str) -> Iterator[Session]:
        with open_session(replace(settings, session=name), store, indexer) as session:
            yield session

    return McpContext(
        store=TenantStore(store, settings.tenant),
        use=use,
        default_session=settings.session,
        caller=_user(),
        may_change=may_change,
    )


async def _serve(context: McpContext) -> None:
    server = make_server(lambda _: context)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process whose user has no name
        return ""
