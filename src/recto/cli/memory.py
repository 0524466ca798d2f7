"""Commands of durable memory: memory list, show, propose, proposals, approve, reject, undo, retire, check; consolidate.

An approval shows the exact bytes that will be stored, with invisible characters made visible, and names their digest.
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

from recto.cli._common import session_option
from recto.cli._lazy_group import SpellingGroup
from recto.cli.console import err, format_time, one_line, out, print_json, progress, safe
from recto.cli.sessions import resolve_session
from recto.config import Settings
from recto.config.factory import make_consolidator, make_indexer, open_memory, open_store
from recto.continuity.memory import KINDS, MemoryKind
from recto.continuity.memory.consolidation import Consolidator, Cycle
from recto.continuity.memory.lint import look, propose_changes, restore_pages
from recto.continuity.memory.manager import Memories, Remembered
from recto.continuity.memory.model import strength
from recto.continuity.memory.proposals import Proposal
from recto.engine.views.codec import to_builtins
from recto.engine.views.models import approval_result, memory_item, stored_event
from recto.errors import InputError
from recto.text.unicode import reveal_invisible
from recto.transcript.entries import Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import TenantStore, is_memory_session, reach_of, session_in, tenant_key, tenant_of

_session_option = session_option("The agent of this session. [default: the settings']")
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
_by_option = click.option("--by", default="", metavar="NAME", help="Who decides. [default: your user name]")


@contextmanager
def open_memories(settings: Settings, session: str | None) -> Iterator[Memories]:
    """Opens the memory of an agent and completes what a killed process left unfinished."""
    with closing(open_store(settings, create=False)) as store:
        memories = open_memory(_session_settings(settings, store, session), store)
        for line in memories.reconcile():
            err.print(safe(line), markup=False)
        yield memories


def _session_settings(settings: Settings, store: TranscriptStore, session: str | None) -> Settings:
    """Returns the settings with the named session. Without a tenant it may be a stored key."""
    name = session or settings.session
    key = tenant_key(name, settings.tenant) if session is not None or tenant_of(name) else ""
    if key:
        resolve_session(store, key)
    if tenant_of(key) and not settings.tenant:
        return replace(settings, session=session_in(key), tenant=tenant_of(key))
    return replace(settings, session=name)


@click.group("memory", cls=SpellingGroup)
def memory_command() -> None:
    """Shows what is remembered for good, and decides what shall be.

    \b
    Examples:
      recto memory proposals
      recto memory approve 3f2a91c0d4e5b6a7
      recto memory list
    """


@memory_command.command("list")
@click.option("--all", "include_retired", is_flag=True, help="What was retired too.")
@_session_option
@_json_option
@click.pass_obj
def list_command(settings: Settings, include_retired: bool, session: str | None, as_json: bool) -> None:
    """Lists what is remembered, the strongest first.

    \b
    Examples:
      recto memory list
      recto memory list --all --json | jq -r .title
    """
    table = Table("id", "kind", Column("strength", justify="right"), Column("used", justify="right"), "what", "")
    with open_memories(settings, session) as memories:
        now = memories.clock.now()
        listed = sorted(
            memories.remembered(retired=include_retired), key=lambda remembered: -strength(remembered.memory, now)
        )
        for remembered in listed:
            if as_json:
                _print_memory_json(remembered, now)
            state = (
                f"retired: {remembered.retired}"
                if remembered.retired
                else "changed since approved"
                if remembered.edited
                else ""
            )
            table.add_row(
                remembered.memory.id,
                remembered.memory.kind,
                f"{strength(remembered.memory, now):.2f}",
                str(remembered.memory.hits),
                Text(one_line(remembered.memory.title, 80)),
                Text(one_line(state, 40)),
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
    with open_memories(settings, session) as memories:
        decisions = memories.decisions
        if (
            any(proposal_id.startswith(id) for proposal_id in decisions.noted if proposal_id not in decisions.decided)
            and len(id) >= 4
        ):
            proposal = memories.proposal(id)
            if as_json:
                print_json(proposal)
            else:
                print_proposal(proposal)
            return
        remembered = memories.get(id)
        if as_json:
            _print_memory_json(remembered, memories.clock.now())
        else:
            _print_page(decisions.current[remembered.memory.id].text)
            by = f"approved by {remembered.approved_by} ({remembered.how}) on {format_time(remembered.approved)}"
            out.print(safe(f"{by}; {remembered.path or 'no page here'}"), markup=False, soft_wrap=True)


@memory_command.command("propose")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("text")
@click.option("--title", default="", help="A title. [default: its first words]")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="A tag; may be given several times.")
@click.option("--source", "sources", multiple=True, metavar="POINTER", help="A source of it; may be repeated.")
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
    **options: Any,  # noqa: ANN401  # the options of a suggestion
) -> None:
    """Proposes that something be remembered. It is not, until the proposal is approved.

    \b
    Examples:
      recto memory propose preference "Answer in German." --critical
      recto memory propose decision "We use SQLite." --source recto://agent:default:main/57
    """
    with open_memories(settings, session) as memories:
        proposal = memories.propose(kind, text, by="person", why="proposed on the command line", **options)
        if as_json:
            print_json(proposal)
        else:
            print_proposal(proposal)


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
    with open_memories(settings, session) as memories:
        for proposal in memories.proposals():
            if as_json:
                print_json(proposal)
            flags = ", ".join(f"{flag.kind} of {flag.id}" for flag in proposal.flags[:2])
            table.add_row(
                proposal.id,
                proposal.action,
                proposal.memory.kind,
                proposal.by,
                Text(one_line(proposal.memory.title, 70)),
                flags,
            )
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
    with open_memories(settings, session) as memories:
        opened_proposal = memories.proposal(proposal)
        if not digest:
            if sys.stdin is None or not sys.stdin.isatty():
                raise click.UsageError(f"name the digest that was shown: recto memory show {opened_proposal.id}")
            print_proposal(opened_proposal)
            click.confirm("Approve exactly this?", abort=True)
            digest = opened_proposal.digest
        approval = memories.approve(opened_proposal.id, digest, by or _user_name())
        with closing(make_indexer(settings, memories.store)) as indexer:
            indexer.try_catch_up(memories.home, settings.recall.index_seconds)
        path = memories.get(approval.memory.id).path
        if as_json:
            print_json(approval_result(approval), path=path)
        else:
            done = "retired" if opened_proposal.action == "retire" else "remembered"
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
    with open_memories(settings, session) as memories:
        opened_proposal = memories.proposal(proposal)
        entry = memories.reject(opened_proposal.id, by or _user_name(), why)
        _print_done("rejected", "proposal", opened_proposal.id, entry, as_json)


@memory_command.command("undo")
@click.argument("proposal")
@_by_option
@_session_option
@_json_option
@click.pass_obj
def undo_command(settings: Settings, proposal: str, by: str, session: str | None, as_json: bool) -> None:
    """Undoes an approval: what it added is retired, what it changed or retired is as before.

    \b
    Examples:
      recto memory undo 3f2a91c0d4e5b6a7
    """
    with open_memories(settings, session) as memories:
        entry = memories.undo(proposal, by or _user_name())
        _print_done("undone", "proposal", proposal, entry, as_json)


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
    with open_memories(settings, session) as memories:
        remembered = memories.get(id)
        entry = memories.retire(remembered.memory.id, by or _user_name(), why)
        _print_done("retired", "memory", remembered.memory.id, entry, as_json)


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
    with open_memories(settings, session) as memories:
        proposed, refused = propose_changes(memories) if propose else ([], [])
        restored = restore_pages(memories) if restore else []
        findings = [*refused, *look(memories)]
    for finding in findings:
        if as_json:
            print_json(finding)
        else:
            out.print(safe(f"{finding.about}: {finding.where}: {finding.says}"), markup=False, soft_wrap=True)
    for line in (*(f"proposed: {proposal.id}" for proposal in proposed), *(f"written: {id}" for id in restored)):
        err.print(line, markup=False)
    if not as_json and not findings:
        out.print("Pages and approvals agree.")
    if findings:
        click.get_current_context().exit(1)


@click.command("consolidate")
@session_option("Review this session. [default: all sessions of the agent in the settings]")
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
      recto consolidate --session agent:default:main
      recto consolidate --due
    """
    with closing(open_store(settings, create=False)) as store:
        session_settings = _session_settings(settings, store, session)
        key = TenantStore(store, session_settings.tenant).key(session_settings.session)
        keys = [resolve_session(store, key)] if session else _sessions_to_review(store, key)
        if dry_run or not settings.recall.enabled:
            _consolidate(make_consolidator(session_settings, store), keys, dry_run=dry_run, due=due, as_json=as_json)
        else:
            with closing(make_indexer(session_settings, store)) as indexer:
                consolidator = make_consolidator(session_settings, store, indexer)
                _consolidate(consolidator, keys, dry_run=False, due=due, as_json=as_json)


