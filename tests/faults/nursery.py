"""Gateways in processes of their own that begin quickly: forked from one process that has everything loaded already."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

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
            start_new_session=True,
        )
        made = Nursery(parent)
        try:
            yield made
        finally:
            os.killpg(parent.pid, signal.SIGKILL)  # with gateways that were just being born
            await parent.wait()
