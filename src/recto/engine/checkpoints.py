"""The checkpoints of a window: filled from the transcript, numbered, stored as events and written to files.

Facts and files are folded from the transcript; each entry is read once. Checkpoints are numbered by their keys, so two
writers cannot both write the same version. `recto.continuity.checkpoints.builder` assembles a checkpoint.

Files are written next to the old version, synced to disk and renamed over it. They are copies of what the transcript
holds; a file that cannot be written loses nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from recto.context.facts.claims import fold_words
from recto.context.facts.extraction import extract_facts
from recto.context.facts.files import track_files
from recto.context.facts.types import Fact, MessageViewReader, WorkedFile
from recto.context.window.state import MAX_NOTES_CHARS, Note, WindowState, render_notes
from recto.continuity.checkpoints.builder import (
    carried,
    changed,
    checkpoint_of,
    services_in,
    taken_over,
    with_given,
    with_tools,
)
from recto.continuity.checkpoints.checkpoint import (
    Changes,
    Checkpoint,
    Environment,
    ManualState,
    TaskStatement,
    checkpoint_from,
)
from recto.continuity.checkpoints.handoff import handoff_of, page_for_people
from recto.continuity.checkpoints.rules import HANDOFF_FILE, CheckpointRules
from recto.continuity.folders import O_NOFOLLOW, make_private_folder
from recto.engine.environment import EnvironmentProbe
from recto.engine.projection import CHECKPOINT, HANDOFF, EventLog, checkpoint_key, last_numbered, replay_key
from recto.engine.prompt_builder import MessageCache
from recto.errors import CheckpointRefused, InputError
from recto.formats import read
from recto.text.secrets import mask_secrets
from recto.transcript.entries import MESSAGE, Draft, Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import pointer_to

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_STALE_SECONDS = 3600
"""Age at which temporary files of a stopped process are removed."""

ARCHIVE = "archive"
"""The folder of the checkpoints of completed tasks."""


def safe_name(session: str) -> str:
    """Return a folder name that is unique to the session, on any file system."""
    digest = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:12]
    readable = _UNSAFE.sub("_", session).strip("._-")[:80]
    return f"{readable or 'session'}-{digest}"


def session_folder(folder: str | os.PathLike[str], session: str) -> Path:
    """Return the folder of a session's files."""
    return Path(folder).expanduser() / safe_name(session)


def archive_files(folder: Path, version: int, files: Mapping[str, bytes]) -> None:
    """Write the last checkpoint of a task to the archive; none waits in the folder any more. Raises `OSError`.

    `files` are its files by name.
    """
    for name, content in files.items():
        archived = Path(name)
        write_atomically(folder / ARCHIVE / f"{archived.stem}-{version}{archived.suffix}", content)
    for name in (*files, HANDOFF_FILE):
        (folder / name).unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file. Raises `OSError`; then the previous version is still there."""
    make_private_folder(path.parent)
    _remove_stale(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW, 0o600)
    try:
        try:
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[os.write(handle, remaining) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Sync the new name to disk, where folders can be synced: not on Windows."""
    directory = getattr(os, "O_DIRECTORY", None)
    if directory is None:
        return
    handle = os.open(folder, os.O_RDONLY | directory)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_stale(path: Path) -> None:
    """Remove temporary files that a stopped process left behind."""
    cutoff = time.time() - _STALE_SECONDS
    for temporary in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            if temporary.stat().st_mtime < cutoff:
                temporary.unlink()


_FACT_REACH = 5_000
"""Entries that are read for facts at most, where evicted messages have no summary."""


def make_probe(rules: CheckpointRules) -> EnvironmentProbe | None:
    """The probe of the environment; None where it is switched off."""
    if not rules.environment:
        return None
    return EnvironmentProbe(directory=rules.directory, hosts=rules.hosts)


