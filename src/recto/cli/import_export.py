"""Commands that move sessions in and out: import, export."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click

from recto.adapters.agent_databases import is_database
from recto.adapters.agent_files import AgentFiles, AgentImport, FileOutcome, find_agent_files, project_beside
from recto.cli._common import confirm, session_option
from recto.cli.completion import complete_models, complete_sessions
from recto.cli.console import err, out, progress, safe
from recto.cli.sessions import resolve_session, session_to_read
from recto.config import Settings
from recto.config.factory import make_importer, open_store
from recto.engine.exporter import Advance, export_messages, export_original, export_recto
from recto.engine.importer import Importer, ImportResult
from recto.errors import RectoError
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import list_sessions
from recto.transcript.sources import SessionSource

NOTHING_FOUND = "No sessions of coding agents were found on this machine."


@click.command("import")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--discover", is_flag=True, help="Find the sessions of coding agents on this machine, and import them.")
@click.option(
    "--project",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --discover: only the sessions of this project folder.",
)
@click.option(
    "--mask-secrets/--no-mask-secrets",
    default=None,
    help="With --discover: replace keys and passwords before anything is stored. [default: in a shared store]",
)
@click.option("--yes", is_flag=True, help="With --discover: do not ask for confirmation.")
@session_option("Import into this session. [default: as the file names it]")
@click.option(
    "--model",
    metavar="NAME",
    shell_complete=complete_models,
    help="Count tokens as this model does. [default: as the file names it]",
)
@click.option("--keep-going", is_flag=True, help="Keep unreadable lines as they are, report them, and read the rest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a file.")
@click.pass_obj
def import_command(  # noqa: PLR0913, PLR0917  # an argument for each option
    settings: Settings,
    files: tuple[Path, ...],
    discover: bool,
    project: Path | None,
    mask_secrets: bool | None,
    yes: bool,
    session: str | None,
    model: str | None,
    keep_going: bool,
    as_json: bool,
) -> None:
    """Imports session files: of coding agents, message arrays (JSON or JSONL), Recto's own JSONL.

    A file is recognised by what is in it. Importing it again stores only what is new. A file with a line that cannot
    be read is not imported at all, unless you say --keep-going. With --discover, the sessions of coding agents on this
    machine are found; what cannot be read is reported, and the exit code is 1.

    \b
    Examples:
      recto import session.json
      recto import --discover
      recto import --session agent:research:main --model gpt-4o session.json
    """
    if discover:
        if files or session:
            raise click.UsageError("--discover takes neither files nor --session")
        policy = ImportPolicy(project=project, masks_secrets=mask_secrets, keep_going=keep_going)
        _import_discovered(settings, model, policy, as_json=as_json, yes=yes)
        return
    if project or mask_secrets is not None:
        raise click.UsageError("--project and --mask-secrets are for --discover")
    if not files:
        raise click.UsageError("name files, or find the sessions of agents on this machine: recto import --discover")
    problems = 0
    with closing(open_store(settings)) as store:
        importer = make_importer(settings, store, model)
        with progress("importing", 2 * sum(file.stat().st_size for file in files), of_bytes=True) as advance:
            for file in files:
                if is_database(file):
                    if session:
                        raise click.UsageError(f"'{file.name}' is a database of named sessions; leave --session out")
                    total = _import_all(AgentImport(importer, keep_going=keep_going), [file], advance, as_json=as_json)
                    problems += total.failed
                    if not as_json:
                        out.print(f"{safe(file.name)}: {total}", markup=False)
                    continue
                source = SessionSource(project=project_beside(file))
                imported = importer.import_file(
                    file, session=session, keep_going=keep_going, advance=advance, source=source
                )
                problems += len(imported.problems)
                print_imported(imported, as_json)
    if problems:
        click.get_current_context().exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPolicy:
    """What of the sessions on this machine is imported, and how."""

    project: Path | None = None
    masks_secrets: bool | None = None
    """None: where the store is shared."""
    keep_going: bool = False

    def make(self, importer: Importer) -> AgentImport:
        """Returns the import. Into a shared store, only the sessions of a project go that the user names."""
        is_shared = not importer.store.is_local
        if is_shared and self.project is None:
            raise click.UsageError(
                "this store is shared: say which project's sessions go there, with --project FOLDER (. for this one)"
            )
        return AgentImport(
            importer,
            keep_going=self.keep_going,
            project=str(self.project.resolve()) if self.project else "",
            masks_secrets=is_shared if self.masks_secrets is None else self.masks_secrets,
        )


def _import_discovered(
    settings: Settings, model: str | None, policy: ImportPolicy, *, as_json: bool, yes: bool
) -> None:
    """Imports what agents on this machine have stored, after the user has seen what that is."""
    found = find_agent_files(Path.home(), os.environ, Path.cwd())
    print_found(found)
    readable = [file for files in found for file in files.files]
    if not readable:
        err.print(NOTHING_FOUND, markup=False)
        return
    if not yes:
        what = f"what is of {policy.project}" if policy.project else f"{len(readable):,} files"
        confirm(f"Import {what} into {settings.store}?")
    with closing(open_store(settings)) as store:
        agents = policy.make(make_importer(settings, store, model, settings.tenant))
        with progress("importing", 2 * sum(file.stat().st_size for file in readable), of_bytes=True) as advance:
            total = _import_all(agents, readable, advance, as_json=as_json)
    if not as_json:
        out.print(f"{len(readable):,} files, {total}", markup=False)
    if total.failed:
        click.get_current_context().exit(1)


def print_found(found: Iterable[AgentFiles]) -> None:
    """Prints how many session files each agent has."""
    for files in found:
        size = f"{len(files.files):,} session file{'s' if len(files.files) > 1 else ''}, {files.bytes / 1e6:,.1f} MB"
        err.print(f"{files.agent}: {size}", markup=False, highlight=False)


@dataclass(slots=True)
class ImportTotal:
    """Sums over imported files."""

    entries: int = 0
    new: int = 0
    recorded: int = 0
    unchanged: int = 0
    elsewhere: int = 0
    failed: int = 0
    """Files that were not imported, or only in part."""

    def add(self, outcome: FileOutcome) -> None:
        """Adds what came of a file."""
        imported = outcome.imported
        self.failed += bool(outcome.reason or (imported and imported.problems))
        self.elsewhere += outcome.is_elsewhere
        self.unchanged += imported is None and not outcome.reason and not outcome.is_elsewhere
        if imported is not None:
            self.entries += imported.entries
            self.new += imported.new
            self.recorded += imported.recorded

    def __str__(self) -> str:
        unchanged = f"{self.elsewhere:,} of other projects, " if self.elsewhere else ""
        unchanged += f"{self.unchanged:,} unchanged, " if self.unchanged else ""
        recorded = f", {self.recorded:,} messages recorded by the gateway before" if self.recorded else ""
        return f"{unchanged}{self.entries:,} entries, {self.new:,} new{recorded}; {self.failed:,} with problems"


def _import_all(agents: AgentImport, files: Iterable[Path], advance: Advance, *, as_json: bool) -> ImportTotal:
    """Imports files of agents, and prints those with problems."""
    total = ImportTotal()
    for outcome in agents.run(files, advance):
        total.add(outcome)
        if outcome.reason:
            err.print(safe(f"not imported: {outcome.file}: {outcome.reason}"), markup=False, soft_wrap=True)
        elif outcome.imported and (as_json or outcome.imported.problems):
            print_imported(outcome.imported, as_json)
    return total


@click.command("export")
@click.argument("sessions", nargs=-1, shell_complete=complete_sessions)
@click.option("--all", "all_sessions", is_flag=True, help="Every session of the store (only as recto).")
@click.option(
    "--as",
    "form",
    type=click.Choice(["recto", "messages", "original"]),
    default="recto",
    show_default=True,
    help="recto: every field, losslessly. messages: the messages alone. original: the file it was imported from.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here. [default: stdout]")
@click.option("--force", is_flag=True, help="Replace the output file if there is one.")
@click.pass_obj
def export_command(
    settings: Settings, sessions: tuple[str, ...], all_sessions: bool, form: str, output: Path | None, force: bool
) -> None:
    """Gives sessions out again.

    \b
    Examples:
      recto session export agent:default:main -o session.jsonl
      recto session export agent:default:main --as messages
      recto session export --all -o everything.jsonl
    """
    if output and output.exists() and not force:
        raise click.UsageError(f"'{output}' exists; replace it with --force")
    with closing(open_store(settings, create=False)) as store:
        keys = [resolve_session(store, name) for name in sessions]
        if not sessions and not all_sessions:
            keys = [session_to_read(store, settings, None)]
        if all_sessions:
            keys = [summary.session for summary in list_sessions(store)]
        if len(keys) != 1 and form != "recto":
            raise click.UsageError(f"--as {form} takes one session")
        total = sum(store.head(key).seq for key in keys) * (2 if form == "original" else 1)
        with progress("exporting", total) as advance:
            write_out(_export(store, keys, form, advance), output)


def _export(store: TranscriptStore, keys: list[str], form: str, advance: Advance) -> Iterator[bytes]:
    match form:
        case "messages":
            return export_messages(store, keys[0], advance)
        case "original":
            return export_original(store, keys[0], advance)
        case _:
            return export_recto(store, keys, advance)


def write_out(pieces: Iterable[bytes], output: Path | None) -> None:
    """Writes everything or nothing: the file appears under its name only when it is complete and on the disk.

    Raises:
        OSError: The file cannot be written; the error names it.
    """
    if output is None:
        sys.stdout.buffer.writelines(pieces)
        return
    try:
        handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(output)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(output)
    except (RectoError, OSError) as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, f"{error.strerror}; nothing was left behind", str(output)) from None
        raise


def print_imported(imported: ImportResult, as_json: bool) -> None:
    """Prints what came of a file."""
    if as_json:
        problems = [{"line": problem.line, "reason": problem.reason} for problem in imported.problems]
        row = {
            "file": imported.source,
            "format": imported.reader,
            "sessions": imported.sessions,
            "entries": imported.entries,
            "messages": imported.messages,
            "proposed": imported.proposed,
            "recorded": imported.recorded,
        }
        click.echo(json.dumps(row | {"new": imported.new, "problems": problems}))
        return
    where = imported.sessions[0] if len(imported.sessions) == 1 else f"{len(imported.sessions):,} sessions"
    out.print(
        f"{safe(imported.source)}: {imported.entries:,} entries ({imported.new:,} new) into {safe(where)}, "
        f"{imported.messages:,} of them messages",
        markup=False,
        soft_wrap=True,
    )
    if imported.proposed:
        out.print(
            f"{safe(imported.source)}: {imported.proposed:,} memories were approved elsewhere; here they are proposals "
            "(recto memory proposals)",
            markup=False,
            soft_wrap=True,
        )
    for problem in imported.problems:
        err.print(
            f"{safe(imported.source)}, line {problem.line}: kept as it is: {safe(problem.reason)}",
            markup=False,
            soft_wrap=True,
        )
