"""Commands of durable memory: memory list, show, propose, proposals, approve, reject, retire, check; consolidate.

What is to be approved is shown as the exact bytes it would have, with everything that cannot be seen made visible, and
an approval names the digest of those bytes.
"""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli.completion import sessions
from recto.cli.console import err, one_line, out, print_json, progress, safe, when
from recto.cli.sessions import known_session
from recto.config import Settings
from recto.config.factory import make_consolidator, make_indexer, open_memory, open_store
from recto.continuity.memory.consolidation import Consolidator, Cycle
from recto.continuity.memory.lint import look, propose_changes, restore_pages
from recto.continuity.memory.manager import Memories, Remembered
from recto.continuity.memory.model import KINDS, MemoryKind, strength
from recto.continuity.memory.proposals import Proposal
from recto.engine.views.codec import to_builtins
from recto.engine.views.models import approval_result, memory_item, stored_event
from recto.errors import InputError
from recto.text.unicode import reveal_invisible
from recto.transcript.entries import Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import is_memory_session, reach_of, session_in, tenant_of
from recto.transcript.tenancy import TenantStore, tenant_key

_session_option = click.option(
    "--session", metavar="KEY", shell_complete=sessions, help="The agent of this session. [default: the settings']"
)
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
_by_option = click.option("--by", default="", metavar="NAME", help="Who decides. [default: your name on this machine]")


@contextmanager
def opened(settings: Settings, session: str | None) -> Iterator[Memories]:
    """The memory of an agent; what a killed process left undone is done first."""
    with closing(open_store(settings, create=False)) as store:
        memories = open_memory(_chosen(settings, store, session), store)
        for line in memories.reconcile():
            err.print(safe(line), markup=False)
        yield memories


def _chosen(settings: Settings, store: TranscriptStore, session: str | None) -> Settings:
    """The settings with the session that was named. Without a tenant it may be named as it is stored."""
    name = session or settings.session
    key = tenant_key(name, settings.tenant) if session is not None or tenant_of(name) else ""
    if key:
        known_session(store, key)
    if tenant_of(key) and not settings.tenant:
        return replace(settings, session=session_in(key), tenant=tenant_of(key))
    return replace(settings, session=name)


@click.group("memory")
def memory_command() -> None:
    """Shows what is remembered for good, and decides what shall be.

    \b
    Examples:
      recto memory proposals
      recto memory approve 3f2a91c0d4e5b6a7
      recto memory list
    """


@memory_command.command("list")
@click.option("--all", "everything", is_flag=True, help="What was retired too.")
@_session_option
@_json_option
@click.pass_obj
def list_command(settings: Settings, everything: bool, session: str | None, as_json: bool) -> None:
    """Lists what is remembered, the strongest first.

    \b
    Examples:
      recto memory list
      recto memory list --all --json | jq -r .title
    """
    table = Table("id", "kind", Column("strength", justify="right"), Column("used", justify="right"), "what", "")
    with opened(settings, session) as memories:
        now = memories.clock.now()
        listed = sorted(memories.remembered(retired=everything), key=lambda one: -strength(one.memory, now))
        for one in listed:
            if as_json:
                _print_memory_json(one, now)
            about = f"retired: {one.retired}" if one.retired else "changed since approved" if one.edited else ""
            table.add_row(
                one.memory.id,
                one.memory.kind,
                f"{strength(one.memory, now):.2f}",
                str(one.memory.hits),
                Text(one_line(one.memory.title, 80)),
                Text(one_line(about, 40)),
            )
    if not as_json:
        out.print(table if table.row_count else "Nothing is remembered. 'recto memory proposals' shows what waits.")


@memory_command.command("show")
@click.argument("id")
@_session_option
@_json_option
@click.pass_obj
def show_command(settings: Settings, id: str, session: str | None, as_json: bool) -> None:
    """Shows a memory or a proposal, whole: the exact bytes, with everything hidden in them made visible.

    \b
    Examples:
      recto memory show 3f2a91c0d4e5b6a7
      recto memory show 90ab12cd34ef --json | jq -r .text
    """
    with opened(settings, session) as memories:
        known = memories.decisions
        if any(one.startswith(id) for one in known.noted if one not in known.decided) and len(id) >= 4:
            proposal = memories.proposal(id)
            if as_json:
                print_json(proposal)
            else:
                print_proposal(proposal)
            return
        found = memories.get(id)
        if as_json:
            _print_memory_json(found, memories.clock.now())
        else:
            _print_page(known.current[found.memory.id].text)
            by = f"approved by {found.approved_by} ({found.how}) on {when(found.approved)}"
            out.print(safe(f"{by}; {found.path or 'no page here'}"), markup=False, soft_wrap=True)


