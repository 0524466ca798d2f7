"""Read operations of the inspection API: each finds what the key may see and returns a result. None stores anything.

A missing session, a session of another tenant and an invalid name get the same error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from msgspec import structs

from recto.config import Settings
from recto.config.factory import SystemClock
from recto.config.loader import Layer
from recto.config.sources import all_settings, one_line_yaml
from recto.context.window.report import Report
from recto.context.work import CommandHistory, ErrorHistory, FileHistory, NumberHistory
from recto.continuity.checkpoints.checkpoint import Checkpoint, checkpoint_from
from recto.continuity.memory.manager import Memories
from recto.engine.audit import audit_page, check_kinds
from recto.engine.decision_view import DecisionView, decision_view
from recto.engine.exporter import export_part
from recto.engine.pagination import EntryPositions, decision_page, entry_page
from recto.engine.projection import CHECKPOINT, DECISIONS, checkpoint_key
from recto.engine.prompt_diff import Comparison, compare, prompt_after
from recto.engine.report import current_reading, preview
from recto.engine.runs import last_model, requested_model
from recto.engine.session import Session
from recto.engine.timeline import Timeline, timeline
from recto.engine.titles import titles_of
from recto.engine.views.models import (
    AuditPage,
    Caller,
    CheckpointListItem,
    CheckpointPage,
    DecisionPage,
    EntryPage,
    ExportPage,
    FullEntry,
    GrepPage,
    KeyItem,
    KeyList,
    MemoryPage,
    NoteList,
    OutlinePage,
    PinList,
    PromptView,
    ProposalPage,
    RecallResult,
    SessionOverview,
    SessionPage,
    SettingItem,
    SettingList,
    full_entry,
    memory_item,
    recall_result,
    session_kind,
    session_page,
)
from recto.engine.window_view import EntryHistory, WindowView, entry_history, next_state, window_view
from recto.errors import InputError, RequestRefused
from recto.gateway.api_keys import RIGHTS
from recto.gateway.inspection.params import ParsedCall
from recto.gateway.session_pool import SessionPool
from recto.health.trends import HealthReport
from recto.transcript.audit import AuditFilter
from recto.transcript.entries import MAX_SEQ, Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import TenantStore, agent_of, session_in
from recto.transcript.sources import sources_of
from recto.version import __version__

_MAX_PINS = 200
_MAX_GOAL = 200
"""Characters of a goal in a list."""


def not_found(what: str, where: str) -> RequestRefused:
    """The error for what does not exist or belongs to another tenant; it does not say which of the two."""
    return RequestRefused(404, "not_found", f"there is no such {what}; {where} lists what there is")


class Inspection:
    """What operations work on: the gateway's sessions, and the settings they are opened with."""

    def __init__(self, sessions: SessionPool, settings: Settings, layers: Sequence[Layer] = ()) -> None:
        self.sessions = sessions
        self.settings = settings
        self.layers = layers
        """Where the settings come from."""

    @contextmanager
    def open_session(self, call: ParsedCall) -> Iterator[Session]:
        """Open the session of a request, measured by the model that was used last. It must exist."""
        store, key = self.sessions.view(call.key), self.require_session(call)
        with self.sessions.use(call.key, store.name(key), last_model(store, key)) as session:
            yield session

    def over(self, store: TranscriptStore) -> Inspection:
        """The same operations on another store with the same sessions."""
        return Inspection(self.sessions.over(store), self.settings, self.layers)

    def session_key(self, call: ParsedCall) -> str:
        """The stored key of the session that a request names; empty where it names none."""
        try:
            return self.sessions.view(call.key).key(call.session) if "session" in call.query else ""
        except InputError:
            return ""

    def require_session(self, call: ParsedCall) -> str:
        """The stored key of the session that a request names. It must exist."""
        key = self.session_key(call)
        if not key or not self.sessions.view(call.key).head(key).seq:
            raise not_found("session", "GET /api/v1/sessions")
        return key

    def require_entry(self, session: Session, seq: int) -> Entry:
        """An entry that must exist."""
        entry = next(iter(session.read(seq, seq)), None)
        if entry is None:
            raise not_found("entry", "GET /api/v1/session/transcript")
        return entry

    def memories(self, call: ParsedCall) -> Memories:
        """The memory of the named agent, or of the key's agent."""
        return self.sessions.memories(call.key, call.query["agent"])


def asker(inspection: Inspection, call: ParsedCall) -> Caller:
    """The key that asks, and what it may do here."""
    key, store = call.key, inspection.sessions.view(call.key)
    main = f"agent:{key.agent}:main"
    return Caller(
        name=key.name,
        id=key.id,
        rights=tuple(right for right in RIGHTS if right in key.rights),
        tenant=key.tenant,
        agent=key.agent,
        main=main,
        newest="" if store.head(store.key(main)).seq else _newest_conversation(store),
        model=inspection.settings.model,
        version=__version__,
    )


