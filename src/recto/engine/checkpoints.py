"""Checkpoints in the life of a window: filled from the transcript, numbered, kept as events and as files.

What is known of the work is a fold that reads each entry once. Events are numbered by their keys, so that two writers
cannot both write the same version. `recto.continuity.checkpoints.builder` puts a checkpoint together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from recto.context.facts.extraction import extract_facts
from recto.context.facts.files import track_files
from recto.context.facts.grounding import fold_words
from recto.context.facts.types import Fact, MessageViewReader, WorkedFile
from recto.context.window.state import WindowState
from recto.continuity.checkpoints.builder import carried, changed, checkpoint_of, services_in, taken_over, with_given
from recto.continuity.checkpoints.checkpoint import Changes, Checkpoint, CheckpointRules, Environment, ManualState
from recto.continuity.checkpoints.handoff import handoff_of, page_for_people
from recto.continuity.checkpoints.schema import checkpoint_from
from recto.engine.checkpoint_files import HANDOFF as HANDOFF_FILE
from recto.engine.checkpoint_files import JSON, PAGE, folder_of, write_whole
from recto.engine.environment import EnvironmentProbe
from recto.engine.projection import CHECKPOINT, HANDOFF, EventLog, checkpoint_key, last_numbered, replay_key
from recto.engine.prompt_builder import MessageCache
from recto.errors import CheckpointRefused, InputError
from recto.formats import read
from recto.transcript.entries import MESSAGE, Draft, Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import pointer_to

_HEARD = 5_000
"""Entries that are read at most where nobody wrote down what is known of those that left."""


def lookout_for(continuity: CheckpointRules) -> EnvironmentProbe | None:
    """What looks at the environment; nothing where nobody shall."""
    if not continuity.environment:
        return None
    return EnvironmentProbe(directory=continuity.directory, hosts=continuity.hosts)


def digest_of(text: str) -> str:
    """What tells two handoffs apart."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class Running:
    """Facts and files as of the end of a transcript. Each entry is read once, from where a summary's knowledge ends."""

    def __init__(self, store: TranscriptStore, session: str) -> None:
        self._store = store
        self._session = session
        self._from: int | None = None
        self._seq = 0
        self._facts: tuple[Fact, ...] = ()
        self._touched: tuple[WorkedFile, ...] = ()
        self._teller = MessageViewReader()

    def up_to(self, state: WindowState) -> tuple[tuple[Fact, ...], tuple[WorkedFile, ...]]:
        """What is known as of a state."""
        known = state.summary
        began = known.decision_seq if known else 0
        if self._from != began or self._seq > state.seq:
            self._from, self._teller = began, MessageViewReader()
            self._seq = known.covered_until if known else max(state.seq - _HEARD, 0)
            self._facts, self._touched = (known.facts, known.files) if known else ((), ())
        told = [
            self._teller.view(entry.seq, read(entry.content, entry.wire))
            for entry in self._store.read(self._session, self._seq + 1, state.seq)
            if entry.kind == MESSAGE
        ]
        if told:
            self._facts = extract_facts(told, self._facts)
            self._touched = track_files(told, self._touched)
        self._seq = state.seq
        return self._facts, self._touched


