"""Connects a screen to a gateway: one that runs already, or a private one in this process over its own store.

A private gateway listens on a free loopback port and accepts only the temporary key made for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from recto.config import Settings
from recto.config.factory import open_store
from recto.errors import RequestRefused
from recto.gateway.api_keys import Key
from recto.gateway.app import Gateway
from recto.gateway.server import Server

_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAddress:
    """The URL of a gateway, and the key to use."""

    url: str
    key: str = field(repr=False)


@contextmanager
def connect_gateway(
    settings: Settings, url: str = "", key: str = "", *, name: str = "a screen"
) -> Iterator[GatewayAddress]:
    """Yield the gateway at a URL; without one, start a private gateway. `name` names its key in what it stores."""
    if url:
        yield GatewayAddress(url=url, key=key)
        return
    drain_seconds = min(settings.gateway.drain_seconds, 2.0)
    gateway_settings = replace(
        settings.gateway, host="127.0.0.1", port=0, drain_seconds=drain_seconds, access_log="off"
    )
    own = replace(settings, gateway=gateway_settings)
    with closing(open_store(own)) as store:
        gateway = Gateway(own, store)
        secret = gateway.keys.lend(Key(name=name, tenant=own.tenant, agent=_agent(own.session)))
        listening = threading.Event()
        addresses: list[str] = []
        errors: list[BaseException] = []

        def ready(address: str) -> None:
            addresses.append(address)
            listening.set()

        server = Server(gateway.asgi, own.gateway, ready=ready, draining=gateway.drain)

        def run() -> None:
            try:
                server.run()
            except BaseException as error:  # noqa: BLE001  # raised by the waiting thread
                errors.append(error)
            finally:
                listening.set()

        thread = threading.Thread(target=run, name="recto-gateway", daemon=True)
        thread.start()
        listening.wait(_START_SECONDS)
        if not addresses:
            raise RequestRefused(503, "unreachable", f"the gateway of this process did not come up: {errors or 'late'}")
        try:
            yield GatewayAddress(url=addresses[0], key=secret)
        finally:
            server.should_exit = True
            thread.join(_START_SECONDS)


def _agent(session: str) -> str:
    """Return the agent of the settings' session."""
    parts = session.split(":")
    return parts[1] if len(parts) > 2 and parts[0] == "agent" else Key(name="any").agent
