"""One session as a program holds it: messages go in as the provider writes them and come back the same.

A message is checked, counted once and stored before `append` returns. Nothing here knows which store or tokenizer is
behind it, and nothing here decides what the model sees.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from recto.context.compaction.protocols import ChatModel, Delegated
from recto.context.facts.types import Fact, message_views
from recto.context.window.budget import BudgetVerdict
from recto.context.window.notes import MAX_NOTE_CHARS, NOTE_KINDS, Note, NoteKind
from recto.context.window.report import Report
from recto.context.window.summary import FIDELITY_ALARM
from recto.context.window.units import WindowMessage
from recto.continuity.checkpoints.checkpoint import changes_given
from recto.engine.fork import fork
from recto.engine.gauge import check_budget
from recto.engine.monitor import COMPOSITION, AlertsOnly, Monitor
from recto.engine.projection import FIDELITY_LOW, JUDGED, NOTE, USAGE
from recto.engine.prompt import Prompt
from recto.engine.report import ledger, report
from recto.engine.verification import Verification, verify
from recto.engine.window import SentPrompt, Window
from recto.errors import InputError, TooLarge
from recto.formats import Usage, detect, read
from recto.formats.message import Message
from recto.formats.response import usage_in
from recto.health.metrics import Alert, PromptComposition
from recto.health.protocols import HealthSink
from recto.health.trends import HealthReport
from recto.recall.types import SearchResult
from recto.tokens.calibration import Calibration, prompt_tokens
from recto.tokens.meter import Meter
from recto.transcript.entries import Draft, Entry, Head, session_key
from recto.transcript.events import event, new_id, to_json
from recto.transcript.protocols import Clock, TranscriptStore
from recto.transcript.session_keys import Scope, sibling_key

if TYPE_CHECKING:
    from recto.context.compaction.fidelity import JudgedFidelity, Question
    from recto.continuity.memory.manager import Memories
    from recto.continuity.memory.model import Memory, MemoryKind
    from recto.continuity.memory.proposals import Proposal
    from recto.engine.delegation import Delegator

MessageLike = Mapping[str, Any] | bytes
"""A message as a dict, or as the exact JSON bytes it arrived in."""

_USAGE_REACH = 200
"""How many entries back reports are looked for when a session is opened."""


class Session:
    """The transcript of one session, open for appending and reading."""

    def __init__(  # noqa: PLR0913  # the parts of a session
        self,
        store: TranscriptStore,
        key: str,
        *,
        meter: Meter,
        clock: Clock,
        max_message_bytes: int,
        window: Window | None = None,
        delegator: Delegator | None = None,
        monitor: Monitor | None = None,
        memory: Callable[[], Memories] | None = None,
        owns_store: bool = False,
    ) -> None:
        self.store = store
        self.key = session_key(key)
        self.meter = meter
        self._clock = clock
        self._max_message_bytes = max_message_bytes
        self._owns_store = owns_store
        self._window = window
        self._delegator = delegator
        self._calibration: Calibration | None = None
        self._memory_opener = memory
        self.monitor = monitor
        """Measures how turns go; None where that is switched off."""
        self._answered: SentPrompt | None = None
        """The last prompt whose answer is stored."""
        if monitor is not None:
            self.window.events.listen(lambda entry: monitor.record([entry]))

    def append(
        self,
        message: MessageLike,
        *,
        key: str | None = None,
        expect: int | None = None,
        meta: Mapping[str, Any] | None = None,
        surface: str = "library",
    ) -> Entry:
        """Stores one message; when this returns it is durable.

        With a `key`, doing it again stores nothing and returns the entry of the first time. With `expect`, it is
        stored only if the last entry is still that one; else `AppendConflict`.
        """
        return self.append_all([message], key=key, expect=expect, meta=meta, surface=surface)[0]

    def append_all(
        self,
        messages: Iterable[MessageLike],
        *,
        key: str | None = None,
        expect: int | None = None,
        meta: Mapping[str, Any] | None = None,
        surface: str = "library",
        wire: str | None = None,
        usage: Usage | None = None,
    ) -> list[Entry]:
        """Stores several messages in a row, all or none. The key counts for each by its place: `key/0`, `key/1`, …

        `wire` is the format they are in, where it is known; else each tells by itself. `usage` is what the provider
        reported for the last prompt, where they answer it: it is taken in as `observe` does.
        """
        meta_bytes = to_json(meta or {})
        drafts = [
            self._draft(message, meta_bytes, surface, None if key is None else f"{key}/{place}", wire)
            for place, message in enumerate(messages)
        ]
        answer = next((place for place, draft in enumerate(drafts) if draft.role == "assistant"), None)
        prompt = self._unanswered() if answer is not None else None
        if answer is not None and prompt is not None and COMPOSITION not in (meta or {}):
            drafts[answer] = replace(drafts[answer], meta=self._with_numbers(meta or {}, prompt.composition))
        reported = [self._usage_draft(prompt.composition.tokens, usage)] if usage is not None and prompt else []
        stored = self.store.append(self.key, [*reported, *drafts], expect=expect)
        entries = stored[len(reported) :]
        if answer is not None and prompt is not None and entries[answer].seq > prompt.seq:
            self._answered = prompt
        if self.monitor is not None:
            pairs = zip(stored, [*reported, *drafts], strict=True)
            self.monitor.record([entry for entry, draft in pairs if entry.id == draft.id])
        return entries

    def _unanswered(self) -> SentPrompt | None:
        """The last prompt, until its answer is stored."""
        last = self._window.last if self._window is not None else None
        return None if last is self._answered else last

    def _with_numbers(self, meta: Mapping[str, Any], made: PromptComposition) -> bytes:
        """The meta of a message that answers a prompt: with what the prompt was made of, which nothing else tells."""
        about = made.to_json() if self.monitor is None else self.monitor.meta_for(made)
        return to_json({**meta, COMPOSITION: about})

    def record(self, kind: str, content: Mapping[str, Any], *, key: str | None = None) -> Entry:
        """Stores an event: something that happened to the session and is not a message."""
        draft = event(self._clock, kind, content, key, surface="library")
        entry = self.store.append(self.key, [draft])[0]
        if self.monitor is not None and entry.id == draft.id:
            self.monitor.record([entry])
        return entry

    def read(self, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        """Entries from `start` up to and including `stop`, in order."""
        return self.store.read(self.key, start, stop)

    def tail(self, count: int = 20) -> list[Entry]:
        """The last entries, oldest first."""
        return self.store.tail(self.key, count)

    def get(self, id: str) -> Entry | None:
        """The entry with an id."""
        return self.store.get(self.key, id)

    def find(self, key: str) -> Entry | None:
        """The entry an `append` with this key stored: tells whether a write of unknown outcome went through."""
        return self.store.find(self.key, f"{key}/0")

    @property
    def head(self) -> Head:
        """The end of the chain. Keep it elsewhere, and `verify` will show any later change of what came before it."""
        return self.store.head(self.key)

    def __len__(self) -> int:
        return self.head.seq

    def verify(self, head: Head | None = None) -> Verification:
        """Re-derives the hash chain, and compares it with the head kept outside the store and with the one given."""
        return verify(self.store, self.key, {self.key: head} if head else {})

    def count(self, what: str | MessageLike | Sequence[MessageLike], *, tools: Sequence[Any] = ()) -> int:
        """Tokens of a text, of one message, or of a whole prompt with its tool schemas, for this session's model.

        A prompt's count is calibrated by what the provider reported for earlier ones, if `observe` was told.
        """
        if isinstance(what, str):
            return self.meter.text(what)
        if isinstance(what, Mapping | bytes):
            return self.meter.message(self._read(what)[1])
        return self.calibration.apply(self._count_prompt(what, tools))

    def observe(self, prompt: Sequence[MessageLike], usage: Mapping[str, Any], *, tools: Sequence[Any] = ()) -> Entry:
        """Takes in the usage a provider reported for a prompt, and counts prompts better from then on.

        Kept as an event, so that a session opened again knows it too.
        """
        reported = prompt_tokens(usage)
        if reported is None:
            raise InputError(f"this usage reports no prompt tokens: {sorted(usage)}")
        told = usage_in(dict(usage)) or Usage(prompt=reported, output=0)
        return self.observed(self._count_prompt(prompt, tools), replace(told, prompt=reported))

    def observed(self, counted: int, usage: Usage) -> Entry:
        """The same for who has counted the prompt already. Told before the answer is stored, it belongs to its turn."""
        draft = self._usage_draft(counted, usage)
        entry = self.store.append(self.key, [draft])[0]
        if self.monitor is not None:
            self.monitor.record([entry])
        return entry

    def _usage_draft(self, counted: int, usage: Usage) -> Draft:
        self._calibration = self.calibration.observe(counted, usage.prompt)
        about = {"counter": self.meter.name, "counted": counted, "reported": usage.prompt, "output": usage.output}
        about |= {"cache_read": usage.cache_read, "cache_write": usage.cache_write}
        return event(self._clock, USAGE, about, surface="library")

    @property
    def calibration(self) -> Calibration:
        """How far counts of prompts were off lately, by the provider's own reports."""
        if self._calibration is None:
            self._calibration = Calibration(exact=self.meter.exact)
            for entry in self.tail(_USAGE_REACH):
                about = json.loads(entry.content) if entry.kind == USAGE else {}
                if about.get("counter") == self.meter.name:
                    self._calibration = self._calibration.observe(about["counted"], about["reported"])
        return self._calibration

    def _count_prompt(self, prompt: Sequence[MessageLike], tools: Sequence[Any]) -> int:
        schemas = to_json(tools).decode() if tools else ""
        return self.meter.prompt([self._read(message)[1] for message in prompt], schemas)

    @property
    def window(self) -> Window:
        """Which messages are in the prompt, and why the others are not."""
        if self._window is None:
            raise InputError("this session was opened without a window; use recto.open")
        return self._window

    def prompt(
        self, tools: Sequence[Any] | bytes = (), *, beside: bytes = b"", answer: int = 0, wire: str | None = None
    ) -> Prompt:
        """What to send to the model now: fits its window, is valid, keeps what must be kept.

        `beside` is text that you send beside the messages, as JSON, and `answer` how many tokens the model may answer
        with: both take room. `wire` is the format of a prompt whose messages are valid in every format.
        """
        return self.window.prompt(tools, beside=beside, answer=answer, wire=wire)

    def check(self, message: MessageLike) -> BudgetVerdict:
        """Whether a message would keep its component within its budget: asked before it is appended."""
        _, read_message, _ = self._read(message)
        tokens = self.meter.message(read_message)
        line = WindowMessage(seq=0, id="", role=read_message.role, tokens=tokens)
        return check_budget(line, self.window.state, self.window.budget)

    def report(self, tools: Sequence[Any] = ()) -> Report:
        """What the next prompt would be made of, and what would not be in it. Changes nothing."""
        return report(self.window, tools)

    def health(self, turns: int = 20) -> HealthReport:
        """How the last turns went, where that is heading, and what should be looked at."""
        red = self.window.rules.thresholds.red
        return (self.monitor or Monitor(self.store, self.key)).report(turns, red)

    def on_alert(self, callback: Callable[[Alert], object]) -> None:
        """Calls back when something should be looked at, and when it is over."""
        self.watch(AlertsOnly(callback))

    def watch(self, sink: HealthSink) -> None:
        """Tells somebody of every turn, alert and event from now on."""
        if self.monitor is None:
            raise InputError("turns of this session are not measured; see the setting health.enabled")
        self.monitor.sinks.append(sink)

    def pin(self, *entries: int | str) -> Entry:
        """Keeps entries in the prompt, by number or id, until they are unpinned; those that left come back."""
        return self.window.pin([self._seq(entry) for entry in entries])

    def unpin(self, *entries: int | str) -> Entry:
        """Lets entries leave again."""
        return self.window.unpin([self._seq(entry) for entry in entries])

    def restore(self, decision: int | str) -> Entry:
        """Undoes a decision, by the number or id of its event: what left is in again and stays."""
        return self.window.restore(self._seq(decision))

    def redo(self, restored: int | str) -> Entry:
        """Does again what a restore undid."""
        return self.window.redo(self._seq(restored))

    def recall(self, query: str, *, most: int = 10, scope: Scope | None = None) -> SearchResult:
        """Searches everything that was ever said, in the prompt or not, and explains what it finds."""
        return self.window.recall(query, most=most, scope=scope)

    def compact(self, focus: str = "") -> tuple[Entry, ...]:
        """Makes the prompt smaller now: all but the newest messages leave, and a checked summary stands for them.

        Returns the decision, which `restore` undoes; nothing where there is too little to be worth it.
        """
        return self.window.compact(focus)

    def note(self, kind: NoteKind, text: str, *, critical: bool = False) -> Entry:
        """Writes something down for later; notes stand in the prompt once messages have left it."""
        if kind not in NOTE_KINDS:
            raise InputError(f"a note is of the kind {', '.join(NOTE_KINDS)}, not '{kind}'")
        if not text.strip() or len(text) > MAX_NOTE_CHARS:
            raise InputError(
                f"a note has 1 to {MAX_NOTE_CHARS:,} characters; this one has {len(text):,}. Nothing was stored."
            )
        return self.window.events.append(NOTE, {"kind": kind, "text": text, "critical": critical})

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was written down, oldest first; of very many the newest and the critical ones."""
        return self.window.state.notes

    def checkpoint(self, *, expect: int | None = None, **changes: str | Sequence[str]) -> Entry:
        """Writes down where the work stands: a checkpoint for programs and a handoff for readers.

        What is known is filled in; `changes` says what is known better: goal, success_criteria, plan, doing, done,
        issues, solved, decisions, learnings, services, each a text or several. With `expect`, a version, it is
        refused with nothing written unless that is the newest one.
        """
        return self.window.continuity.checkpoint(changes_given(changes), expect=expect)[0]

    def handoff(self) -> Entry:
        """Writes a page from which somebody who knows nothing can go on, and the checkpoint it is made of."""
        return self.window.continuity.checkpoint(reason="a handoff")[1]

    def resume(self, source: str | os.PathLike[str] | None = None) -> Entry:
        """Opens a new window: everything leaves that may, and where the work stands is told behind the next question.

        What has changed around the work since its last checkpoint is told as drift. `source` is a checkpoint's file,
        for a session whose transcript is not here. Returns the decision, which `restore` undoes.
        """
        if source is None:
            return self.window.start_next()
        from recto.engine.continuity import read_checkpoint  # noqa: PLC0415  # only for who has a file

        known = self.window.continuity.newest()
        newest = (known.version, known.window) if known else None
        return self.window.start_next(read_checkpoint(os.fspath(source), session=self.key, newest=newest))

    def host_compacting(self) -> Entry:
        """Before a host compacts its own history: writes the checkpoint and the handoff."""
        return self.window.continuity.checkpoint(reason="the host compacts")[0]

    def host_compacted(self) -> str:
        """After a host has compacted its own history: the handoff for its next prompt, once; then it is empty."""
        return self.window.continuity.host_compacted()

    def facts(self) -> tuple[Fact, ...]:
        """Constraints, decisions, errors and whatever else must not be lost, in the words in which it was said."""
        return ledger(self.window)

    def fidelity(self, model: ChatModel, questions: Sequence[Question] = ()) -> JudgedFidelity:
        """Asks a model the same questions of the whole conversation and of the prompt, and lets it judge both answers.

        Without questions, some are made from what is known of the conversation. The result is kept as an event, and
        stands in the report.
        """
        from recto.engine.llm_judge import judged  # noqa: PLC0415  # only for who has a judge

        found = judged(self.window, model, questions)
        if any(answer.score is not None for answer in found.answers):
            self.record(JUDGED, {"score": found.score, "questions": len(found.answers), "model": model.name})
            if found.score < FIDELITY_ALARM:
                self.record(FIDELITY_LOW, {"score": found.score, "alarm": FIDELITY_ALARM, "policy": "judge"})
        return found

    def delegate(self, task: str, *, entries: Iterable[int] = (), most: int = 1_000) -> Delegated:
        """Hands a task to a sub-agent, with the messages it is about; its answer has at most so many tokens."""
        if self._delegator is None:
            raise InputError("this session was opened without a dispatcher; give one: recto.open(…, dispatcher=…)")
        told = [one for seq in entries for one in message_views(self.read(seq, seq))]
        goal = self.window.messages.goal_of(self.window.state)
        return self._delegator.ask(task, told, goal=goal, most=most)

    def remember(
        self, kind: MemoryKind, text: str, *, sources: Sequence[str] = (), critical: bool = False, why: str = ""
    ) -> Proposal:
        """Proposes that something be remembered beyond this session; somebody else has to approve it.

        `sources` are pointers to where it was said.
        """
        return self._memory().propose(kind, text, sources=sources, critical=critical, why=why)

    def memories(self) -> tuple[Memory, ...]:
        """What this session's agent remembers for good."""
        return tuple(kept.memory for kept in self._memory().remembered())

    def _memory(self) -> Memories:
        if self._memory_opener is None:
            raise InputError("this session was opened without memory; use recto.open")
        return self._memory_opener()

    def fork(self, name: str, *, at: int | str | None = None) -> Entry:
        """Begins another session as a copy of this one, up to an entry or up to its end; open it to go on from there.

        Returns the event in the copy that says where they parted.
        """
        target = sibling_key(self.key, name)
        return fork(self.store, self.key, target, clock=self._clock, at=None if at is None else self._seq(at))

    def _seq(self, entry: int | str) -> int:
        if isinstance(entry, int):
            return entry
        found = self.get(entry)
        if found is None:
            raise InputError(f"there is no entry with the id '{entry}' in session '{self.key}'")
        return found.seq

    def close(self) -> None:
        """Closes the index, and the store, if this session opened it."""
        if self._window is not None:
            self._window.close()
        if self.monitor is not None:
            self.monitor.close()
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _draft(self, given: MessageLike, meta: bytes, surface: str, key: str | None, stated: str | None) -> Draft:
        raw, message, wire = self._read(given, stated)
        return Draft(
            id=new_id(self._clock),
            ts=self._clock.now(),
            role=message.role,
            content=raw,
            wire=wire,
            surface=surface,
            tokens=self.meter.message(message),
            counter=self.meter.name,
            meta=meta,
            key=key,
        )

    def _read(self, given: MessageLike, stated: str | None = None) -> tuple[bytes, Message, str]:
        raw = given if isinstance(given, bytes) else to_json(given)
        if len(raw) > self._max_message_bytes:
            raise TooLarge("the message in bytes", len(raw), self._max_message_bytes, "limits.message_bytes")
        wire = stated or detect(raw)
        return raw, read(raw, wire), wire