def _newest_conversation(store: TenantStore) -> str:
    """The name of the session with the newest entry, those of durable memory left out; empty if there is none."""
    sessions = [summary for summary in store.sessions() if session_kind(summary.session) == "conversation"]
    return store.name(max(sessions, key=lambda summary: summary.last_ts).session) if sessions else ""


def keys(inspection: Inspection, call: ParsedCall) -> KeyList:
    """The keys of the key's tenant: rights, limits, and what was used today. Never a secret."""
    now = SystemClock().now()
    return KeyList(
        keys=tuple(
            KeyItem(
                id=key.id,
                name=key.name,
                rights=tuple(right for right in RIGHTS if right in key.rights),
                agent=key.agent,
                state="revoked" if key.revoked else "live" if key.is_live(now) else "expired",
                expires=key.expires,
                requests_per_minute=key.requests_per_minute,
                concurrency=key.concurrency,
                tokens_per_day=key.tokens_per_day,
                dollars_per_day=key.dollars_per_day,
                tokens_today=spent.tokens,
                dollars_today=spent.dollars,
                new_windows=key.new_windows,
            )
            for key, spent in inspection.sessions.keys_of(call.key)
        )
    )


def settings(inspection: Inspection, call: ParsedCall) -> SettingList:
    """The settings of the gateway with the source of each value, for keys without a tenant. Secrets are never shown."""
    if call.key.tenant:
        return SettingList(settings=())
    return SettingList(
        settings=tuple(
            SettingItem(
                key=setting.key,
                value=one_line_yaml(setting.value),
                origin=setting.origin,
                where=f"{setting.where}, line {setting.line}" if setting.line else setting.where,
            )
            for setting in all_settings(inspection.settings, inspection.layers)
        )
    )


def sessions(inspection: Inspection, call: ParsedCall) -> SessionPage:
    """A page of the key's tenant's sessions."""
    limit: int = call.query["limit"]
    store = inspection.sessions.view(call.key)
    summaries = store.sessions(store.prefix + call.query["after"], limit + 1)
    shown = [summary.session for summary in summaries[:limit]]
    own = f"agent:{call.key.agent}:main"
    return session_page(summaries, titles_of(store, shown), sources_of(store, shown), limit=limit, own=own)


def session(inspection: Inspection, call: ParsedCall) -> SessionOverview:
    """One session, in short."""
    with inspection.open_session(call) as opened:
        window = opened.window
        with window.lock:
            state = next_state(window)
            reading = current_reading(window)
        first, last = next(iter(opened.read(1, 1))), opened.tail(1)[-1]
        return SessionOverview(
            session=session_in(opened.key),
            title=opened.title,
            kind=session_kind(opened.key),
            entries=last.seq,
            first_ts=first.ts,
            last_ts=last.ts,
            hash=last.hash.hex(),
            model=window.rules.card.name if window.rules.card else "",
            requested_model=requested_model(opened.store, opened.key),
            upstream=inspection.sessions.upstream_of(window.rules.card.name if window.rules.card else "", call.key),
            reading=reading,
            messages=len(state.messages),
            left_messages=state.evicted_messages,
            left_tokens=state.evicted_tokens,
            pins=len(state.pins),
            notes=len(state.notes),
            checkpoints=state.checkpoints,
            windows=state.windows,
        )


def export(inspection: Inspection, call: ParsedCall) -> ExportPage:
    """A part of the session as Recto's JSONL, which `recto import` reads."""
    key = inspection.require_session(call)
    store, start = inspection.sessions.view(call.key), call.query["from"]
    through = min(call.query["through"] or MAX_SEQ, store.head(key).seq)
    stop = min(through, start + call.query["limit"] - 1)
    lines = tuple(line.decode().rstrip("\n") for line in export_part(store, key, start, stop, through))
    written = start - 1 + len(lines) - (start == 1)
    return ExportPage(lines=lines, through=through, next=written + 1 if written < through else None)


def transcript(inspection: Inspection, call: ParsedCall) -> EntryPage:
    """A page of the transcript."""
    query = call.query
    with inspection.open_session(call) as session:
        newest = query["order"] == "desc"
        return entry_page(session.window, query["from"], limit=query["limit"], newest_first=newest, words=query["q"])


def entry(inspection: Inspection, call: ParsedCall) -> FullEntry:
    """One entry, all of it."""
    with inspection.open_session(call) as session:
        return full_entry(inspection.require_entry(session, call.query["seq"]))


