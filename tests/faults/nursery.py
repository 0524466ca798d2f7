"""Gateways in processes of their own that begin quickly: forked from one process that has everything loaded already."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

STARTING = 120
"""Seconds for a gateway to come up on a machine that is busy, while its database is being restarted."""
LISTENS = re.compile(r"^Recto listens on \S+:(\d+)$", re.MULTILINE)

PARENT = """
import os, signal, sys, traceback
import recto.cli.main, recto.cli.serve, recto.gateway.app, recto.gateway.server, recto.stores.postgres
BEFORE
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    config, said = line.strip().split("\\t")
    own = os.open(said, os.O_CREAT | os.O_WRONLY, 0o600)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(own, 1)
        os.dup2(own, 2)
        sys.argv = ["recto", "--config", config, "serve", "--port", "0"]
        try:
            recto.cli.main.main()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(own)
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
    log: Path
    """What the process says that gateways are forked from."""
    born: list[Born] = field(default_factory=list)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self, config: Path) -> Born:
        """One more gateway. One that does not come up is a failure, which shows what it said."""
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        async with self._one:
            said = config.parent / f"said-{len(self.born)}.txt"
            self.parent.stdin.write(f"{config}\t{said}\n".encode())
            async with asyncio.timeout(STARTING):
                line = await self.parent.stdout.readline()
            assert line, self.log.read_text()
            pid = int(line.split()[1])
            self.born.append(Born(pid, await _port(pid, said)))
            return self.born[-1]


async def _port(pid: int, said: Path) -> int:
    """Where a gateway listens, by what it has written."""
    with suppress(TimeoutError, ProcessLookupError):
        async with asyncio.timeout(STARTING):
            while True:
                if found := LISTENS.search(said.read_text()):
                    return int(found[1])
                os.kill(pid, 0)  # nobody listens any more where there is nobody
                await asyncio.sleep(0.02)
    raise AssertionError(f"no gateway came up; it said:\n{said.read_text()}")


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
        made = Nursery(parent, log)
        try:
            yield made
        finally:
            os.killpg(parent.pid, signal.SIGKILL)  # with gateways that were just being born
            await parent.wait()