class Checkpoints:
    """The checkpoints of one session."""

    def __init__(
        self,
        events: EventLog,
        messages: MessageCache,
        continuity: CheckpointRules,
    ) -> None:
        self.continuity = continuity
        self.lookout = lookout_for(continuity)
        self._store = events.store
        self._session = events.session
        self._events = events
        self._messages = messages
        self.count = messages.meter.count
        self._running = Running(events.store, events.session)
        self._newest: tuple[int, Checkpoint | None] = (0, None)
        self._looked = 0

    def version(self, state: WindowState) -> int:
        """The newest version; 0 before the first."""
        known, _ = last_numbered(self._store, self._session, checkpoint_key, state.checkpoints)
        return max(known, state.checkpoints)

    def newest(self, state: WindowState) -> Checkpoint | None:
        """The newest checkpoint that can be read; nothing where there is none."""
        version = state.checkpoints or self.version(state)
        if self._newest[0] != version:
            try:
                self._newest = version, self.load(state)
            except CheckpointRefused:  # written by others; it is told when somebody asks for it
                self._newest = version, None
        return self._newest[1]

    def load(self, state: WindowState) -> Checkpoint | None:
        """The newest checkpoint. Raises `CheckpointRefused` where it cannot be taken."""
        entry = self._store.find(self._session, checkpoint_key(self.version(state)))
        if entry is None or entry.kind != CHECKPOINT:
            return None
        made = checkpoint_from(entry.content, source=f"entry {entry.seq}")
        return replace(made, session=self._session)  # a fork has those of the session it was copied from

    def holds(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint is one of this transcript."""
        entry = self._store.find(self._session, checkpoint_key(checkpoint.version))
        return entry is not None and entry.kind == CHECKPOINT and _same(entry, checkpoint)

    def made(
        self,
        state: WindowState,
        *,
        reason: str,
        changes: Changes | None = None,
        expect: int | None = None,
        over: Checkpoint | None = None,
    ) -> Checkpoint:
        """The state of the work now, as the next version.

        With `expect` it is refused unless that is the newest version. `over` is a checkpoint of another transcript
        that is taken over.
        """
        version, before = self.version(state), self.newest(state)
        if expect is not None and expect != version:
            told = f"it is stale: version {expect} is to be changed, and the newest is version {version}"
            raise CheckpointRefused("the change", [told])
        facts, touched = self._running.up_to(state)
        made = checkpoint_of(
            facts,
            touched,
            state.notes,
            goal=self._goal(state),
            version=max(version, over.version if over else 0) + 1,
            window=max(state.windows, before.window if before else 0, over.window if over else 0),
            last=state.seq,
        )
        criteria = tuple(replace(one, seq=state.task_seq) for one in made.success_criteria)
        made = replace(made, session=self._session, goal_seq=state.task_seq, success_criteria=criteria, reason=reason)
        made = carried(made, before)
        given = taken_over(over) if over else before.given if before else ManualState()
        if changes is not None:
            given = changed(given, changes, with_given(made, given), state.seq + 1)
        made = with_given(made, given)
        summary = pointer_to(self._session, state.summary.decision_seq) if state.summary else ""
        return replace(made, summary=summary, environment=self._look(made))

    def draft(self, made: Checkpoint) -> Draft:
        """As it is stored."""
        return self._events.draft(CHECKPOINT, made.to_json(), checkpoint_key(made.version))

    def drafts(self, made: Checkpoint, state: WindowState, most: int) -> list[Draft]:
        """A checkpoint, and the page to go on from."""
        text = handoff_of(made, self.last_words(state), most=most, count=self._messages.meter.count)
        return [self.draft(made), self.handoff(text, made.version)]

    def handoff(self, text: str, version: int, *, pending: bool = False) -> Draft:
        """A page as it is stored; where it is pending, it is shown behind the next question, unless it was before."""
        digest = digest_of(text)
        about: dict[str, Any] = {"text": text, "checkpoint": version, "hash": digest}
        if pending and self._store.find(self._session, replay_key(digest)) is None:
            about["pending"] = True
        return self._events.draft(HANDOFF, about)

    def was_replayed(self, digest: str) -> bool:
        """Whether a handoff with this content was shown in this session."""
        return self._store.find(self._session, replay_key(digest)) is not None

    def last_words(self, state: WindowState) -> str:
        """What the agent said last."""
        said = next((line.seq for line in reversed(state.messages.values()) if line.role == "assistant"), None)
        return "" if said is None else "\n".join(one.text for one in self._messages.views([said]))

    def milestone(self, state: WindowState) -> str:
        """What has been reached since the last checkpoint; empty where nothing was. Looks at what is new alone."""
        if self._looked >= state.seq:
            return ""
        self._looked = state.seq
        facts, _ = self._running.up_to(state)
        before = self.newest(state)
        last = before.last if before else 0
        if not any(fact.seq > last for fact in facts) and not any(note.seq > last for note in state.notes):
            return ""
        known = {fold_words(task.text) for task in before.subtasks if task.status == "done"} if before else set()
        return _reached(facts, last, known) or _noted(state, last)

    def keep(self, entries: Iterable[Entry]) -> str:
        """Writes what was stored into files, where there is a folder for them. Says what went wrong."""
        if not self.continuity.folder:
            return ""
        folder = folder_of(self.continuity.folder, self._session)
        try:
            for entry in entries:
                if entry.kind == CHECKPOINT:
                    made = checkpoint_from(entry.content, session=self._session)
                    readable = json.dumps(made.to_json(), indent=2, ensure_ascii=True).encode() + b"\n"
                    write_whole(folder / JSON, readable)
                    write_whole(folder / PAGE, page_for_people(made).encode("utf-8", "replace"))
                elif entry.kind == HANDOFF:
                    text = str(json.loads(entry.content)["text"])
                    write_whole(folder / HANDOFF_FILE, text.encode("utf-8", "replace") + b"\n")
        except (OSError, InputError, ValueError) as error:
            return f"{folder}: {getattr(error, 'strerror', None) or error}"
        return ""

    def _goal(self, state: WindowState) -> str:
        if state.task_seq in self._messages.raws:
            return self._messages.text_of(state.task_seq)
        entry = (
            next(iter(self._store.read(self._session, state.task_seq, state.task_seq)), None)
            if state.task_seq
            else None
        )
        return read(entry.content, entry.wire).text if entry else ""

    def _look(self, made: Checkpoint) -> Environment:
        if self.lookout is None:
            return Environment()
        return self.lookout.look(made.files, (*made.given.services, *services_in(made.notes)))


def _same(entry: Entry, checkpoint: Checkpoint) -> bool:
    with suppress(CheckpointRefused):
        return replace(checkpoint_from(entry.content), session=checkpoint.session) == checkpoint
    return False


def _reached(facts: Iterable[Fact], last: int, done: set[str]) -> str:
    """A subtask that became done, a decision, or a failure that came back in the same words."""
    failed: set[str] = set()
    reached = ""
    for fact in facts:
        if fact.kind == "error" and not fact.open:
            failed.add(fact.text)
        elif fact.seq <= last:
            continue
        elif fact.kind == "progress" and fact.about == "completed" and fold_words(fact.text) not in done:
            return "a subtask is done"
        elif fact.open and fact.kind == "decision":
            reached = reached or "something was decided"
        elif fact.open and fact.kind == "error" and (fact.text in failed or fact.about == "pasted"):
            reached = reached or "the work is blocked"
    return reached


def _noted(state: WindowState, last: int) -> str:
    told = {"bugs": "the work is blocked", "decisions": "something was decided"}
    return next((told[note.kind] for note in state.notes if note.seq > last and note.kind in told), "")