def context(inspection: Inspection, call: ParsedCall) -> Report:
    """What the last prompt was made of, or that of an earlier run; the next one, and what would not be in it."""
    with inspection.open_session(call) as session:
        return structs.replace(session.report(run=call.query["run"]), session=session_in(session.key))


def window(inspection: Inspection, call: ParsedCall) -> WindowView:
    """The window after an entry, or now: every block of the prompt and why it is there, and where the others are."""
    at: int | None = call.query["at"]
    with inspection.open_session(call) as session:
        return window_view(session.window, None if at is None else inspection.require_entry(session, at).seq)


def history(inspection: Inspection, call: ParsedCall) -> EntryHistory:
    """What became of an entry: where it is now, and the decisions that evicted or shortened it."""
    with inspection.open_session(call) as session:
        return entry_history(session.window, inspection.require_entry(session, call.query["seq"]).seq)


def timeline_of(inspection: Inspection, call: ParsedCall) -> Timeline:
    """How full the prompt was over time."""
    with inspection.open_session(call) as session:
        return timeline(session.window, call.query["from"], limit=call.query["limit"])


def decisions(inspection: Inspection, call: ParsedCall) -> DecisionPage:
    """A page of decisions, newest first."""
    query = call.query
    with inspection.open_session(call) as session:
        return decision_page(session.window, query["from"], limit=query["limit"], scores=query["scores"])


def decision(inspection: Inspection, call: ParsedCall) -> DecisionView:
    """One decision, with the messages that it evicted or shortened."""
    with inspection.open_session(call) as session:
        entry = inspection.require_entry(session, call.query["seq"])
        if entry.kind not in DECISIONS:
            raise not_found("decision", "GET /api/v1/session/decisions")
        return decision_view(session.window, entry.seq)


def recall(inspection: Inspection, call: ParsedCall) -> RecallResult:
    """Searches everything that was ever said, and explains what it finds."""
    body = call.body
    with inspection.open_session(call) as session:
        found = session.recall(
            body["query"],
            most=body["most"],
            scope=body["scope"],
            project=body["project"] or "",
            agent=body["agent"] or "",
        )
        return recall_result(found)


def grep(inspection: Inspection, call: ParsedCall) -> GrepPage:
    """Searches the lines of a transcript for a text or a regular expression."""
    query = call.query
    with inspection.open_session(call) as session:
        return session.transcript.grep(
            query["pattern"],
            query["from"],
            stop=query["to"],
            regex=query["regex"],
            case=query["case"],
            context=query["context"],
            newest_first=query["order"] == "desc",
            limit=query["limit"],
        )


def outline(inspection: Inspection, call: ParsedCall) -> OutlinePage:
    """A page of entries, each with its size and its first line."""
    query = call.query
    with inspection.open_session(call) as session:
        return session.transcript.outline(query["from"], limit=query["limit"], newest_first=query["order"] == "desc")


def work_file(inspection: Inspection, call: ParsedCall) -> FileHistory:
    """What was done with a file."""
    with inspection.open_session(call) as session:
        return session.work.file(call.query["file"], limit=call.query["limit"], before=call.query["before"])


def work_command(inspection: Inspection, call: ParsedCall) -> CommandHistory:
    """The runs of a command."""
    with inspection.open_session(call) as session:
        return session.work.command(call.query["text"], limit=call.query["limit"], before=call.query["before"])


def work_error(inspection: Inspection, call: ParsedCall) -> ErrorHistory:
    """Where an error came from and how it ended."""
    with inspection.open_session(call) as session:
        return session.work.error(call.query["text"], limit=call.query["limit"], before=call.query["before"])


def work_number(inspection: Inspection, call: ParsedCall) -> NumberHistory:
    """Numbers with units."""
    with inspection.open_session(call) as session:
        return session.work.number(call.query["text"], limit=call.query["limit"], before=call.query["before"])


def pins(inspection: Inspection, call: ParsedCall) -> PinList:
    """What is kept in the prompt by hand."""
    with inspection.open_session(call) as session:
        with session.window.lock:
            pinned = sorted(session.window.state.pins)
        positions = EntryPositions(session.window)
        entries = [next(iter(session.read(seq, seq)), None) for seq in pinned[:_MAX_PINS]]
        shown = tuple(positions.view(entry) for entry in entries if entry is not None)
        return PinList(pins=shown, more=len(pinned) > _MAX_PINS)


def notes(inspection: Inspection, call: ParsedCall) -> NoteList:
    """What was written down."""
    with inspection.open_session(call) as session, session.window.lock:
        return NoteList(notes=session.notes)


