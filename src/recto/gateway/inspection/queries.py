"""The inspection API's questions: each finds what a key may see, and asks the engine. Nothing is stored by any of them.

A session that is not there, one of another tenant and one that nobody can name are the same: not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from recto.config import Settings
from recto.context.window.report import Report
from recto.continuity.checkpoints.checkpoint import Checkpoint
from recto.continuity.checkpoints.schema import checkpoint_from
from recto.continuity.memory.manager import Memories, Remembered
from recto.continuity.memory.model import strength
from recto.engine.audit import audited_back
from recto.engine.gauge import pressure_of
from recto.engine.monitor import composition_in
from recto.engine.pagination import (
    DecisionPage,
    EntryPage,
    EntryPositions,
    decisions_before,
    entries_from,
)
from recto.engine.projection import CHECKPOINT, checkpoint_key
from recto.engine.prompt_diff import Comparison, compare, prompt_after
from recto.engine.report import preview
from recto.engine.session import Session
from recto.engine.timeline import Timeline, timeline
from recto.engine.views.models import (
    AuditPage,
    Caller,
    CheckpointListItem,
    CheckpointPage,
    FullEntry,
    MemoryListItem,
    MemoryPage,
    NoteList,
    PinList,
    PromptView,
    ProposalPage,
    RecallResult,
    SessionListItem,
    SessionOverview,
    SessionPage,
    recall_result,
)
from recto.errors import InputError, RequestRefused
from recto.formats.entry_text import text_of
from recto.gateway.api_keys import RIGHTS
from recto.gateway.inspection.params import ParsedCall
from recto.gateway.session_pool import SessionPool
from recto.health.trends import HealthReport
from recto.transcript.audit import AuditFilter
from recto.transcript.entries import Entry, SessionSummary
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import agent_of, is_memory_session, session_in
from recto.transcript.tenancy import TenantStore
from recto.version import __version__

_MOST_PINS = 200
_GOAL = 200
"""Characters of a goal in a list."""
_MODEL_REACH = 64
"""Entries back in which it is looked for which model was asked last."""


def not_there(what: str, where: str) -> RequestRefused:
    """The answer for what is not there, or not for this key: it says nothing of what was asked for."""
    return RequestRefused(404, "not_found", f"there is no such {what}; {where} lists what there is")


class Inspection:
    """What the API is asked about: the gateway's sessions, and the settings they are opened with."""

    def __init__(self, sessions: SessionPool, settings: Settings) -> None:
        self.sessions = sessions
        self.settings = settings

    @contextmanager
    def opened(self, call: ParsedCall) -> Iterator[Session]:
        """The session a request is about, as the model sees it that was asked last. It must be there."""
        store, stored = self.sessions.view(call.key), self.stored(call)
        with self.sessions.use(call.key, store.name(stored), self.model_of(store, stored)) as session:
            yield session

    def over(self, store: TranscriptStore) -> Inspection:
        """The same questions about another store with the same sessions."""
        return Inspection(self.sessions.over(store), self.settings)

    def named(self, call: ParsedCall) -> str:
        """The key under which the session would be stored that a request is about; empty where there is none."""
        try:
            return self.sessions.view(call.key).key(call.session) if "session" in call.query else ""
        except InputError:
            return ""

    def stored(self, call: ParsedCall) -> str:
        """The stored key of the session a request is about. It must be there."""
        key = self.named(call)
        if not key or not self.sessions.view(call.key).head(key).seq:
            raise not_there("session", "GET /api/v1/sessions")
        return key

    def entry(self, session: Session, seq: int) -> Entry:
        """An entry that must be there."""
        found = next(iter(session.read(seq, seq)), None)
        if found is None:
            raise not_there("entry", "GET /api/v1/session/transcript")
        return found

    def memories(self, call: ParsedCall) -> Memories:
        """The memory of an agent: the one that is named, else the key's."""
        return self.sessions.memories(call.key, call.query["agent"])

    def model_of(self, store: TenantStore, stored: str) -> str:
        """The model that a session was last asked with; empty where nobody knows."""
        recent = (composition_in(entry) for entry in reversed(store.tail(stored, _MODEL_REACH)))
        model = next((about.get("model") for about in recent if about), "")
        return model if isinstance(model, str) else ""


def asker(on: Inspection, call: ParsedCall) -> Caller:
    """The key that asks, and what it may do here."""
    key = call.key
    return Caller(
        name=key.name,
        id=key.id,
        rights=tuple(right for right in RIGHTS if right in key.rights),
        tenant=key.tenant,
        agent=key.agent,
        main=f"agent:{key.agent}:main",
        model=on.settings.model,
        version=__version__,
    )


