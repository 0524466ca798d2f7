"""Everything that can be asked of the inspection API, in one table: path, right, parameters, and who answers.

Routes, rights and the API's description are made of it. Every path is fixed text: names of sessions hold `:` and may
hold `/`, which servers and proxies decode before anybody can look at a path, so they are given as a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from recto.context.window.notes import MAX_NOTE_CHARS, NOTE_KINDS
from recto.context.window.report import Report
from recto.continuity.checkpoints.checkpoint import Checkpoint
from recto.engine.pagination import DecisionPage, EntryPage
from recto.engine.prompt_diff import Comparison
from recto.engine.timeline import MOST, Timeline
from recto.engine.views import models
from recto.gateway.api_keys import Right
from recto.gateway.inspection import commands, queries
from recto.gateway.inspection.params import ChoiceParam, FlagParam, IntParam, Kinds, ParsedCall, Several, TextParam
from recto.gateway.inspection.queries import Inspection
from recto.gateway.middleware.auth import Rule
from recto.health.trends import HealthReport

PREFIX = "/api/v1"
DESCRIPTION = f"{PREFIX}/openapi.json"
STALENESS = "x-recto-staleness"
"""The header that says by how many seconds an answer may be old; one from the store itself has none."""

_SESSION = {
    "session": TextParam(about="The session, as it is named in GET /api/v1/sessions.", most=256, least=1, required=True)
}
_AGENT = {"agent": TextParam(about="The agent whose memory it is; without it, the key's own.", most=64)}
_FROM_NEWEST = {"from": IntParam(about="The entry to begin with, going back; without it, the newest.")}
_TEXTS = TextParam(about="One of them.", most=2_000, least=1)
_PROPOSAL = {"proposal": TextParam(about="The id of the proposal.", most=64, least=1, required=True)}


def _limit(usual: int, most: int) -> Kinds:
    return {"limit": IntParam(about="How many at most.", most=most, default=usual)}


def _set(about: str) -> Several:
    return Several(about=about, of=_TEXTS, most=50)


def _never(call: ParsedCall) -> bool:
    return False


def _always(call: ParsedCall) -> bool:
    return True


def _at_an_entry(call: ParsedCall) -> bool:
    return call.query["at"] is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Something that can be asked."""

    method: str
    path: str
    """Below the prefix."""
    right: Right
    does: Callable[[Inspection, ParsedCall], object]
    gives: type
    query: Kinds = field(default_factory=dict)
    body: Kinds | None = None
    of_the_past: Callable[[ParsedCall], bool] = _never
    """Whether a replica may answer that is a little behind."""

    @property
    def name(self) -> str:
        """What it is called in the description."""
        return f"{self.method.lower()}{''.join(part.title() for part in self.path.split('/'))}"


def _get(
    path: str,
    does: Callable[[Inspection, ParsedCall], object],
    gives: type,
    *query: Kinds,
    of_the_past: Callable[[ParsedCall], bool] = _never,
) -> Operation:
    merged = _merged(query)
    return Operation(
        method="GET", path=path, right="read", does=does, gives=gives, query=merged, of_the_past=of_the_past
    )


def _post(
    path: str,
    does: Callable[[Inspection, ParsedCall], object],
    gives: type,
    query: Kinds,
    body: Kinds,
    right: Right = "change",
) -> Operation:
    return Operation(method="POST", path=path, right=right, does=does, gives=gives, query=query, body=body)


def _merged(several: tuple[Kinds, ...]) -> Kinds:
    return {name: kind for one in several for name, kind in one.items()}


