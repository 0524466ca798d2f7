"""The window state: which messages are in the prompt, folded from a session's messages and decisions.

The state holds only messages in the prompt, so its size is bounded by the window and not by the history. It is rebuilt
from a snapshot and the entries after it, and the result is the same on every machine. It knows messages by number and
cost, not their bytes, and does not decide what is evicted.

It includes the agent's notes, which are short, grouped by kind, and shown by level, critical ones first; the text shown
is bounded, and all notes stay in the transcript. A new note is shown before the next question, where it stays until an
edit of the prompt moves it to the marker with all others: what was sent before it does not change.

It also includes the summary shown in place of evicted messages: facts and files with their source entries, and parts,
each derived from the raw messages of its range, never from another summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, structs
from msgspec.structs import force_setattr

from recto.context.facts.types import Fact, Level, WorkedFile
from recto.context.record import WorkingRecord
from recto.context.window.budget import Burn, Component, Growth, Zone
from recto.context.window.units import (
    ClearedThinking,
    LeftOutTools,
    MergedUnit,
    Plan,
    ShortenedResult,
    Unit,
    WindowMessage,
    eviction_order,
    steps_of,
    units_of,
)
from recto.text.unicode import prompt_safe

NoteKind = Literal["task_progress", "decisions", "bugs", "constraints", "learnings", "misc"]
NOTE_KINDS: tuple[NoteKind, ...] = get_args(NoteKind)
NoteLevel = Literal["critical", "high", "normal"]
NOTE_LEVELS: tuple[NoteLevel, ...] = get_args(NoteLevel)
"""Most important first."""

MAX_NOTE_CHARS = 2_000
"""Characters of one note."""
MAX_NOTES_CHARS = 8_000
"""Characters of all notes kept in the window state."""
_TITLES: dict[NoteKind, str] = {
    "constraints": "Constraints",
    "task_progress": "Task progress",
    "bugs": "Bugs",
    "decisions": "Decisions",
    "learnings": "Learnings",
    "misc": "Other notes",
}
"""Headings, in the order in which a reader without context needs them."""


class Note(Struct, frozen=True, kw_only=True):
    """One note."""

    seq: int
    """The entry that stores it."""
    kind: NoteKind
    text: str
    critical: bool = False
    """Whether its level is `critical`."""
    level: NoteLevel = "normal"
    """Notes of a higher level are shown first and kept longest."""
    before: int = 0
    """The question before which it is shown while it is new; 0: the next one."""

    def __post_init__(self) -> None:
        if self.critical != (self.level == "critical"):  # notes of earlier versions are critical or not
            force_setattr(self, "level", "critical" if self.critical else self.level)
            force_setattr(self, "critical", self.level == "critical")

    @property
    def rank(self) -> int:
        """0 for the most important level."""
        return NOTE_LEVELS.index(self.level)


def new_notes(notes: Sequence[Note], shown: Sequence[Note], question: int) -> dict[int, list[Note]]:
    """The notes that were written since the `shown` ones, by the question before which each is shown."""
    last = shown[-1].seq if shown else 0
    by_question: dict[int, list[Note]] = {}
    for note in notes:
        if note.seq > last and 0 < note.before <= question:
            by_question.setdefault(note.before, []).append(note)
    return by_question


def before_question(notes: Sequence[Note], question: int) -> tuple[Note, ...]:
    """The notes, with those that wait for a question shown before this one."""
    return tuple([note if note.before else structs.replace(note, before=question) for note in notes])


def limit_notes(notes: Sequence[Note], max_chars: int = MAX_NOTES_CHARS) -> tuple[Note, ...]:
    """The newest notes, higher levels preferred, that fit into `max_chars`; in their original order."""
    chosen: list[Note] = []
    available = max_chars
    for note in sorted(notes, key=lambda note: (note.rank, -note.seq)):
        if len(note.text) <= available:
            available -= len(note.text)
            chosen.append(note)
    return tuple(sorted(chosen, key=lambda note: note.seq))


def render_notes(notes: Sequence[Note], max_chars: int) -> list[str]:
    """Notes as lines by kind, higher levels first, in at most `max_chars`. Reports how many are not shown."""
    shown = limit_notes(notes, max_chars)
    lines: list[str] = []
    for kind, title in _TITLES.items():
        of_kind = [note for note in shown if note.kind == kind]
        if of_kind:
            lines.append(f"{title}:")
            lines += (_render_note(note) for note in sorted(of_kind, key=lambda note: (note.rank, note.seq)))
    if len(shown) < len(notes):
        lines.append(f"({len(notes) - len(shown)} more notes are kept and not shown here)")
    return lines


def _render_note(note: Note) -> str:
    prefix = f"{note.level}: " if note.level != "normal" else ""
    return f"- {prefix}{' '.join(prompt_safe(note.text).split())} ({note.seq})"


FIDELITY_GATE = 0.85
"""Fidelity below which a text is rewritten with more tokens for facts."""
FIDELITY_ALARM = 0.75
"""Fidelity below which an alert is raised."""
PartLevel = Literal["sections", "delegated"] | Level


class SummaryPart(Struct, frozen=True, kw_only=True):
    """The text that replaces a range of entries."""

    first: int
    last: int
    level: PartLevel
    turn: int
    """The user turn it ends in, which determines its age."""
    text: str
    """Lines as shown in the prompt, each with its source entries."""


class Summary(Struct, frozen=True, kw_only=True):
    """Everything known about the evicted messages."""

    decision_seq: int = 0
    """The decision that wrote it; 0 before it is stored."""
    text: str
    """The text shown in the prompt."""
    covered_until: int = 0
    """The last entry from which facts and files were extracted."""
    parts: tuple[SummaryPart, ...] = ()
    facts: tuple[Fact, ...] = ()
    files: tuple[WorkedFile, ...] = ()
    said: tuple[tuple[int, str], ...] = ()
    """The user's sentences that are not over once they are said, with their entries: what fidelity is measured by."""
    evidence: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Files, names and numbers of everything it replaces, with their weights; for the same."""

    def to_json(self) -> dict[str, Any]:
        """The summary as stored in a decision."""
        return {
            "text": self.text,
            "known": self.covered_until,
            "parts": [_to_payload(part) for part in self.parts],
            "facts": [_to_payload(fact) for fact in self.facts],
            "touched": [_to_payload(file) for file in self.files],
            "said": [list(sentence) for sentence in self.said],
            "evidence": dict(self.evidence),
        }

    @classmethod
    def from_json(cls, decision_seq: int, payload: Mapping[str, Any]) -> Summary:
        """Read a summary from a decision; fields added by newer versions are ignored."""
        return cls(
            decision_seq=decision_seq,
            text=str(payload["text"]),
            covered_until=payload["known"],
            parts=tuple(_from_payload(SummaryPart, part) for part in payload["parts"]),
            facts=tuple(_from_payload(Fact, fact) for fact in payload["facts"]),
            files=tuple(_from_payload(WorkedFile, file) for file in payload["touched"]),
            said=tuple((seq, text) for seq, text in payload.get("said", ())),
            evidence=dict(payload.get("evidence", {})),
        )


class ExecutedPlan(Struct, frozen=True, kw_only=True):
    """A plan with its texts written."""

    plan: Plan
    summary: Summary | None = None
    record: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """How the text was written, what was checked, and what was lost."""


def _to_payload(value: SummaryPart | Fact | WorkedFile) -> dict[str, Any]:
    """The fields of a flat value. `asdict` would copy each of them deeply."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _from_payload(kind: type[Any], payload: Mapping[str, Any]) -> Any:  # noqa: ANN401  # one of three values
    return kind(**{name: value for name, value in payload.items() if name in kind.__struct_fields__})


