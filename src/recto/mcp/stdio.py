"""The MCP server over standard input and output, for one client and a local store.

Standard output carries the protocol and nothing else; logs go to standard error.
"""

from __future__ import annotations

import asyncio
import getpass
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from recto.config import Settings
from recto.config.factory import make_importer, make_indexer, open_session, open_store
from recto.engine.runs import last_model
from recto.engine.session import Session
from recto.engine.threads import Namespace, Thread
from recto.errors import TooLarge
from recto.mcp._threads import make_thread_server
from recto.mcp.context import SURFACE, McpContext
from recto.mcp.server import make_server
from recto.recall.indexer import Indexer
from recto.transcript.entries import DEFAULT_SESSION, requested_by
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import TenantStore, agent_of, plain_name

FileOf = Callable[[str], Path | None]


def serve(settings: Settings, *, read_only: bool = False) -> None:
    """Serve until the client closes its end."""
    with closing(open_store(settings)) as store, closing(make_indexer(settings, store)) as indexer:
        context = local_context(settings, store, indexer, may_change=not read_only)
        asyncio.run(_run(make_server(lambda _: context), settings.gateway.body_bytes))


def serve_threads(settings: Settings, namespace: Namespace, file_of: FileOf, *, read_only: bool = False) -> None:
    """Serve Codex's own calls until it closes its end; `file_of` finds the file in which it keeps a thread."""
    with closing(open_store(settings)) as store, closing(make_indexer(settings, store)) as indexer:
        threads = LocalThreads(settings, store, indexer, file_of, may_change=not read_only)
        server = make_thread_server(namespace, threads.open, may_change=not read_only)
        asyncio.run(_run(server, settings.gateway.body_bytes))


class LocalThreads:
    """Opens the threads of the Codex that started this process."""

    def __init__(
        self, settings: Settings, store: TranscriptStore, indexer: Indexer, file_of: FileOf, *, may_change: bool
    ) -> None:
        self._file_of = file_of
        self._settings = settings
        self._store = store
        self._indexer = indexer
        self._may_change = may_change
        self._read: dict[Path, tuple[int, int]] = {}
        """Size and time of each file as it was last imported."""

    def open(self, thread: str) -> Thread:
        """The thread with an id, or the settings' session without one; what is new in Codex's file is imported."""
        view = TenantStore(self._store, self._settings.tenant)
        key = view.key(plain_name(thread) if thread else self._settings.session)
        through_gateway = view.key(f"agent:{agent_of(view.key(self._settings.session))}:{thread}") if thread else key
        if thread and view.head(through_gateway).seq:
            key = through_gateway
        elif (file := self._file_of(thread)) is not None:
            self._import_new(file, key)

        @contextmanager
        def use(key: str) -> Iterator[Session]:
            with (
                open_session(replace(self._settings, session=view.name(key)), self._store, self._indexer) as session,
                requested_by(_user(), SURFACE),
            ):
                yield session

        return Thread(store=view, key=key, use=use, may_change=self._may_change)

    def _import_new(self, file: Path, key: str) -> None:
        status = file.stat()
        seen = status.st_size, status.st_mtime_ns
        if self._read.get(file) != seen:
            make_importer(self._settings, self._store).import_file(file, session=key, keep_going=True)
            self._read[file] = seen


def local_context(settings: Settings, store: TranscriptStore, indexer: Indexer, *, may_change: bool) -> McpContext:
    """A context with the sessions of the settings' tenant."""

    view = TenantStore(store, settings.tenant)

    @contextmanager
    def use(name: str) -> Iterator[Session]:
        model = last_model(store, view.key(name)) or settings.model
        with open_session(replace(settings, session=name, model=model), store, indexer) as session:
            yield session

    return McpContext(
        store=view,
        use=use,
        default_session=settings.session,
        is_chosen=settings.session != DEFAULT_SESSION,
        caller=_user(),
        may_change=may_change,
    )


class BoundedLines(io.BufferedIOBase):
    """Standard input, whose lines have a largest size: the SDK reads a line whole, however long it is."""

    def __init__(self, descriptor: int, max_bytes: int) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self._size = 0
        """Bytes of the line that is being read."""

    def readable(self) -> bool:
        """Always."""
        return True

    def read1(self, size: int = -1, /) -> bytes:
        """Reads what has arrived. Raises `TooLarge` once a line is above the limit."""
        chunk = os.read(self._descriptor, size if size > 0 else io.DEFAULT_BUFFER_SIZE)
        sizes = [len(line) for line in chunk.split(b"\n")]
        sizes[0] += self._size
        self._size = sizes[-1]
        if max(sizes) > self._max_bytes:
            raise TooLarge("a message of the MCP client in bytes", max(sizes), self._max_bytes, "gateway.body_bytes")
        return chunk


async def _run(server: Server[Any], max_bytes: int) -> None:
    lines = cast("BinaryIO", BoundedLines(sys.stdin.fileno(), max_bytes))
    stdin = anyio.wrap_file(io.TextIOWrapper(lines, encoding="utf-8", errors="replace"))
    try:
        async with stdio_server(stdin) as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())
    except BaseExceptionGroup as group:
        found: BaseException | None = group.subgroup(TooLarge)
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if found is None:
            raise
        raise found from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process whose user has no name
        return ""
