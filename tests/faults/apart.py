"""Runs a gateway in a separate process that can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import Provider

from recto.config.factory import SystemClock
from recto.gateway.api_keys import Key, Keys
from recto.stores.sqlite import SqliteStore

STARTING = 60
"""Seconds for a gateway to start on a busy machine."""

GATEWAY = """
import sys
from recto.cli.main import main
sys.argv = ["recto", "--config", sys.argv[1], "serve", "--port", "0"]
main()
"""


@dataclass
class Process:
    """A gateway process."""

    running: asyncio.subprocess.Process
    port: int

    @classmethod
    async def started(cls, config: Path, before: str = "") -> Process:
        program = before + GATEWAY
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(config), stdout=asyncio.subprocess.PIPE
        )
        assert running.stdout is not None
        async with asyncio.timeout(STARTING):
            line = await running.stdout.readline()
        assert b"listens on" in line, line
        return cls(running, int(line.rpartition(b":")[2]))

    async def end(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.running.pid, number)
        await self.running.communicate()


@asynccontextmanager
async def place(folder: Path, provider: Provider, **gateway: Any) -> AsyncIterator[tuple[Path, Path, str]]:
    """A provider, the settings of a gateway in front of it, and a key."""
    path = folder / "transcript.db"
    with SqliteStore(path) as store:
        _, secret = Keys(store, SystemClock()).add(Key(id="", name="test"))
    async with provider.listening():
        upstream_settings = {
            "url": f"{provider.url}/v1",
            "speaks": ["chat", "responses", "messages"],
            "key": "sk-upstream",
        }
        gateway_settings = {**gateway, "upstreams": {"main": upstream_settings}}
        settings = {"store": str(path), "recall": {"embedder": {"use": "none"}}, "gateway": gateway_settings}
        config = folder / "settings.yaml"
        config.write_text(json.dumps(settings))
        yield path, config, secret
