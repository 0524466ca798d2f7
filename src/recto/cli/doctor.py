"""The command that looks whether everything is well: doctor."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.text import Text

from recto.cli.screen import out, progress, safe
from recto.settings import Settings
from recto.wiring import indexer_for, open_store

if TYPE_CHECKING:
    from recto.engine.doctor import Finding

_SIGNS = {"fine": ("✓ ", "green"), "note": ("· ", "yellow"), "problem": ("✗ ", "red")}


@click.command("doctor")
@click.option("--mend", is_flag=True, help="Make anew what can be made anew. The transcript is never touched.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def doctor_command(settings: Settings, mend: bool, as_json: bool) -> None:
    """Looks whether store, index and embedder are well and agree, and says what to do where they do not.

    \b
    Examples:
      recto doctor
      recto doctor --mend
    """
    from recto.engine.doctor import Doctor  # noqa: PLC0415  # numpy only for who asks for it

    with closing(open_store(settings, create=False)) as store, closing(indexer_for(settings, store)) as indexer:
        total = 2 * sum(summary.entries for summary in store.sessions()) if mend else 0
        with progress("mending", total) as advance:
            findings = Doctor(indexer, advance=advance).examine(mend=mend)
    for finding in findings:
        if as_json:
            click.echo(json.dumps(asdict(finding)))
        else:
            out.print(_line(finding), soft_wrap=True)
    if any(finding.grade == "problem" and not finding.mended for finding in findings):
        click.get_current_context().exit(1)


def _line(finding: Finding) -> Text:
    sign, style = _SIGNS[finding.grade]
    cure = " (mended)" if finding.mended else f" → {finding.cure}" if finding.cure else ""
    return Text.assemble((sign, style), (finding.about, "bold"), f": {safe(finding.says + cure)}")