OPERATIONS: tuple[Operation, ...] = (
    _get("/asker", queries.asker, models.Caller),
    _get(
        "/sessions",
        queries.sessions,
        models.SessionPage,
        {"after": TextParam(about="Begin after the session with this name.", most=256)},
        _limit(50, 200),
        of_the_past=_always,
    ),
    _get("/session", queries.session, models.SessionOverview, _SESSION),
    _get(
        "/session/transcript",
        queries.transcript,
        EntryPage,
        _SESSION,
        {
            "from": IntParam(about="The entry to begin with; without it, the first in the order asked for."),
            "order": ChoiceParam(about="Oldest or newest first.", names=("asc", "desc"), default="asc"),
            "q": TextParam(about="Only entries whose text holds this; case is folded.", most=200),
        },
        _limit(50, 200),
        of_the_past=_always,
    ),
    _get(
        "/session/entry",
        queries.entry,
        models.FullEntry,
        _SESSION,
        {"seq": IntParam(about="Its number.", required=True)},
        of_the_past=_always,
    ),
    _get("/session/context", queries.context, Report, _SESSION),
    _get(
        "/session/prompt",
        queries.prompt,
        models.PromptView,
        _SESSION,
        {"at": IntParam(about="An entry: the prompt as it stood after it; without it, what would be sent now.")},
        of_the_past=_at_an_entry,
    ),
    _get(
        "/session/compare",
        queries.comparison,
        Comparison,
        _SESSION,
        {
            "first": IntParam(about="An entry: the first prompt is the one that stood after it.", required=True),
            "second": IntParam(about="An entry: the second prompt is the one that stood after it.", required=True),
        },
        of_the_past=_always,
    ),
    _get(
        "/session/timeline",
        queries.timeline_of,
        Timeline,
        _SESSION,
        {"from": IntParam(about="The entry to begin with; without it, so many before the end.")},
        _limit(MOST, MOST),
        of_the_past=_always,
    ),
    _get(
        "/session/decisions",
        queries.decisions,
        DecisionPage,
        _SESSION,
        _FROM_NEWEST,
        _limit(50, 200),
        {"scores": FlagParam(about="With every score that went into them.")},
        of_the_past=_always,
    ),
    _get(
        "/session/audit",
        queries.audited,
        models.AuditPage,
        _SESSION,
        _FROM_NEWEST,
        _limit(50, 200),
        {"kind": TextParam(about="Only events of this kind, or of this topic.", most=64)},
        of_the_past=_always,
    ),
    _get(
        "/session/health",
        queries.health,
        HealthReport,
        _SESSION,
        {"turns": IntParam(about="How many of the last turns.", most=500, default=20)},
    ),
    _post(
        "/session/recall",
        queries.recall,
        models.RecallResult,
        _SESSION,
        {
            "query": TextParam(about="What to look for.", most=4_000, least=1, required=True),
            "most": IntParam(about="How many hits at most.", most=50, default=10),
            "scope": ChoiceParam(
                about="How far to search; without it, as the settings say.", names=("session", "agent", "tenant")
            ),
        },
        right="read",
    ),
    _get("/session/pins", queries.pins, models.PinList, _SESSION),
    _post(
        "/session/pins",
        commands.pin,
        models.StoredEvent,
        _SESSION,
        {
            "entries": Several(
                about="Numbers of messages.", of=IntParam(about="A message."), most=100, least=1, required=True
            )
        },
    ),
    Operation(
        method="DELETE",
        path="/session/pins",
        right="change",
        does=commands.unpin,
        gives=models.StoredEvent,
        query={**_SESSION, "seq": IntParam(about="The message that may leave again.", required=True)},
    ),
    _post(
        "/session/restore",
        commands.restore,
        models.StoredEvent,
        _SESSION,
        {"decision": IntParam(about="The entry of the decision to undo.", required=True)},
    ),
    _post(
        "/session/redo",
        commands.redo,
        models.StoredEvent,
        _SESSION,
        {"restored": IntParam(about="The entry that undid a decision.", required=True)},
    ),
    _post(
        "/session/compact",
        commands.compact,
        models.CompactionResult,
        _SESSION,
        {"focus": TextParam(about="What the summary should keep above all.", most=500)},
    ),
    _get(
        "/session/checkpoints",
        queries.checkpoints,
        models.CheckpointPage,
        _SESSION,
        {"from": IntParam(about="The version to begin with, going back; without it, the newest.")},
        _limit(20, 50),
        of_the_past=_always,
    ),
    _post(
        "/session/checkpoints",
        commands.save,
        models.SavedCheckpoint,
        _SESSION,
        {
            "expect": IntParam(about="The newest version; any other refuses the change.", least=0),
            "goal": TextParam(about="The goal.", most=4_000),
            "success_criteria": _set("When it is done."),
            "plan": _set("Subtasks that are planned."),
            "doing": _set("Subtasks that are worked on."),
            "done": _set("Subtasks that are done."),
            "issues": _set("What is broken."),
            "solved": _set("Issues that are over."),
            "decisions": _set("What was decided."),
            "learnings": _set("What was learnt."),
        },
    ),
    _get(
        "/session/checkpoint",
        queries.checkpoint,
        Checkpoint,
        _SESSION,
        {"version": IntParam(about="Its version.", required=True)},
        of_the_past=_always,
    ),
    _get("/session/notes", queries.notes, models.NoteList, _SESSION),
    _post(
        "/session/notes",
        commands.note,
        models.StoredEvent,
        _SESSION,
        {
            "kind": ChoiceParam(about="What it is about.", names=NOTE_KINDS, required=True),
            "text": TextParam(about="The note.", most=MAX_NOTE_CHARS, least=1, required=True),
            "critical": FlagParam(about="Whether it is shown before all others."),
        },
    ),
    _get(
        "/memory",
        queries.memory,
        models.MemoryPage,
        _AGENT,
        {
            "after": TextParam(about="Begin after the memory with this id.", most=64),
            "retired": FlagParam(about="With what was retired."),
        },
        _limit(50, 100),
    ),
    _get(
        "/memory/proposals",
        queries.proposals,
        models.ProposalPage,
        _AGENT,
        {"after": TextParam(about="Begin after the proposal with this id.", most=64)},
        _limit(20, 50),
    ),
    _post(
        "/memory/proposals/approve",
        commands.approve,
        models.ApprovalResult,
        _AGENT,
        {
            **_PROPOSAL,
            "digest": TextParam(about="The SHA-256 of the bytes that were shown.", most=64, least=64, required=True),
        },
    ),
    _post(
        "/memory/proposals/reject",
        commands.reject,
        models.StoredEvent,
        _AGENT,
        {**_PROPOSAL, "reason": TextParam(about="Why; it is kept.", most=500)},
    ),
)
"""Everything that can be asked; the description of the API is made of it too."""

RULES: tuple[Rule, ...] = (
    Rule("GET", DESCRIPTION, "read"),
    *(Rule(one.method, PREFIX + one.path, one.right) for one in OPERATIONS),
)
"""The right that each of them needs, as the guard wants to know it."""
