"""How the work of one window goes on: when a checkpoint is written, how a new window begins, what is shown once.

Here checkpoints, relief and prompt of one window meet. What is known of the work is put together elsewhere, and loaded
only when something has to be written down: most prompts need none of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from recto.context.compaction.layout import CountText
from recto.context.policies.compact import Compact
from recto.context.policies.planner import ReliefRules
from recto.context.window.state import WindowState
from recto.continuity.checkpoints.checkpoint import Changes, Checkpoint, CheckpointRules, Environment
from recto.continuity.checkpoints.drift import Drift, drift_of
from recto.continuity.checkpoints.handoff import HandoffPage, resume_page
from recto.continuity.checkpoints.schema import LARGEST, checkpoint_from
from recto.engine.checkpoints import Checkpoints
from recto.engine.environment import EnvironmentProbe
from recto.engine.projection import (
    ANNOUNCED,
    CHECKPOINT,
    HANDOFF,
    HOST_COMPACTED,
    NEW_WINDOW,
    REPLAYED,
    UNSAVED,
    replay_key,
)
from recto.engine.prompt_builder import PromptBuilder, TurnNote
from recto.engine.relief import HANDOFF_TOKENS, PendingDecision, ReliefExecutor
from recto.errors import AppendConflict, CheckpointRefused, InputError, KeyReused
from recto.transcript.entries import Draft, Entry
from recto.transcript.protocols import TranscriptStore

if TYPE_CHECKING:
    from recto.engine.checkpoints import Checkpoints


PRESSURE = 0.85
"""The share of the room from which on the state of the work is written down, where milestones are."""
_ATTEMPTS = 8
_REACH = 2_000
"""Entries back in which the handoff is looked for that a host is shown."""


class Host(Protocol):
    """What is asked of the window."""

    store: TranscriptStore
    session: str
    material: PromptBuilder
    rules: ReliefRules

    @property
    def state(self) -> WindowState:
        """What is in, as of the end of the transcript."""
        ...

    def pointer(self, seq: int) -> str:
        """Where an entry can be read whole."""
        ...

    def append(self, kind: str, about: Mapping[str, Any], key: str | None = None) -> Entry:
        """Stores an event and tells it."""
        ...

    def append_all(self, drafts: Sequence[Draft], expect: int | None = None) -> list[Entry]:
        """Stores what belongs together, and tells it."""
        ...


class WindowContinuity:
    """How the work of one window goes on."""

    def __init__(self, host: Host, continuity: CheckpointRules, reliever: ReliefExecutor) -> None:
        self.continuity = continuity
        self._host = host
        self._reliever = reliever
        self._shown = 0, 0

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints of the session; loaded when one is needed."""
        from recto.engine.checkpoints import Checkpoints  # noqa: PLC0415  # wording of facts takes a while to load

        host = self._host
        return Checkpoints(host.store, host.session, host.material, self._reliever.draft, self.continuity)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint of the session. Raises `CheckpointRefused` where it cannot be taken."""
        return self.checkpoints.load(self._host.state)

    def checkpoint(
        self, *, reason: str = "asked for", changes: Changes | None = None, expect: int | None = None
    ) -> list[Entry]:
        """Writes down where the work stands, with the page to go on from; refused where `expect` is not the newest."""
        for _ in range(_ATTEMPTS):
            state = self._host.state
            made = self.checkpoints.made(state, reason=reason, changes=changes, expect=expect)
            with suppress(KeyReused, AppendConflict):  # another process wrote one just now
                return self._host.append_all(self.checkpoints.drafts(made, state, HANDOFF_TOKENS), state.seq)
        raise AppendConflict(self._host.session, None, self._host.state.seq, "others write faster than we can")

    def keep(self, entries: Sequence[Entry]) -> None:
        """Writes checkpoints among new entries into their files. What goes wrong is an event, and no turn fails."""
        trouble = self.checkpoints.keep(entries) if self.continuity.folder else ""
        if trouble:
            self._host.append(UNSAVED, {"reason": trouble[:500]})

    def announce(self, used: int, room: int) -> None:
        """Writes down where the work stands at a milestone, and while all of it is in sight before room gets short."""
        state, rules = self._host.state, self._host.rules
        drafts: list[Draft] = []
        if rules.warning and used >= rules.warning * room and ANNOUNCED not in state.budget_levels:
            about = {"tokens": used, "room": room, "utilization": round(used / room, 4)}
            made = self.checkpoints.made(state, reason="a compaction is near")
            drafts = [self._reliever.draft(ANNOUNCED, about), *self.checkpoints.drafts(made, state, HANDOFF_TOKENS)]
        elif reason := self._due(state, used, room):
            drafts = [self.checkpoints.draft(self.checkpoints.made(state, reason=reason))]
        if drafts:
            with suppress(KeyReused, AppendConflict):  # another process wrote one just now
                self._host.append_all(drafts)

    def _due(self, state: WindowState, used: int, room: int) -> str:
        if not self.continuity.milestones:
            return ""
        if not self._host.rules.warning and used >= PRESSURE * room and CHECKPOINT not in state.budget_levels:
            return "room gets short"
        return self.checkpoints.milestone(state)

    def before_overflow(self) -> None:
        """Where the work stands, before a prompt is refused that does not fit."""
        state = self._host.state
        with suppress(KeyReused, AppendConflict):
            self._host.append_all([self.checkpoints.draft(self.checkpoints.made(state, reason="the prompt overflows"))])

    def next(self, rules: ReliefRules, idle: float, source: Checkpoint | None = None) -> Entry:
        """Opens a new window: a checkpoint is saved, what may leave leaves, and its first page waits for a question."""
        for _ in range(_ATTEMPTS):
            state = self._host.state
            decided = self._opening(state, rules, idle, source)
            with suppress(KeyReused, AppendConflict):  # another process wrote meanwhile
                entries = self._host.append_all(decided.drafts, expect=decided.after)
                return next(entry for entry in entries if entry.kind == NEW_WINDOW)
        raise AppendConflict(self._host.session, None, self._host.state.seq, "others write faster than we can")

    def _opening(
        self, state: WindowState, rules: ReliefRules, idle: float, source: Checkpoint | None
    ) -> PendingDecision:

        made, page = opened(
            self.checkpoints, state, source, pointer=self._host.pointer(state.seq + 1), most=self._most(rules)
        )
        first = [self.checkpoints.draft(made), self.checkpoints.handoff(page.text, made.version, pending=True)]
        return self._reliever.opening(state, rules, idle, first)

    def _most(self, rules: ReliefRules) -> int:
        return max(min(self.continuity.resume_tokens, rules.input_budget // 10), 1)

    def for_new_window(self, rules: ReliefRules) -> ReliefRules:
        """Rules under which everything leaves that may, with room for the first page."""
        asked = replace(rules.compact, name="new_window", keep_recent_tokens=0, handoff_tokens=self._most(rules))
        return at_once(rules, asked, recent=0)

    def replay_pending(self) -> None:
        """A handoff that waits for a question is replayed behind the one that is asked now. Once."""
        state = self._host.state
        seq, question = state.shown_handoff
        current = _question(state)
        if not seq or question or not current or not _asks(state):
            return
        digest = str(self._handoff(seq).get("hash", ""))
        with suppress(KeyReused):
            self._host.append(REPLAYED, {"handoff": seq, "question": current, "hash": digest}, replay_key(digest))

    def show(self, state: WindowState) -> None:
        """The handoff stands behind the question it was replayed for, and for no other."""
        material = self._host.material
        seq, question = state.shown_handoff
        current = _question(state)
        if not seq or not current or question not in (0, current):
            material.handoff, self._shown = None, (0, 0)
        elif self._shown != (seq, current):
            text = str(self._handoff(seq)["text"])
            tokens = material.cost_of_text(text, material.wire_of(state))
            material.handoff, self._shown = TurnNote(question=current, text=text, tokens=tokens), (seq, current)

    def host_compacted(self) -> str:
        """The newest handoff, for a host that has compacted its own history: once, then nothing."""
        store, session = self._host.store, self._host.session
        found = next((one for one in reversed(store.tail(session, _REACH)) if one.kind == HANDOFF), None)
        if found is None:
            raise InputError("there is no handoff yet; host_compacting() writes one before the host compacts")
        about = json.loads(found.content)
        digest = str(about["hash"])
        if self.checkpoints.was_replayed(digest):
            return ""
        told = {"handoff": found.seq, "question": 0, "hash": digest, "to": "host"}
        with suppress(KeyReused):
            self._host.append(REPLAYED, told, replay_key(digest))
            archived = {"handoff": found.seq, "checkpoint": about["checkpoint"], "archived": [1, found.seq]}
            self._host.append(HOST_COMPACTED, archived)
            return str(about["text"])
        return ""

    def _handoff(self, seq: int) -> dict[str, Any]:
        entry = next(iter(self._host.store.read(self._host.session, seq, seq)), None)
        if entry is None or entry.kind != HANDOFF:
            return {"text": "", "hash": ""}
        about: dict[str, Any] = json.loads(entry.content)
        return about


def at_once(rules: ReliefRules, policy: Compact, *, recent: int) -> ReliefRules:
    """Rules under which a policy takes out all it may now, however full the prompt is."""
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


def _question(state: WindowState) -> int:
    return next((line.seq for line in reversed(state.messages.values()) if line.role == "user"), 0)


def _asks(state: WindowState) -> bool:
    """Whether the model is to say something now: the turn is not over."""
    last = next(reversed(state.messages.values()), None)
    return last is not None and (last.role != "assistant" or bool(last.calls))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeState:
    """Where the work stands, and what is told of it first."""

    checkpoint: Checkpoint
    drift: tuple[Drift, ...]
    page: HandoffPage


def read_checkpoint(path: str | Path, *, session: str = "", newest: tuple[int, int] | None = None) -> Checkpoint:
    """The checkpoint in a file. Raises `CheckpointRefused` for one that cannot be taken."""
    try:
        with Path(path).expanduser().open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise CheckpointRefused(f"'{path}'", [f"it cannot be read ({error.strerror})"]) from None
    return checkpoint_from(raw, source=f"'{path}'", session=session, newest=newest)


def resumed(
    checkpoint: Checkpoint, lookout: EnvironmentProbe | None, *, most: int, count: CountText, pointer: str = ""
) -> ResumeState:
    """A checkpoint held against the environment as it is now, and the first page of a new window. Stores nothing."""
    drift = drift_of(checkpoint.environment, _now(checkpoint, lookout))
    page = resume_page(checkpoint, drift, window=checkpoint.window + 1, pointer=pointer, most=most, count=count)
    return ResumeState(checkpoint=checkpoint, drift=drift, page=page)


def opened(
    checkpoints: Checkpoints, state: WindowState, source: Checkpoint | None, *, pointer: str, most: int
) -> tuple[Checkpoint, HandoffPage]:
    """The checkpoint a new window begins with, and its first page. `source` is one that was kept outside."""
    before = source or checkpoints.load(state)
    foreign = source if source is not None and not checkpoints.holds(source) else None
    made = checkpoints.made(state, reason="a new window", over=foreign)
    made = replace(made, window=made.window + 1)
    drift = drift_of(before.environment, _now(before, checkpoints.lookout)) if before else ()
    page = resume_page(
        made,
        drift,
        window=made.window,
        said=checkpoints.last_words(state),
        pointer=pointer,
        most=most,
        count=checkpoints.count,
    )
    return made, page


def _now(checkpoint: Checkpoint, lookout: EnvironmentProbe | None) -> Environment:
    """The environment as it is, with the files and services that a checkpoint names."""
    then = checkpoint.environment
    if lookout is None:
        return Environment()
    return lookout.look([file.path for file in then.paths], [service.address for service in then.services])
