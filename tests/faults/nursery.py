"""Starts gateway processes quickly, by forking them from one process that has loaded everything already."""

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
"""Seconds for a gateway to start on a busy machine while its database is restarted."""
LISTENS = re.compile(r"^Recto listens on \S+:(\d+)$", re.MULTILINE)

PARENT = """
import os, signal, sys, traceback
import recto.cli.main, recto.cli.serve, recto.gateway.app, recto.gateway.server, recto.stores.postgres
BEFORE
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    config, output = line.strip().split("\\t")
    own = os.open(output, os.O_CREAT | os.O_WRONLY, 0o600)
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
    """A gateway process that listens."""

    pid: int
    port: int

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


@dataclass
class Nursery:
    """Forks gateways from one preloaded process."""

    parent: asyncio.subprocess.Process
    log: Path
    """Standard error of the process that gateways are forked from."""
    born: list[Born] = field(default_factory=list)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self, config: Path) -> Born:
        """Starts another gateway. If it does not come up, the test fails with its output."""
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        async with self._lock:
            output = config.parent / f"output-{len(self.born)}.txt"
            self.parent.stdin.write(f"{config}\t{output}\n".encode())
            async with asyncio.timeout(STARTING):
                line = await self.parent.stdout.readline()
            assert line, self.log.read_text()
            pid = int(line.split()[1])
            self.born.append(Born(pid, await _port(pid, output)))
            return self.born[-1]


async def _port(pid: int, output: Path) -> int:
    """Returns the port that a gateway listens on, read from its output."""
    with suppress(TimeoutError, ProcessLookupError):
        async with asyncio.timeout(STARTING):
            while True:
                if found := LISTENS.search(output.read_text()):
                    return int(found[1])
                os.kill(pid, 0)  # raises ProcessLookupError if the gateway has died
                await asyncio.sleep(0.02)
    raise AssertionError(f"no gateway came up; its output:\n{output.read_text()}")


@asynccontextmanager
async def nursery(log: Path, before: str = "") -> AsyncIterator[Nursery]:
    """Starts gateways whose process runs `before` first; kills all of them at the end."""
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
            os.killpg(parent.pid, signal.SIGKILL)  # including gateways that are just starting
            await parent.wait()