@memory_command.command("propose")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("text")
@click.option("--title", default="", help="A title. [default: its first words]")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="A tag; may be given several times.")
@click.option("--source", "sources", multiple=True, metavar="POINTER", help="Where it was said; several times.")
@click.option("--critical", is_flag=True, help="Ages slower, and is not retired without being asked.")
@_session_option
@_json_option
@click.pass_obj
def propose_command(
    settings: Settings,
    /,
    kind: MemoryKind,
    text: str,
    session: str | None,
    as_json: bool,
    **given: Any,  # noqa: ANN401  # the options of a suggestion
) -> None:
    """Proposes that something be remembered. It is not, until the proposal is approved.

    \b
    Examples:
      recto memory propose preference "Answer in German." --critical
      recto memory propose decision "We use SQLite." --source recto://agent:default:main/57
    """
    with opened(settings, session) as memories:
        made = memories.propose(kind, text, by="person", why="proposed on the command line", **given)
        if as_json:
            print_json(made)
        else:
            print_proposal(made)


@memory_command.command("proposals")
@_session_option
@_json_option
@click.pass_obj
def proposals_command(settings: Settings, session: str | None, as_json: bool) -> None:
    """Lists what waits for a decision.

    \b
    Examples:
      recto memory proposals
      recto memory proposals --json | jq -r '.id + " " + .digest'
    """
    table = Table("proposal", "to", "kind", "by", "what", "")
    with opened(settings, session) as memories:
        for one in memories.proposals():
            if as_json:
                print_json(one)
            flags = ", ".join(f"{flag.kind} of {flag.id}" for flag in one.flags[:2])
            table.add_row(one.id, one.action, one.memory.kind, one.by, Text(one_line(one.memory.title, 70)), flags)
    if not as_json:
        out.print(table if table.row_count else "Nothing waits for a decision.")


@memory_command.command("approve")
@click.argument("proposal")
@click.option("--digest", default="", metavar="SHA256", help="The digest that was shown with it.")
@_by_option
@_session_option
@_json_option
@click.pass_obj
def approve_command(
    settings: Settings, proposal: str, digest: str, by: str, session: str | None, as_json: bool
) -> None:
    """Approves a proposal, once: exactly the bytes that were shown become memory.

    At a terminal it is shown and asked for. Elsewhere name the digest that 'recto memory show' gave.

    \b
    Examples:
      recto memory approve 3f2a91c0d4e5b6a7
      recto memory approve 3f2a91c0d4e5b6a7 --digest "$(recto memory show 3f2a91c0d4e5b6a7 --json | jq -r .digest)"
    """
    with opened(settings, session) as memories:
        found = memories.proposal(proposal)
        if not digest:
            if not sys.stdin.isatty():
                raise click.UsageError(f"name the digest that was shown: recto memory show {found.id}")
            print_proposal(found)
            click.confirm("Approve exactly this?", abort=True)
            digest = found.digest
        approval = memories.approve(found.id, digest, by or _who())
        with closing(make_indexer(settings, memories.store)) as indexer:
            indexer.try_catch_up(memories.home, settings.recall.index_seconds)
        path = memories.get(approval.memory.id).path
        if as_json:
            print_json(approval_result(approval), path=path)
        else:
            done = "retired" if found.action == "retire" else "remembered"
            out.print(safe(f"{done}: {approval.memory.id} in {path}"), markup=False, soft_wrap=True)


@memory_command.command("reject")
@click.argument("proposal")
@click.option("--why", default="", help="Why; kept with the decision.")
@_by_option
@_session_option
@_json_option
@click.pass_obj
def reject_command(settings: Settings, proposal: str, why: str, by: str, session: str | None, as_json: bool) -> None:
    """Rejects a proposal for good.

    \b
    Examples:
      recto memory reject 3f2a91c0d4e5b6a7 --why "only meant for that day"
    """
    with opened(settings, session) as memories:
        found = memories.proposal(proposal)
        entry = memories.reject(found.id, by or _who(), why)
        _tell("rejected", "proposal", found.id, entry, as_json)


@memory_command.command("retire")
@click.argument("id")
@click.option("--why", default="", help="Why; kept with the decision.")
@_by_option
@_session_option
@_json_option
@click.pass_obj
def retire_command(settings: Settings, id: str, why: str, by: str, session: str | None, as_json: bool) -> None:
    """Retires a memory: recall no longer finds it. Its page stays, and says so.

    \b
    Examples:
      recto memory retire 90ab12cd34ef --why "we moved to PostgreSQL"
    """
    with opened(settings, session) as memories:
        found = memories.get(id)
        entry = memories.retire(found.memory.id, by or _who(), why)
        _tell("retired", "memory", found.memory.id, entry, as_json)


@memory_command.command("check")
@click.option("--propose", is_flag=True, help="Propose the pages that people made or changed.")
@click.option("--restore", is_flag=True, help="Write the pages of approved memory that are not here.")
@_session_option
@_json_option
@click.pass_obj
def check_command(settings: Settings, propose: bool, restore: bool, session: str | None, as_json: bool) -> None:
    """Looks whether pages and approvals agree, and for repetitions, contradictions and what is old.

    Exits with 1 if there is something to look at.

    \b
    Examples:
      recto memory check
      recto memory check --propose
    """
    with opened(settings, session) as memories:
        made, refused = propose_changes(memories) if propose else ([], [])
        restored = restore_pages(memories) if restore else []
        found = [*refused, *look(memories)]
    for finding in found:
        if as_json:
            print_json(finding)
        else:
            out.print(safe(f"{finding.about}: {finding.where}: {finding.says}"), markup=False, soft_wrap=True)
    for line in (*(f"proposed: {one.id}" for one in made), *(f"written: {id}" for id in restored)):
        err.print(line, markup=False)
    if not as_json and not found:
        out.print("Pages and approvals agree.")
    if found:
        click.get_current_context().exit(1)


