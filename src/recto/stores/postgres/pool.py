"""The way to one database: a pool of connections on an event loop of its own, asked from any thread.

Each piece of work is one transaction that names its tenant first; statements that do not wait for each other go out
together. What fails because the server is away for a moment is tried again, for as long as a caller may be kept
waiting. What is stored is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from recto.errors import StoreUnavailable
from recto.stores.postgres.codec import ReadyConnection, speak_in_bytes
from recto.stores.postgres.errors import is_worth_another_try, named, translate

logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
"""Who wants to read what the pool tries can; otherwise nothing is printed: what fails is an error."""

Connection: TypeAlias = ReadyConnection
T = TypeVar("T")

EVERYBODY = "*"
"""Named instead of a tenant by who looks after all of them."""
_TENANT = "SELECT set_config('recto.tenant', %s, true)"
_INSIST = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_OPTIONS = (
    "-c idle_in_transaction_session_timeout=60000 -c default_transaction_isolation=read\\ committed"
    " -c plan_cache_mode=force_generic_plan"
)
"""Every statement looks up one session by its key: planned once it is as good as planned anew over all partitions."""


class ConnectionPool:
    """One database. Any number of threads may ask."""

    def __init__(self, url: str, *, patience: float, connections: int = 16, read_only: bool = False) -> None:
        self.location = named(url)
        self.patience = patience
        self._url = url
        self._most = connections
        self._read_only = read_only
        self._process = os.getpid()
        self._gate = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._is_closed = False

    def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Carries out a piece of work on the loop; raises only errors of a store."""
        if os.getpid() != self._process:
            detail = "the store was opened before this process was forked; open it again in this process"
            raise StoreUnavailable(self.location, detail)
        try:
            loop = self._running()
            return asyncio.run_coroutine_threadsafe(work(), loop).result()
        except (psycopg.Error, PoolClosed, PoolTimeout, OSError, TimeoutError) as error:
            raise translate(error, self.location, self.patience) from error

    async def again(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What an attempt gives, after as many as there is time for; the last error where none succeeds."""
        ends, pause = time.monotonic() + self.patience, _FIRST_PAUSE
        while True:
            try:
                return await attempt()
            except psycopg.Error as error:
                if not is_worth_another_try(error) or time.monotonic() + pause > ends:
                    raise
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311  # so that not all come at once
            pause = min(pause * 2, _LONGEST_PAUSE)

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[Connection]:
        """A connection in a transaction that sees one tenant. Results are there when it has ended."""
        assert self._pool is not None  # noqa: S101  # there since the loop runs
        async with self._pool.connection() as connection, connection.pipeline(), connection.transaction():
            await connection.execute(_TENANT, (tenant,))
            yield connection

    @asynccontextmanager
    async def batch(self, tenant: str) -> AsyncIterator[Connection]:
        """The same for statements that do not wait for each other: sent in one go, they are one transaction as well.

        PostgreSQL takes what comes between two points of synchronisation as one; nothing may be fetched in between.
        """
        assert self._pool is not None  # noqa: S101  # there since the loop runs
        async with self._pool.connection() as connection, connection.in_one_piece():
            await connection.execute(_TENANT, (tenant,))
            yield connection

    async def fetched(self, tenant: str, statement: str, given: Any = ()) -> list[TupleRow]:  # noqa: ANN401  # driver's
        """All rows that a statement gives, in one round trip; tried again where that may help."""

        async def attempt() -> list[TupleRow]:
            async with self.batch(tenant) as connection:
                cursor = await connection.execute(statement, given, binary=True)
            return await cursor.fetchall()

        return await self.again(attempt)

    def close(self) -> None:
        """Lets go of all connections; no other call may follow."""
        if os.getpid() != self._process:
            return  # the parent's
        with self._gate:
            self._is_closed = True
            loop, self._loop = self._loop, None
        if loop is None or self._pool is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._pool.close(timeout=2), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._gate:
            if self._is_closed:
                raise StoreUnavailable(self.location, "the store is closed already")
            if self._loop is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=loop.run_forever, name="recto postgres", daemon=True)
                self._thread.start()
                asyncio.run_coroutine_threadsafe(self._open(), loop).result()
                self._loop = loop
            return self._loop

    async def _open(self) -> None:
        milliseconds = int(self.patience * 1000)
        options = f"{_OPTIONS} -c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
        options += " -c default_transaction_read_only=on" if self._read_only else ""
        self._pool = AsyncConnectionPool(
            self._url,
            connection_class=ReadyConnection,
            kwargs={
                "autocommit": True,
                "application_name": "recto",
                "connect_timeout": max(int(self.patience), 2),
                "options": options,
            },
            configure=_prepare,
            min_size=0,
            max_size=self._most,
            timeout=self.patience,
            reconnect_timeout=self.patience,
            max_idle=120.0,
            open=False,
            name="recto",
        )
        await self._pool.open()


async def _prepare(connection: Connection) -> None:
    """What is acknowledged is on the disk, also where the server was told not to wait for that."""
    speak_in_bytes(connection)
    await connection.execute(_INSIST)
