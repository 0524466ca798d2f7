"""The live window of a session: evicts when it is too full, builds prompts, pins, restores.

`Window.prompt` is the path of a step. Each stage is a function of its inputs and returns values:

1. state: the projection of the transcript (`recto.engine.projection`), and everything else the prompt contains: tool
   schemas, the caller's system text, standing context, the handoff and the recalled messages (`PromptExtras`).
2. measure: what the prompt of that state costs. A checkpoint is written while everything is still in the prompt.
3. plan: what should be evicted, trimmed or compacted (`recto.context.policies.planner`), and whether it is indexed.
4. carry out: write the summaries, and store the decisions before they count (`recto.engine.relief`).
5. recall: search again for the question, if decisions have changed the prompt (`recto.engine.recall_injection`).
6. build: measure the result, refuse it if it does not fit, and render the messages (`recto.engine.prompt_builder`).

The window holds what lives longer than one step: the cached projection, the budget and rules, and the last prompt.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial, wraps
from math import inf
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from recto.context.policies.eviction import Compact
from recto.context.policies.planner import Relief, ReliefRules, plan_relief
from recto.context.window.budget import Budget, CacheAge, PressureReading, corrected_budget, requested_lifetime
from recto.context.window.report import PromptPiece
from recto.context.window.state import Note, NoteKind, NoteLevel, WindowState, limit_notes, ranges_of, seqs_in
from recto.continuity.checkpoints.checkpoint import Changes, Checkpoint, TaskStatement
from recto.continuity.checkpoints.rules import CheckpointRules
from recto.engine.arguments import check_entry_number, schemas_json
from recto.engine.composition import (
    INSTRUCTIONS,
    TOOLS_OFFERED,
    first_difference,
    folded,
    system_pieces,
    tool_pieces,
    total_of,
)
from recto.engine.continuity import ATTEMPTS, WindowContinuity, at_once
from recto.engine.projection import (
    DECISIONS,
    NEW_WINDOW,
    NOTE,
    OVERFLOW,
    PINNED,
    POSTPONED,
    REFUSED,
    RESTORED,
    RETRIED,
    SNAPSHOT,
    SNAPSHOT_EVERY,
    UNPINNED,
    EventLog,
    WindowProjection,
    guarded,
    note_of,
    snapshot_key,
)
from recto.engine.prompt_builder import BuiltPrompt, MessageCache, Prompt, PromptBuilder, render_marker
from recto.engine.recall_injection import RecallInjection, judged_entries, recalled_note
from recto.engine.relief import LazyCompactor, ReliefExecutor, composition_of, measure
from recto.engine.runs import last_run
from recto.engine.standing_context import STANDING, StandingContext, StandingText
from recto.errors import AppendConflict, InputError, KeyReused
from recto.formats import DEFAULT_FORMAT, format_of_provider
from recto.formats.message import Message
from recto.formats.tools import recall_tool_in
from recto.health.metrics import PromptComposition
from recto.recall.types import JUDGED, VERDICTS, Query, SearchResult, Verdict
from recto.tokens.meter import Meter
from recto.transcript.entries import MESSAGE, Clock, Entry, refused_key
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import Scope, parse_pointer, pointer_to, reach_of
from recto.transcript.sources import source_of

if TYPE_CHECKING:
    from recto.engine.compactor import Compactor
    from recto.recall.recall import RecallService
    from recto.tokens.limits import ModelLimits

_ANNOUNCED_REACH = 64
"""Entries back in which the tools and the system text of requests are searched that have no answer yet."""
_SHARED_REACH = 400
"""Entries back in which the notes of an agent's other sessions are searched."""
_MAX_SHARED_CHARS = 2_400
"""Characters of notes with which a session of the agent begins."""
_INDEX_AHEAD = 0.5
"""The utilization from which on messages are indexed ahead of need, so that relief does not wait for the index."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _locked(method: Callable[Concatenate[Window, _P], _R]) -> Callable[Concatenate[Window, _P], _R]:
    """Serialises the threads that share a window."""

    @wraps(method)
    def call(window: Window, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with window.lock:
            return method(window, *args, **kwargs)

    return call


class SentPrompt(Struct, frozen=True, kw_only=True, dict=True):
    """The last prompt of a window, as the next steps need it."""

    seq: int
    """The last entry before it."""
    at: int
    """When it was built, in microseconds since 1970."""
    prefix: int
    """Tokens at its beginning that are unchanged from the prompt before."""
    built: BuiltPrompt
    totals: PromptComposition
    """What it consists of, but its pieces."""
    pieces: Callable[[], tuple[PromptPiece, ...]]

    @cached_property
    def composition(self) -> PromptComposition:
        """What it consists of, as it is stored with the answer."""
        return replace(self.totals, pieces=self.pieces())


class PromptOutlook(Struct, frozen=True, kw_only=True):
    """A prompt that would be sent now."""

    state: WindowState
    builder: PromptBuilder
    input_budget: int


class Reconfiguration(Protocol):
    """Makes the budget and the rules of a window again while it is in use."""

    def change(self, changes: Mapping[str, Any], /) -> tuple[Budget, ReliefRules]:
        """The budget and the rules after window settings changed, by the names that the settings file has."""
        ...

    def lower(self, limits: ModelLimits, /) -> tuple[Budget, ReliefRules]:
        """The budget and the rules after a provider stated lower limits of the model."""
        ...


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
        reaches_beyond: Callable[[], bool] = lambda: False,
        compactor: Callable[[MessageCache], Compactor] | None = None,
        continuity: CheckpointRules | None = None,
        standing: StandingContext | None = None,
        configuration: Reconfiguration | None = None,
        notes_session: str = "",
    ) -> None:
        """Prepare the window of a session.

        `configuration` makes the budget and the rules again when settings change or a provider states its limits.
        `notes_session` is the session through which the sessions of an agent share their notes; empty: they do not.
        """
        self.lock = threading.RLock()
        """Held while the window is read or changed."""
        self.store = store
        self.session = session
        self.budget = budget
        self.rules = rules
        self.events = EventLog(store, session, clock)
        self.messages = MessageCache(meter=meter, pointer_of=partial(pointer_to, session), mark=rules.mark)
        self.builder = PromptBuilder(
            messages=self.messages,
            marker_of=render_marker,
            input_budget=budget.input_budget,
            usual_wire=(format_of_provider(rules.card.provider) if rules.card is not None else DEFAULT_FORMAT).name,
            binds_thinking=rules.card is not None and rules.card.binds_thinking,
            card=rules.card,
        )
        """What built the last prompt."""
        self.last: SentPrompt | None = None
        self.compactor = LazyCompactor(compactor, self.messages)
        self._clock = clock
        self._standing = standing or StandingContext(count=meter.count)
        self._configuration = configuration
        self._notes_session = notes_session
        self._at_most: int | None = None
        """The input budget to which a provider's refusal lowered it."""
        self._projection = WindowProjection(store, session, self.messages, budget.input_budget)
        self.events.listen(lambda entry: self.feed([entry]))
        self._recall = (
            RecallInjection(recall, self.messages, self.events, reaches_beyond) if recall is not None else None
        )
        if self._recall is not None:
            self.builder = replace(self.builder, vectors_of=self._recall.vectors_of)
        self.continuity = WindowContinuity(
            self.events, self._projection, self.messages, continuity or CheckpointRules(), self.lock
        )
        """Checkpoints, handoffs and new windows."""
        self._relief = ReliefExecutor(self._recall, self.compactor, self.continuity, self.events)
        self._reading: PressureReading | None = None
        self._postponed_in = -1
        """The turn in which it was last recorded that relief is postponed."""
        self._arrived = 0
        """The entry up to which results were looked at when they arrived."""
        self._extra_pieces: tuple[tuple[bytes, bytes, str], tuple[PromptPiece, ...], int, int] = (
            (b"?", b"", ""),
            (),
            0,
            0,
        )
        """The tool schemas and the system text of the last prompt, their pieces, and what each of the two costs."""
        self._reader = ""
        """The tool among those of the last prompt with which the model can look up evicted messages."""
        self._marker: tuple[str, Callable[[WindowState], str]] = "", render_marker
        """The tool that the marker of the last prompt names, and what renders that marker."""

    @property
    def state(self) -> WindowState:
        """What is in the prompt, as of the end of the transcript."""
        return self._projection.state()

    @property
    def current(self) -> WindowState:
        """The state with everything that this process stored; `state` also looks whether others wrote since."""
        return self._projection.current()

    @_locked
    def prompt(
        self,
        tools: Sequence[Any] | bytes = (),
        *,
        beside: bytes = b"",
        answer: int = 0,
        wire: str | None = None,
        defer_events: bool = False,
        reader: str = "",
    ) -> Prompt:
        """The prompt for the next model call: it fits, is valid, and changes as little as possible.

        Args:
            tools: Tool schemas that are sent with it.
            beside: Text that the caller sends outside the messages, as JSON.
            answer: How many tokens the caller lets the model answer with.
            wire: The format of a prompt whose messages are valid in every format.
            defer_events: Whether its status events are stored in the commit of the next append, or on close.
            reader: The tool with which the model can look up evicted messages; else it is searched among the tools.

        Raises:
            WindowOverflow: What may not be evicted does not fit.
        """
        with self.events.collecting(defer=defer_events):
            builder = self.builder_for(tools, beside=beside, answer=answer, wire=wire, reader=reader)
            return self._prompt(builder, tools)

    def _prompt(self, builder: PromptBuilder, tools: Sequence[Any] | bytes) -> Prompt:
        # state: what is recalled for the question counts towards the pressure, so it is searched before relief
        state = self.state
        if self._notes_session and not (state.last_assistant or state.notes or state.evicted_messages):
            state = self._take_shared_notes(state)
        builder = self._with_standing(builder, state)
        if self.continuity.replay_pending(state, self._extra_pieces[0][0]):
            state = self._projection.current()
        builder = self._with_notes(builder, state, relief=self.rules)
        # measure: a checkpoint is written while everything is still in the prompt
        lines, measured = builder.lines(state), state.seq
        used = builder.prompt_tokens(state, lines)
        budget = corrected_budget(self.rules.input_budget, state.counted_tokens, state.reported_tokens)
        rules = self.rules if budget == self.rules.input_budget else replace(self.rules, input_budget=budget)
        self.continuity.announce(state, used, rules, budget)
        # plan, carry out: decisions are stored before they count
        arrived = self._summarise_arrivals(self._projection.current(), builder, rules)
        decisions = arrived + self._relieve(
            self._projection.current(), builder, rules, builder.prompt_tokens(self.state) if arrived else used
        )
        # recall: again, if decisions have changed the prompt, or could not make room for what was recalled
        state = self._projection.current()
        is_over = used > self.budget.input_budget
        if state.seq != measured or is_over:
            builder = self._with_notes(builder, state, search=bool(decisions) or is_over)
            lines = builder.lines(state)
            used = builder.prompt_tokens(state, lines)
        self.builder = builder
        # build: measured, refused if it does not fit, rendered
        reading = self._measure(state, builder, used, lines.marker_cost)
        if used > self.budget.input_budget:
            self._refuse(state, builder)
        built = builder.build(state, lines)
        self.last = self._sent(state, builder, built)
        self._work_ahead(state, builder, reading, decided=bool(decisions))
        recalled = self._recall.hits if self._recall is not None else ()
        return Prompt(
            built=built,
            reading=reading,
            decisions=decisions,
            prefix=self.last.prefix,
            recalled=recalled,
            room=self.budget.input_budget - builder.extras.answer,
            schemas=tools,
        )

    @_locked
    def builder_for(
        self,
        tools: Sequence[Any] | bytes = (),
        *,
        beside: bytes = b"",
        answer: int = 0,
        wire: str | None = None,
        reader: str = "",
    ) -> PromptBuilder:
        """The builder of the last prompt with other tools, system text and answer. Changes nothing.

        An answer longer than the output reserve takes input budget from the prompt, but never more than half of it.
        """
        schemas = tools if isinstance(tools, bytes) else schemas_json(tools) if tools else b""
        content = schemas, beside, wire or ""
        if self._extra_pieces[0] != content:  # the same ones come with every prompt
            meter = self.messages.meter
            by_tool = tool_pieces(meter, schemas) if schemas else ()
            by_section = system_pieces(meter, beside, wire or "") if beside else ()
            pieces = folded((*by_tool, *by_section))
            self._extra_pieces = content, pieces, total_of(by_tool), total_of(by_section)
            self._reader = recall_tool_in(schemas)
        _, pieces, schema_tokens, system_tokens = self._extra_pieces
        builder, named = self.builder, reader or self._reader
        extra_answer = min(max(answer - self.budget.reserve, 0), self.budget.input_budget // 2)
        if named != self._marker[0]:
            self._marker = named, partial(render_marker, reader=named) if named else render_marker
        costs = self.messages.meter.frame.prompt, schema_tokens, system_tokens, extra_answer
        if builder.extras.costs != costs or builder.extras.pieces is not pieces:
            builder = replace(builder, extras=replace(builder.extras.costing(*costs), pieces=pieces))
        if (wire and builder.usual_wire != wire) or builder.marker_of is not self._marker[1]:
            builder = replace(builder, usual_wire=wire or builder.usual_wire, marker_of=self._marker[1])
        return builder

    @_locked
    def sent_as(self, messages: Sequence[bytes], system: bytes, wire: str) -> int:
        """Records that the last prompt is sent with other messages than it was built with. Returns its tokens.

        Args:
            messages: All messages that are sent, those of the caller included.
            system: The system text outside of them, as JSON.
            wire: The format of both.
        """
        last = self.last
        if last is None:
            return 0
        pieces = self.builder.pieces_as_sent(self.state, messages, system, wire)
        tokens = total_of(pieces)
        self.last = replace(last, totals=replace(last.totals, tokens=tokens, wire=wire), pieces=lambda: pieces)
        return tokens

    @_locked
    def outlook(self) -> PromptOutlook:
        """The prompt that would be sent now with the tools and the system text of the last answered one.

        It is derived from the transcript and the standing files, so that every process that looks at a session sees the
        same. A new recall or summary is not foreseen.
        """
        state, run = self.state, last_run(self.store, self.session)
        last, meter, extras = run.composition if run is not None else None, self.messages.meter, self.builder.extras
        tools, system = (last.tools, last.system) if last is not None else self._announced(state)
        wire, reader = (last.wire, last.reader) if last is not None else ("", "")
        builder = replace(
            self.builder,
            extras=replace(
                extras.costing(meter.frame.prompt, tools, system, 0), handoff=None, recalled=None, pieces=()
            ),
            usual_wire=wire or self.builder.usual_wire,
            marker_of=partial(render_marker, reader=reader) if reader else render_marker,
        )
        if self._standing is not None:
            builder = self._with_foreword(builder, self._standing.read())
        handoff = self.continuity.handoff_note(state, builder.wire_of(state))
        builder = builder.using(handoff=handoff, recalled=recalled_note(self.store, self.session, state))
        budget = self.budget.input_budget
        sent = (last.model, last.window) if last is not None and self.last is None else None
        if last is not None and sent == (self.rules.card.name if self.rules.card else "", self.budget.window):
            budget = min(budget, last.room)  # the provider of the process that sent it may accept less than the window
        return PromptOutlook(state=state, builder=builder, input_budget=budget)

    def _announced(self, state: WindowState) -> tuple[int, int]:
        """The tokens of the tool schemas and the system text that were stored with requests, before any answer."""
        meter, found = self.messages.meter, {}
        for entry in self.store.tail(self.session, _ANNOUNCED_REACH):
            if entry.kind in (TOOLS_OFFERED, INSTRUCTIONS):
                found[entry.kind] = str(json.loads(entry.content).get("text", "")).encode()
        tools = total_of(tool_pieces(meter, found[TOOLS_OFFERED])) if TOOLS_OFFERED in found else 0
        system = system_pieces(meter, found[INSTRUCTIONS], state.wire) if INSTRUCTIONS in found else ()
        return tools, total_of(system)

    @_locked
    def measure(self) -> PressureReading:
        """The pressure now. Also called inside a turn, after each tool result."""
        with self.events.collecting():
            state = self.state
            lines = self.builder.lines(state)
            return self._measure(state, self.builder, self.builder.prompt_tokens(state, lines), lines.marker_cost)

    @property
    def recall_engine(self) -> RecallService:
        """The search over everything that was ever said in the session."""
        if self._recall is None:
            raise InputError("recall is switched off for this session; see the setting recall.enabled")
        return self._recall.recall

    def recall(
        self, query: str, *, most: int = 10, scope: Scope | None = None, project: str = "", agent: str = ""
    ) -> SearchResult:
        """Searches everything that was ever said, in the prompt or not, and explains what it finds."""
        recall = self.recall_engine
        recall.catch_up()
        return recall.search(
            Query(text=query, now=self._clock.now(), judged=self.judged_entries(), source=source_of(agent, project)),
            limit=most,
            scope=scope,
            shown=self.shown_entries(),
        )

    def quote_again(self, event: Entry, state: WindowState, builder: PromptBuilder) -> str:
        """The text that a recall event of this session records, as it was sent; empty where it cannot be quoted."""
        if self._recall is None:
            return ""
        quoted = self._recall.quote_again(event, state, builder.messages, builder.wire_of(state))
        return quoted.text if quoted is not None else ""

    def judged_entries(self) -> dict[tuple[str, int], bool]:
        """The entries that were judged when they were recalled, by session and number, and whether they helped."""
        return judged_entries(self.state, self.session)

    @_locked
    def judge_recall(self, entry: int | str, verdict: Verdict, *, question: int | None = None) -> Entry:
        """Stores whether a recalled message was helpful; later searches of this session rank it higher or lower.

        Args:
            entry: The message: its number, or the pointer of one of another session.
            verdict: `helpful`, `not_helpful`, or `withdrawn`, which takes an earlier verdict back.
            question: The user message it was quoted for, if it was in a prompt.
        """
        if verdict not in VERDICTS:
            raise InputError(f"a verdict is {', '.join(VERDICTS)}, not '{verdict}'")
        if question is not None:
            check_entry_number("'question'", question)
        if question is not None and not 1 <= question <= self.state.seq:
            raise InputError(f"there is no entry {question} in this session. Nothing was stored.")
        session, seq = (self.session, entry) if isinstance(entry, int) else parse_pointer(entry)
        is_near = reach_of(self.session, "tenant").contains(session)
        found = next(iter(self.store.read(session, seq, seq)), None) if is_near and seq > 0 else None
        if found is None or found.kind != MESSAGE:
            raise InputError(f"there is no message at '{entry!s:.300}'. Nothing was stored.")
        payload: dict[str, Any] = {"entry": seq} if session == self.session else {"pointer": pointer_to(session, seq)}
        payload |= {"verdict": verdict} | ({"question": question} if question is not None else {})
        judged = self.events.append(JUDGED, payload)
        self._take_snapshot(self.state)  # as for pins
        return judged

    @_locked
    def shown_entries(self) -> frozenset[int]:
        """The entries that a prompt built now would contain.

        A session that was imported, or had no prompt for long, may be longer than the window: then what the next prompt
        will evict is left out. Nothing is decided by that.
        """
        state = self.state
        try:
            if self.builder.prompt_tokens(state) > self.budget.input_budget:
                state = plan_relief(state, self.rules, self.builder, self._cache_age(state)).state
            return self.builder.shown(state, self.builder.build(state))
        except InputError:  # messages of two wire formats: no prompt can be built of them
            return frozenset(state.messages)

    def read(self, pointer: str, *, around: int = 0) -> list[Entry]:
        """The entry a pointer names, complete, with as many neighbours on each side."""
        return self.recall_engine.read(pointer, around)

    def pointer(self, seq: int) -> str:
        """Where an entry of this session can be read in full."""
        return pointer_to(self.session, seq)

    def feed(self, entries: Sequence[Entry], messages: Sequence[Message | None] = ()) -> None:
        """Takes entries that the session has just stored, with parsed messages, so that they are not read back."""
        self._projection.feed(entries, messages)
        if self._recall is not None:
            self._recall.note_stored(entries)

    def listen(self, listener: Callable[[Entry], None]) -> None:
        """Calls back with every event this window appends: decisions, zone changes, spikes.

        What a listener raises is logged and fails no call, because the event is stored already.

        Raises:
            InputError: It cannot be called.
        """
        self.events.listen(guarded(listener))

    @_locked
    def pin(self, seqs: Iterable[int]) -> Entry:
        """Keeps entries in the prompt until they are unpinned; evicted ones return with the rest of their steps.

        Where all of them are pinned already, the newest event that pinned one is returned and none is stored.
        """
        wanted, shown = sorted(set(seqs)), self.state.messages
        if (pinning := self._pinning(set(wanted))) is not None:
            return pinning
        partners = self._projection.rest_of_steps([seq for seq in wanted if seq not in shown])
        pinned = self.events.append(PINNED, {"seqs": wanted} | ({"with": ranges_of(partners)} if partners else {}))
        self._take_snapshot(self.state)  # a long session without a snapshot would be opened without its pins
        return pinned

    @_locked
    def unpin(self, seqs: Iterable[int]) -> Entry:
        """Allows entries to be evicted again."""
        return self.events.append(UNPINNED, {"seqs": sorted(set(seqs))})

    @_locked
    def note(self, kind: NoteKind, text: str, level: NoteLevel) -> Entry:
        """Stores a note, for all sessions of the agent where they share notes, and in a file where there is one."""
        payload = {"kind": kind, "text": text, "critical": level == "critical", "level": level}
        entry = self.events.append(NOTE, payload)
        if self._notes_session:
            source = {"from": self.pointer(entry.seq)}
            self.store.append(self._notes_session, [self.events.draft(NOTE, payload | source)])
        self.continuity.write_notes(self.state.notes)
        return entry

    def _take_shared_notes(self, state: WindowState) -> WindowState:
        """Begins a session with the notes of the agent's other sessions, stored as notes of its own. Once."""
        found: list[Note] = []
        payloads: dict[int, dict[str, Any]] = {}
        for entry in self.store.tail(self._notes_session, _SHARED_REACH):
            if entry.kind == NOTE and (shared := note_of(entry)) is not None:
                found.append(shared)
                payloads[shared.seq] = json.loads(entry.content)
        for note in limit_notes(found, _MAX_SHARED_CHARS):
            with suppress(KeyReused):  # another process began this session with them
                self.events.append(NOTE, payloads[note.seq], f"shared-note/{note.seq}")
        return self._projection.current() if found else state

    @_locked
    def refuse(self, seqs: Iterable[int], why: Mapping[str, str | int]) -> list[Entry]:
        """Takes messages that the provider refused out of the prompt. They stay in the transcript."""
        drafts = []
        for seq in seqs:
            first = self.store.find(self.session, refused_key(seq)) is None
            drafts.append(self.events.draft(REFUSED, {"entry": seq} | dict(why), refused_key(seq) if first else None))
        return self.events.append_all(drafts) if drafts else []

    @_locked
    def retry(self, seqs: Iterable[int]) -> list[Entry]:
        """Puts refused messages back into the prompt, because the client sends them again."""
        drafts = [self.events.draft(RETRIED, {"entry": seq}) for seq in seqs]
        return self.events.append_all(drafts) if drafts else []

    @_locked
    def restore(self, decision: int) -> Entry:
        """Undoes a decision for good: evicted messages are in the prompt again and stay, trimmed ones are complete.

        A trimmed result may have been evicted since: it returns with its call and the other results of that step.
        Where an earlier call has undone it and nothing has changed since, that event is returned and none is stored.
        """
        payload = json.loads(self._decision(decision, DECISIONS, "a decision").content)
        shown, evicted = self.state.messages, set(seqs_in(payload["left"]))
        shrunk = payload["shrunk"] | payload.get("cleared", {})
        if (undoing := self._undoing(decision, evicted.union(map(int, shrunk)))) is not None:
            return undoing
        evicted |= {seq for seq in map(int, shrunk) if seq not in shown}
        evicted |= set(self._projection.rest_of_steps([seq for seq in evicted if seq not in shown]))
        undone = {"decision": decision, "left": ranges_of(sorted(evicted)), "shrunk": shrunk}
        before = {name: payload.get(name, 0) for name in ("replaces", "record_before")}
        return self.events.append(RESTORED, undone | before)

    @_locked
    def redo(self, restored: int) -> Entry:
        """Repeats a decision that a restore undid."""
        undone = json.loads(self._decision(restored, {RESTORED}, "the undoing of a decision").content)
        decision = self._decision(undone["decision"], DECISIONS, "a decision")
        payload = json.loads(decision.content) | {"reason": f"done again after entry {restored} had undone it"}
        # everything that came back, which is more than the decision had evicted where its results were evicted later
        came_back = {*seqs_in(undone["left"]), *map(int, undone["shrunk"])}
        kept = set(self._pinned_by_hand(came_back))
        kept |= set(self._projection.rest_of_steps(kept))
        payload["left"] = ranges_of(sorted(set(seqs_in(undone["left"])) - kept))
        for name in {"shrunk", "cleared"} & payload.keys():
            payload[name] = {seq: what for seq, what in payload[name].items() if int(seq) not in kept}
        state = self.state
        # What a newer decision wrote stays: it says more.
        if state.record_seq != payload.get("record_before", 0):
            payload.pop("record", None)
        if (state.summary.decision_seq if state.summary else 0) != payload.get("replaces", 0):
            payload.pop("summary", None)
        self.events.append(UNPINNED, {"seqs": sorted(came_back - kept)})
        return self.events.append(decision.kind, payload)

    @_locked
    def compact(self, focus: str = "", *, below: int | None = None) -> tuple[Entry, ...]:
        """Compacts now: evicts all but the newest messages and puts a summary in their place.

        With `below`, a number of tokens, at most half of it are the newest messages and a quarter the summary.
        """
        policy = replace(self.rules.compact, focus=focus)
        if below is not None:
            recent, summary = min(policy.keep_recent_tokens, below // 2), min(policy.summary_tokens, below // 4)
            policy = replace(policy, keep_recent_tokens=recent, summary_tokens=max(summary, 1))
        rules = at_once(self.rules, policy, recent=2)
        return self._relieve(self.state, self.builder, rules)

    @_locked
    def start_next(
        self, source: Checkpoint | None = None, *, changes: Changes | None = None, by: str = "", reason: str = ""
    ) -> Entry:
        """Opens a new window: saves a checkpoint, evicts everything that may be evicted, and queues the first page.

        The first page contains the state of the work and what has changed around it; it follows the next question.
        `changes` are stated for the checkpoint; `by` and `reason` say in the decision who asked for it, and why.
        """
        rules = self.continuity.rules_for_new_window(self.rules)
        for _ in range(ATTEMPTS):
            state = self.state
            before = self.continuity.before_new_window(state, rules, source, changes)
            planned = self._relief.plan(state, rules, self.builder, self._cache_age(state))
            if by and not planned.relief.plans and not planned.relief.postponed:
                # No summary is worth its tokens: a window that was asked for evicts without one, with a short record.
                short = self.continuity.rules_without_summary(rules, self.builder.prompt_tokens(state))
                planned = self._relief.plan(state, short, self.builder, self._cache_age(state))
            pending = self._relief.open_window(planned, self.messages, before, by=by, reason=reason)
            with suppress(KeyReused, AppendConflict):  # another process wrote meanwhile
                entries = self.continuity.store(pending.drafts, pending.after)
                return next(entry for entry in entries if entry.kind == NEW_WINDOW)
        raise AppendConflict(self.session, None, self.state.seq, "others write faster than we can")

    def configure(
        self, *, budget: Budget | None = None, rules: ReliefRules | None = None, at_most: int | None = None
    ) -> None:
        """Replaces the budget or the rules from the next prompt on.

        `at_most` lowers the input budget, as after a provider refused the last prompt as too long; it never raises it.
        """
        self.budget = budget or self.budget
        self.rules = rules or self.rules
        if budget is not None:
            self.builder = replace(self.builder, input_budget=budget.input_budget)
        if at_most is not None and 0 < at_most < self.budget.input_budget:
            self._at_most = at_most
            self.budget = replace(self.budget, input_budget=at_most)
            self.rules = replace(self.rules, input_budget=at_most)
            self.builder = replace(self.builder, input_budget=at_most)

    @_locked
    def lower_limits(self, limits: ModelLimits | None, *, at_most: int) -> None:
        """Applies the limits that a provider stated when it refused a prompt, as if the settings stated them.

        The input budget is then no more than `at_most`: if the refused prompt was counted too low, the next one is too.
        """
        stated = (limits.max_input or limits.window) if limits else None
        if limits and stated and self._configuration is not None:
            budget, rules = self._configuration.lower(limits)
            if not budget.input_budget:  # the output reserve that the settings state is larger than the window
                at_most = min(at_most, stated // 2)
            elif budget.input_budget < self.budget.input_budget:
                self.configure(budget=budget, rules=rules)
        self.configure(at_most=at_most)

    @_locked
    def use(self, /, **settings: Any) -> None:  # noqa: ANN401  # the settings of the group `window`
        """Changes window settings from the next prompt on, by the names that the settings file has.

        `use(policy="fifo")`, `use(mode="zones", ceiling_percent=90)`. `policy` may also be an object of your own with
        the calls of a policy or of a scorer. Raises `SettingsError` for unknown names and values; nothing changes then.
        """
        if self._configuration is None:
            raise InputError("this session was opened without settings; use recto.open, or window.configure(rules=…)")
        budget, rules = self._configuration.change(settings)
        self.configure(budget=budget, rules=rules, at_most=self._at_most)

    @_locked
    def state_task(self, task: TaskStatement) -> None:
        """Puts a task into every prompt from the next one on, before all messages; an empty one takes it out."""
        self._standing.task = task.text
        self.messages.goal = task.goal

    def close(self) -> None:
        """Stores the events that wait; closes the compactor and the recall of this window."""
        try:
            self.events.flush()
        finally:
            self.compactor.close()
            if self._recall is not None:
                self._recall.close()

    def _with_standing(self, builder: PromptBuilder, state: WindowState) -> PromptBuilder:
        """Adds the text of the standing files and critical memory as they are now. A change is recorded."""
        standing = self._standing.read()
        if state.standing_digest != standing.digest and (state.standing_digest or standing.files):
            self.events.record(STANDING, standing.to_json())
        if self._recall is not None:
            self._recall.shown_memories = standing.memories
        return self._with_foreword(builder, standing)

    def _with_foreword(self, builder: PromptBuilder, standing: StandingText) -> PromptBuilder:
        if builder.extras.foreword == standing.text:
            return builder
        extras = replace(builder.extras, foreword=standing.text, files=standing.pieces, digest=standing.memory_tokens)
        return replace(builder, extras=extras)

    def _with_notes(
        self, builder: PromptBuilder, state: WindowState, *, search: bool = True, relief: ReliefRules | None = None
    ) -> PromptBuilder:
        """Puts the handoff and the recalled messages behind the question; a `relief` that follows makes room."""
        handoff = self.continuity.handoff_note(state, builder.wire_of(state))
        builder = builder.using(handoff=handoff, recalled=builder.extras.recalled)
        if self._recall is None or not search:
            return builder
        self._recall.finish_turn(state)
        share, enforced = self.budget.limits["memory"].hard, self.budget.enforced == "per_component"
        recalled = self._recall.recall_for(
            state,
            builder,
            input_budget=self.budget.input_budget,
            share=max(share - builder.extras.digest, 0) if enforced else share,
            enforced=enforced,
            relief=relief,
        )
        return builder.using(handoff=handoff, recalled=recalled)

    def _relieve(
        self, state: WindowState, builder: PromptBuilder, rules: ReliefRules, used: int | None = None
    ) -> tuple[Entry, ...]:
        """Plans, carries out, and stores the decisions. Starts over if another process wrote meanwhile.

        `used` are the tokens of the prompt, where they are known already.
        """
        if used is not None and not rules.needs_relief(used, state):
            return ()
        for _ in range(ATTEMPTS):
            seen = state.seq
            planned = self._relief.plan(state, rules, builder, self._cache_age(state), used)
            used = None  # where it starts over, others have written
            if not planned.relief.plans:
                if not planned.relief.postponed or self.state.seq == seen:
                    self._note_postponed(state, planned.relief, rules)
                    return ()
                continue  # another process wrote while the index was confirmed, and now it may not fit
            recorded = self.events.flush()  # before the decision, so it is stored before it
            if recorded and self._projection.current().seq != seen + recorded:
                continue
            pending = self._relief.carry_out(planned, self.messages)
            with suppress(AppendConflict, KeyReused):
                entries = self.continuity.store(pending.drafts, pending.after)
                decisions = tuple(entry for entry in entries if entry.kind in DECISIONS)
                self._projection.know_record(decisions[-1], pending.record)
                return decisions
            state = self.state
        raise AppendConflict(self.session, None, self.store.head(self.session).seq, "others write faster than we can")

    def _summarise_arrivals(self, state: WindowState, builder: PromptBuilder, rules: ReliefRules) -> tuple[Entry, ...]:
        """Summarises large results before the model sees them, where that is set. Each is looked at once.

        If another process writes meanwhile, they are sent whole: nothing depends on this.
        """
        after, self._arrived = self._arrived, state.seq
        planned = self._relief.plan_arrivals(state, rules, builder, after)
        if planned is None:
            return ()
        recorded = self.events.flush()
        if recorded and self._projection.current().seq != state.seq + recorded:
            return ()
        pending = self._relief.carry_out(planned, self.messages)
        with suppress(AppendConflict, KeyReused):
            return tuple(self.continuity.store(pending.drafts, state.seq + recorded))
        return ()

    def _note_postponed(self, state: WindowState, relief: Relief, rules: ReliefRules) -> None:
        """Records, once in a turn, why nothing is done although the prompt is above the ceiling."""
        if not relief.postponed or relief.before <= rules.ceiling * rules.input_budget:
            return
        if self._postponed_in != state.turn:
            self._postponed_in = state.turn
            payload = {"reason": relief.postponed, "tokens": relief.before, "room": rules.input_budget}
            self.events.record(POSTPONED, payload)

    def _measure(self, state: WindowState, builder: PromptBuilder, used: int, marker: int) -> PressureReading:
        measurement = measure(state, builder, used, self.rules, self.budget, self._reading, marker)
        for kind, payload in measurement.events:
            self.events.record(kind, payload)
        self._reading = measurement.reading
        return measurement.reading

    def _refuse(self, state: WindowState, builder: PromptBuilder) -> None:
        blocked = self._recall.blocked_by_index if self._recall is not None else ""
        self.events.flush()
        self.continuity.before_overflow(self._projection.current())
        error = builder.overflow(state, self.budget.input_budget, blocked)
        payload = {"tokens": error.tokens, "room": error.room, "holders": [list(held) for held in error.holders[:10]]}
        payload |= {"index": blocked} if blocked else {}
        self.events.append(OVERFLOW, payload)
        raise error

    def _sent(self, state: WindowState, builder: PromptBuilder, built: BuiltPrompt) -> SentPrompt:
        prefix = _unchanged(self.last, built) if self.last is not None else 0
        lag = self._recall.index_lag(state.seq) if self._recall is not None else 0
        return SentPrompt(
            seq=state.seq,
            at=self._clock.now(),
            prefix=prefix,
            built=built,
            totals=composition_of(
                state, builder, built, self.rules, self.budget, prefix=prefix, lag=lag, reader=self._marker[0]
            ),
            pieces=builder.pieces(state, built),
        )

    def _work_ahead(
        self, state: WindowState, builder: PromptBuilder, reading: PressureReading, *, decided: bool
    ) -> None:
        """What need not delay the prompt: summaries of what will be evicted, snapshots, reports, indexing."""
        compacts = self.compactor.available and any(isinstance(policy, Compact) for policy in self.rules.policies)
        if compacts and reading.zone != "green" and not decided:
            view = builder.view(state, self.rules.protection)
            self.compactor.compactor.prepare(self.rules.compact.plan(view, 1), state)
        if state.seq - self._projection.snapshot_at >= SNAPSHOT_EVERY:
            self._take_snapshot(state)
        if self._recall is not None:
            self._recall.report()
            if state.evicted_messages or reading.utilization > _INDEX_AHEAD:
                self._recall.index_ahead(state.seq)

    def _cache_age(self, state: WindowState) -> CacheAge:
        """How long ago the last prompt was sent, and the lifetime that the client's cache marks ask for.

        Before the first prompt nothing is cached.
        """
        idle = inf if self.last is None else max(self._clock.now() - self.last.at, 0) / 1e6
        marked = [self.messages.raws[seq] for seq in self.messages.cache_marked if seq in state.messages]
        moved = b'{"cache_control": %b}' % state.cache_mark.encode()
        return CacheAge(idle=idle, ttl=requested_lifetime((*marked, moved, *self._extra_pieces[0][:2])))

    def _decision(self, seq: int, kinds: Collection[str], expected: str) -> Entry:
        entry = next(iter(self.store.read(self.session, seq, seq)), None) if seq > 0 else None
        if entry is None or entry.kind not in kinds:
            found = f"there is no entry {seq}" if entry is None else f"entry {seq} is not {expected} ({entry.kind})"
            hint = (
                "'restore' returned the entry that 'redo' takes"
                if RESTORED in kinds
                else "'recto context detail', 'session.report().decisions' and the MCP tool 'decisions' list decisions"
            )
            raise InputError(f"{found}: {hint}. Nothing was changed.")
        return entry

    def _undoing(self, decision: int, seqs: set[int]) -> Entry | None:
        """The event that undid a decision, where all its messages are still in the prompt because of it."""
        state = self.state
        if not all(seq in state.pins and seq in state.messages for seq in seqs - state.refused):
            return None
        if any(seq in state.shortened or seq in state.cleared for seq in seqs):
            return None
        later = self.store.read(self.session, decision + 1)
        undoings = (entry for entry in later if entry.kind == RESTORED)
        return next((entry for entry in undoings if json.loads(entry.content)["decision"] == decision), None)

    def _pinning(self, seqs: set[int]) -> Entry | None:
        """The newest event by which `pin` pinned one of these, where it pinned all and all are in the prompt."""
        if not seqs <= self.state.pins & self.state.messages.keys():
            return None  # most often: then no event need be read
        pinned = self._pinned_by_hand(seqs)
        return max(pinned.values(), key=lambda entry: entry.seq, default=None) if pinned.keys() == seqs else None

    def _pinned_by_hand(self, seqs: set[int]) -> dict[int, Entry]:
        """Those of these messages that `pin` keeps in the prompt, with the events; restoring keeps others."""
        pinned: dict[int, Entry] = {}
        for entry in self.store.read(self.session, min(seqs, default=0) + 1):
            if entry.kind in (PINNED, UNPINNED):
                found = seqs.intersection(json.loads(entry.content)["seqs"])
                pinned = {seq: event for seq, event in pinned.items() if seq not in found}
                pinned |= dict.fromkeys(found, entry) if entry.kind == PINNED else {}
        return pinned

    def _take_snapshot(self, state: WindowState) -> None:
        self.events.record(SNAPSHOT, state.snapshot(), snapshot_key(self._projection.snapshots + 1))


def _unchanged(last: SentPrompt, built: BuiltPrompt) -> int:
    """Tokens at the beginning of a prompt that are the same as in the last one."""
    before = last.built
    if built.messages[: len(before.messages)] == before.messages:  # mostly it has only grown
        return before.spent
    return sum(before.costs[: first_difference(before.messages, built.messages)])
