"""Runs `recto serve` and records how late its event loop resumes a sleeping task.

`python -m bench.gateway_lag FILE …` serves as `recto …` does and writes pairs of numbers to the file: when the task
went to sleep, on the machine's monotonic clock, and how many seconds later than requested it was resumed.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from pathlib import Path

from recto.cli.main import main
from recto.gateway.server import Server

EVERY = 0.01
"""Seconds between two looks."""
PAIR = struct.Struct("<dd")


def lags(file: Path, begun: float, ended: float) -> list[float]:
    """The seconds that the loop was late within a span of time."""
    pairs = PAIR.iter_unpack(file.read_bytes()[: file.stat().st_size // PAIR.size * PAIR.size])
    return [late for at, late in pairs if begun <= at <= ended]


async def _looking(file: Path) -> None:
    with file.open("wb", buffering=0) as out:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(EVERY)
            out.write(PAIR.pack(begun, time.monotonic() - begun - EVERY))


def run(file: Path) -> None:
    serve = Server._serve
    looking: list[asyncio.Task[None]] = []

    async def watched(self: Server, sock: socket.socket) -> None:
        looking.append(asyncio.create_task(_looking(file)))
        await serve(self, sock)

    Server._serve = watched
    main()


if __name__ == "__main__":
    place = Path(sys.argv.pop(1))
    sys.argv[0] = "recto"
    run(place)
