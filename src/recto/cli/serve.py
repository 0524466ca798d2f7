"""`recto serve`: the gateway."""

from __future__ import annotations

import atexit
import gc
import html
import os
import shutil
import signal
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from recto.cli._common import GATEWAY_PACKAGES, require_packages
from recto.cli.completion import complete_models
from recto.cli.console import err, out, safe
from recto.config import Settings
from recto.config.factory import SystemClock, open_store
from recto.config.loader import Layer, read_layers
from recto.gateway.api_keys import Key
from recto.sample import SESSION, load_sample

_TRY = (
    "curl {url}/v1/chat/completions -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' "
    "-H 'x-recto-session-id: main' "
    '-d \'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello, I am Ada."}}]}}\'',
    "curl {url}/v1/messages -H 'x-api-key: {key}' -H 'Content-Type: application/json' "
    "-H 'x-recto-session-id: main' "
    '-d \'{{"model": "{model}", "max_tokens": 100, "messages": [{{"role": "user", "content": "Who am I?"}}]}}\'',
    "curl '{url}/api/v1/session/context?session=agent:default:main' -H 'Authorization: Bearer {key}'",
)
"""A question, one that continues it through another protocol, and what the model saw."""


_LOCAL = (
    "No key is needed: every program on this machine may ask. Keys and subscriptions of clients are passed on:",
    "  ANTHROPIC_BASE_URL={url}/to/https://api.anthropic.com claude",
    "  OPENAI_BASE_URL={url}/to/https://api.openai.com/v1 your-agent",
)


LISTENS, PAGE = "Recto listens on ", "Page: "
"""How the lines begin that name the gateway's address and its page; `recto run` reads them."""
_FIRST = "It has every right. Make keys for agents with 'recto keys add NAME'; 'recto keys revoke {id}' ends this one."


@click.command("serve")
@click.option("--host", metavar="ADDRESS", help="The address to listen on. [default: 127.0.0.1]")
@click.option("--port", metavar="PORT", type=click.IntRange(0, 65535), help="The port. 0: any. [default: 8642]")
@click.option(
    "--model",
    metavar="NAME",
    shell_complete=complete_models,
    help="The model whose window is used if a request names none.",
)
@click.option("--local", is_flag=True, help="Need no key: every program on this machine may ask. Loopback only.")
@click.option("--key", "lend_key", is_flag=True, help="Lend a key for this run: print it, the page and lines to try.")
@click.option("--first-key", is_flag=True, help="Make a key if the store never had one, and print it, this once.")
@click.option("--sample", is_flag=True, help="Store a long session to look at, if it is not there yet.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser, where there is a screen.")
@click.option("--until-input-ends", is_flag=True, help="Stop when standard input ends: for programs that start it.")
@click.pass_obj
def serve_command(
    settings: Settings,
    /,
    *,
    model: str | None,
    local: bool,
    lend_key: bool,
    first_key: bool,
    sample: bool,
    open_page: bool,
    until_input_ends: bool,
    **place: Any,  # noqa: ANN401  # host and port
) -> None:
    """Starts the gateway: point a client's base_url at it, and its prompts stay within the window.

    Without upstreams in the settings, the embedded model answers, if it is installed. Every request needs a key:
    `recto keys add NAME`.

    \b
    Examples:
      recto serve --key
      recto serve --key --sample --open
      recto serve --local
      recto serve --port 9000
      recto --config gateway.yaml serve --host 0.0.0.0 --first-key
    """
    require_packages("gateway", GATEWAY_PACKAGES, "gateway")
    from recto.gateway.app import Gateway  # noqa: PLC0415  # the packages are optional
    from recto.gateway.server import serve  # noqa: PLC0415

    options = settings.gateway
    options = replace(options, **{name: value for name, value in place.items() if value not in (None, "")})
    options = replace(options, local=local or options.local)
    settings = replace(settings, gateway=options, model=model or settings.model)
    with closing(open_store(settings)) as store:
        gateway = Gateway(settings, store, _layers(place))
        if sample:
            if not store.head(SESSION).seq:
                _print_lines("A long session to look at is made, once; this takes a few seconds.")
            load_sample(settings, store, now=SystemClock().now())
            gateway.index(SESSION)
        if first_key and (made := gateway.keys.add_first(Key(name="first"))) is not None:
            _print_lines(f"First key, shown only now: {made[1]}", _FIRST.format(id=made[0].id))
            out.file.flush()
        secret = gateway.keys.lend(Key(name="Temporary key")) if lend_key else ""

        def ready(address: str) -> None:
            _print_lines(f"{LISTENS}{address}", f"Transcripts: {store.location}")
            address = _reachable(address)
            page = _page(address, secret, SESSION if sample else "")
            if page:
                _print_lines(f"{PAGE}{page}")
            if options.local:
                _print_lines(*(line.format(url=address) for line in _LOCAL))
            if secret:
                _print_examples(address, secret, gateway.upstreams.example_model(settings.model))
            out.file.flush()
            if open_page and page:
                _open_browser(page)

        if until_input_ends:
            threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
        gc.collect()
        gc.freeze()  # what is loaded now lives as long as the process: no collection has to look at it again
        serve(gateway.asgi, settings.gateway, gateway.keys, ready=ready, draining=gateway.drain)
        err.print("stopped", markup=False)
    sys.stdout.flush()


def _layers(place: dict[str, Any]) -> Sequence[Layer]:
    """Returns where the settings come from, for the page."""
    options = click.get_current_context().find_root().params
    named = {name: value for name, value in place.items() if value not in (None, "")}
    return read_layers(path=options.get("config"), arguments={"store": options.get("store"), "gateway": named})


def _stop_at_end_of_input() -> None:
    """Stops this process, as a signal does, when the process that started it is gone."""
    while sys.stdin.buffer.read(4096):
        pass
    signal.raise_signal(signal.SIGTERM)


def _reachable(address: str) -> str:
    """Returns the address that a client on this machine uses: 0.0.0.0 is no name that the gateway answers to."""
    return address.replace("//0.0.0.0:", "//localhost:").replace("//[::]:", "//localhost:")


def _page(address: str, secret: str, session: str) -> str:
    """Returns the address of the page. A key in the fragment logs in: browsers never send it, and the page removes
    it.
    """
    if not address.startswith("http"):
        return ""
    if not secret:
        return f"{address}/"
    return f"{address}/#/window?session={session}&key={secret}" if session else f"{address}/#key={secret}"


def _print_examples(address: str, secret: str, model: str) -> None:
    _print_lines(f"Key: {secret}", "", f"Point a client at it: base_url = {address}/v1, and the key. Or try:")
    _print_lines(*("  " + line.format(url=address, key=secret, model=model or "MODEL") for line in _TRY))
    if not model:
        _print_lines("Replace MODEL with the name of a model that your provider serves.")


def _print_lines(*lines: str) -> None:
    for line in lines:
        out.print(safe(line), markup=False, highlight=False, soft_wrap=True)


def _open_browser(page: str) -> None:
    """Opens a graphical browser; one that would take over the terminal is ignored."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    with suppress(webbrowser.Error, OSError):
        browser = webbrowser.get()
        if type(browser) is not webbrowser.GenericBrowser:
            browser.open(_forwarding_file(page).as_uri() if "key=" in page else page)


def _forwarding_file(page: str) -> Path:
    """Writes a file that leads to the page, removed when the program ends, and returns its path.

    The address holds a key, and every user of the machine can read the command line of a browser.
    """
    folder = Path(tempfile.mkdtemp(prefix="recto-"))  # made for the owner alone
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "page.html"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(page)}">\n')
    return file
