"""`recto serve`: the gateway."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec

import click

from recto.cli.screen import err, out, safe
from recto.core.keys import Key
from recto.errors import SettingsError
from recto.settings import Settings
from recto.wiring import open_store

_TRY = (
    "curl {url}/v1/chat/completions -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' "
    '-d \'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello, I am Ada."}}]}}\'',
    "curl {url}/v1/messages -H 'x-api-key: {key}' -H 'Content-Type: application/json' "
    '-d \'{{"model": "{model}", "max_tokens": 100, "messages": [{{"role": "user", "content": "Who am I?"}}]}}\'',
    "curl '{url}/api/v1/session/context?session=agent:default:main' -H 'Authorization: Bearer {key}'",
)
"""A question, one that goes on from it through another protocol, and what the model saw."""


@click.command("serve")
@click.option("--host", metavar="ADDRESS", help="The address to listen on. [default: 127.0.0.1]")
@click.option("--port", metavar="PORT", type=click.IntRange(0, 65535), help="The port. 0: any. [default: 8642]")
@click.option("--model", metavar="NAME", help="The model whose window counts where a request names none.")
@click.option("--key", "make_key", is_flag=True, help="Make a key for this run and print it, with three lines to try.")
@click.pass_obj
def serve_command(settings: Settings, host: str | None, port: int | None, model: str | None, make_key: bool) -> None:
    """Starts the gateway: point a client's base_url at it, and its prompts stay within the window.

    Without upstreams in the settings, the embedded model answers. Every request needs a key: `recto keys add NAME`.

    \b
    Examples:
      recto serve --key
      recto serve --port 9000
      recto --config gateway.yaml serve --host 0.0.0.0
    """
    for package in ("starlette", "uvicorn", "httpx2", "prometheus_client"):
        if find_spec(package) is None:
            raise SettingsError(
                "gateway", f"the package {package} is missing; install it with: pip install 'recto[gateway]'"
            )
    from recto.gateway.app import Gateway  # noqa: PLC0415  # only for who has the packages
    from recto.gateway.server import serve  # noqa: PLC0415

    given = settings.gateway
    given = replace(given, host=host or given.host, port=given.port if port is None else port)
    settings = replace(settings, gateway=given, model=model or settings.model)
    with closing(open_store(settings)) as store:
        gateway = Gateway(settings, store)
        made, secret = gateway.keys.add(Key(id="", name="made by recto serve")) if make_key else (None, "")

        def ready(address: str) -> None:
            out.print(safe(f"Recto listens on {address}"), markup=False, soft_wrap=True)
            out.print(safe(f"Transcripts: {store.location}"), markup=False, soft_wrap=True)
            if made is not None:
                out.print(f"Key: {secret}", markup=False, soft_wrap=True)
                name = next(iter(gateway.upstreams.by_name))
                out.print(
                    "\nPoint a client at it: base_url = " + address + "/v1, and the key. Or try:",
                    markup=False,
                    soft_wrap=True,
                )
                for line in _TRY:
                    out.print("  " + line.format(url=address, key=secret, model=name), markup=False, soft_wrap=True)
            out.file.flush()

        try:
            serve(gateway.asgi, settings.gateway, gateway.keys, ready=ready, draining=gateway.drain)
        finally:
            if made is not None:
                gateway.keys.revoke(made.id)
        err.print("stopped", markup=False)
    sys.stdout.flush()
