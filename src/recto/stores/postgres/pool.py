"""A pool of connections to one database, on an event loop of its own, callable from any thread.

Each unit of work is one transaction that names its tenant first, signed with the store's key; independent statements
are sent as a pipeline. What fails because the server is unreachable for a moment is retried until the caller's time
limit. The pool knows nothing about the tables.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from recto.errors import StoreUnavailable
from recto.stores.postgres.codec import register_dumpers
from recto.stores.postgres.errors import is_transient, redact_url, translate

logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
"""Nothing is printed unless logging is configured; failures are raised as errors."""

Connection: TypeAlias = AsyncConnection[TupleRow]
T = TypeVar("T")

EVERYBODY = "*"
"""Pseudo-tenant of maintenance work that covers all tenants."""
_TENANT = "SELECT set_config('recto.tenant', %s, true), set_config('recto.token', %s, true)"
_INSIST = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_OPTIONS = (
    "-c idle_in_transaction_session_timeout=60000 -c default_transaction_isolation=read\\ committed"
    " -c plan_cache_mode=force_generic_plan"
)
"""Every statement looks up one session by key, so a generic plan is as good as a new plan for each call."""


class ConnectionPool:
    """A connection pool to one database, with an event loop on its own thread. Thread-safe."""

    def __init__(
        self, url: str, *, key: str = "", patience: float, connections: int = 16, read_only: bool = False
    ) -> None:
        """`key` signs the tenant of every transaction; the owner of the tables needs none."""
        self.location = redact_url(url)
        self._key = key
        self.patience = patience
        self._url = url
        self._max_connections = connections
        self._read_only = read_only
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._is_closed = False

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the event loop and wait for it; raises only store errors."""
        if os.getpid() != self._process:
            detail = "the store was opened before this process was forked; open it again in this process"
            raise StoreUnavailable(self.location, detail)
        try:
            loop = self._event_loop()
            return asyncio.run_coroutine_threadsafe(work(), loop).result()
        except (psycopg.Error, PoolClosed, PoolTimeout, OSError, TimeoutError) as error:
            raise translate(error, self.location, self.patience) from error

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry an attempt on transient errors until the time limit; then raise the last error."""
        ends, pause = time.monotonic() + self.patience, _FIRST_PAUSE
        while True:
            try:
                return await attempt()
            except psycopg.Error as error:
                if not is_transient(error) or time.monotonic() + pause > ends:
                    raise
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311  # so that not all come at once
            pause = min(pause * 2, _LONGEST_PAUSE)

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[Connection]:
        """Open a transaction restricted to one tenant, in pipeline mode."""
        assert self._pool is not None  # noqa: S101  # there since the loop runs
        async with self._pool.connection() as connection, connection.pipeline(), connection.transaction():
            await connection.execute(_TENANT, (tenant, tenant_token(self._key, tenant)))
            yield connection

    @asynccontextmanager
    async def batch(self, tenant: str) -> AsyncIterator[Connection]:
        """Open a pipeline for statements that do not depend on each other's results; they are one transaction.

        PostgreSQL runs everything up to the next synchronization point as one implicit transaction, so no BEGIN and
        COMMIT are sent. Results must be fetched after the block: fetching inside it would synchronize and commit.
        """
        assert self._pool is not None  # noqa: S101  # there since the loop runs
        async with self._pool.connection() as connection, connection.pipeline():
            await connection.execute(_TENANT, (tenant, tenant_token(self._key, tenant)))
            yield connection

    async def fetch_all(self, tenant: str, statement: str, parameters: Any = ()) -> list[TupleRow]:  # noqa: ANN401  # driver's
        """Run a query in one round trip and return all rows; retries transient errors."""

        async def attempt() -> list[TupleRow]:
            async with self.batch(tenant) as connection:
                cursor = await connection.execute(statement, parameters, binary=True)
            return await cursor.fetchall()

        return await self.retry(attempt)

    def close(self) -> None:
        """Close all connections. No other call may follow."""
        if os.getpid() != self._process:
            return  # the parent's
        with self._lock:
            self._is_closed = True
            loop, self._loop = self._loop, None
        if loop is None or self._pool is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._pool.close(timeout=2), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
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
            kwargs={
                "autocommit": True,
                "application_name": "recto",
                "connect_timeout": max(int(self.patience), 2),
                "options": options,
            },
            configure=_prepare,
            min_size=0,
            max_size=self._max_connections,
            timeout=self.patience,
            reconnect_timeout=self.patience,
            max_idle=120.0,
            open=False,
            name="recto",
        )
        await self._pool.open()


@lru_cache(maxsize=1024)
def tenant_token(key: str, tenant: str) -> str:
    """Return the token by which a role other than the owner names a tenant; empty without a key."""
    return hmac.new(key.encode(), tenant.encode(), "sha256").hexdigest() if key else ""


async def _prepare(connection: Connection) -> None:
    """Insist on synchronous commit, also where the server is configured otherwise: acknowledged entries are durable."""
    register_dumpers(connection)
    await connection.execute(_INSIST)
