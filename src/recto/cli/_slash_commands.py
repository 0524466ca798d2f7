"""The slash commands of the chat.

Each asks the gateway and prints the result with the function of the CLI command of the same name.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import cast, get_args

from rich.table import Table
from rich.text import Text

from recto.cli._conversation import ChatClient
from recto.cli.compact import NOTHING_TO_COMPACT, print_compression
from recto.cli.console import one_line, out, safe
from recto.cli.context import print_detail, print_list
from recto.cli.health import print_health
from recto.cli.memory import print_proposal
from recto.cli.recall import print_results
from recto.cli.sessions import print_entry, print_sessions
from recto.context.facts.types import Mark
from recto.context.window.report import Report
from recto.context.window.state import NOTE_KINDS
from recto.continuity.memory.proposals import Proposal
from recto.engine.views.models import (
    ApprovalResult,
    CompactionResult,
    DecisionPage,
    FullEntry,
    PinList,
    ProposalPage,
    RecallHit,
    RecallResult,
    SavedCheckpoint,
    SessionPage,
    StoredEvent,
)
from recto.errors import InputError, RequestRefused
from recto.gateway.client import decode_result
from recto.health.trends import HealthReport
from recto.recall.types import Hit, SearchResult
from recto.transcript.entries import Role
from recto.transcript.session_keys import parse_pointer, session_in

_MAX_LISTED = 50


async def memory(chat: ChatClient, argument: str) -> None:
    """Lists proposals by number; shows, approves or rejects one."""
    word, _, rest = argument.partition(" ")
    match word:
        case "":
            await _list(chat)
        case "approve":
            await _approve(chat, _proposal_at(chat, rest))
        case "reject":
            number, _, why = rest.strip().partition(" ")
            await _reject(chat, _proposal_at(chat, number), why.strip())
        case _:
            _show(chat, _proposal_at(chat, word))


async def _list(chat: ChatClient) -> None:
    page = decode_result(ProposalPage, await chat.client.get("/memory/proposals", limit=_MAX_LISTED))
    chat.proposals = page.proposals
    if not page.proposals:
        out.print("Nothing waits for a decision.")
        return
    table = Table("", "to", "kind", "by", "what")
    for place, proposal in enumerate(page.proposals, 1):
        title = Text(one_line(proposal.memory.title, 70))
        table.add_row(str(place), safe(proposal.action), safe(proposal.memory.kind), safe(proposal.by), title)
    out.print(table)
    more = " There are more: decide these first." if page.next else ""
    out.print(f"/memory N shows one whole, /memory approve N and /memory reject N decide.{more}", markup=False)


def _show(chat: ChatClient, proposal: Proposal) -> None:
    print_proposal(proposal)
    chat.shown.add(proposal.digest)


async def _approve(chat: ChatClient, proposal: Proposal) -> None:
    if proposal.digest not in chat.shown:
        _show(chat, proposal)
        out.print("Say it again to approve exactly this.")
        return
    body = {"proposal": proposal.id, "digest": proposal.digest}
    approved = decode_result(ApprovalResult, await chat.client.post("/memory/proposals/approve", body))
    out.print(safe(f"remembered: {approved.memory}"), markup=False, soft_wrap=True)


async def _reject(chat: ChatClient, proposal: Proposal, why: str) -> None:
    body = {"proposal": proposal.id, **({"reason": why} if why else {})}
    decode_result(StoredEvent, await chat.client.post("/memory/proposals/reject", body))
    out.print(safe(f"rejected: {proposal.id}"), markup=False)


def _proposal_at(chat: ChatClient, text: str) -> Proposal:
    digits = text.strip()
    place = int(digits) if digits.isascii() and digits.isdigit() else 0
    if not 1 <= place <= len(chat.proposals):
        raise InputError("give the number of a proposal, as /memory lists them")
    return chat.proposals[place - 1]


_HITS = 8
_MARKS: Mapping[str, Mark] = {str(mark.name).lower(): mark for mark in Mark}


class Quit(Exception):  # no error
    """Ends the conversation."""


async def _no_choices(chat: ChatClient) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """A command of the chat."""

    name: str
    argument: str = ""
    help: str
    run: Callable[[ChatClient, str], Awaitable[None]]
    choices: Callable[[ChatClient], Awaitable[Sequence[str]]] = _no_choices
    """Values of the argument, for completion."""

    @property
    def usage(self) -> str:
        """The command as it is typed."""
        return f"/{self.name} {self.argument}".rstrip()


def parse_command(typed: str) -> tuple[SlashCommand, str]:
    """Splits a line into the command and its argument.

    Raises:
        InputError: There is no such command; the message names the nearest one.
    """
    words = typed.removeprefix("/").split(maxsplit=2)
    for length in (2, 1):
        name = " ".join(words[:length])
        if len(words) >= length and name in COMMANDS:
            return COMMANDS[name], typed.removeprefix("/").split(maxsplit=length)[-1] if len(words) > length else ""
    near = get_close_matches(words[0] if words else "", {name.split()[0] for name in COMMANDS}, n=1, cutoff=0.5)
    hint = f"did you mean /{near[0]}?" if near else "/help lists them."
    first = f"/{words[0]}" if words else "/"
    raise InputError(f"there is no command {one_line(first, 40)}; {hint} A message may begin with a space and a /")


async def _show_context(chat: ChatClient, argument: str) -> None:
    print_list(await _report(chat, argument))


async def _report(chat: ChatClient, run: str) -> Report:
    return await chat.get_value(Report, "/session/context", **({"run": _seq(run)} if run else {}))


async def _detail(chat: ChatClient, argument: str) -> None:
    report = await _report(chat, argument)
    seqs = [holder.seq for holder in report.largest if holder.seq is not None]
    entries = await asyncio.gather(*(chat.get_value(FullEntry, "/session/entry", seq=seq) for seq in seqs))
    texts = {entry.seq: entry.text for entry in entries}
    print_detail(report, lambda seq: texts.get(seq, ""))


async def _recall(chat: ChatClient, argument: str) -> None:
    if not argument:
        raise InputError("say what to look for: /recall which port did we choose")
    from recto.recall.stemmer import PorterLexicon  # noqa: PLC0415  # only needed for recall

    recalled = await chat.post_value(RecallResult, "/session/recall", query=argument, most=_HITS)
    print_results(_search_result(recalled), None, PorterLexicon())


async def _read(chat: ChatClient, argument: str) -> None:
    if argument.startswith("recto://"):
        key, seq = parse_pointer(argument)
        entry = await chat.get_value(FullEntry, "/session/entry", session=session_in(key), seq=seq)
    else:
        entry = await chat.get_value(FullEntry, "/session/entry", seq=_seq(argument))
    print_entry(entry, entry.text)


async def _pin(chat: ChatClient, argument: str) -> None:
    seqs = [_seq(word) for word in argument.split() or [""]]
    event = await chat.post_value(StoredEvent, "/session/pins", entries=seqs)
    out.print(f"pinned: {_entry_list(seqs)} (entry {event.seq})", markup=False)


async def _unpin(chat: ChatClient, argument: str) -> None:
    for seq in [_seq(word) for word in argument.split() or [""]]:
        await chat.client.delete("/session/pins", session=chat.session, seq=seq)
        out.print(f"entry {seq} may leave again", markup=False)


async def _compact(chat: ChatClient, argument: str) -> None:
    result = await chat.post_value(CompactionResult, "/session/compact", **({"focus": argument} if argument else {}))
    for compression in result.compressions:
        print_compression(compression)
    for decision in result.decisions:
        out.print(f"'/restore {decision.seq}' undoes it", markup=False)
    if not result.decisions:
        out.print(NOTHING_TO_COMPACT, soft_wrap=True)


async def _restore(chat: ChatClient, argument: str) -> None:
    decision = _seq(argument) if argument else await _newest(chat)
    event = await chat.post_value(StoredEvent, "/session/restore", decision=decision)
    out.print(f"entry {decision} is undone (entry {event.seq}); '/context list' shows the prompt", markup=False)


async def _newest(chat: ChatClient) -> int:
    seqs = [decision.seq for decision in (await _decisions(chat)).decisions if not decision.undone]
    if not seqs:
        raise InputError("there is no decision that could be undone; '/context detail' lists them")
    return seqs[0]


async def _note(chat: ChatClient, argument: str) -> None:
    kind, _, text = argument.partition(" ")
    if kind not in NOTE_KINDS or not text.strip():
        raise InputError(f"a note has a kind and a text: /note constraints Never touch migrations/. {_kinds_hint()}")
    event = await chat.post_value(StoredEvent, "/session/notes", kind=kind, text=text.strip())
    out.print(f"kept as entry {event.seq}", markup=False)


async def _checkpoint(chat: ChatClient, argument: str) -> None:
    checkpoint = await chat.post_value(SavedCheckpoint, "/session/checkpoints")
    handoff = await chat.get_value(FullEntry, "/session/entry", seq=checkpoint.seq + 1)
    try:
        text = str(json.loads(handoff.content)["text"])
    except (ValueError, KeyError, TypeError):
        text = handoff.text
    out.print(Text(safe(text)), soft_wrap=True)
    out.print(f"version {checkpoint.version}, entry {checkpoint.seq}", markup=False)


async def _health(chat: ChatClient, argument: str) -> None:
    print_health(await chat.get_value(HealthReport, "/session/health"))


async def _sessions(chat: ChatClient, argument: str) -> None:
    page = await chat.get_value(SessionPage, "/sessions", session=None, limit=_MAX_LISTED, after=argument or None)
    print_sessions(page.sessions, chat.session)
    if page.next:
        out.print(f"There are more: /sessions {safe(page.next)}", markup=False, soft_wrap=True)


async def _session(chat: ChatClient, argument: str) -> None:
    if argument:
        await chat.switch_session(argument)
    entries = f"{chat.now.entries:,} entries" if chat.now else "nothing was said in it yet"
    out.print(f"session {safe(chat.session)}: {entries}", markup=False, soft_wrap=True)


async def _model(chat: ChatClient, argument: str) -> None:
    if argument:
        chat.model = argument
    others = [model for model in chat.models if model != chat.model]
    more = f"; there are also {', '.join(others[:20])}" if others else ""
    out.print(safe(f"model {chat.model}{more}"), markup=False, soft_wrap=True)


async def _help(chat: ChatClient, argument: str) -> None:
    table = Table("command", "does", box=None)
    for command in COMMANDS.values():
        table.add_row(Text(command.usage, "bold"), command.help)
    out.print(table)
    out.print("Enter sends; Alt+Enter, Ctrl-J or a \\ at the end begins a new line. Ctrl-C cancels an answer.")


async def _quit(chat: ChatClient, argument: str) -> None:
    raise Quit


async def _decisions(chat: ChatClient) -> DecisionPage:
    return await chat.get_value(DecisionPage, "/session/decisions", limit=_MAX_LISTED)


async def _undoable(chat: ChatClient) -> Sequence[str]:
    return [str(decision.seq) for decision in (await _decisions(chat)).decisions if not decision.undone]


async def _pinned(chat: ChatClient) -> Sequence[str]:
    return [str(pin.seq) for pin in (await chat.get_value(PinList, "/session/pins")).pins]


async def _names(chat: ChatClient) -> Sequence[str]:
    return [
        summary.session
        for summary in (await chat.get_value(SessionPage, "/sessions", session=None, limit=200)).sessions
    ]


async def _models(chat: ChatClient) -> Sequence[str]:
    return chat.models


async def _note_kinds(chat: ChatClient) -> Sequence[str]:
    return NOTE_KINDS


async def _memory_words(chat: ChatClient) -> Sequence[str]:
    return ["approve", "reject", *(str(place) for place in range(1, len(chat.proposals) + 1))]


def _seq(text: str) -> int:
    digits = text.strip().removeprefix("#")
    if not (digits.isascii() and digits.isdigit() and int(digits)):
        raise InputError("give the number of an entry, as /context detail and /recall show it")
    return int(digits)


def _entry_list(seqs: Sequence[int]) -> str:
    return ", ".join(f"entry {seq}" for seq in seqs)


def _kinds_hint() -> str:
    return f"Kinds are {', '.join(NOTE_KINDS)}."


def _search_result(recalled: RecallResult) -> SearchResult:
    """Converts the gateway's answer to the engine's result."""
    return SearchResult(
        query=recalled.query,
        scope=recalled.scope,
        hits=tuple(map(_hit, recalled.hits)),
        searched=recalled.searched,
        behind=recalled.behind,
        without_vectors=recalled.without_vectors,
        notes=recalled.notes,
    )


def _hit(line: RecallHit) -> Hit:
    if line.role not in get_args(Role):
        raise RequestRefused(502, "unexpected", "the gateway returned an unknown role")
    marks = Mark.NONE
    for name in line.marks:
        marks |= _MARKS.get(name, Mark.NONE)
    return Hit(
        session=line.session,
        seq=line.seq,
        pointer=line.pointer,
        role=cast(Role, line.role),
        ts=line.ts,
        text=line.text,
        score=line.score,
        chance=line.chance,
        parts=line.parts,
        marks=marks,
        in_prompt=line.in_prompt,
        superseded_by=line.superseded_by,
        supersedes=line.supersedes,
        note=line.note,
        context=line.context,
    )


COMMANDS: Mapping[str, SlashCommand] = {
    command.name: command
    for command in (
        SlashCommand(
            name="context list", argument="[RUN]", help="where the tokens of the prompt go", run=_show_context
        ),
        SlashCommand(
            name="context detail", argument="[RUN]", help="every piece as it was sent, and the decisions", run=_detail
        ),
        SlashCommand(name="context", help="the same as /context list", run=_show_context),
        SlashCommand(name="recall", argument="QUERY", help="searches everything that was said", run=_recall),
        SlashCommand(name="read", argument="SEQ", help="shows an entry, whole", run=_read),
        SlashCommand(name="pin", argument="SEQ…", help="keeps messages in the prompt", run=_pin),
        SlashCommand(name="unpin", argument="SEQ…", help="lets them leave again", run=_unpin, choices=_pinned),
        SlashCommand(name="compact", argument="[FOCUS]", help="makes the prompt smaller now", run=_compact),
        SlashCommand(
            name="restore", argument="[SEQ]", help="undoes a decision, or the newest", run=_restore, choices=_undoable
        ),
        SlashCommand(name="note", argument="KIND TEXT", help="writes something down", run=_note, choices=_note_kinds),
        SlashCommand(name="checkpoint", help="saves the state of the work", run=_checkpoint),
        SlashCommand(
            name="memory",
            argument="[N | approve N | reject N [WHY]]",
            help="what might be remembered, and what shall be",
            run=memory,
            choices=_memory_words,
        ),
        SlashCommand(name="health", help="how the last turns went", run=_health),
        SlashCommand(name="sessions", help="lists the sessions", run=_sessions),
        SlashCommand(
            name="session", argument="[NAME]", help="goes on in another session", run=_session, choices=_names
        ),
        SlashCommand(name="model", argument="[NAME]", help="asks another model", run=_model, choices=_models),
        SlashCommand(name="help", help="this", run=_help),
        SlashCommand(name="quit", help="leaves; Ctrl-D too", run=_quit),
    )
}