def _sessions_to_review(store: TranscriptStore, key: str) -> list[str]:
    reach = reach_of(key, "agent")
    return [
        summary.session
        for summary in store.sessions()
        if reach.contains(summary.session) and not is_memory_session(summary.session)
    ]


def _consolidate(consolidator: Consolidator, keys: list[str], *, dry_run: bool, due: bool, as_json: bool) -> None:
    if due and not consolidator.is_due():
        err.print("not due yet; 'memory.every_hours' says how often", markup=False)
        return
    if not keys:
        raise InputError("there is no session to review; 'recto session ls' lists what is stored")
    if not as_json:
        for key in keys:
            if offered := consolidator.offered(key):
                out.print(safe(f"due: {session_in(key)}, {offered}"), markup=False, soft_wrap=True)
    with progress("reviewing", sum(map(consolidator.waiting, keys))) as advance:
        cycle = consolidator.run(keys, dry_run=dry_run, advance=advance)
    if as_json:
        click.echo(json.dumps(_cycle_as_json(cycle)))
        return
    count = sum(cycle.sessions.values())
    out.print(f"{count:,} new entries of {len(cycle.sessions)} of {len(keys)} sessions reviewed", markup=False)
    for proposal in cycle.proposed:
        done = "approved by rule" if proposal.id in cycle.approved else f"to {proposal.action}"
        line = f"{proposal.id}  {done}  {proposal.memory.kind}: {one_line(proposal.memory.title, 80)}"
        out.print(line, markup=False, soft_wrap=True)
    for line in (*cycle.refused, *cycle.problems):
        out.print(safe(f"note: {line}"), markup=False, soft_wrap=True)
    if cycle.retired:
        out.print(f"retired: {', '.join(cycle.retired)}", markup=False, soft_wrap=True)
    if cycle.share is not None:
        out.print(f"recall brought the right entry back for {cycle.share:.0%} of the questions", markup=False)
    if cycle.proposed:
        out.print("'recto memory show' shows a proposal, 'recto memory approve' decides", markup=False)


def print_proposal(proposal: Proposal) -> None:
    """Prints a full proposal: the exact bytes to approve, and their digest."""
    out.print(
        safe(f"proposal {proposal.id}, to {proposal.action}, by {proposal.by}: {proposal.why}"),
        markup=False,
        soft_wrap=True,
    )
    for flag in proposal.flags:
        verb = "says the same as" if flag.kind == "duplicate" else "contradicts"
        out.print(f"{verb} memory {flag.id} ({flag.score:.2f})", style="yellow", markup=False)
    _print_page(proposal.text)
    out.print(f"digest {proposal.digest}", markup=False, soft_wrap=True)


def _print_page(text: str) -> None:
    out.print(Text(safe(reveal_invisible(text))), soft_wrap=True)


def _print_done(done: str, what: str, id: str, entry: Entry, as_json: bool) -> None:
    if as_json:
        print_json(stored_event(entry, f"{done.title()}: {id}.", str), **{what: id})
    else:
        out.print(f"{done}: {id}", markup=False)


def _print_memory_json(remembered: Remembered, now: int) -> None:
    members = to_builtins(memory_item(remembered, now))
    print_json(members.pop("memory"), **members, path=remembered.path)


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


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "a user on the command line"
