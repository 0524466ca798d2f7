"""The operations of the inspection API in one table: path, right, parameters, handler and result.

Routes, access rules and the OpenAPI description are generated from it. Paths are fixed: session names contain `:` and
may contain `/`, which servers and proxies decode before routing, so a session is passed as a parameter.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from recto.context.window.report import Report
from recto.context.window.state import MAX_NOTE_CHARS, NOTE_KINDS, NOTE_LEVELS
from recto.context.work import CommandHistory, ErrorHistory, FileHistory, NumberHistory
from recto.continuity.checkpoints.checkpoint import Checkpoint
from recto.engine.decision_view import DecisionView
from recto.engine.prompt_diff import Comparison
from recto.engine.timeline import MAX_ENTRIES, Timeline
from recto.engine.titles import MAX_TITLE_CHARS
from recto.engine.transcript_search import MAX_CONTEXT
from recto.engine.views import models
from recto.engine.views.models import DecisionPage, EntryPage
from recto.engine.window_view import EntryHistory, WindowView
from recto.gateway.api_keys import Right
from recto.gateway.inspection import _commands, queries
from recto.gateway.inspection.params import (
    ChoiceParam,
    FlagParam,
    IntParam,
    ListParam,
    Params,
    ParsedCall,
    TextParam,
)
from recto.gateway.inspection.queries import Inspection
from recto.gateway.middleware.auth import Rule
from recto.health.trends import HealthReport
from recto.recall.types import VERDICTS
from recto.text.line_pattern import MAX_PATTERN_CHARS

PREFIX = "/api/v1"
DESCRIPTION = f"{PREFIX}/openapi.json"
STALENESS = "x-recto-staleness"
"""Response header: seconds that a result from a replica may be behind. Results from the store have none."""

_SESSION = {
    "session": TextParam(
        description="The session, as it is named in GET /api/v1/sessions.", maximum=256, minimum=1, required=True
    )
}
_AGENT = {"agent": TextParam(description="The agent whose memory it is; without it, the key's own.", maximum=64)}
_FROM_NEWEST = {"from": IntParam(description="The entry to begin with, going back; without it, the newest.")}
_TEXT = TextParam(description="One of them.", maximum=2_000, minimum=1)
_PROPOSAL = {"proposal": TextParam(description="The id of the proposal.", maximum=64, minimum=1, required=True)}


def _limit(default: int, maximum: int) -> Params:
    return {"limit": IntParam(description="How many at most.", maximum=maximum, default=default)}


_WORK: Params = {
    **_limit(20, 50),
    "before": IntParam(description="Only what is before this entry; without it, everything."),
}
_WORK_TEXT = {"text": TextParam(description="What to look for.", maximum=500, minimum=1, required=True)}


def _texts(description: str) -> ListParam:
    return ListParam(description=description, of=_TEXT, maximum=50)


def _never(call: ParsedCall) -> bool:
    return False


def _always(call: ParsedCall) -> bool:
    return True


def _has_entry(call: ParsedCall) -> bool:
    return call.query["at"] is not None


class Operation(Struct, frozen=True, kw_only=True):
    """One operation: a method of a path."""

    method: str
    path: str
    """Below the prefix."""
    right: Right
    handler: Callable[[Inspection, ParsedCall], object]
    result: type
    query: Params = field(default_factory=dict)
    body: Params | None = None
    reads_history: Callable[[ParsedCall], bool] = _never
    """Whether a replica that is a little behind may be read."""

    @property
    def name(self) -> str:
        """Its operation id in the description."""
        return f"{self.method.lower()}{''.join(part.title() for part in self.path.split('/'))}"


def _get(
    path: str,
    handler: Callable[[Inspection, ParsedCall], object],
    result: type,
    *query: Params,
    reads_history: Callable[[ParsedCall], bool] = _never,
) -> Operation:
    merged = _merged(query)
    return Operation(
        method="GET", path=path, right="read", handler=handler, result=result, query=merged, reads_history=reads_history
    )


def _post(
    path: str,
    handler: Callable[[Inspection, ParsedCall], object],
    result: type,
    query: Params,
    body: Params,
    right: Right = "change",
) -> Operation:
    return Operation(method="POST", path=path, right=right, handler=handler, result=result, query=query, body=body)


def _merged(groups: tuple[Params, ...]) -> Params:
    return {name: param for params in groups for name, param in params.items()}


OPERATIONS: tuple[Operation, ...] = (
    _get("/asker", queries.asker, models.Caller),
    Operation(method="GET", path="/keys", right="change", handler=queries.keys, result=models.KeyList),
    Operation(method="GET", path="/settings", right="change", handler=queries.settings, result=models.SettingList),
    _get(
        "/sessions",
        queries.sessions,
        models.SessionPage,
        {"after": TextParam(description="Begin after the session with this name.", maximum=256)},
        _limit(50, 200),
        reads_history=_always,
    ),
    _get("/session", queries.session, models.SessionOverview, _SESSION),
    _post(
        "/session/rename",
        _commands.rename,
        models.StoredEvent,
        _SESSION,
        {"title": TextParam(description="The new title.", maximum=MAX_TITLE_CHARS, minimum=1, required=True)},
    ),
    _post(
        "/session/fork",
        _commands.fork,
        models.ForkedSession,
        _SESSION,
        {
            "name": TextParam(description="The key of the copy.", maximum=256, minimum=1, required=True),
            "at": IntParam(description="Copy up to this entry; without it, all of the session."),
            "title": TextParam(description="The title of the copy; without it, that of its source.", maximum=120),
        },
    ),
    _post(
        "/session/erase",
        _commands.erase,
        models.ErasedSession,
        _SESSION,
        {
            "confirm": TextParam(
                description="The session again, as it is named in `session`.", maximum=256, minimum=1, required=True
            ),
            "reason": TextParam(description="Why; it is kept.", maximum=500, minimum=1, required=True),
        },
        right="erase",
    ),
    _get(
        "/session/export",
        queries.export,
        models.ExportPage,
        _SESSION,
        {
            "from": IntParam(description="The entry to begin with; without it, the first, after a header.", default=1),
            "through": IntParam(description="The entry to end with; without it, the last one."),
        },
        _limit(200, 500),
    ),
    _get(
        "/session/transcript",
        queries.transcript,
        EntryPage,
        _SESSION,
        {
            "from": IntParam(description="The entry to begin with; without it, the first in the order asked for."),
            "order": ChoiceParam(description="Oldest or newest first.", choices=("asc", "desc"), default="asc"),
            "q": TextParam(description="Only entries whose text holds this; case is folded.", maximum=200),
        },
        _limit(50, 200),
        reads_history=_always,
    ),
    _get(
        "/session/outline",
        queries.outline,
        models.OutlinePage,
        _SESSION,
        {
            "from": IntParam(description="The entry to begin with; without it, the first in the order asked for."),
            "order": ChoiceParam(description="Oldest or newest first.", choices=("asc", "desc"), default="asc"),
        },
        _limit(50, 200),
        reads_history=_always,
    ),
    _get(
        "/session/grep",
        queries.grep,
        models.GrepPage,
        _SESSION,
        {
            "pattern": TextParam(
                description="The text to search for.", maximum=MAX_PATTERN_CHARS, minimum=1, required=True
            ),
            "regex": FlagParam(description="The pattern is a regular expression; no back-references, no look-around."),
            "case": FlagParam(description="Case matters."),
            "context": IntParam(
                description="Lines before and after a match.", minimum=0, maximum=MAX_CONTEXT, default=0
            ),
            "from": IntParam(description="The entry to begin with; without it, the first in the order asked for."),
            "to": IntParam(description="The entry to end with; without it, the last in the order asked for."),
            "order": ChoiceParam(description="Oldest or newest first.", choices=("asc", "desc"), default="desc"),
        },
        _limit(50, 200),
        reads_history=_always,
    ),
    _get(
        "/session/work/file",
        queries.work_file,
        FileHistory,
        _SESSION,
        {"file": TextParam(description="The file: its path, or its name.", maximum=300, minimum=1, required=True)},
        _WORK,
        reads_history=_always,
    ),
    _get(
        "/session/work/command",
        queries.work_command,
        CommandHistory,
        _SESSION,
        _WORK_TEXT,
        _WORK,
        reads_history=_always,
    ),
    _get(
        "/session/work/error",
        queries.work_error,
        ErrorHistory,
        _SESSION,
        _WORK_TEXT,
        _WORK,
        reads_history=_always,
    ),
    _get(
        "/session/work/number",
        queries.work_number,
        NumberHistory,
        _SESSION,
        _WORK_TEXT,
        _WORK,
        reads_history=_always,
    ),
    _get(
        "/session/entry",
        queries.entry,
        models.FullEntry,
        _SESSION,
        {"seq": IntParam(description="Its number.", required=True)},
        reads_history=_always,
    ),
    _get(
        "/session/context",
        queries.context,
        Report,
        _SESSION,
        {"run": IntParam(description="The entry of an answer: its prompt as it was sent; without it, the last one.")},
    ),
    _get(
        "/session/prompt",
        queries.prompt,
        models.PromptView,
        _SESSION,
        {"at": IntParam(description="An entry: the prompt as it stood after it; without it, what would be sent now.")},
        reads_history=_has_entry,
    ),
    _get(
        "/session/window",
        queries.window,
        WindowView,
        _SESSION,
        {"at": IntParam(description="An entry: the window after it; without it, what would be sent now.")},
        reads_history=_has_entry,
    ),
    _get(
        "/session/entry/history",
        queries.history,
        EntryHistory,
        _SESSION,
        {"seq": IntParam(description="Its number.", required=True)},
    ),
    _get(
        "/session/compare",
        queries.comparison,
        Comparison,
        _SESSION,
        {
            "first": IntParam(description="An entry: the first prompt is the one that stood after it.", required=True),
            "second": IntParam(
                description="An entry: the second prompt is the one that stood after it.", required=True
            ),
        },
        reads_history=_always,
    ),
    _get(
        "/session/timeline",
        queries.timeline_of,
        Timeline,
        _SESSION,
        {"from": IntParam(description="The entry to begin with; without it, so many before the end.")},
        _limit(MAX_ENTRIES, MAX_ENTRIES),
        reads_history=_always,
    ),
    _get(
        "/session/decisions",
        queries.decisions,
        DecisionPage,
        _SESSION,
        _FROM_NEWEST,
        _limit(50, 200),
        {"scores": FlagParam(description="With every score that went into them.")},
        reads_history=_always,
    ),
    _get(
        "/session/decision",
        queries.decision,
        DecisionView,
        _SESSION,
        {"seq": IntParam(description="Its entry.", required=True)},
        reads_history=_always,
    ),
    _get(
        "/session/audit",
        queries.audit,
        models.AuditPage,
        _SESSION,
        _FROM_NEWEST,
        _limit(50, 200),
        {"kind": TextParam(description="Only events of this kind, or of this topic.", maximum=64)},
        reads_history=_always,
    ),
    _get(
        "/session/health",
        queries.health,
        HealthReport,
        _SESSION,
        {"turns": IntParam(description="How many of the last turns.", maximum=500, default=20)},
    ),
    _post(
        "/session/recall",
        queries.recall,
        models.RecallResult,
        _SESSION,
        {
            "query": TextParam(description="What to look for.", maximum=4_000, minimum=1, required=True),
            "most": IntParam(description="How many hits at most.", maximum=50, default=10),
            "scope": ChoiceParam(
                description="How far to search; without it, as the settings say.",
                choices=("session", "agent", "tenant"),
            ),
            "project": TextParam(description="Search the sessions of this project folder.", maximum=1_000),
            "agent": TextParam(description="Search the sessions of this program, such as `codex`.", maximum=64),
        },
        right="read",
    ),
    _post(
        "/session/recall/judge",
        _commands.judge,
        models.StoredEvent,
        _SESSION,
        {
            "pointer": TextParam(description="The recalled message.", maximum=3_200, minimum=1, required=True),
            "verdict": ChoiceParam(
                description="Whether it helped; `withdrawn` takes an earlier verdict back.",
                choices=VERDICTS,
                required=True,
            ),
            "question": IntParam(description="The user message it was quoted for, if it was in a prompt."),
        },
    ),
    _get("/session/pins", queries.pins, models.PinList, _SESSION),
    _post(
        "/session/pins",
        _commands.pin,
        models.StoredEvent,
        _SESSION,
        {
            "entries": ListParam(
                description="Numbers of messages.",
                of=IntParam(description="A message."),
                maximum=100,
                minimum=1,
                required=True,
            )
        },
    ),
    Operation(
        method="DELETE",
        path="/session/pins",
        right="change",
        handler=_commands.unpin,
        result=models.StoredEvent,
        query={**_SESSION, "seq": IntParam(description="The message that may leave again.", required=True)},
    ),
    _post(
        "/session/restore",
        _commands.restore,
        models.StoredEvent,
        _SESSION,
        {"decision": IntParam(description="The entry of the decision to undo.", required=True)},
    ),
    _post(
        "/session/redo",
        _commands.redo,
        models.StoredEvent,
        _SESSION,
        {"restored": IntParam(description="The entry that undid a decision.", required=True)},
    ),
    _post(
        "/session/compact",
        _commands.compact,
        models.CompactionResult,
        _SESSION,
        {"focus": TextParam(description="What the summary should keep above all.", maximum=500)},
    ),
    _get(
        "/session/checkpoints",
        queries.checkpoints,
        models.CheckpointPage,
        _SESSION,
        {"from": IntParam(description="The version to begin with, going back; without it, the newest.")},
        _limit(20, 50),
        reads_history=_always,
    ),
    _post(
        "/session/checkpoints",
        _commands.save,
        models.SavedCheckpoint,
        _SESSION,
        {
            "expect": IntParam(description="The newest version; any other refuses the change.", minimum=0),
            "goal": TextParam(description="The goal.", maximum=4_000),
            "success_criteria": _texts("When it is done."),
            "plan": _texts("Subtasks that are planned."),
            "doing": _texts("Subtasks that are worked on."),
            "done": _texts("Subtasks that are done."),
            "issues": _texts("What is broken."),
            "solved": _texts("Issues that are over."),
            "decisions": _texts("What was decided."),
            "learnings": _texts("What was learnt."),
        },
    ),
    _get(
        "/session/checkpoint",
        queries.checkpoint,
        Checkpoint,
        _SESSION,
        {"version": IntParam(description="Its version.", required=True)},
        reads_history=_always,
    ),
    _get("/session/notes", queries.notes, models.NoteList, _SESSION),
    _post(
        "/session/notes",
        _commands.note,
        models.StoredEvent,
        _SESSION,
        {
            "kind": ChoiceParam(description="What it is about.", choices=NOTE_KINDS, required=True),
            "text": TextParam(description="The note.", maximum=MAX_NOTE_CHARS, minimum=1, required=True),
            "level": ChoiceParam(description="How important it is.", choices=NOTE_LEVELS, default="normal"),
            "critical": FlagParam(description="The same as the level `critical`."),
        },
    ),
    _get(
        "/memory",
        queries.memory,
        models.MemoryPage,
        _AGENT,
        {
            "after": TextParam(description="Begin after the memory with this id.", maximum=64),
            "retired": FlagParam(description="With what was retired."),
        },
        _limit(50, 100),
    ),
    _get(
        "/memory/proposals",
        queries.proposals,
        models.ProposalPage,
        _AGENT,
        {"after": TextParam(description="Begin after the proposal with this id.", maximum=64)},
        _limit(20, 50),
    ),
    _post(
        "/memory/proposals/approve",
        _commands.approve,
        models.ApprovalResult,
        _AGENT,
        {
            **_PROPOSAL,
            "digest": TextParam(
                description="The SHA-256 of the bytes that were shown.", maximum=64, minimum=64, required=True
            ),
        },
    ),
    _post(
        "/memory/proposals/reject",
        _commands.reject,
        models.StoredEvent,
        _AGENT,
        {**_PROPOSAL, "reason": TextParam(description="Why; it is kept.", maximum=500)},
    ),
    _post("/memory/proposals/undo", _commands.undo_approval, models.StoredEvent, _AGENT, {**_PROPOSAL}),
)
"""Every operation of the API."""

RULES: tuple[Rule, ...] = (
    Rule("GET", DESCRIPTION, "read"),
    *(Rule(operation.method, PREFIX + operation.path, operation.right) for operation in OPERATIONS),
)
"""The right that each operation needs, as the guard checks it."""