def digest_of(text: str) -> str:
    """The hash that identifies the text of a handoff."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class RunningFacts:
    """Facts and files as of the end of a transcript. Each entry after the last summary is read once."""

    def __init__(self, store: TranscriptStore, session: str) -> None:
        self._store = store
        self._session = session
        self._from: int | None = None
        self._seq = 0
        self._refused: set[int] = set()
        """Messages that the provider refused: nothing is derived from them."""
        self._facts: tuple[Fact, ...] = ()
        self._files: tuple[WorkedFile, ...] = ()
        self._reader = MessageViewReader()
        self.tools: dict[str, None] = {}
        """The tools that were called in the entries read, the last one first."""

    def up_to(self, state: WindowState) -> tuple[tuple[Fact, ...], tuple[WorkedFile, ...]]:
        """Facts and files as of a state."""
        summary = state.summary
        start = summary.decision_seq if summary else 0
        if self._from != start or self._seq > state.seq or self._refused != state.refused:
            self._from, self._reader, self._refused = start, MessageViewReader(), set(state.refused)
            self._seq = summary.covered_until if summary else max(state.seq - _FACT_REACH, 0)
            self._facts, self._files = (summary.facts, summary.files) if summary else ((), ())
            self.tools = {}
        views = [
            self._reader.view(entry.seq, read(entry.content, entry.wire))
            for entry in self._store.read(self._session, self._seq + 1, state.seq)
            if entry.kind == MESSAGE and entry.seq not in state.refused
        ]
        if views:
            self._facts = extract_facts(views, self._facts)
            self._files = track_files(views, self._files)
            called = (call.tool for view in reversed(views) for call in reversed(view.calls) if call.tool)
            self.tools = dict.fromkeys((*called, *self.tools))
        self._seq = state.seq
        return self._facts, self._files


class Checkpoints:
    """The checkpoints of one session."""

    def __init__(
        self,
        events: EventLog,
        messages: MessageCache,
        rules: CheckpointRules,
    ) -> None:
        self.rules = rules
        self.probe = make_probe(rules)
        self._store = events.store
        self._session = events.session
        self._events = events
        self._messages = messages
        self.count = messages.meter.count
        self._running = RunningFacts(events.store, events.session)
        self._newest: tuple[int, Checkpoint | None] = (0, None)
        self._milestones_until = 0

    def version(self, state: WindowState) -> int:
        """The newest version; 0 before the first."""
        known, _ = last_numbered(self._store, self._session, checkpoint_key, state.checkpoints)
        return max(known, state.checkpoints)

    def newest(self, state: WindowState) -> Checkpoint | None:
        """The newest valid checkpoint; None where there is none."""
        version = state.checkpoints or self.version(state)
        if self._newest[0] != version:
            try:
                self._newest = version, self.load(state)
            except CheckpointRefused:  # written by another program; `load` reports it
                self._newest = version, None
        return self._newest[1]

    def load(self, state: WindowState) -> Checkpoint | None:
        """The newest checkpoint. Raises `CheckpointRefused` where it is not valid."""
        entry = self._store.find(self._session, checkpoint_key(self.version(state)))
        if entry is None or entry.kind != CHECKPOINT:
            return None
        checkpoint = checkpoint_from(entry.content, source=f"entry {entry.seq}")
        return replace(checkpoint, session=self._session)  # a fork has those of the session it was copied from

    def holds(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint is in this transcript."""
        entry = self._store.find(self._session, checkpoint_key(checkpoint.version))
        return entry is not None and entry.kind == CHECKPOINT and _same(entry, checkpoint)

    def make(
        self,
        state: WindowState,
        *,
        reason: str,
        changes: Changes | None = None,
        expect: int | None = None,
        over: Checkpoint | None = None,
        task: TaskStatement | None = None,
    ) -> Checkpoint:
        """A checkpoint of the work now, as the next version.

        With `expect` it is refused unless that is the newest version. `over` is a checkpoint of another transcript to
        continue from, and `task` the statement of a task that begins: nothing that was set for an earlier one applies.
        """
        version, before = self.version(state), self.newest(state)
        if expect is not None and expect != version:
            reason = f"it is stale: version {expect} is to be changed, and the newest is version {version}"
            raise CheckpointRefused("the change", [reason])
        facts, files = self._running.up_to(state)
        checkpoint = checkpoint_of(
            facts,
            files,
            state.notes,
            goal=self._goal(state),
            version=max(version, over.version if over else 0) + 1,
            window=max(state.windows, before.window if before else 0, over.window if over else 0),
            last=state.seq,
        )
        criteria = tuple(replace(criterion, seq=state.task_seq) for criterion in checkpoint.success_criteria)
        checkpoint = replace(
            checkpoint, session=self._session, goal_seq=state.task_seq, success_criteria=criteria, reason=reason
        )
        if before is not None and (before.is_complete or task is not None):
            before = None
        checkpoint = carried(with_tools(checkpoint, self._running.tools), before)
        checkpoint = with_tools(checkpoint, over.tools) if over else checkpoint
        given = taken_over(over) if over else before.given if before else ManualState()
        given = task.as_given() if task is not None else given
        if changes is not None:
            given = changed(given, changes, with_given(checkpoint, given), state.seq + 1)
        checkpoint = with_given(checkpoint, given)
        summary = pointer_to(self._session, state.summary.decision_seq) if state.summary else ""
        return replace(checkpoint, summary=summary, environment=self._probe(checkpoint))

    def draft(self, checkpoint: Checkpoint) -> Draft:
        """The event of a checkpoint."""
        return self._events.draft(CHECKPOINT, checkpoint.to_json(), checkpoint_key(checkpoint.version))

    def drafts(self, checkpoint: Checkpoint, state: WindowState, most: int) -> list[Draft]:
        """The events of a checkpoint and of its handoff, which has at most `most` tokens."""
        text = handoff_of(checkpoint, self.last_words(state), most=most, count=self._messages.meter.count)
        return [self.draft(checkpoint), self.handoff(text, checkpoint.version)]

    def handoff(self, text: str, version: int, *, pending: bool = False) -> Draft:
        """The event of a handoff; a pending one is shown behind the next question, unless it was shown before."""
        digest = digest_of(text)
        payload: dict[str, Any] = {"text": text, "checkpoint": version, "hash": digest}
        if pending and self._store.find(self._session, replay_key(digest)) is None:
            payload["pending"] = True
        return self._events.draft(HANDOFF, payload)

    def was_replayed(self, digest: str) -> bool:
        """Whether a handoff with this content was shown in this session."""
        return self._store.find(self._session, replay_key(digest)) is not None

    def last_words(self, state: WindowState) -> str:
        """The last message of the agent."""
        seq = next((line.seq for line in reversed(state.messages.values()) if line.role == "assistant"), None)
        return "" if seq is None else "\n".join(view.text for view in self._messages.views([seq]))

    def milestone(self, state: WindowState) -> str:
        """The milestone reached since the last checkpoint; empty where there is none. Reads only new entries."""
        if self._milestones_until >= state.seq:
            return ""
        self._milestones_until = state.seq
        facts, _ = self._running.up_to(state)
        before = self.newest(state)
        last = before.last if before else 0
        if not any(fact.seq > last for fact in facts) and not any(note.seq > last for note in state.notes):
            return ""
        done = {fold_words(task.text) for task in before.subtasks if task.status == "done"} if before else set()
        return _reached(facts, last, done) or _noted(state, last)

    def write_files(self, entries: Iterable[Entry]) -> str:
        """Writes stored checkpoints and handoffs to files, where there is a folder. Returns what went wrong."""
        if not self.rules.folder:
            return ""
        folder = session_folder(self.rules.folder, self._session)
        try:
            for entry in entries:
                if entry.kind == CHECKPOINT:
                    checkpoint = checkpoint_from(entry.content, session=self._session)
                    readable = json.dumps(checkpoint.to_json(), indent=2, ensure_ascii=True).encode() + b"\n"
                    page = page_for_people(checkpoint).encode("utf-8", "replace")
                    files = {self.rules.state_file: readable, self.rules.progress_file: page}
                    if checkpoint.is_complete:
                        archive_files(folder, checkpoint.version, files)
                        break
                    for name, content in files.items():
                        write_atomically(folder / name, content)
                elif entry.kind == HANDOFF:
                    text = str(json.loads(entry.content)["text"])
                    write_atomically(folder / HANDOFF_FILE, text.encode("utf-8", "replace") + b"\n")
        except (OSError, InputError, ValueError) as error:
            return f"{folder}: {getattr(error, 'strerror', None) or error}"
        return ""

    def write_notes(self, notes: Sequence[Note]) -> str:
        """Writes the notes to a file for people. Returns what went wrong."""
        folder = session_folder(self.rules.folder, self._session)
        text = "\n".join(["# Notes", "", *render_notes(notes, MAX_NOTES_CHARS), ""])
        try:
            write_atomically(folder / self.rules.notes_file, mask_secrets(text).encode("utf-8", "replace"))
        except (OSError, InputError) as error:
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

    def _probe(self, checkpoint: Checkpoint) -> Environment:
        if self.probe is None:
            return Environment()
        return self.probe.examine(checkpoint.files, (*checkpoint.given.services, *services_in(checkpoint.notes)))


def _same(entry: Entry, checkpoint: Checkpoint) -> bool:
    with suppress(CheckpointRefused):
        return replace(checkpoint_from(entry.content), session=checkpoint.session) == checkpoint
    return False


def _reached(facts: Iterable[Fact], last: int, done: set[str]) -> str:
    """A subtask that was completed, a decision, or an error that occurred again in the same words."""
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
    reasons = {"bugs": "the work is blocked", "decisions": "something was decided"}
    return next((reasons[note.kind] for note in state.notes if note.seq > last and note.kind in reasons), "")
