"""The live window of a session: relieves it when it is too full, builds the prompt, pins, undoes.

What is in the prompt is the fold of the transcript (`recto.engine.projection`); what should leave is planned by
`recto.context.policies.planner`. Here the two meet: plans are
stored as decisions before they count, and every change is an event.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, wraps
from math import inf
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from recto.context.policies.compact import Compact
from recto.context.policies.planner import ReliefRules
from recto.context.window.budget import Budget, BudgetVerdict, ComponentUsage
from recto.context.window.cache_cost import stable_prefix
from recto.context.window.notes import MAX_NOTE_CHARS, NOTE_KINDS, NoteKind
from recto.context.window.pressure import PressureReading
from recto.context.window.state import WindowState, seqs_in
from recto.context.window.units import WindowMessage
from recto.continuity.checkpoints.checkpoint import Changes, Checkpoint, CheckpointRules
from recto.engine.continuity import WindowContinuity, at_once
from recto.engine.gauge import Gauge
from recto.engine.projection import (
    CHECKPOINT,
    DECISIONS,
    NOTE,
    OVERFLOW,
    PINNED,
    RESTORED,
    SNAPSHOT,
    SNAPSHOT_EVERY,
    UNPINNED,
    WindowProjection,
    snapshot_key,
)
from recto.engine.prompt import Prompt, marker
from recto.engine.prompt_builder import PromptBuilder
from recto.engine.recall_injection import RecallInjection
from recto.engine.relief import ReliefExecutor
from recto.engine.standing_context import STANDING, StandingContext
from recto.errors import AppendConflict, InputError, KeyReused, WindowOverflow
from recto.formats import DEFAULT_FORMAT, format_of_provider
from recto.health.metrics import PromptComposition
from recto.recall.types import Hit, Query, SearchResult
from recto.tokens.meter import Meter
from recto.transcript.entries import Draft, Entry
from recto.transcript.events import event, to_json
from recto.transcript.protocols import Clock, TranscriptStore
from recto.transcript.session_keys import Scope, pointer_to

if TYPE_CHECKING:
    from recto.engine.compactor import Compactor
    from recto.recall.quoting import Excerpt
    from recto.recall.recall import RecallService


def overflow(state: WindowState, material: PromptBuilder, room: int, kept_by: str = "") -> WindowOverflow:
    """The error that says by how much a prompt is too long, what holds the space, and why it may not leave."""
    holders = [(f"entry {seq} ({line.role})", state.cost(seq)) for seq, line in state.messages.items()]
    holders.append(("tools and frame", material.fixed - material.beside - material.answer))
    holders.append(("system text", material.beside))
    holders.append(("the answer", material.answer))
    holders = [holder for holder in holders if holder[1]]
    holders.sort(key=lambda holder: -holder[1])
    return WindowOverflow(material.prompt_tokens(state), room, holders, kept_by)


_ATTEMPTS = 8
_AHEAD = 0.5
"""The utilization from which on messages are indexed ahead of need, so that relief does not wait for it."""


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _one_at_a_time(
    method: Callable[Concatenate[Window, _P], _R],
) -> Callable[Concatenate[Window, _P], _R]:
    """Threads that share a window take turns: its state is one."""

    @wraps(method)
    def taking_turns(window: Window, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with window.turn:
            return method(window, *args, **kwargs)

    return taking_turns


class Window:
    """Which messages of a session are in the prompt, and why the others are not."""

    def __init__(  # noqa: PLR0913  # the parts of a window
        self,
        store: TranscriptStore,
        session: str,
        *,
        meter: Meter,
        clock: Clock,
        budget: Budget,
        rules: ReliefRules,
        recall: Callable[[], RecallService] | None = None,
        compressor: Callable[[PromptBuilder], Compactor] | None = None,
        continuity: CheckpointRules | None = None,
    ) -> None:
        self.turn = threading.RLock()
        """Held while the window is looked at or changed."""
        self.store = store
        self.session = session
        self.budget = budget
        self.rules = rules
        self.material = PromptBuilder(
            meter=meter,
            pointer_of=self.pointer,
            marker_of=marker,
            mark=rules.mark,
            usual_wire=(format_of_provider(rules.card.provider) if rules.card is not None else DEFAULT_FORMAT).name,
            binds_thinking=rules.card is not None and rules.card.binds_thinking,
        )
        self.cached = 0
        """Tokens of the last prompt that stood unchanged at the beginning of the one before."""
        self._fold = WindowProjection(store, session, self.material, budget.input_budget)
        self._clock = clock
        self._listeners: list[Callable[[Entry], None]] = []
        self._gauge = Gauge(self.material, self.append)
        self.unanswered: tuple[int, PromptComposition] | None = None
        """The last entry before the last prompt, and what that was made of, until its answer is stored."""
        self._sent: list[tuple[bytes, int]] = []
        self._asked_at: int | None = None
        self._offered: tuple[tuple[bytes, bytes], tuple[int, int]] = (b"?", b""), (0, 0)
        self._recollection = RecallInjection(recall, self.material, self.append) if recall is not None else None
        self._compressor_for = compressor
        self.standing: StandingContext | None = None
        """Files whose text stands before everything else."""
        self._reliever = ReliefExecutor(
            self.material,
            lambda: self.compressor,
            self._recollection,
            lambda: self.continuing.checkpoints,
            self._draft,
        )
        self.continuing = WindowContinuity(self, continuity or CheckpointRules(), self._reliever)
        """How the work goes on across windows."""

    def pointer(self, seq: int) -> str:
        """Where an entry can be read whole."""
        return pointer_to(self.session, seq)

    def listen(self, listener: Callable[[Entry], None]) -> None:
        """Calls back with every event this window appends: decisions, zone changes, spikes."""
        self._listeners.append(listener)

    @property
    def state(self) -> WindowState:
        """What is in, as of the end of the transcript."""
        return self._fold.state()

    @_one_at_a_time
    def prompt(self, tools: Sequence[Any] | bytes = (), *, beside: bytes = b"", answer: int = 0) -> Prompt:
        """The prompt for the next call: fits, is valid, keeps what must be kept, changes as little as possible.

        `beside` is text that the caller sends beside the messages, as JSON; `answer` how many tokens it lets the model
        answer with.
        """
        self.offer(tools, beside, answer)
        self._stand()
        self.continuing.replay_pending()
        self.continuing.show(self.state)
        self.bring_back(self.state)
        self.continuing.announce(self.material.prompt_tokens(self.state), self.budget.input_budget)
        decisions = self._relieve(self.rules)
        state = self.state
        self.continuing.show(state)
        if decisions:
            self.bring_back(state)
        reading = self._measure(state)
        if self.material.prompt_tokens(state) > self.budget.input_budget:
            self._refuse(state)
        built = self.material.build(state)
        pieces = list(zip(built.messages, built.costs, strict=True))
        self.cached, self._sent = stable_prefix(self._sent, pieces), pieces
        self._asked_at = self._clock.now()
        lag = self._recollection.behind(state.seq) if self._recollection is not None else 0
        self.unanswered = state.seq, self._gauge.made_of(state, built, self.rules, prefix=self.cached, lag=lag)
        if reading.zone != "green" and not decisions:
            self._write_ahead(state)
        if state.seq - self._fold.snapshot_at >= SNAPSHOT_EVERY:
            self._take_snapshot(state)
        if self._recollection is not None:
            self._recollection.report()
            if state.evicted_messages or reading.utilization > _AHEAD:
                self._recollection.recall.indexer.nudge(self.session)
        return Prompt(built=built, reading=reading, decisions=decisions, prefix=self.cached, recalled=self.recalled)

    def _stand(self) -> None:
        """What stands before everything else is as its files say now; a change is told."""
        if self.standing is None:
            return
        found = self.standing.look()
        self.material.foreword = found.text
        if self.state.standing_digest != found.digest:
            self.append(STANDING, found.to_json())

    def offer(self, tools: Sequence[Any] | bytes, beside: bytes = b"", answer: int = 0) -> None:
        """Says what goes with the prompt: tool schemas and text beside the messages count, and so does the answer.

        An answer longer than the reserve takes room from the prompt, but never more than half of it.
        """
        schemas = tools if isinstance(tools, bytes) else to_json(tools) if tools else b""
        given = schemas, beside
        if self._offered[0] != given:  # the same ones come again and again
            self._offered = given, (self._cost_beside(schemas, beside))
        cost, self.material.beside = self._offered[1]
        self.material.answer = min(max(answer - self.budget.reserve, 0), self.budget.input_budget // 2)
        self.material.fixed = cost + self.material.answer

    def _cost_beside(self, schemas: bytes, beside: bytes) -> tuple[int, int]:
        meter = self.material.meter
        said = meter.frame.message + meter.count(beside.decode()) if beside else 0
        return meter.frame.prompt + (meter.tools(schemas.decode()) if schemas else 0) + said, said

    @_one_at_a_time
    def measure(self) -> PressureReading:
        """The pressure now; asked inside a turn too, after each tool result."""
        return self._measure(self.state)

    @property
    def recalled(self) -> tuple[Hit, ...]:
        """What had left and is quoted in the prompt now."""
        return self._recollection.hits if self._recollection is not None else ()

    @property
    def sent(self) -> tuple[bytes, ...]:
        """The messages of the last prompt."""
        return tuple(raw for raw, _ in self._sent)

    def bring_back(self, state: WindowState) -> None:
        """Has what left and matters now quoted in the prompt of a state, within the memory budget."""
        if self._recollection is not None:
            self._recollection.turn_to(state)
            share = self.budget.limits["memory"].hard
            self._recollection.bring_back(state, room=self.budget.input_budget, share=share)

    def recall(self, query: str, *, most: int = 10, scope: Scope | None = None) -> SearchResult:
        """Searches everything that was ever said, in the prompt or not, and explains what it finds."""
        recall = self._recall()
        recall.catch_up()
        asked = Query(text=query, now=self._clock.now())
        return recall.search(asked, most=most, scope=scope, shown=self.state.messages.keys())

    def quotable(self, found: SearchResult, characters: int) -> list[Excerpt]:
        """What was found, best first, as it would be quoted in a prompt; of each hit at most so many characters."""
        recall = self._recall()
        quoted: dict[str, Excerpt] = {}
        for one in (one for hit in found.hits for one in recall.quotable(hit, found.query, characters)):
            if one.pointer not in quoted or len(one.text) > len(quoted[one.pointer].text):
                quoted[one.pointer] = one
        return list(quoted.values())

    def read(self, pointer: str, *, around: int = 0) -> list[Entry]:
        """The entry a pointer names, whole, with its neighbours where asked."""
        return self._recall().read(pointer, around)

    def _recall(self) -> RecallService:
        if self._recollection is None:
            raise InputError("recall is switched off for this session; see the setting recall.enabled")
        return self._recollection.recall

    def pressure_of(self, state: WindowState) -> PressureReading:
        """The pressure of a state, without telling anybody."""
        return self._gauge.pressure(state, self.budget.input_budget, self.rules)

    def usage(self, state: WindowState) -> tuple[ComponentUsage, ...]:
        """How each component stands with its budget."""
        return self._gauge.usage(state, self.budget)

    def check(self, line: WindowMessage) -> BudgetVerdict:
        """Whether one more message keeps its component of the budget within its limits; asked before it is added."""
        return self._gauge.check(line, self.state, self.budget)

    @_one_at_a_time
    def pin(self, seqs: Iterable[int]) -> Entry:
        """Keeps these entries in the prompt until they are unpinned; those that left come back."""
        pinned = self.append(PINNED, {"seqs": sorted(set(seqs))})
        self._take_snapshot(self.state)  # a long session that never had one would be entered without its pins
        return pinned

    @_one_at_a_time
    def unpin(self, seqs: Iterable[int]) -> Entry:
        """Lets these entries leave again."""
        return self.append(UNPINNED, {"seqs": sorted(set(seqs))})

    @_one_at_a_time
    def restore(self, decision: int) -> Entry:
        """Undoes a decision for good: what left is in again and stays, what shrank is whole again."""
        about = self._content_of(decision, DECISIONS)
        undone = {"decision": decision, "left": about["left"], "shrunk": about["shrunk"]}
        return self.append(RESTORED, undone | {"replaces": about.get("replaces", 0)})

    @_one_at_a_time
    def redo(self, restored: int) -> Entry:
        """Does again what a restore undid."""
        about = self._content_of(restored, {RESTORED})
        decision = self._entry_of(about["decision"], DECISIONS)
        original = json.loads(decision.content)
        self.append(UNPINNED, {"seqs": seqs_in(about["left"]) + [int(seq) for seq in about["shrunk"]]})
        return self.append(decision.kind, original | {"reason": f"done again after entry {restored} had undone it"})

    @_one_at_a_time
    def compact(self, focus: str = "") -> tuple[Entry, ...]:
        """Makes the prompt smaller now: all but the newest messages leave, and what is known of them stays."""
        rules = at_once(self.rules, replace(self.rules.compact, focus=focus), recent=2)
        return self._relieve(rules)

    @_one_at_a_time
    def checkpoint(
        self, changes: Changes | None = None, *, expect: int | None = None, reason: str = "asked for"
    ) -> tuple[Entry, Entry]:
        """Writes down where the work stands, now: a checkpoint, and the handoff that can be read.

        With `expect` it is refused, and nothing is written, unless that is the newest version.
        """
        made, handoff = self.continuing.checkpoint(reason=reason, changes=changes, expect=expect)
        return made, handoff

    @_one_at_a_time
    def next(self, source: Checkpoint | None = None) -> Entry:
        """Opens a new window: the work's state is saved, everything leaves that may, and it is told behind the next
        question where the work stands and what has changed around it."""
        return self.continuing.next(self.continuing.for_new_window(self.rules), self._idle(), source)

    @_one_at_a_time
    def host_compacted(self) -> str:
        """The newest handoff for a host that compacts its own history; empty where it was shown already."""
        return self.continuing.host_compacted()

    @_one_at_a_time
    def note(self, kind: NoteKind, text: str, *, critical: bool = False) -> Entry:
        """Writes something down for later: it stands in the prompt once messages have left it."""
        if kind not in NOTE_KINDS:
            raise InputError(f"a note is of the kind {', '.join(NOTE_KINDS)}, not '{kind}'")
        if not text.strip() or len(text) > MAX_NOTE_CHARS:
            raise InputError(
                f"a note has 1 to {MAX_NOTE_CHARS:,} characters; this one has {len(text):,}. Nothing was stored."
            )
        return self.append(NOTE, {"kind": kind, "text": text, "critical": critical})

    @cached_property
    def compressor(self) -> Compactor:
        """Who writes shorter texts; opened when something has to be written."""
        if self._compressor_for is None:
            raise InputError("this window was opened without anybody who writes shorter texts; use recto.open")
        return self._compressor_for(self.material)

    def close(self) -> None:
        """Stops what the window has started."""
        if "compressor" in self.__dict__:
            self.compressor.close()
        if self._recollection is not None:
            self._recollection.close()

    def tighten(self, room: int) -> None:
        """Lowers what a prompt may have, as when a provider said that the last one was too long."""
        if 0 < room < self.budget.input_budget:
            self.budget = replace(self.budget, input_budget=room)
            self.rules = replace(self.rules, input_budget=room)

    def _entry_of(self, seq: int, kinds: Iterable[str]) -> Entry:
        entry = next(iter(self.store.read(self.session, seq, seq)), None)
        if entry is None or entry.kind not in kinds:
            raise InputError(f"entry {seq} is not a decision that can be undone or done again")
        return entry

    def _content_of(self, seq: int, kinds: Iterable[str]) -> dict[str, Any]:
        about: dict[str, Any] = json.loads(self._entry_of(seq, kinds).content)
        return about

    def _relieve(self, rules: ReliefRules) -> tuple[Entry, ...]:
        """Decides, stores the decisions, and starts over if somebody else wrote meanwhile."""
        for _ in range(_ATTEMPTS):
            state = self.state
            seen = state.seq
            decided = self._reliever.decide(state, rules, self._idle())
            if decided is None:
                if self.state.seq == seen:
                    return ()
                continue  # somebody wrote while the index was asked, and now it may not fit
            try:
                entries = self.append_all(decided.drafts, decided.after)
            except (AppendConflict, KeyReused):
                continue
            return tuple(entry for entry in entries if entry.kind in DECISIONS)
        raise AppendConflict(self.session, None, self.store.head(self.session).seq, "others write faster than we can")

    def _write_ahead(self, state: WindowState) -> None:
        """Where a compaction will come, it is written now by whoever takes long."""
        if self._compressor_for is not None and any(isinstance(one, Compact) for one in self.rules.policies):
            view = self.material.view(state, self.rules.protection)
            self.compressor.prepare(self.rules.compact.plan(view, 1), state)

    def _idle(self) -> float:
        """Seconds since the last prompt; before the first one nothing is cached."""
        return inf if self._asked_at is None else max(self._clock.now() - self._asked_at, 0) / 1e6

    def _measure(self, state: WindowState) -> PressureReading:
        return self._gauge.measure(state, self.budget, self.rules)

    def _refuse(self, state: WindowState) -> None:
        kept = self._recollection.kept_by_the_index if self._recollection is not None else ""
        self.continuing.before_overflow()
        error = overflow(state, self.material, self.budget.input_budget, kept)
        about = {"tokens": error.tokens, "room": error.room, "holders": [list(held) for held in error.holders[:10]]}
        about |= {"index": kept} if kept else {}
        self.append(OVERFLOW, about)
        raise error

    def _take_snapshot(self, state: WindowState) -> None:
        with suppress(KeyReused):  # another process took it just now
            self.append(SNAPSHOT, state.snapshot(), snapshot_key(self._fold.snapshots + 1))

    def append(self, kind: str, about: Mapping[str, Any], key: str | None = None) -> Entry:
        """Stores an event, and tells whoever listens."""
        return self.append_all([self._draft(kind, about, key)])[0]

    def append_all(self, drafts: Sequence[Draft], expect: int | None = None) -> list[Entry]:
        """Stores events that belong together, all or none, and tells whoever listens."""
        entries = self.store.append(self.session, drafts, expect=expect)
        self._tell(entries)
        if any(entry.kind == CHECKPOINT for entry in entries):
            self.continuing.keep(entries)
        return entries

    def _draft(self, kind: str, about: Mapping[str, Any], key: str | None = None) -> Draft:
        return event(self._clock, kind, about, key)

    def _tell(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            for listener in self._listeners:
                listener(entry)
