"""A gateway that listens, over a store of its own, in front of whatever a test has."""

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
    """What a test needs of it."""

    url: str
    secret: str
    gateway: Gateway

    @property
    def store(self) -> Any:
        return self.gateway.store

    def key(self, **about: Any) -> str:
        """Another key."""
        return self.gateway.keys.add(Key(id="", name="test", **about))[1]


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
    """A gateway on a port of its own, in a thread; `more` are groups of settings, `around` may listen in.

    `opening` opens its store.
    """
    # It shares standard error with the programs that a test runs in this process.
    given: dict[str, Any] = {"port": 0, "access_log": "off", **more.pop("gateway", {})}
    if upstream:
        given["upstreams"] = {"main": {"url": f"{upstream}/v1", "speaks": list(speaks), "key": "sk-upstream"}}
    arguments: Mapping[str, Any] = {
        "store": str(folder / "transcript.db"),
        "recall": {"embedder": {"use": "none"}},
        "gateway": given,
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
            yield Running(addresses[0], secret, made)
        finally:
            server.should_exit = True
            thread.join(20)
