"""Runs a gateway for a test: on a port of its own, over a store of its own, in front of a given upstream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recto.config import Settings, load
from recto.config.factory import open_store
from recto.gateway.api_keys import Key
from recto.gateway.app import Gateway
from recto.gateway.server import Server


@dataclass
class Running:
    """A running gateway: its URL, the secret of a key, the gateway itself, and the server that it runs in."""

    url: str
    secret: str
    gateway: Gateway
    server: Any = None

    @property
    def store(self) -> Any:
        return self.gateway.store

    def key(self, **fields: Any) -> str:
        """Adds a key and returns its secret."""
        return self.gateway.keys.add(Key(id="", name="test", **fields))[1]


@contextmanager
def gateway(
    folder: Path,
    upstream: str = "",
    *,
    speaks: tuple[str, ...] = ("chat", "responses", "messages"),
    around: Callable[[Any], Any] = lambda app: app,
    opening: Callable[[Settings], Any] = open_store,
    **more: Any,
) -> Iterator[Running]:
    """Runs a gateway on a port of its own, in a thread.

    Args:
        folder: Where its store is.
        upstream: The URL of its only upstream; without one, `more` names upstreams or there are none.
        speaks: The formats of that upstream.
        around: Wraps the ASGI application, for example to record requests.
        opening: Opens the store.
        more: Groups of settings.
    """
    # The gateway shares standard error with the programs that a test runs in this process.
    gateway_settings: dict[str, Any] = {"port": 0, "access_log": "off", **more.pop("gateway", {})}
    if upstream:
        gateway_settings["upstreams"] = {
            "main": {"url": f"{upstream}/v1", "speaks": list(speaks), "key": "sk-upstream"}
        }
    arguments: Mapping[str, Any] = {
        "store": str(folder / "transcript.db"),
        "recall": {"embedder": {"use": "none"}},
        "gateway": gateway_settings,
        **more,
    }
    settings = load(environ={}, arguments=arguments)
    with closing(opening(settings)) as store:
        made = Gateway(settings, store)
        _, secret = made.keys.add(Key(id="", name="test"))
        addresses: list[str] = []
        listening = threading.Event()

        def ready(address: str) -> None:
            addresses.append(address)
            listening.set()

        server = Server(around(made.asgi), settings.gateway, ready=ready, draining=made.drain)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        assert listening.wait(20), "the gateway did not come up"
        try:
            yield Running(addresses[0], secret, made, server)
        finally:
            server.should_exit = True
            thread.join(20)
