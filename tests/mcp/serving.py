"""Runs the MCP server for tests: real processes, called by real clients over both transports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

import recto
from recto.config import load
from recto.config.factory import SystemClock, open_store
from recto.gateway.api_keys import Key, Keys

PROGRAM = str(Path(sys.executable).with_name("recto"))
MAIN = "agent:default:main"
MODEL = "gpt-4o"
SECONDS = 60
ENVIRONMENT = {**os.environ, "RECTO_RECALL__EMBEDDER__USE": "none", "RECTO_MODEL": MODEL}
_CONFIG = "gateway:\n  upstreams: {main: {url: 'http://127.0.0.1:9/v1', speaks: [chat]}}\n"
_LISTENS = re.compile(r"Recto listens on (\S+)")


class SyncClient:
    """A synchronous MCP client, for tests that do not await."""

    def __init__(self, portal: BlockingPortal, client: Client, store: Path) -> None:
        self.portal = portal
        self.client = client
        self.store = store

    def tool(self, name: str, **arguments: Any) -> Any:
        """Calls a tool and returns its result, error or not."""
        return self.portal.call(self.client.call_tool, name, arguments)

    def call(self, name: str, **arguments: Any) -> Any:
        """Calls a tool and returns its structured result, which must not be an error."""
        answer = self.tool(name, **arguments)
        assert not answer.is_error, answer.content[0].text
        return answer.structured_content

    def refused(self, name: str, **arguments: Any) -> str:
        """Calls a tool and returns the message of its result, which must be an error."""
        answer = self.tool(name, **arguments)
        assert answer.is_error, answer.content[0].text
        return str(answer.content[0].text)

    def request(self, method: str, *args: Any, **more: Any) -> Any:
        """Calls any other method of the client."""
        return self.portal.call(lambda: getattr(self.client, method)(*args, **more))

    def read(self, uri: str) -> str:
        return str(self.request("read_resource", uri).contents[0].text)


@contextmanager
def sync_client(transport: AbstractAsyncContextManager[Any], store: Path, **options: Any) -> Iterator[SyncClient]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Client(transport, **options)) as client:
        yield SyncClient(portal, client, store)


def over_stdio(store: Path, *options: str, **environment: str) -> AbstractAsyncContextManager[Any]:
    """Starts `recto mcp` in a process of its own."""
    arguments = ["--store", str(store), "mcp", *options]
    return stdio_client(StdioServerParameters(command=PROGRAM, args=arguments, env={**ENVIRONMENT, **environment}))


def over_http(url: str, secret: str, **headers: str) -> AbstractAsyncContextManager[Any]:
    """Connects to /mcp of a gateway with a key."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        sent = {"authorization": f"Bearer {secret}", **headers}
        async with (
            httpx2.AsyncClient(headers=sent, timeout=SECONDS, trust_env=False) as http,
            streamable_http_client(f"{url}/mcp", http_client=http) as streams,
        ):
            yield streams

    return opened()


@dataclass
class Served:
    """A `recto serve` in a process of its own, over a store that the test may open too."""

    url: str
    store: Path

    def key(self, **fields: Any) -> str:
        """Adds a key and returns its secret."""
        return new_key(self.store, **fields)


def new_key(path: Path, **fields: Any) -> str:
    settings = load(environ={}, arguments={"store": str(path)})
    store = open_store(settings)
    try:
        return Keys(store, SystemClock()).add(Key(name="test", **fields))[1]
    finally:
        store.close()


@contextmanager
def served(folder: Path, store: Path) -> Iterator[Served]:
    config = folder / "gateway.yaml"
    config.write_text(_CONFIG)
    command = [PROGRAM, "--store", str(store), "--config", str(config), "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        try:
            assert process.stdout is not None
            found = _LISTENS.search(process.stdout.readline())
            assert found, "the gateway did not come up"
            yield Served(found[1], store)
        finally:
            process.terminate()
            process.wait(SECONDS)


def opened(store: Path, **options: Any) -> recto.Session:
    """Opens a session of the store in this process."""
    return recto.open(store, model=MODEL, recall={"embedder": {"use": "none"}}, **options)
