"""The command that looks whether everything is well: doctor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict

import click
from rich.text import Text

from recto.cli.checks import checks_for, of_the_store
from recto.cli.screen import out, progress, safe
from recto.engine.examining import Finding, isolated, worst_first
from recto.errors import RectoError, SettingsError, StoreError
from recto.settings import Settings
from recto.storing import open_store
from recto.wiring import indexer_for

_SIGNS = {"fine": ("✓ ", "green"), "note": ("· ", "yellow"), "problem": ("✗ ", "red")}


@click.command("doctor")
@click.option("--mend", is_flag=True, help="Make anew what can be made anew. The transcript is never touched.")
@click.option("--offline", is_flag=True, help="Ask nobody: addresses in the settings are not tried.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def doctor_command(context: click.Context, mend: bool, offline: bool, as_json: bool) -> None:
    """Looks whether everything is well, and says what to do where it is not.

    Settings, models, disk, rights, clock, store, replica, index, embedder, and whether the addresses in the settings
    answer.

    \b
    Examples:
      recto doctor
      recto doctor --mend
      recto doctor --offline --json
    """
    if isinstance(context.obj, SettingsError):
        cure = "mend it; without settings nothing else can be looked at"
        _tell([Finding(grade="problem", about="settings", says=str(context.obj), cure=cure)], as_json)
        context.exit(2)
    settings: Settings = context.obj
    config = context.parent.params.get("config") if context.parent else None
    found = [one for about, check in checks_for(settings, config, offline=offline) for one in isolated(about, check)]
    refused: RectoError | None = None
    try:
        found += _of_the_store(settings, mend, offline)
    except StoreError as error:  # the other findings are told before it
        refused = error
    _tell(worst_first(found), as_json)
    if refused is not None:
        raise refused
    if any(finding.grade == "problem" and not finding.mended for finding in found):
        context.exit(1)


def _tell(findings: Sequence[Finding], as_json: bool) -> None:
    for finding in findings:
        if as_json:
            click.echo(json.dumps(asdict(finding)))
        else:
            out.print(_line(finding), soft_wrap=True)


def _of_the_store(settings: Settings, mend: bool, offline: bool) -> list[Finding]:
    from recto.engine.doctor import Doctor  # noqa: PLC0415  # numpy only for who asks for it

    quiet = offline and settings.recall.embedder.use == "endpoint"
    with closing(open_store(settings, create=False)) as store:
        found = [
            one for about, check in of_the_store(settings, store, offline=offline) for one in isolated(about, check)
        ]
        with closing(indexer_for(settings, store)) as indexer:
            total = 2 * sum(summary.entries for summary in store.sessions()) if mend else 0
            with progress("mending", total) as advance:
                return found + Doctor(indexer, advance=advance, offline=quiet).examine(mend=mend)


def _line(finding: Finding) -> Text:
    sign, style = _SIGNS[finding.grade]
    cure = " (mended)" if finding.mended else f" → {finding.cure}" if finding.cure else ""
    return Text.assemble((sign, style), (finding.about, "bold"), f": {safe(finding.says + cure)}")