def checkpoints(inspection: Inspection, call: ParsedCall) -> CheckpointPage:
    """A page of checkpoints, newest first."""
    with inspection.open_session(call) as session:
        with session.window.lock:
            newest = session.window.continuity.version()
        first, limit = min(call.query["from"] or newest, newest), call.query["limit"]
        items = [_checkpoint_item(session, version) for version in range(first, max(first - limit, 0), -1)]
    next_version = first - limit
    return CheckpointPage(
        checkpoints=tuple(item for item in items if item is not None), next=next_version if next_version > 0 else None
    )


def _checkpoint_item(session: Session, version: int) -> CheckpointListItem | None:
    entry = session.store.find(session.key, checkpoint_key(version))
    if entry is None or entry.kind != CHECKPOINT:
        return None
    checkpoint = checkpoint_from(entry.content, source=f"entry {entry.seq}")
    return CheckpointListItem(
        version=version, seq=entry.seq, ts=entry.ts, reason=checkpoint.reason, goal=checkpoint.goal[:_MAX_GOAL]
    )


def checkpoint(inspection: Inspection, call: ParsedCall) -> Checkpoint:
    """One checkpoint, all of it."""
    with inspection.open_session(call) as session:
        entry = session.store.find(session.key, checkpoint_key(call.query["version"]))
        if entry is None or entry.kind != CHECKPOINT:
            raise not_found("checkpoint", "GET /api/v1/session/checkpoints")
        return structs.replace(
            checkpoint_from(entry.content, source=f"entry {entry.seq}"), session=session_in(session.key)
        )


def audit(inspection: Inspection, call: ParsedCall) -> AuditPage:
    """A page of what was done to a session, newest first."""
    key, start = inspection.require_session(call), call.query["from"]
    kinds = (call.query["kind"],) if call.query["kind"] else ()
    wanted = AuditFilter(newest=True, kinds=kinds, past=None if start is None else start + 1)
    lines, next_seq = audit_page(inspection.sessions.view(call.key), key, wanted, limit=call.query["limit"])
    check_kinds(kinds, lambda kind: bool(lines or next_seq or start))
    name = session_in(key)
    return AuditPage(lines=tuple(replace(line, session=name) for line in lines), next=next_seq or None)


def health(inspection: Inspection, call: ParsedCall) -> HealthReport:
    """How the last turns went, where that is heading, and what should be looked at."""
    with inspection.open_session(call) as session:
        report = session.health.report(call.query["turns"])
    name = session_in(report.session)
    return structs.replace(
        report, session=name, alerts=tuple(structs.replace(alert, session=name) for alert in report.alerts)
    )


def memory(inspection: Inspection, call: ParsedCall) -> MemoryPage:
    """A page of what an agent remembers."""
    memories = inspection.memories(call)
    now = memories.clock.now()
    by_id = {item.memory.id: item for item in memories.remembered(retired=call.query["retired"])}
    ids, next_id = _page(by_id, call.query)
    items = tuple(memory_item(by_id[id], now) for id in ids)
    return MemoryPage(agent=agent_of(memories.home), memories=items, next=next_id)


def proposals(inspection: Inspection, call: ParsedCall) -> ProposalPage:
    """A page of what waits for a decision."""
    memories = inspection.memories(call)
    by_id = {proposal.id: proposal for proposal in memories.proposals()}
    ids, next_id = _page(by_id, call.query)
    return ProposalPage(agent=agent_of(memories.home), proposals=tuple(by_id[id] for id in ids), next=next_id)


def _page(ids: Iterable[str], query: Mapping[str, Any]) -> tuple[list[str], str | None]:
    after, limit = query["after"], query["limit"]
    rest = sorted(id for id in ids if id > after)
    return rest[:limit], rest[limit - 1] if len(rest) > limit else None


def prompt(inspection: Inspection, call: ParsedCall) -> PromptView:
    """What would be sent now, or the prompt as it stood after an entry."""
    at: int | None = call.query["at"]
    with inspection.open_session(call) as session:
        window = session.window
        built = preview(window) if at is None else prompt_after(window, inspection.require_entry(session, at).seq)
        input_budget = window.budget.input_budget
    return PromptView(
        wire=built.wire,
        tokens=built.tokens,
        room=input_budget,
        fits=built.tokens <= input_budget,
        system=tuple(json.loads(raw) for raw in built.system),
        messages=tuple(json.loads(raw) for raw in built.messages),
        costs=built.costs,
    )


def comparison(inspection: Inspection, call: ParsedCall) -> Comparison:
    """Two prompts of a session side by side, as they stood after two entries."""
    with inspection.open_session(call) as session:
        first, second = (inspection.require_entry(session, call.query[name]).seq for name in ("first", "second"))
        return compare(session.window, first, second)