@click.command("consolidate")
@click.argument("session", required=False, shell_complete=sessions)
@click.option("--dry-run", is_flag=True, help="Show what would be proposed, and write nothing at all.")
@click.option("--due", is_flag=True, help="Only if memory.every_hours have passed since the last cycle.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_obj
def consolidate_command(settings: Settings, session: str | None, dry_run: bool, due: bool, as_json: bool) -> None:
    """Reviews finished history and proposes what is worth remembering.

    Without SESSION it reviews all sessions of the settings' agent. Nothing is remembered by it but what the settings
    allow a rule to approve. A cycle that was stopped goes on where it ended.

    \b
    Examples:
      recto consolidate --dry-run
      recto consolidate agent:default:main
      recto consolidate --due
    """
    with closing(open_store(settings, create=False)) as store:
        chosen = _chosen(settings, store, session)
        key = TenantStore(store, chosen.tenant).key(chosen.session)
        keys = [known_session(store, key)] if session else _reviewed(store, key)
        if dry_run or not settings.recall.enabled:
            _consolidate(make_consolidator(chosen, store), keys, dry_run=dry_run, due=due, as_json=as_json)
        else:
            with closing(make_indexer(chosen, store)) as indexer:
                one = make_consolidator(chosen, store, indexer)
                _consolidate(one, keys, dry_run=False, due=due, as_json=as_json)


def _reviewed(store: TranscriptStore, key: str) -> list[str]:
    reach = reach_of(key, "agent")
    return [
        one.session for one in store.sessions() if reach.contains(one.session) and not is_memory_session(one.session)
    ]


def _consolidate(one: Consolidator, keys: list[str], *, dry_run: bool, due: bool, as_json: bool) -> None:
    if due and not one.is_due():
        err.print("not due yet; 'memory.every_hours' says how often", markup=False)
        return
    if not keys:
        raise InputError("there is no session to review; 'recto sessions' lists what is stored")
    with progress("reviewing", sum(map(one.waiting, keys))) as advance:
        cycle = one.run(keys, dry_run=dry_run, advance=advance)
    if as_json:
        click.echo(json.dumps(_cycle_as_json(cycle)))
        return
    count = sum(cycle.sessions.values())
    out.print(f"{count:,} new entries of {len(cycle.sessions)} of {len(keys)} sessions reviewed", markup=False)
    for made in cycle.proposed:
        done = "approved by rule" if made.id in cycle.approved else f"to {made.action}"
        line = f"{made.id}  {done}  {made.memory.kind}: {one_line(made.memory.title, 80)}"
        out.print(line, markup=False, soft_wrap=True)
    for line in (*cycle.refused, *cycle.problems):
        out.print(safe(f"note: {line}"), markup=False, soft_wrap=True)
    if cycle.retired:
        out.print(f"retired: {', '.join(cycle.retired)}", markup=False, soft_wrap=True)
    if cycle.share is not None:
        out.print(f"recall brought the right entry back for {cycle.share:.0%} of the questions", markup=False)
    if cycle.proposed:
        out.print("'recto memory show' shows a proposal, 'recto memory approve' decides", markup=False)


def print_proposal(one: Proposal) -> None:
    """A proposal, whole: the exact bytes that an approval is of, and their digest."""
    out.print(safe(f"proposal {one.id}, to {one.action}, by {one.by}: {one.why}"), markup=False, soft_wrap=True)
    for flag in one.flags:
        verb = "says the same as" if flag.kind == "duplicate" else "contradicts"
        out.print(f"{verb} memory {flag.id} ({flag.score:.2f})", style="yellow", markup=False)
    _print_page(one.text)
    out.print(f"digest {one.digest}", markup=False, soft_wrap=True)


def _print_page(text: str) -> None:
    out.print(Text(safe(reveal_invisible(text))), soft_wrap=True)


def _tell(done: str, what: str, id: str, entry: Entry, as_json: bool) -> None:
    if as_json:
        print_json(stored_event(entry, f"{done.title()}: {id}.", str), **{what: id})
    else:
        out.print(f"{done}: {id}", markup=False)


def _print_memory_json(one: Remembered, now: int) -> None:
    members = to_builtins(memory_item(one, now))
    print_json(members.pop("memory"), **members, path=one.path)


def _cycle_as_json(cycle: Cycle) -> dict[str, Any]:
    return {
        "dry_run": cycle.dry_run,
        "sessions": cycle.sessions,
        "proposed": to_builtins(cycle.proposed),
        "approved": cycle.approved,
        "known": cycle.known,
        "refused": cycle.refused,
        "retired": cycle.retired,
        "recall": cycle.share,
        "problems": cycle.problems,
        "journal": cycle.journal,
        "handoff": cycle.handoff,
    }


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "somebody on the command line"