def sessions(on: Inspection, call: ParsedCall) -> SessionPage:
    """A page of the key's tenant's sessions."""
    limit: int = call.query["limit"]
    store = on.sessions.view(call.key)
    found = store.sessions(store.prefix + call.query["after"], limit + 1)
    shown = tuple(_line(one) for one in found[:limit])
    return SessionPage(sessions=shown, next=shown[-1].session if len(found) > limit else None)


def _line(one: SessionSummary) -> SessionListItem:
    return SessionListItem(
        session=session_in(one.session),
        kind="memory" if is_memory_session(one.session) else "conversation",
        entries=one.entries,
        first_ts=one.first_ts,
        last_ts=one.last_ts,
    )


def session(on: Inspection, call: ParsedCall) -> SessionOverview:
    """One session, in short."""
    with on.opened(call) as found:
        window = found.window
        with window.lock:
            state = window.state
            reading = pressure_of(state, window.builder_for(), window.rules, window.budget.input_budget)
        first, last = next(iter(found.read(1, 1))), found.tail(1)[-1]
        return SessionOverview(
            session=session_in(found.key),
            kind="memory" if is_memory_session(found.key) else "conversation",
            entries=last.seq,
            first_ts=first.ts,
            last_ts=last.ts,
            hash=last.hash.hex(),
            model=window.rules.card.name if window.rules.card else "",
            reading=reading,
            messages=len(state.messages),
            left_messages=state.evicted_messages,
            left_tokens=state.evicted_tokens,
            pins=len(state.pins),
            notes=len(state.notes),
            checkpoints=state.checkpoints,
            windows=state.windows,
        )


def transcript(on: Inspection, call: ParsedCall) -> EntryPage:
    """A page of the transcript."""
    asked = call.query
    with on.opened(call) as found:
        newest = asked["order"] == "desc"
        return entries_from(found.window, asked["from"], limit=asked["limit"], newest_first=newest, words=asked["q"])


def entry(on: Inspection, call: ParsedCall) -> FullEntry:
    """One entry, all of it."""
    with on.opened(call) as session:
        found = on.entry(session, call.query["seq"])
    return FullEntry(
        seq=found.seq,
        id=found.id,
        ts=found.ts,
        role=found.role,
        kind=found.kind,
        wire=found.wire,
        surface=found.surface,
        tokens=found.tokens,
        counter=found.counter,
        text=text_of(found),
        content=found.content.decode(errors="replace"),
        meta=found.meta.decode(errors="replace"),
        prev=found.prev.hex(),
        hash=found.hash.hex(),
    )


def context(on: Inspection, call: ParsedCall) -> Report:
    """What the next prompt would be made of, and what would not be in it."""
    with on.opened(call) as found:
        return replace(found.report(), session=session_in(found.key))


def timeline_of(on: Inspection, call: ParsedCall) -> Timeline:
    """How full the prompt was over time."""
    with on.opened(call) as found:
        return timeline(found.window, call.query["from"], limit=call.query["limit"])


def decisions(on: Inspection, call: ParsedCall) -> DecisionPage:
    """A page of decisions, newest first."""
    asked = call.query
    with on.opened(call) as found:
        return decisions_before(found.window, asked["from"], limit=asked["limit"], scores=asked["scores"])


def recall(on: Inspection, call: ParsedCall) -> RecallResult:
    """Searches everything that was ever said, and explains what it finds."""
    asked = call.body
    with on.opened(call) as found:
        return recall_result(found.recall(asked["query"], most=asked["most"], scope=asked["scope"]))


def pins(on: Inspection, call: ParsedCall) -> PinList:
    """What is kept in the prompt by hand."""
    with on.opened(call) as found:
        with found.window.lock:
            pinned = sorted(found.window.state.pins)
        places = EntryPositions(found.window)
        entries = [next(iter(found.read(seq, seq)), None) for seq in pinned[:_MOST_PINS]]
        shown = tuple(places.show(one) for one in entries if one is not None)
        return PinList(pins=shown, more=len(pinned) > _MOST_PINS)


def notes(on: Inspection, call: ParsedCall) -> NoteList:
    """What was written down."""
    with on.opened(call) as found, found.window.lock:
        return NoteList(notes=found.notes)


