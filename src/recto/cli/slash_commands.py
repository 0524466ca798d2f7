"""What can be asked in a chat beside talking: the commands that begin with a slash.

Each asks the gateway and draws the answer as the command of the same name does.
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
from recto.cli.compact import print_compression
from recto.cli.console import one_line, out, safe
from recto.cli.context import print_detail, print_list
from recto.cli.health import print_health
from recto.cli.memory import print_proposal
from recto.cli.recall import print_found
from recto.cli.sessions import print_sessions, print_whole
from recto.context.facts.types import Mark
from recto.context.window.notes import NOTE_KINDS
from recto.context.window.report import Report
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
from recto.gateway.client import value_of
from recto.health.trends import HealthReport
from recto.recall.types import Hit, SearchResult
from recto.transcript.entries import Role, SessionSummary
from recto.transcript.session_keys import parse_pointer, session_in

_LISTED = 50


async def memory(talk: ChatClient, given: str) -> None:
    """Lists proposals by number; shows, approves or rejects one."""
    word, _, rest = given.partition(" ")
    match word:
        case "":
            await _list(talk)
        case "approve":
            await _approve(talk, _chosen(talk, rest))
        case "reject":
            number, _, why = rest.strip().partition(" ")
            await _reject(talk, _chosen(talk, number), why.strip())
        case _:
            _show(talk, _chosen(talk, word))


async def _list(talk: ChatClient) -> None:
    page = value_of(ProposalPage, await talk.client.get("/memory/proposals", limit=_LISTED))
    talk.proposals = page.proposals
    if not page.proposals:
        out.print("Nothing waits for a decision.")
        return
    table = Table("", "to", "kind", "by", "what")
    for place, one in enumerate(page.proposals, 1):
        title = Text(one_line(one.memory.title, 70))
        table.add_row(str(place), safe(one.action), safe(one.memory.kind), safe(one.by), title)
    out.print(table)
    more = " There are more: decide these first." if page.next else ""
    out.print(f"/memory N shows one whole, /memory approve N and /memory reject N decide.{more}", markup=False)


def _show(talk: ChatClient, one: Proposal) -> None:
    print_proposal(one)
    talk.shown.add(one.digest)


async def _approve(talk: ChatClient, one: Proposal) -> None:
    if one.digest not in talk.shown:
        _show(talk, one)
        out.print("Say it again to approve exactly this.")
        return
    asked = {"proposal": one.id, "digest": one.digest}
    made = value_of(ApprovalResult, await talk.client.post("/memory/proposals/approve", asked))
    out.print(safe(f"remembered: {made.memory}"), markup=False, soft_wrap=True)


async def _reject(talk: ChatClient, one: Proposal, why: str) -> None:
    asked = {"proposal": one.id, **({"reason": why} if why else {})}
    value_of(StoredEvent, await talk.client.post("/memory/proposals/reject", asked))
    out.print(safe(f"rejected: {one.id}"), markup=False)


def _chosen(talk: ChatClient, text: str) -> Proposal:
    digits = text.strip()
    place = int(digits) if digits.isascii() and digits.isdigit() else 0
    if not 1 <= place <= len(talk.proposals):
        raise InputError("give the number of a proposal, as /memory lists them")
    return talk.proposals[place - 1]


_HITS = 8
_MAX_LISTED = 50
_MARKS: Mapping[str, Mark] = {str(mark.name).lower(): mark for mark in Mark}


class Quit(Exception):  # no error
    """The conversation is over."""


async def _nothing(talk: ChatClient) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slash:
    """A command of the chat."""

    name: str
    takes: str = ""
    says: str
    does: Callable[[ChatClient, str], Awaitable[None]]
    offers: Callable[[ChatClient], Awaitable[Sequence[str]]] = _nothing
    """What its argument may be, for completion."""

    @property
    def usage(self) -> str:
        """As it is typed."""
        return f"/{self.name} {self.takes}".rstrip()


def find(typed: str) -> tuple[Slash, str]:
    """The command that a line means, and what it is given. Raises `InputError` with the nearest one."""
    words = typed.removeprefix("/").split(maxsplit=2)
    for length in (2, 1):
        name = " ".join(words[:length])
        if len(words) >= length and name in COMMANDS:
            return COMMANDS[name], typed.removeprefix("/").split(maxsplit=length)[-1] if len(words) > length else ""
    near = get_close_matches(words[0] if words else "", {name.split()[0] for name in COMMANDS}, n=1, cutoff=0.5)
    hint = f"did you mean /{near[0]}?" if near else "/help lists them."
    first = f"/{words[0]}" if words else "/"
    raise InputError(f"there is no command {one_line(first, 40)}; {hint} A message may begin with a space and a /")


async def _show_context(talk: ChatClient, given: str) -> None:
    print_list(await talk.ask(Report, "/session/context"))


async def _detail(talk: ChatClient, given: str) -> None:
    report = await talk.ask(Report, "/session/context")
    seqs = [one.seq for one in report.largest if one.seq is not None]
    entries = await asyncio.gather(*(talk.ask(FullEntry, "/session/entry", seq=seq) for seq in seqs))
    texts = {entry.seq: entry.text for entry in entries}
    print_detail(report, lambda seq: texts.get(seq, ""))


async def _recall(talk: ChatClient, given: str) -> None:
    if not given:
        raise InputError("say what to look for: /recall which port did we choose")
    from recto.recall.stemmer import PorterLexicon  # noqa: PLC0415  # only for who looks for something

    found = await talk.change(RecallResult, "/session/recall", query=given, most=_HITS)
    print_found(_found(found), None, PorterLexicon())


async def _read(talk: ChatClient, given: str) -> None:
    if given.startswith("recto://"):
        key, seq = parse_pointer(given)
        entry = await talk.ask(FullEntry, "/session/entry", session=session_in(key), seq=seq)
    else:
        entry = await talk.ask(FullEntry, "/session/entry", seq=_seq(given))
    print_whole(entry, entry.text)


async def _pin(talk: ChatClient, given: str) -> None:
    seqs = [_seq(one) for one in given.split() or [""]]
    made = await talk.change(StoredEvent, "/session/pins", entries=seqs)
    out.print(f"pinned: {_several(seqs)} (entry {made.seq})", markup=False)


async def _unpin(talk: ChatClient, given: str) -> None:
    for seq in [_seq(one) for one in given.split() or [""]]:
        await talk.client.delete("/session/pins", session=talk.session, seq=seq)
        out.print(f"entry {seq} may leave again", markup=False)


async def _compact(talk: ChatClient, given: str) -> None:
    made = await talk.change(CompactionResult, "/session/compact", **({"focus": given} if given else {}))
    for one in made.compressions:
        print_compression(one)
    for decided in made.decisions:
        out.print(f"'/restore {decided.seq}' undoes it", markup=False)
    if not made.decisions:
        out.print("Nothing to compact: what is older than the newest messages is not worth a summary.")


async def _restore(talk: ChatClient, given: str) -> None:
    decision = _seq(given) if given else await _newest(talk)
    made = await talk.change(StoredEvent, "/session/restore", decision=decision)
    out.print(f"entry {decision} is undone (entry {made.seq}); '/context list' shows the prompt", markup=False)


async def _newest(talk: ChatClient) -> int:
    found = [one.seq for one in (await _decisions(talk)).decisions if not one.undone]
    if not found:
        raise InputError("there is no decision that could be undone; '/context detail' lists them")
    return found[0]


async def _note(talk: ChatClient, given: str) -> None:
    kind, _, text = given.partition(" ")
    if kind not in NOTE_KINDS or not text.strip():
        raise InputError(f"a note has a kind and a text: /note constraints Never touch migrations/. {_kinds()}")
    made = await talk.change(StoredEvent, "/session/notes", kind=kind, text=text.strip())
    out.print(f"kept as entry {made.seq}", markup=False)


async def _checkpoint(talk: ChatClient, given: str) -> None:
    made = await talk.change(SavedCheckpoint, "/session/checkpoints")
    handoff = await talk.ask(FullEntry, "/session/entry", seq=made.seq + 1)
    try:
        text = str(json.loads(handoff.content)["text"])
    except (ValueError, KeyError, TypeError):
        text = handoff.text
    out.print(Text(safe(text)), soft_wrap=True)
    out.print(f"version {made.version}, entry {made.seq}", markup=False)


async def _health(talk: ChatClient, given: str) -> None:
    print_health(await talk.ask(HealthReport, "/session/health"))


async def _sessions(talk: ChatClient, given: str) -> None:
    page = await talk.ask(SessionPage, "/sessions", session=None, limit=_MAX_LISTED, after=given or None)
    rows = [
        SessionSummary(session=one.session, entries=one.entries, first_ts=one.first_ts, last_ts=one.last_ts)
        for one in page.sessions
    ]
    print_sessions(rows, talk.session)
    if page.next:
        out.print(f"There are more: /sessions {safe(page.next)}", markup=False, soft_wrap=True)


async def _session(talk: ChatClient, given: str) -> None:
    if given:
        await talk.go_to(given)
    entries = f"{talk.now.entries:,} entries" if talk.now else "nothing was said in it yet"
    out.print(f"session {safe(talk.session)}: {entries}", markup=False, soft_wrap=True)


async def _model(talk: ChatClient, given: str) -> None:
    if given:
        talk.model = given
    others = [one for one in talk.models if one != talk.model]
    more = f"; there are also {', '.join(others[:20])}" if others else ""
    out.print(safe(f"model {talk.model}{more}"), markup=False, soft_wrap=True)


async def _help(talk: ChatClient, given: str) -> None:
    table = Table("command", "does", box=None)
    for one in COMMANDS.values():
        table.add_row(Text(one.usage, "bold"), one.says)
    out.print(table)
    out.print("Enter sends; Alt+Enter, Ctrl-J or a \\ at the end begins a new line. Ctrl-C cancels an answer.")


async def _quit(talk: ChatClient, given: str) -> None:
    raise Quit


async def _decisions(talk: ChatClient) -> DecisionPage:
    return await talk.ask(DecisionPage, "/session/decisions", limit=_MAX_LISTED)


async def _undoable(talk: ChatClient) -> Sequence[str]:
    return [str(one.seq) for one in (await _decisions(talk)).decisions if not one.undone]


async def _pinned(talk: ChatClient) -> Sequence[str]:
    return [str(one.seq) for one in (await talk.ask(PinList, "/session/pins")).pins]


async def _names(talk: ChatClient) -> Sequence[str]:
    return [one.session for one in (await talk.ask(SessionPage, "/sessions", session=None, limit=200)).sessions]


async def _models(talk: ChatClient) -> Sequence[str]:
    return talk.models


async def _note_kinds(talk: ChatClient) -> Sequence[str]:
    return NOTE_KINDS


async def _memory_words(talk: ChatClient) -> Sequence[str]:
    return ["approve", "reject", *(str(place) for place in range(1, len(talk.proposals) + 1))]


def _seq(text: str) -> int:
    digits = text.strip().removeprefix("#")
    if not (digits.isascii() and digits.isdigit() and int(digits)):
        raise InputError("give the number of an entry, as /context detail and /recall show it")
    return int(digits)


def _several(seqs: Sequence[int]) -> str:
    return ", ".join(f"entry {seq}" for seq in seqs)


def _kinds() -> str:
    return f"Kinds are {', '.join(NOTE_KINDS)}."


def _found(told: RecallResult) -> SearchResult:
    """What recall found, as the engine has it."""
    return SearchResult(
        query=told.query,
        scope=told.scope,
        hits=tuple(map(_hit, told.hits)),
        searched=told.searched,
        behind=told.behind,
        without_vectors=told.without_vectors,
        notes=told.notes,
    )


def _hit(told: RecallHit) -> Hit:
    if told.role not in get_args(Role):
        raise RequestRefused(502, "unexpected", "the gateway tells of a role that nobody knows")
    marks = Mark.NONE
    for name in told.marks:
        marks |= _MARKS.get(name, Mark.NONE)
    return Hit(
        session=told.session,
        seq=told.seq,
        pointer=told.pointer,
        role=cast(Role, told.role),
        ts=told.ts,
        text=told.text,
        score=told.score,
        chance=told.chance,
        parts=told.parts,
        marks=marks,
        in_prompt=told.in_prompt,
        superseded_by=told.superseded_by,
        supersedes=told.supersedes,
        note=told.note,
        context=told.context,
    )


COMMANDS: Mapping[str, Slash] = {
    one.name: one
    for one in (
        Slash(name="context list", says="where the tokens of the prompt go", does=_show_context),
        Slash(name="context detail", says="the largest holders, and the decisions", does=_detail),
        Slash(name="context", says="the same as /context list", does=_show_context),
        Slash(name="recall", takes="QUERY", says="searches everything that was said", does=_recall),
        Slash(name="read", takes="SEQ", says="shows an entry, whole", does=_read),
        Slash(name="pin", takes="SEQ…", says="keeps messages in the prompt", does=_pin),
        Slash(name="unpin", takes="SEQ…", says="lets them leave again", does=_unpin, offers=_pinned),
        Slash(name="compact", takes="[FOCUS]", says="makes the prompt smaller now", does=_compact),
        Slash(name="restore", takes="[SEQ]", says="undoes a decision, or the newest", does=_restore, offers=_undoable),
        Slash(name="note", takes="KIND TEXT", says="writes something down", does=_note, offers=_note_kinds),
        Slash(name="checkpoint", says="writes down where the work stands", does=_checkpoint),
        Slash(
            name="memory",
            takes="[N | approve N | reject N [WHY]]",
            says="what might be remembered, and what shall be",
            does=memory,
            offers=_memory_words,
        ),
        Slash(name="health", says="how the last turns went", does=_health),
        Slash(name="sessions", says="lists the sessions", does=_sessions),
        Slash(name="session", takes="[NAME]", says="goes on in another session", does=_session, offers=_names),
        Slash(name="model", takes="[NAME]", says="asks another model", does=_model, offers=_models),
        Slash(name="help", says="this", does=_help),
        Slash(name="quit", says="leaves; Ctrl-D too", does=_quit),
    )
}
