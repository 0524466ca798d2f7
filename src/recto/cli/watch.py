"""`recto watch`: imports the sessions of agents on this machine as their files grow."""

from __future__ import annotations

import os
import threading
from contextlib import closing, suppress
from pathlib import Path

import click

from recto.adapters.agent_files import AgentFileWatch, AgentImport, find_agent_files
from recto.cli._common import confirm
from recto.cli.console import err, format_time, out, safe
from recto.cli.import_export import NOTHING_FOUND, ImportPolicy, ImportTotal, print_found
from recto.config import Settings
from recto.config.factory import SystemClock, make_importer, open_store


@click.command("watch")
@click.option("--every", default=5.0, show_default=True, type=click.FloatRange(0.5), help="Seconds between two looks.")
@click.option(
    "--project", type=click.Path(file_okay=False, path_type=Path), help="Only the sessions of this project folder."
)
@click.option("--once", is_flag=True, help="Import what is new now, and exit.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def watch_command(settings: Settings, every: float, project: Path | None, once: bool, yes: bool) -> None:
    """Imports the sessions of coding agents on this machine, and what they add to them, until Ctrl-C.

    Looks at the names, sizes and times of session files, and reads those that changed. Messages that went through the
    gateway are not stored again. Into a shared store, secrets are masked, and --project is needed. Prints a line for
    each import, and one for each file that cannot be read.

    \b
    Examples:
      recto watch
      recto watch --once --yes
    """
    found = find_agent_files(Path.home(), os.environ, Path.cwd())
    print_found(found)
    is_empty = not any(files.files for files in found)
    if is_empty:
        err.print(NOTHING_FOUND, markup=False)
        if once:
            return
    if not yes:
        what = "the sessions that come" if is_empty else "them and what is added to them"
        confirm(f"Import {what} into {settings.store}?")
    total = ImportTotal()
    with closing(open_store(settings)) as store, suppress(KeyboardInterrupt):
        agents = ImportPolicy(project=project).make(make_importer(settings, store, tenant=settings.tenant))
        watch = AgentFileWatch(Path.home(), os.environ, Path.cwd())
        while True:
            _import_changed(agents, watch, total)
            if once or threading.Event().wait(every):
                break
    out.print(str(total), markup=False)
    if once and total.failed:
        click.get_current_context().exit(1)


def _import_changed(agents: AgentImport, watch: AgentFileWatch, total: ImportTotal) -> None:
    """Imports the files that changed since the last call, with a line for each that brings something."""
    for agent, files in watch.changed():
        for outcome in agents.run(files):
            total.add(outcome)
            imported, now = outcome.imported, format_time(SystemClock().now())
            if outcome.reason:
                err.print(safe(f"{now}  {agent}: {outcome.file.name}: {outcome.reason}"), markup=False, soft_wrap=True)
            elif imported is not None and (imported.new or imported.problems):
                problems = f", {len(imported.problems):,} lines not understood" if imported.problems else ""
                line = f"{now}  {agent}: {imported.new:,} new entries in {', '.join(imported.sessions[:3])}{problems}"
                out.print(safe(line), markup=False, soft_wrap=True)
