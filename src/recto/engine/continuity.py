"""Checkpoints and handoffs in a window: when they are written, how a new window begins, which handoff is shown.

Facts are extracted only when a checkpoint has to be written: most prompts need none, so `recto.engine.checkpoints` is
imported on first use.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from recto.context.compaction.layout import CountText
from recto.context.policies.eviction import Compact, Prune
from recto.context.policies.planner import ReliefRules
from recto.context.window.state import Note, WindowState
from recto.continuity.checkpoints.checkpoint import (
    CONTINUED,
    LARGEST,
    Changes,
    Checkpoint,
    Environment,
    TaskStatement,
    checkpoint_from,
)
from recto.continuity.checkpoints.handoff import Drift, HandoffPage, drift_of, resume_page, with_missing_tools
from recto.continuity.checkpoints.rules import CheckpointRules
from recto.engine.environment import EnvironmentProbe
from recto.engine.projection import (
    ANNOUNCED,
    CHECKPOINT,
    HANDOFF,
    REPLAYED,
    REQUIRED,
    TOOLS_MISSING,
    UNSAVED,
    EventLog,
    WindowProjection,
    replay_key,
)
from recto.engine.prompt_builder import MessageCache, TurnNote
from recto.errors import AppendConflict, CheckpointRefused, InputError, KeyReused
from recto.formats.tools import is_own_tool, tool_names
from recto.transcript.entries import HOST_COMPACTED, Draft, Entry
from recto.transcript.session_keys import pointer_to

if TYPE_CHECKING:
    from recto.engine.checkpoints import Checkpoints


HANDOFF_TOKENS = 600
"""What a handoff may cost in the prompt of the turn after a compaction."""
ATTEMPTS = 8
"""How often a write is tried again after another process wrote to the session."""
_REACH = 2_000
"""Entries back in which the newest handoff is searched for a host."""


class WindowContinuity:
    """The checkpoints and handoffs of one window."""

    def __init__(
        self,
        events: EventLog,
        projection: WindowProjection,
        messages: MessageCache,
        rules: CheckpointRules,
        lock: threading.RLock,
    ) -> None:
        self.rules = rules
        self._events = events
        self._projection = projection
        self._messages = messages
        self._lock = lock
        self._shown: tuple[int, int, TurnNote | None] = 0, 0, None
        """The handoff in the prompt, the question it follows, and its note."""

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints of the session; loaded when one is needed."""
        from recto.engine.checkpoints import Checkpoints  # noqa: PLC0415  # patterns for facts take a while to load

        return Checkpoints(self._events, self._messages, self.rules)

    def version(self) -> int:
        """The version of the newest checkpoint; 0 before the first."""
        with self._lock:
            return self.checkpoints.version(self._projection.state())

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint of the session. Raises `CheckpointRefused` where it is not valid."""
        with self._lock:
            return self.checkpoints.load(self._projection.state())

    def unfinished(self) -> Checkpoint | None:
        """The newest checkpoint, unless its task is complete or another program wrote it. Cheap where there is none."""
        with self._lock, suppress(CheckpointRefused):
            state = self._projection.state()
            newest = self.checkpoints.load(state) if state.checkpoints else None
            return None if newest is None or newest.is_complete else newest
        return None

    def waiting(self) -> Checkpoint | None:
        """The checkpoint of work that waits to be taken up: a program stated its task, its turn is open, or no message
        was stored after it."""
        unfinished = self.unfinished()
        if unfinished is None:
            return None
        state = self._projection.state()
        is_last = unfinished.last >= next(reversed(state.messages), 0)
        return unfinished if TaskStatement.of(unfinished) or awaits_answer(state) or is_last else None

    def checkpoint(
        self,
        changes: Changes | None = None,
        *,
        expect: int | None = None,
        reason: str = "asked for",
        task: TaskStatement | None = None,
        over: Checkpoint | None = None,
    ) -> tuple[Entry, Entry]:
        """Writes a checkpoint and the handoff made from it.

        With `expect` it is refused, and nothing is written, unless that is the newest version. `task` begins a task;
        `over` is a checkpoint of another session to continue from.
        """
        with self._lock:
            for _ in range(ATTEMPTS):
                state = self._projection.state()
                checkpoint = self.checkpoints.make(
                    state, reason=reason, changes=changes, expect=expect, task=task, over=over
                )
                drafts = self.checkpoints.drafts(checkpoint, state, HANDOFF_TOKENS)
                with suppress(KeyReused, AppendConflict):  # another process wrote one just now
                    saved, handoff = self.store(drafts, state.seq)
                    return saved, handoff
            seq = self._projection.state().seq
            raise AppendConflict(self._events.session, None, seq, "others write faster than we can")

    def up_to_date(self, *, over: Checkpoint | None, reason: str, stores: bool) -> Checkpoint | None:
        """The newest checkpoint if no message follows it; else a new one, which is stored where `stores` says so.

        The first checkpoint of a session continues from `over`, that of another session. Returns `over` where this
        session has no messages.
        """
        with self._lock:
            state = self._projection.state()
            newest = self.checkpoints.newest(state)
            last = next(reversed(state.messages), 0)
            if not last or (newest is not None and newest.last >= last):
                return newest or over
            before = over if newest is None else None
            if stores:
                self.checkpoint(reason=reason, over=before)
                return self.checkpoints.newest(self._projection.state())
            return self.checkpoints.make(state, reason=reason, over=before)

    def take_up(self, rules: ReliefRules) -> None:
        """Writes a checkpoint of work that a program takes up again, and a page for the next question.

        The page contains the state of the work and what has changed around it; nothing is evicted.
        """
        with self._lock:
            for _ in range(ATTEMPTS):
                state = self._projection.state()
                before = self.checkpoints.newest(state)
                checkpoint = self.checkpoints.make(state, reason=CONTINUED)
                drift = drift_of(before.environment, _environment_now(before, self.checkpoints.probe)) if before else ()
                page = resume_page(
                    checkpoint,
                    drift,
                    window=None,
                    last_reply=self.checkpoints.last_words(state),
                    pointer=pointer_to(self._events.session, state.seq + 1),
                    most=self._page_tokens(rules),
                    count=self.checkpoints.count,
                )
                handoff = self.checkpoints.handoff(page.text, checkpoint.version, pending=True)
                with suppress(KeyReused, AppendConflict):  # another process wrote one just now
                    self.store([self.checkpoints.draft(checkpoint), handoff], state.seq)
                    return

    def store(self, drafts: Sequence[Draft], expect: int | None = None) -> list[Entry]:
        """Appends events; checkpoints among them are written to files too. A failed file is an event, not an error."""
        entries = self._events.append_all(drafts, expect)
        if self.rules.folder and any(entry.kind == CHECKPOINT for entry in entries):
            problem = self.checkpoints.write_files(entries)
            if problem:
                self._events.append(UNSAVED, {"reason": problem[:500]})
        return entries

    def write_notes(self, notes: Sequence[Note]) -> None:
        """Writes the notes to their file, where there is one. A failed file is an event, not an error."""
        problem = self.checkpoints.write_notes(notes) if self.rules.folder and self.rules.notes_file else ""
        if problem:
            self._events.append(UNSAVED, {"reason": problem[:500]})

    def announce(self, state: WindowState, used: int, rules: ReliefRules, input_budget: int) -> None:
        """Writes a checkpoint at a milestone, and before a compaction while everything is still in the prompt."""
        drafts: list[Draft] = []
        if rules.warning and used >= rules.warning * input_budget and ANNOUNCED not in state.budget_levels:
            payload = {"tokens": used, "room": input_budget, "utilization": round(used / input_budget, 4)}
            checkpoint = self.checkpoints.make(state, reason="a compaction is near")
            drafts = [
                self._events.draft(ANNOUNCED, payload),
                *self.checkpoints.drafts(checkpoint, state, HANDOFF_TOKENS),
            ]
        elif reason := self._milestone(state, used, rules, input_budget):
            drafts = [self.checkpoints.draft(self.checkpoints.make(state, reason=reason))]
        if drafts:
            with suppress(KeyReused, AppendConflict):  # another process wrote one just now
                self.store(drafts)

    def _milestone(self, state: WindowState, used: int, rules: ReliefRules, input_budget: int) -> str:
        if not self.rules.milestones:
            return ""
        if not rules.warning and used >= self.rules.pressure * input_budget and CHECKPOINT not in state.budget_levels:
            return "room gets short"
        return self.checkpoints.milestone(state)

    def before_overflow(self, state: WindowState) -> None:
        """Writes a checkpoint before a prompt is refused because it does not fit."""
        with suppress(KeyReused, AppendConflict):
            self.store([self.checkpoints.draft(self.checkpoints.make(state, reason="the prompt overflows"))])

    def before_compaction(self, state: WindowState, used: int, rules: ReliefRules, handoff: int) -> list[Draft]:
        """What is stored together with a compaction, before its decision: the checkpoint and the handoff."""
        checkpoint = self.checkpoints.make(state, reason="a compaction")
        drafts = self.checkpoints.drafts(checkpoint, state, handoff)
        if rules.warning:
            payload = {"tokens": used, "room": rules.input_budget, "utilization": round(used / rules.input_budget, 4)}
            drafts.insert(0, self._events.draft(REQUIRED, payload))
        return drafts

    def replay(self, state: WindowState, drafts: Sequence[Draft]) -> list[Draft]:
        """Shows the handoff among these drafts behind the question in flight, unless it was shown before."""
        place = next(place for place, draft in enumerate(drafts) if draft.kind == HANDOFF)
        digest = json.loads(drafts[place].content)["hash"]
        if self.checkpoints.was_replayed(digest):
            return []
        payload = {"handoff": state.seq + 1 + place, "question": state.question, "hash": digest}
        return [self._events.draft(REPLAYED, payload, replay_key(digest))]

    def before_new_window(
        self, state: WindowState, rules: ReliefRules, source: Checkpoint | None, changes: Changes | None = None
    ) -> list[Draft]:
        """What is stored before the decision that opens a window: its checkpoint, and its first page."""
        checkpoint, page = new_window_page(
            self.checkpoints,
            state,
            source,
            changes,
            pointer=pointer_to(self._events.session, state.seq + 1),
            most=self._page_tokens(rules),
        )
        return [
            self.checkpoints.draft(checkpoint),
            self.checkpoints.handoff(page.text, checkpoint.version, pending=True),
        ]

    def rules_for_new_window(self, rules: ReliefRules) -> ReliefRules:
        """Rules that evict everything that may be evicted, with input budget for the first page."""
        policy = replace(
            rules.compact, name="new_window", keep_recent_tokens=0, handoff_tokens=self._page_tokens(rules)
        )
        return at_once(rules, policy, recent=0)

    def rules_without_summary(self, rules: ReliefRules, used: int) -> ReliefRules:
        """The same for a prompt of so few tokens that no summary of it is worth writing."""
        policy = Prune()
        record = min(rules.record_tokens, used // 4)
        return replace(rules, policies=(policy,), forced_policy=policy, record_tokens=record)

    def _page_tokens(self, rules: ReliefRules) -> int:
        return max(min(self.rules.resume_tokens, rules.input_budget // 10), 1)

    def replay_pending(self, state: WindowState, tools: bytes = b"") -> bool:
        """Replays a pending handoff behind the current question, once. Returns whether the state may have changed.

        Where tool schemas are sent with the prompt, it names the tools that the work used and that are not among them.
        """
        seq, question = state.shown_handoff
        current = state.question
        if not seq or question or not current or not awaits_answer(state):
            return False
        handoff = self._handoff(seq)
        digest = str(handoff.get("hash", ""))
        if missing := self._missing_tools(state, tools):
            text = with_missing_tools(str(handoff["text"]), missing)
            draft = self.checkpoints.handoff(text, int(handoff.get("checkpoint", 0)), pending=True)
            payload = {"tools": missing, "checkpoint": handoff.get("checkpoint", 0)}
            seq = self._events.append_all([self._events.draft(TOOLS_MISSING, payload), draft])[-1].seq
            digest = str(json.loads(draft.content)["hash"])
        with suppress(KeyReused):
            self._events.append(REPLAYED, {"handoff": seq, "question": current, "hash": digest}, replay_key(digest))
        return True

    def _missing_tools(self, state: WindowState, schemas: bytes) -> list[str]:
        """Tools that the work called and that are not among those of the prompt. Without schemas nothing is known."""
        known = self.checkpoints.newest(state) if schemas else None
        if known is None or not known.tools:
            return []
        try:
            available = tool_names({"tools": json.loads(schemas)})
        except ValueError:
            return []
        available |= {*state.left_out.names}  # the model can search for them
        return [name for name in known.tools if available and name not in available and not is_own_tool(name)]

    def handoff_note(self, state: WindowState, wire: str) -> TurnNote | None:
        """The handoff to put behind the current question; None where it was replayed for another one, or for none."""
        seq, question = state.shown_handoff
        current = state.question
        if not seq or not current or question not in (0, current):
            self._shown = 0, 0, None
        elif self._shown[:2] != (seq, current):
            text = str(self._handoff(seq)["text"])
            tokens = self._messages.cost_of_text(text, wire)
            self._shown = seq, current, TurnNote(question=current, text=text, tokens=tokens)
        return self._shown[2]

    def host_compacted(self) -> str:
        """The newest handoff for a host that has compacted its own history; empty where it was returned before."""
        with self._lock:
            recent = self._events.store.tail(self._events.session, _REACH)
            handoff = next((entry for entry in reversed(recent) if entry.kind == HANDOFF), None)
            if handoff is None:
                raise InputError("there is no handoff yet; host_compacting() writes one before the host compacts")
            payload = json.loads(handoff.content)
            digest = str(payload["hash"])
            if self.checkpoints.was_replayed(digest):
                return ""
            replayed = {"handoff": handoff.seq, "question": 0, "hash": digest, "to": "host"}
            with suppress(KeyReused):
                self._events.append(REPLAYED, replayed, replay_key(digest))
                archived = {
                    "handoff": handoff.seq,
                    "checkpoint": payload["checkpoint"],
                    "archived": [1, handoff.seq],
                }
                self._events.append(HOST_COMPACTED, archived)
                return str(payload["text"])
            return ""

    def _handoff(self, seq: int) -> dict[str, Any]:
        entry = next(iter(self._events.store.read(self._events.session, seq, seq)), None)
        if entry is None or entry.kind != HANDOFF:
            return {"text": "", "hash": ""}
        payload: dict[str, Any] = json.loads(entry.content)
        return payload


def at_once(rules: ReliefRules, policy: Compact, *, recent: int) -> ReliefRules:
    """Rules under which a policy evicts all it may now, however full the prompt is."""
    floor = 1e-6
    return replace(
        rules,
        policies=(policy,),
        policy_starts={},
        forced_policy=policy,
        floor=floor,
        ceiling=2 * floor,
        cache_aware=False,
        mandatory_from=0.0,
        protection=replace(rules.protection, min_recent_messages=recent),
    )


def awaits_answer(state: WindowState) -> bool:
    """Whether the model has to answer now: the turn is not over."""
    last = next(reversed(state.messages.values()), None)
    return last is not None and (last.role != "assistant" or bool(last.calls))


class ResumeState(Struct, frozen=True, kw_only=True):
    """A checkpoint, what has changed since, and the first page of a new window."""

    checkpoint: Checkpoint
    drift: tuple[Drift, ...]
    page: HandoffPage


def read_checkpoint(path: str | Path, *, session: str = "", newest: tuple[int, int] | None = None) -> Checkpoint:
    """The checkpoint in a file. Raises `CheckpointRefused` where it is not valid."""
    try:
        with Path(path).expanduser().open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise CheckpointRefused(f"'{path}'", [f"it cannot be read ({error.strerror})"]) from None
    return checkpoint_from(raw, source=f"'{path}'", session=session, newest=newest)


def resume_state(
    checkpoint: Checkpoint, probe: EnvironmentProbe | None, *, most: int, count: CountText, pointer: str = ""
) -> ResumeState:
    """Compares a checkpoint with the environment as it is now, and renders the first page. Stores nothing."""
    drift = drift_of(checkpoint.environment, _environment_now(checkpoint, probe))
    page = resume_page(checkpoint, drift, window=checkpoint.window + 1, pointer=pointer, most=most, count=count)
    return ResumeState(checkpoint=checkpoint, drift=drift, page=page)


def new_window_page(
    checkpoints: Checkpoints,
    state: WindowState,
    source: Checkpoint | None,
    changes: Changes | None,
    *,
    pointer: str,
    most: int,
) -> tuple[Checkpoint, HandoffPage]:
    """The checkpoint of a new window, and its first page. `source` is a checkpoint from a file."""
    before = source or checkpoints.load(state)
    foreign = source if source is not None and not checkpoints.holds(source) else None
    checkpoint = checkpoints.make(state, reason="a new window", changes=changes, over=foreign)
    checkpoint = replace(checkpoint, window=checkpoint.window + 1)
    drift = drift_of(before.environment, _environment_now(before, checkpoints.probe)) if before else ()
    page = resume_page(
        checkpoint,
        drift,
        window=checkpoint.window,
        last_reply=checkpoints.last_words(state),
        pointer=pointer,
        most=most,
        count=checkpoints.count,
    )
    return checkpoint, page


def _environment_now(checkpoint: Checkpoint, probe: EnvironmentProbe | None) -> Environment:
    """The environment now, with the files and services that a checkpoint names."""
    recorded = checkpoint.environment
    if probe is None:
        return Environment()
    return probe.examine([file.path for file in recorded.paths], [service.address for service in recorded.services])