_MAX_TOOL_USES = 256
"""Tools whose last use a state knows at most, the newest ones."""
_MAX_JUDGED = 256
"""Judged entries that a state knows at most, those that were judged last."""
_MAX_MERGED = 64
"""Merged units that a state knows at most, the newest ones: a session that repeats itself for long stays bounded."""


class Protection(Struct, frozen=True, kw_only=True):
    """Messages that are never evicted, besides pinned ones."""

    min_recent_messages: int = 24
    """The newest messages, as many as fit."""
    tools: frozenset[str] = frozenset()
    """Tools whose calls and results stay in the prompt."""
    task: bool = True
    """Whether the first user message (the task) stays in the prompt."""
    answered: bool = True
    """Whether the assistant message that the current user message answers stays in the prompt."""
    kinds: frozenset[str] = frozenset()
    """Kinds of messages that stay in the prompt: user, assistant, tool."""

    def __post_init__(self) -> None:
        if self.min_recent_messages < 0:
            raise ValueError("min_recent_messages must not be below zero")


@dataclass(slots=True)
class WindowState:
    """The contents of the prompt as of one entry of the transcript."""

    seq: int = 0
    """The last entry folded into this state."""
    turn: int = 0
    """User turns so far."""
    steps: int = 0
    """Model calls answered so far."""
    task_seq: int = 0
    """Entry of the original task: the first user message with words of the user. 0 before there is one."""
    messages: dict[int, WindowMessage] = field(default_factory=dict)
    """Messages in the prompt by entry number, in order."""
    shortened: dict[int, ShortenedResult] = field(default_factory=dict)
    """Tool results that are in the prompt in a shorter form, by entry number."""
    cleared: dict[int, int] = field(default_factory=dict)
    """Messages that are in the prompt without their thinking, by entry number, and what each costs so."""
    refused: set[int] = field(default_factory=set)
    """Messages that the provider refused to take: no prompt contains them, nor anything derived from them."""
    pins: set[int] = field(default_factory=set)
    """Entries pinned by hand."""
    tokens: int = 0
    """Cost of all messages in the prompt, without the prompt's frame."""
    component_tokens: dict[Component, int] = field(default_factory=dict)
    """The same cost, by budget component."""
    growth: Growth = field(default_factory=Growth)
    """Growth of `tokens` over the last turns."""
    burn: Burn = field(default_factory=Burn)
    """Growth of each component."""
    zone: Zone = "green"
    """The zone reported last."""
    budget_levels: dict[str, str] = field(default_factory=dict)
    """Budget level of each component as last reported, for components that are not ok."""
    violated_limits: dict[str, int] = field(default_factory=dict)
    """The limits of components that were last reported as above theirs."""
    reported_tokens: int = 0
    """Tokens the provider reported for the last prompt; 0 if it reported none or the prompt was edited since."""
    counted_tokens: int = 0
    """Our own count of that prompt."""
    warned_tokens: int = 0
    """Tokens of the prompt by the model's last budget warning; 0 if there is none, or a report or an edit came since.
    """
    warned_at: int = 0
    """`tokens` at that warning."""
    warned_window: int = 0
    """The model's window by its last budget warning; 0 if there is none."""
    wire: str = ""
    """The session's wire format, known once a message requires one."""
    cache_mark: str = ""
    """The newest cache mark of an evicted message; it moves to the end of the stable prefix."""
    last_edit: int = 0
    """The decision that last changed messages that had already been sent."""
    evicted_messages: int = 0
    evicted_tokens: int = 0
    first_evicted: int = 0
    """Lowest entry number among the evicted messages; 0 if there are none."""
    last_evicted: int = 0
    """Highest entry number among the evicted messages."""
    summary: Summary | None = None
    """The summary of the evicted messages, if one was written."""
    planned_text_tokens: int = 0
    """In a plan: the maximum cost of a text that is not written yet and will replace the summary."""
    record: WorkingRecord | None = None
    """The working record of what was evicted or shortened, if one was written."""
    record_seq: int = 0
    """The decision that wrote the record."""
    planned_record_tokens: int = 0
    """In a plan: the maximum cost of the record that will be written for it."""
    notes: tuple[Note, ...] = ()
    """Notes written by the agent."""
    merged: tuple[MergedUnit, ...] = ()
    """Evicted units that a newer unit repeats, as decisions recorded them."""
    left_out: LeftOutTools = field(default_factory=LeftOutTools)
    """Tool definitions that are not sent, as the last decision about them recorded."""
    tool_uses: dict[str, int] = field(default_factory=dict)
    """The entry in which each tool was last called or searched for, evicted or not."""
    shown_notes: tuple[Note, ...] = ()
    """The notes shown in the prompt: those at the time of the last edit, so that the prompt's prefix stays stable."""
    judged: dict[str, bool] = field(default_factory=dict)
    """Recalled entries that were judged, oldest judgement first, and whether they were helpful: by number, and those of
    other sessions by pointer."""
    checkpoints: int = 0
    """Number of checkpoints."""
    windows: int = 0
    """How often a new window was opened."""
    standing_digest: str = ""
    """Digest of the standing context that was recorded last."""
    shown_handoff: tuple[int, int] = (0, 0)
    """The handoff shown last, and the user message after which it is shown."""
    question: int = 0
    """The current user message in the prompt; 0 if there is none. Outputs and injected text are no questions."""
    answered: int = 0
    """The assistant message that the current user message answers, if it is in the prompt; 0 if there is none."""
    last_assistant: int = 0
    """The last assistant message in the prompt; 0 if there is none."""
    edit: object = field(default_factory=object, compare=False, repr=False)
    """Another one after every edit: states with the same one differ only in messages that were appended."""
    members: object = field(default_factory=object, compare=False, repr=False)
    """Another one after every edit that removed messages or put any back, and not only shortened some."""
    kept: set[int] = field(default_factory=set)
    """Messages in the prompt that are never evicted: system text, and those that carry the protecting mark."""
    wires: dict[str, int] = field(default_factory=dict)
    """For each wire format that messages in the prompt require: how many of them do."""

    def __post_init__(self) -> None:
        if self.messages and not (self.question or self.kept or self.wires):
            self._derive()

    @classmethod
    def of(cls, messages: Sequence[WindowMessage]) -> WindowState:
        """A state that holds these messages and nothing else. It knows of no growth: the turns before are unknown."""
        if not messages:
            return cls()
        users = [message for message in messages if message.acts_as == "user"]
        state = cls(
            seq=messages[-1].seq,
            turn=len(users),
            steps=sum([message.role == "assistant" for message in messages]),
            task_seq=next((message.seq for message in users if not message.is_injected), 0),
            messages={message.seq: message for message in messages},
            tokens=sum([message.tokens for message in messages]),
            wire=next((message.wire for message in reversed(messages) if message.wire), ""),
        )
        for message in messages:
            component = component_of(message)
            state.component_tokens[component] = state.component_tokens.get(component, 0) + message.tokens
        return state

    def add(self, message: WindowMessage) -> None:
        """Append a message."""
        if message.acts_as == "user":
            self.growth = self.growth.turn(self.tokens)
            self.burn = self.burn.turn(self.components())
            self.turn += 1
            if not message.is_injected:
                self.task_seq = self.task_seq or message.seq
            if not message.is_injected or not self.question:
                self.question, self.answered = message.seq, self.last_assistant
                if self.notes and not self.notes[-1].before:
                    self.notes = before_question(self.notes, message.seq)
        if message.role == "assistant":
            self.steps += 1
            self.last_assistant = message.seq
            if message.calls:
                self.use_tools(message.tools[: len(message.calls)], message.seq)
        self.wire = message.wire or self.wire
        self.messages[message.seq] = message
        self._charge(message, message.tokens)
        self._note_kind(message)
        if message.warning is not None:
            self.warned_window = message.warning.window
            if message.warning.used:
                self.warned_tokens, self.warned_at = message.warning.used, self.tokens
        self.seq = message.seq

    def use_tools(self, names: Iterable[str], seq: int) -> None:
        """Note that tools are used in an entry."""
        self.tool_uses.update(dict.fromkeys(names, seq))
        if len(self.tool_uses) > _MAX_TOOL_USES:
            newest = sorted(self.tool_uses.items(), key=lambda use: (use[1], use[0]))[-_MAX_TOOL_USES:]
            self.tool_uses = dict(newest)

    def judge(self, entry: str, *, helpful: bool | None) -> None:
        """Note whether a recalled entry was helpful; None takes the judgement back."""
        judged = {known: value for known, value in self.judged.items() if known != entry}
        if helpful is not None:
            judged[entry] = helpful
        self.judged = dict(list(judged.items())[-_MAX_JUDGED:])

    def cost(self, seq: int) -> int:
        """Current cost of a message in the prompt."""
        result = self.shortened.get(seq)
        if result is not None:
            return result.tokens
        return self.cleared[seq] if seq in self.cleared else self.messages[seq].tokens

    def costs(self) -> dict[int, int]:
        """Current cost of every message in the prompt."""
        costs = {seq: message.tokens for seq, message in self.messages.items()} | self.cleared
        costs.update({seq: result.tokens for seq, result in self.shortened.items() if seq in costs})
        return costs

    def components(self) -> dict[Component, int]:
        """Tokens used by each budget component, counting messages only."""
        none: dict[Component, int] = {"system": 0, "history": 0, "results": 0}
        return none | self.component_tokens

    def evict(self, seqs: Iterable[int]) -> None:
        """Remove messages from the prompt, as a decision recorded."""
        before = self.tokens
        self.shown_notes = self.notes
        for seq in seqs:
            if seq not in self.messages:
                continue
            self.members = object()
            self._charge(self.messages[seq], -self.cost(seq))
            message = self.messages.pop(seq)
            self.shortened.pop(seq, None)
            self.cleared.pop(seq, None)
            self.evicted_messages += 1
            self.evicted_tokens += message.tokens
            self.first_evicted = min(self.first_evicted or seq, seq)
            self.last_evicted = max(self.last_evicted, seq)
        self._derive()
        self._reset_after_edit(before)

    def merge(self, merges: Iterable[MergedUnit], decision: int = 0) -> None:
        """Note which of the evicted units a newer one repeats, as a decision recorded."""
        new = [structs.replace(unit, decision=decision) for unit in merges]
        if new:
            self.merged = (*self.merged, *new)[-_MAX_MERGED:]
            self.edit = object()

    def forget_merges(self, decision: int) -> None:
        """Drop what a decision noted as merged: it was undone."""
        self.merged = tuple(unit for unit in self.merged if unit.decision != decision)

    def merged_into(self) -> dict[int, list[MergedUnit]]:
        """The merged units by the first entry of the unit that repeats them, for those where it is in the prompt.

        That unit may itself have been merged into a newer one since.
        """
        newer = {unit.first: unit.kept for unit in self.merged}
        groups: dict[int, list[MergedUnit]] = {}
        for unit in self.merged:
            kept = unit.kept
            while kept not in self.messages and kept < newer.get(kept, 0):
                kept = newer[kept]
            if kept in self.messages and unit.first not in self.messages:
                groups.setdefault(kept, []).append(unit)
        return groups

    def shorten(self, results: Iterable[ShortenedResult]) -> None:
        """Replace tool results by shorter text, as a decision recorded."""
        before = self.tokens
        self.shown_notes = self.notes
        for result in results:
            if result.seq in self.messages:
                self._charge(self.messages[result.seq], result.tokens - self.cost(result.seq))
                self.shortened[result.seq] = result
        self._reset_after_edit(before)

    def clear_thinking(self, messages: Iterable[ClearedThinking]) -> None:
        """Leave out the thinking of messages, as a decision recorded."""
        before = self.tokens
        shown = [one for one in messages if one.seq in self.messages and one.seq not in self.shortened]
        for cleared in shown:
            self._charge(self.messages[cleared.seq], cleared.tokens - self.cost(cleared.seq))
            self.cleared[cleared.seq] = cleared.tokens
        if shown:
            self._reset_after_edit(before)

    def restore(self, messages: Iterable[WindowMessage]) -> None:
        """Undo a decision: put messages back in full, in their original order."""
        before, self.members = self.tokens, object()
        for message in messages:
            if message.seq in self.messages:
                self._charge(message, -self.cost(message.seq))
            else:
                self.evicted_messages -= 1
                self.evicted_tokens -= message.tokens
            self.messages[message.seq] = message
            self._charge(message, message.tokens)
            self.shortened.pop(message.seq, None)
            self.cleared.pop(message.seq, None)
        self.messages = dict(sorted(self.messages.items()))
        self._derive()
        self._reset_after_edit(before)

    def refuse(self, seqs: Iterable[int]) -> None:
        """Remove messages that the provider refused. They were never part of the conversation it has seen."""
        before, self.members = self.tokens, object()
        for seq in seqs:
            self.refused.add(seq)
            self.pins.discard(seq)
            if seq in self.messages:
                self._charge(self.messages[seq], -self.cost(seq))
                del self.messages[seq]
                self.shortened.pop(seq, None)
                self.cleared.pop(seq, None)
        self._derive()
        self._find_task()
        self._reset_after_edit(before)

    def reinstate(self, messages: Iterable[WindowMessage]) -> None:
        """Put refused messages back, in their original order: the client sends them again."""
        before, self.members = self.tokens, object()
        for message in messages:
            if message.seq in self.refused:
                self.refused.remove(message.seq)
                self.messages[message.seq] = message
                self._charge(message, message.tokens)
        self.messages = dict(sorted(self.messages.items()))
        self._derive()
        self._find_task()
        self._reset_after_edit(before)

    def note(self, note: Note) -> None:
        """Add a note. It is shown before the current question, unless the model has seen that one already."""
        unseen = self.question > self.last_assistant
        self.notes = limit_notes((*self.notes, structs.replace(note, before=self.question if unseen else 0)))

    def copy(self) -> WindowState:
        """An independent copy to plan on."""
        return replace(
            self,
            messages=dict(self.messages),
            shortened=dict(self.shortened),
            cleared=dict(self.cleared),
            pins=set(self.pins),
            refused=set(self.refused),
            budget_levels=dict(self.budget_levels),
            violated_limits=dict(self.violated_limits),
            component_tokens=dict(self.component_tokens),
            tool_uses=dict(self.tool_uses),
            kept=set(self.kept),
            wires=dict(self.wires),
        )

    def _derive(self) -> None:
        """Recompute what is known about the messages as a whole, after an edit."""
        self.kept, self.wires = set(), {}
        self.last_assistant = 0
        typed = injected = 0, 0  # the last message of either kind, and the assistant message before it
        for seq, message in self.messages.items():
            if message.marked or message.wire or message.role == "system":
                self._note_kind(message)
            if message.role == "assistant":
                self.last_assistant = seq
            elif message.acts_as == "user":
                if message.is_injected:
                    injected = seq, self.last_assistant
                else:
                    typed = seq, self.last_assistant
        self.question, self.answered = typed if typed[0] else injected

    def _find_task(self) -> None:
        """Find the task again, after messages were refused or reinstated."""
        typed = (line.seq for line in self.messages.values() if line.acts_as == "user" and not line.is_injected)
        first = next(typed, 0)
        if not self.task_seq or self.task_seq in self.refused or 0 < first < self.task_seq:
            self.task_seq = first

    def _note_kind(self, message: WindowMessage) -> None:
        if message.marked or message.role == "system":
            self.kept.add(message.seq)
        if message.wire:
            self.wires[message.wire] = self.wires.get(message.wire, 0) + 1

    def _charge(self, message: WindowMessage, tokens: int) -> None:
        component = component_of(message)
        self.tokens += tokens
        self.component_tokens[component] = self.component_tokens.get(component, 0) + tokens

    def _reset_after_edit(self, before: int) -> None:
        # An edit is no growth, and the provider's last report was of a different prompt.
        self.edit = object()
        self.growth = self.growth.relieved(self.tokens, before)
        for component, used in self.components().items():
            self.burn = self.burn.relieved(component, used)
        self.reported_tokens = self.counted_tokens = self.warned_tokens = 0
        # What is still above its limit after the edit was reported already; edits never change system text and tools.
        violated = {
            name for name, tokens in self.components().items() if tokens > self.violated_limits.get(name, tokens)
        }
        self.violated_limits = {name: limit for name, limit in self.violated_limits.items() if name in violated}
        self.budget_levels = {
            name: level
            for name, level in self.budget_levels.items()
            if name in ("system", "tools") or name in self.violated_limits
        }

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON. Messages are stored as ranges and read from the transcript again."""
        return {
            "seq": self.seq,
            "turn": self.turn,
            "calls": self.steps,
            "task": self.task_seq,
            "in": ranges_of(self.messages),
            "pins": ranges_of(sorted(self.pins)),
            "refused": ranges_of(sorted(self.refused)),
            "shrunk": {str(s.seq): {"text": s.text, "tokens": s.tokens} for s in self.shortened.values()},
            "cleared": {str(seq): tokens for seq, tokens in self.cleared.items()},
            "left": [self.evicted_messages, self.evicted_tokens, self.first_evicted, self.last_evicted],
            "growth": [self.growth.level, list(self.growth.gains)],
            "zone": self.zone,
            "edited": self.last_edit,
            "burn": {name: [grown.level, list(grown.gains)] for name, grown in self.burn.growths.items()},
            "levels": self.budget_levels,
            "violated": self.violated_limits,
            "reported": [self.reported_tokens, self.counted_tokens],
            "warned": [self.warned_tokens, self.warned_at, self.warned_window],
            "cache_mark": self.cache_mark,
            "wire": self.wire,
            "summary": self.summary.decision_seq if self.summary else 0,
            "record": self.record_seq,
            "notes": [structs.asdict(note) for note in self.notes],
            "shown_notes": [structs.asdict(note) for note in self.shown_notes],
            "merged": [structs.asdict(unit) for unit in self.merged],
            "left_out": structs.asdict(self.left_out),
            "tool_uses": self.tool_uses,
            "counts": [self.checkpoints, self.windows],
            "replayed": list(self.shown_handoff),
            "standing": self.standing_digest,
            **({"judged": self.judged} if self.judged else {}),
        }

    @classmethod
    def from_snapshot(
        cls,
        snapshot: Mapping[str, Any],
        messages: Iterable[WindowMessage],
        summary: Summary | None = None,
        record: WorkingRecord | None = None,
    ) -> WindowState:
        """Rebuild the state from a snapshot, its messages, its summary and its working record."""
        evicted, evicted_tokens, first_evicted, last_evicted = snapshot["left"]
        level, gains = snapshot["growth"]
        warned_tokens, warned_at, warned_window = snapshot.get("warned", (0, 0, 0))
        checkpoints, windows = snapshot.get("counts", (0, 0))
        handoff, after_message = snapshot.get("replayed", (0, 0))
        state = cls(
            seq=snapshot["seq"],
            turn=snapshot["turn"],
            steps=snapshot["calls"],
            task_seq=snapshot["task"],
            messages={message.seq: message for message in messages},
            pins=set(seqs_in(snapshot["pins"])),
            refused=set(seqs_in(snapshot.get("refused", ()))),
            shortened={int(seq): ShortenedResult(seq=int(seq), **short) for seq, short in snapshot["shrunk"].items()},
            cleared={int(seq): tokens for seq, tokens in snapshot.get("cleared", {}).items()},
            evicted_messages=evicted,
            evicted_tokens=evicted_tokens,
            first_evicted=first_evicted,
            last_evicted=last_evicted,
            growth=Growth(level=level, gains=tuple(gains)),
            zone=snapshot["zone"],
            last_edit=snapshot["edited"],
            burn=Burn(growths={name: Growth(level=at, gains=tuple(g)) for name, (at, g) in snapshot["burn"].items()}),
            budget_levels=dict(snapshot["levels"]),
            violated_limits=dict(snapshot.get("violated", {})),
            reported_tokens=snapshot["reported"][0],
            counted_tokens=snapshot["reported"][1],
            warned_tokens=warned_tokens,
            warned_at=warned_at,
            warned_window=warned_window,
            cache_mark=snapshot["cache_mark"],
            wire=snapshot["wire"],
            summary=summary,
            record=record,
            record_seq=snapshot.get("record", 0) if record is not None else 0,
            notes=tuple(Note(**note) for note in snapshot.get("notes", ())),
            shown_notes=tuple(Note(**note) for note in snapshot.get("shown_notes", ())),
            merged=tuple(merged_unit(unit) for unit in snapshot.get("merged", ())),
            left_out=left_out_tools(snapshot.get("left_out", {})),
            tool_uses=dict(snapshot.get("tool_uses", {})),
            judged=dict(snapshot.get("judged", {})),
            checkpoints=checkpoints,
            windows=windows,
            shown_handoff=(handoff, after_message),
            standing_digest=snapshot.get("standing", ""),
        )
        costs, used = state.costs(), state.component_tokens
        for seq, message in state.messages.items():
            component = component_of(message)
            used[component] = used.get(component, 0) + costs[seq]
        state.tokens = sum(used.values())
        return state


def merged_unit(stored: Mapping[str, Any]) -> MergedUnit:
    """A merged unit as an event or a snapshot stores it."""
    return MergedUnit(
        first=int(stored["first"]),
        ranges=tuple((int(first), int(last)) for first, last in stored["ranges"]),
        kept=int(stored["kept"]),
        digest=str(stored["digest"]),
        decision=int(stored["decision"]),
    )


def left_out_tools(stored: Mapping[str, Any]) -> LeftOutTools:
    """Left-out tools as an event or a snapshot stores them."""
    return LeftOutTools(
        names=tuple(map(str, stored.get("names", ()))),
        found=tuple(map(str, stored.get("found", ()))),
        offered=str(stored.get("offered", "")),
        tokens=int(stored.get("tokens", 0)),
    )


def component_of(message: WindowMessage) -> Component:
    """The budget component a message is charged to."""
    if message.role == "system":
        return "system"
    return "results" if message.has_result or message.role == "tool" else "history"


class UnitSplit(Struct, frozen=True):
    """The units of a window: those that may be evicted, in eviction order, and the protected ones."""

    eligible: tuple[Unit, ...]
    protected: tuple[Unit, ...]
    recent: tuple[Unit, ...] = ()
    """Protected ones that are protected only because they are recent."""


def split_units(state: WindowState, protection: Protection) -> UnitSplit:
    """Divide the units in the prompt into evictable and protected ones."""
    protected_seqs = _protected_seqs(state, protection)
    lasting = _protected_seqs(state, structs.replace(protection, min_recent_messages=0))
    eligible: list[Unit] = []
    protected: list[Unit] = []
    for unit in units_of(state.messages.values()):
        overlap = len(protected_seqs.intersection(unit.seqs))
        if overlap in (0, len(unit.messages)):
            (protected if overlap else eligible).append(unit)
            continue
        # A unit that is only partly protected is divided into steps: the question may stay while an old result leaves.
        for step in steps_of(unit):
            (eligible if protected_seqs.isdisjoint(step.seqs) else protected).append(step)
    recent = tuple(step for unit in protected for step in steps_of(unit) if lasting.isdisjoint(step.seqs))
    return UnitSplit(tuple(eviction_order(eligible)), tuple(protected), recent)


def in_flight(state: WindowState) -> frozenset[int]:
    """The current user message and the latest step: an assistant message or tool results not yet answered by the
    model."""
    latest_step: set[int] = set()
    for message in reversed(state.messages.values()):
        latest_step.add(message.seq)
        if message.acts_as in ("assistant", "user"):
            break
    return frozenset(latest_step | ({state.question} if state.question else set()))


ProtectionReason = Literal[
    "system", "task", "pinned", "question", "answered", "unanswered", "recent", "tool", "kind", "marked"
]
"""Why a message is protected. `answered`: the current user message answers it. `unanswered`: the model has not answered
it yet. `tool`, `kind`: by the settings. `marked`: it carries the protecting mark."""


def protection_reasons(state: WindowState, protection: Protection) -> list[tuple[ProtectionReason, Iterable[int]]]:
    """The protected messages by why they are protected, the strongest reason last. Some may be evicted already."""
    reasons: list[tuple[ProtectionReason, Iterable[int]]] = [
        ("recent", islice(reversed(state.messages), protection.min_recent_messages)),
        ("marked", state.kept),
        ("unanswered", in_flight(state)),
    ]
    messages = state.messages.values()
    if protection.kinds:
        reasons.append(("kind", [message.seq for message in messages if _is_of(message, protection.kinds)]))
    if protection.tools:
        reasons.append(("tool", [message.seq for message in messages if protection.tools.intersection(message.tools)]))
    if protection.answered and state.answered:  # "yes" means nothing without the question it answers
        reasons.append(("answered", (state.answered,)))
    if protection.task and state.task_seq:
        reasons.append(("task", (state.task_seq,)))
    if state.question:
        reasons.append(("question", (state.question,)))
    reasons.append(("pinned", state.pins & state.messages.keys()))
    reasons.append(
        ("system", [seq for seq in state.kept if seq in state.messages and state.messages[seq].role == "system"])
    )
    return reasons


def _protected_seqs(state: WindowState, protection: Protection) -> set[int]:
    protected: set[int] = set()
    for _, seqs in protection_reasons(state, protection):
        protected.update(seqs)
    return protected


def _is_of(message: WindowMessage, kinds: frozenset[str]) -> bool:
    return message.acts_as in kinds and not message.is_injected


def lasting_tokens(state: WindowState, protection: Protection, component: Component) -> int:
    """Cost of a component's messages that may not be evicted, however old they are."""
    units = split_units(state, structs.replace(protection, min_recent_messages=0)).protected
    lines = (line for unit in units for line in unit.messages)
    return sum([state.cost(line.seq) for line in lines if component_of(line) == component])


def protected_tokens(state: WindowState, protection: Protection) -> int:
    """Cost of the messages that may not be evicted."""
    # The task may have been evicted already.
    return sum([state.cost(seq) for seq in _protected_seqs(state, protection) if seq in state.messages])


def ranges_of(seqs: Iterable[int]) -> list[list[int]]:
    """Ascending numbers as ranges, both ends included."""
    ranges: list[list[int]] = []
    for seq in seqs:
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1][1] = seq
        else:
            ranges.append([seq, seq])
    return ranges


def seqs_in(ranges: Iterable[Iterable[int]]) -> list[int]:
    """The numbers in a list of ranges."""
    return [seq for first, last in ranges for seq in range(first, last + 1)]
