"""The gateway that a screen asks: one that runs already, or one of its own in this process, over its own store.

One of its own listens on a free port of loopback, and only for the key it hands out, which ends with the process.
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

_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Where to ask, and with which key."""

    url: str
    key: str = field(repr=False)


@contextmanager
def nearby(settings: Settings, url: str = "", key: str = "", *, name: str = "a screen") -> Iterator[Reached]:
    """The gateway at an address; without one, a gateway of one's own until the end. `name` is who is told as asking."""
    if url:
        yield Reached(url=url, key=key)
        return
    given = replace(settings.gateway, host="127.0.0.1", port=0, drain_seconds=min(settings.gateway.drain_seconds, 2.0))
    own = replace(settings, gateway=given)
    with closing(open_store(own)) as store:
        gateway = Gateway(own, store)
        secret = gateway.keys.lend(Key(name=name, tenant=own.tenant, agent=_agent(own.session)))
        listening = threading.Event()
        at: list[str] = []
        failed: list[BaseException] = []

        def ready(address: str) -> None:
            at.append(address)
            listening.set()

        server = Server(gateway.asgi, own.gateway, ready=ready, draining=gateway.drain)

        def run() -> None:
            try:
                server.run()
            except BaseException as error:  # noqa: BLE001  # told to who waits for it
                failed.append(error)
            finally:
                listening.set()

        thread = threading.Thread(target=run, name="recto-gateway", daemon=True)
        thread.start()
        listening.wait(_SECONDS)
        if not at:
            raise RequestRefused(503, "unreachable", f"the gateway of this process did not come up: {failed or 'late'}")
        try:
            yield Reached(url=at[0], key=secret)
        finally:
            server.should_exit = True
            thread.join(_SECONDS)


def _agent(session: str) -> str:
    """The agent of the settings' session: whose sessions the screen writes to."""
    parts = session.split(":")
    return parts[1] if len(parts) > 2 and parts[0] == "agent" else Key(name="any").agent
