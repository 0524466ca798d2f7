"""`recto tui`: opens the full-screen interface of recto.tui."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TextIO

import click

from recto.cli._common import CLIENT_PACKAGES, GATEWAY_PACKAGES, SCREENS_EXTRA, require_packages, session_option
from recto.config import Settings
from recto.transcript.entries import session_key


@click.command("tui")
@session_option()
@click.option("--url", default="", metavar="URL", help="A running gateway. [default: its own, on this store]")
@click.option("--key", default="", metavar="SECRET", envvar="RECTO_KEY", help="Its key. Better given as RECTO_KEY.")
@click.pass_obj
def tui_command(settings: Settings, session: str | None, url: str, key: str) -> None:
    """Opens the full screen: chat, sessions, timeline, the prompt, the transcript, recall, decisions, health.

    \b
    Examples:
      recto tui
      recto tui --session agent:default:main
      RECTO_KEY=rk-… recto tui --url http://127.0.0.1:8642
    """
    require_packages("tui", [*(CLIENT_PACKAGES if url else GATEWAY_PACKAGES), "textual"], SCREENS_EXTRA)
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        raise click.UsageError("the full screen needs a terminal; 'recto chat', 'context' and 'session show' do not")
    from recto.tui.app import run  # noqa: PLC0415  # the packages are optional

    session_settings = replace(settings, session=session_key(session or settings.session))
    run(session_settings, url, key, "" if url and not session else session_settings.session)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()
