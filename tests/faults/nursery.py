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

STARTING = 30
"""Seconds for a gateway to come up on a machine that is busy."""
TRIES = 4

PARENT = """
import os, signal, sys
import recto.cli.main, recto.cli.serve, recto.gateway.app, recto.gateway.server, recto.stores.postgres
BEFORE
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    config, said = line.strip().split("\\t")
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(said, os.O_CREAT | os.O_WRONLY, 0o600), 1)
        sys.argv = ["recto", "--config", config, "serve", "--port", "0"]
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
        """One more gateway. One that does not come up in time is ended, and another one begins."""
        async with self._one:
            for _ in range(TRIES):
                pid, said = await self._begun(config)
                port = await _port(said)
                self.born.append(Born(pid, port))
                if port:
                    return self.born[-1]
                self.born[-1].kill()
        raise AssertionError("no gateway can begin any more")

    async def _begun(self, config: Path) -> tuple[int, Path]:
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        said = config.parent / f"said-{len(self.born)}.txt"
        self.parent.stdin.write(f"{config}\t{said}\n".encode())
        async with asyncio.timeout(STARTING):
            line = await self.parent.stdout.readline()
        return int(line.split()[1]), said


async def _port(said: Path) -> int:
    """Where a gateway listens, by what it has written; 0 where it does not in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(STARTING):
            while not (told := said.read_text() if said.exists() else "").count("\n"):
                await asyncio.sleep(0.02)
            return int(told.splitlines()[0].rpartition(":")[2])
    return 0


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