def checkpoints(on: Inspection, call: ParsedCall) -> CheckpointPage:
    """A page of checkpoints, newest first."""
    with on.opened(call) as found:
        with found.window.lock:
            newest = found.window.continuity.version()
        first, limit = min(call.query["from"] or newest, newest), call.query["limit"]
        lines = [_checkpoint_line(found, version) for version in range(first, max(first - limit, 0), -1)]
    following = first - limit
    return CheckpointPage(
        checkpoints=tuple(one for one in lines if one is not None), next=following if following > 0 else None
    )


def _checkpoint_line(found: Session, version: int) -> CheckpointListItem | None:
    kept = found.store.find(found.key, checkpoint_key(version))
    if kept is None or kept.kind != CHECKPOINT:
        return None
    made = checkpoint_from(kept.content, source=f"entry {kept.seq}")
    return CheckpointListItem(version=version, seq=kept.seq, ts=kept.ts, reason=made.reason, goal=made.goal[:_GOAL])


def checkpoint(on: Inspection, call: ParsedCall) -> Checkpoint:
    """One checkpoint, all of it."""
    with on.opened(call) as found:
        kept = found.store.find(found.key, checkpoint_key(call.query["version"]))
        if kept is None or kept.kind != CHECKPOINT:
            raise not_there("checkpoint", "GET /api/v1/session/checkpoints")
        return replace(checkpoint_from(kept.content, source=f"entry {kept.seq}"), session=session_in(found.key))


def audited(on: Inspection, call: ParsedCall) -> AuditPage:
    """A page of what was done to a session, newest first."""
    key, start = on.stored(call), call.query["from"]
    kinds = (call.query["kind"],) if call.query["kind"] else ()
    asked = AuditFilter(newest=True, kinds=kinds, past=None if start is None else start + 1)
    lines, following = audited_back(on.sessions.view(call.key), key, asked, limit=call.query["limit"])
    name = session_in(key)
    return AuditPage(lines=tuple(replace(line, session=name) for line in lines), next=following or None)


def health(on: Inspection, call: ParsedCall) -> HealthReport:
    """How the last turns went, where that is heading, and what should be looked at."""
    with on.opened(call) as found:
        report = found.health(call.query["turns"])
    name = session_in(report.session)
    return replace(report, session=name, alerts=tuple(replace(one, session=name) for one in report.alerts))


def memory(on: Inspection, call: ParsedCall) -> MemoryPage:
    """A page of what an agent remembers."""
    known = on.memories(call)
    now = known.clock.now()
    held = {one.memory.id: one for one in known.remembered(retired=call.query["retired"])}
    page, following = _page(list(held), call.query)
    lines = tuple(_memory_line(held[id], now) for id in page)
    return MemoryPage(agent=agent_of(known.home), memories=lines, next=following)


def proposals(on: Inspection, call: ParsedCall) -> ProposalPage:
    """A page of what waits for a decision."""
    known = on.memories(call)
    waiting = {one.id: one for one in known.proposals()}
    page, following = _page(list(waiting), call.query)
    return ProposalPage(agent=agent_of(known.home), proposals=tuple(waiting[id] for id in page), next=following)


def _page(ids: list[str], query: Any) -> tuple[list[str], str | None]:  # noqa: ANN401  # parameters as they were read
    after, limit = query["after"], query["limit"]
    rest = sorted(id for id in ids if id > after)
    return rest[:limit], rest[limit - 1] if len(rest) > limit else None


def _memory_line(one: Remembered, now: int) -> MemoryListItem:
    return MemoryListItem(
        memory=one.memory,
        strength=round(strength(one.memory, now), 4),
        approved_by=one.approved_by,
        how=one.how,
        approved=one.approved,
        edited=one.edited,
        retired=one.retired,
    )


def prompt(on: Inspection, call: ParsedCall) -> PromptView:
    """What would be sent now, or the prompt as it stood after an entry."""
    at: int | None = call.query["at"]
    with on.opened(call) as found:
        built = preview(found.window) if at is None else prompt_after(found.window, on.entry(found, at).seq)
        room = found.window.budget.input_budget
    return PromptView(
        wire=built.wire,
        tokens=built.tokens,
        room=room,
        fits=built.tokens <= room,
        system=tuple(json.loads(raw) for raw in built.system),
        messages=tuple(json.loads(raw) for raw in built.messages),
        costs=built.costs,
    )


def comparison(on: Inspection, call: ParsedCall) -> Comparison:
    """Two prompts of a session side by side, as they stood after two entries."""
    with on.opened(call) as found:
        first, second = (on.entry(found, call.query[name]).seq for name in ("first", "second"))
        return compare(found.window, first, second)
