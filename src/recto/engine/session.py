"""One session as a program uses it: appends messages, builds prompts, reads everything back.

Messages are stored byte for byte as the provider wrote them. `append` checks a message, counts it once, and stores it
before it returns. `Session` has the calls most programs need; the rest is grouped in `session.memory`,
`session.checkpoints`, `session.health`, `session.usage`, `session.transcript`, `session.work` and `session.window`. The
store and the tokenizer are passed in, and the window decides what the model sees.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from msgspec.structs import replace

from recto.engine.arguments import (
    check_count,
    check_entry_number,
    check_listener,
    check_messages,
    check_search,
    check_text,
    describe,
    refuse_only_empty,
    refuse_only_orphans,
    schemas_json,
)
from recto.engine.work import SessionWork
from recto.errors import InputError, MalformedMessage, MediaRefused, RectoError, TooLarge, WindowOverflow
from recto.formats import FORMATS, Usage, detect, read
from recto.formats.message import content_defect, fields_of, media_in, missing_content
from recto.formats.response import usage_in
from recto.formats.response_objects import MessageLike, message_bytes
from recto.tokens.calibration import Calibration, prompt_tokens
from recto.transcript.entries import MESSAGE, Draft, event, new_ids, session_key, to_json
from recto.transcript.session_keys import session_in, sibling_key

if TYPE_CHECKING:
    from recto.context.compaction.fidelity import JudgedFidelity, Question
    from recto.context.compaction.protocols import ChatModel, Delegated
    from recto.context.facts.types import Fact
    from recto.context.window.budget import BudgetVerdict
    from recto.context.window.report import Report
    from recto.context.window.state import Note, NoteKind, NoteLevel
    from recto.continuity.checkpoints.checkpoint import Changes, Checkpoint
    from recto.continuity.memory import MemoryKind
    from recto.continuity.memory.manager import Memories
    from recto.continuity.memory.model import Memory
    from recto.continuity.memory.proposals import Proposal
    from recto.engine.delegation import Delegator
    from recto.engine.monitor import Monitor
    from recto.engine.prompt_builder import Prompt
    from recto.engine.verification import Verification
    from recto.engine.views.models import GrepPage, OutlinePage
    from recto.engine.window import SentPrompt, Window
    from recto.formats.message import Message
    from recto.health.metrics import Alert, PromptComposition
    from recto.health.protocols import HealthSink
    from recto.health.trends import HealthReport
    from recto.recall.types import SearchResult
    from recto.tokens.meter import Meter
    from recto.transcript.entries import Clock, Entry, Head, Role
    from recto.transcript.protocols import Records, TranscriptStore
    from recto.transcript.session_keys import Scope

_log = logging.getLogger("recto.session")
_USAGE_REACH = 200
"""How many entries back usage reports are read when a session is opened."""


_LINKED_ENTRIES = 64
"""How far back the calls of a result without ids are looked for: the status of each step is among the entries."""
_LARGE_MESSAGE = 1024 * 1024
"""Bytes from which on a user message is checked before it is stored whether it can ever fit."""
_MAX_CHARS_PER_TOKEN = 8
"""Characters of such a message that are counted for each token of the input budget."""


class Session:
    """One session, open for appending, reading and building prompts."""

    def __init__(  # noqa: PLR0913  # the parts of a session
        self,
        store: TranscriptStore,
        key: str,
        *,
        meter: Meter,
        clock: Clock,
        max_message_bytes: int,
        window: Callable[[], Window] | None = None,
        delegator: Delegator | None = None,
        monitor: Callable[[], Monitor] | None = None,
        memory: Callable[[], Memories] | None = None,
        owns_store: bool = False,
        make_row: Callable[[str, Role, int, bytes], bytes] | None = None,
    ) -> None:
        """`make_row` makes the rows of the word index, which are stored with the messages; None: recall is off."""
        self.store = store
        self.key = session_key(key)
        self.meter = meter
        self.memory = SessionMemory(memory)
        """What the agent remembers beyond this session."""
        self.checkpoints = SessionCheckpoints(self)
        """Handoffs, and the compaction of a host's own history."""
        self.health = SessionHealth(self)
        """How turns go: reports, alerts, fidelity."""
        self.usage = SessionUsage(self)
        """What providers reported for earlier prompts."""
        self.transcript = SessionTranscript(self)
        """The stored messages, searched and listed like files."""
        self.work = SessionWork(store, self.key)
        """What was done: the history of files, commands, errors and numbers."""
        self._clock = clock
        self._max_message_bytes = max_message_bytes
        self._owns_store = owns_store
        self._make_window = window
        self._window: Window | None = None
        self._make_monitor = monitor
        self._monitor: Monitor | None = None
        self._making = threading.Lock()
        self._make_row = make_row
        self._delegator = delegator
        self._answered: SentPrompt | None = None
        """The last prompt whose answer is stored."""

    def append(
        self,
        message: MessageLike,
        *,
        key: str | None = None,
        expect: int | None = None,
        meta: Mapping[str, Any] | None = None,
        surface: str = "library",
    ) -> Entry:
        """Stores one message; it is durable when this returns.

        With a `key`, a repeated call stores nothing and returns the entry of the first one. With `expect`, it is
        stored only if that is still the last entry; else `AppendConflict`.
        """
        return self.append_all([message], key=key, expect=expect, meta=meta, surface=surface)[0]

    def append_all(
        self,
        messages: Iterable[MessageLike],
        *,
        key: str | Sequence[str | None] | None = None,
        expect: int | None = None,
        meta: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        surface: str = "library",
        wire: str | None = None,
        usage: Usage | None = None,
        also: Records | None = None,
    ) -> list[Entry]:
        """Stores several messages in a row, all or none. Each gets the key with its place: `key/0`, `key/1`, …
        A list of keys has that of each message, or None.

        `meta` is the metadata of all of them, or a list with that of each. `wire` is the format of the messages;
        without it, each is detected. `usage` is what the provider reported for
        the last prompt, if the messages answer it; it is recorded as `observe` does. `also` makes records that are
        stored with them.
        """
        check_messages("'messages'", messages)
        try:
            parsed = self._linked([self._parse(message, wire) for message in messages])
            _refuse_without_content(parsed)
        except MalformedMessage as error:
            raise MalformedMessage(f"{error.reason.removesuffix('.')}. Nothing was stored.") from None
        if meta is None or isinstance(meta, Mapping):
            metas, encoded = [meta or {}] * len(parsed), [to_json(meta or {})] * len(parsed)
        elif not isinstance(meta, Sequence) or len(meta) != len(parsed):
            each = f"a list with one for each of the {len(parsed)} messages"
            raise InputError(f"'meta' is a dict for all messages, or {each}. Nothing was stored.")
        else:
            metas, encoded = list(meta), [to_json(each) for each in meta]
        if parsed:
            self._refuse_what_never_fits(*parsed[-1][:2])
            self._refuse_media(*parsed[-1])
        from recto.engine.monitor import COMPOSITION  # noqa: PLC0415  # start-up: `open` loads no window
        from recto.engine.projection import USAGE  # noqa: PLC0415  # start-up

        answer = next((place for place, (_, message, _) in enumerate(parsed) if message.role == "assistant"), None)
        prompt = self._unanswered() if answer is not None else None
        if answer is not None and prompt is not None and COMPOSITION not in metas[answer]:
            encoded[answer] = self._meta_with(metas[answer], prompt.composition)
        drafts = self._drafts(parsed, encoded, surface, _keys(key, len(parsed)))
        reports: list[Draft] = []
        if usage is not None and prompt is not None:
            reports.append(self._event(USAGE, self.usage.payload(prompt.totals.tokens, usage)))
        said = [*(None for _ in reports), *(message for _, message, _ in parsed)]
        entries = self._store([*reports, *drafts], expect, said, also)[len(reports) :]
        if answer is not None and prompt is not None and entries[answer].seq > prompt.seq:
            self._answered = prompt
        return entries

    def record(self, kind: str, content: Mapping[str, Any], *, key: str | None = None) -> Entry:
        """Stores an event: something that happened to the session and is not a message."""
        return self._store([self._event(kind, content, key)])[0]

    def read(self, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        """Entries from `start` up to and including `stop`, in order."""
        check_entry_number("'start'", start)
        if stop is not None:
            check_entry_number("'stop'", stop)
        return self.store.read(self.key, start, stop)

    def tail(self, count: int = 20) -> list[Entry]:
        """The last entries, oldest first."""
        check_count("the number of last entries", count, 0)
        return self.store.tail(self.key, count)

    def get(self, id: str) -> Entry | None:
        """The entry with an id."""
        check_text("the id of an entry", id)
        return self.store.get(self.key, id)

    def find(self, key: str) -> Entry | None:
        """The entry that an `append` with this key stored: shows whether a write of unknown outcome succeeded."""
        return self.store.find(self.key, f"{key}/0")

    @property
    def head(self) -> Head:
        """The end of the hash chain. Keep it elsewhere, and `verify` detects any later change of what is before it."""
        return self.store.head(self.key)

    def __len__(self) -> int:
        return self.head.seq

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {session_in(self.key)}>"

    def verify(self, head: Head | None = None) -> Verification:
        """Recomputes the hash chain and compares it with the head kept outside the store, and with `head`."""
        from recto.engine.verification import verify  # noqa: PLC0415  # start-up

        return verify(self.store, self.key, None if head is None else {self.key: head})

    def count(self, what: str | MessageLike | Sequence[MessageLike], *, tools: Sequence[Any] = ()) -> int:
        """Tokens of a text, of one message, or of a prompt with its tool schemas, for this session's model.

        The count of a prompt is calibrated by what the provider reported for earlier ones; see `observe`.
        """
        if isinstance(what, str):
            return self.meter.text(what)
        if isinstance(what, Sequence) and not isinstance(what, bytes):
            return self.usage.calibration.apply(self._count_prompt(cast("Sequence[MessageLike]", what), tools))
        return self.meter.message(self._parse(what)[1])

    def observe(self, prompt: Sequence[MessageLike], usage: Mapping[str, Any], *, tools: Sequence[Any] = ()) -> Entry:
        """Records the usage a provider reported for a prompt, which makes later counts more exact.

        It is stored as an event, so a session that is opened again knows it too.
        """
        if not isinstance(usage, Mapping):
            raise InputError(f"a usage is a dict as the provider sent it, not {describe(usage)}. Nothing was stored.")
        reported = prompt_tokens(usage)
        if reported is None:
            raise InputError(f"this usage reports no prompt tokens: {sorted(usage)}")
        parsed = usage_in(dict(usage)) or Usage(prompt=reported, output=0)
        return self.usage.record(self._count_prompt(prompt, tools), replace(parsed, prompt=reported))

    @property
    def window(self) -> Window:
        """Which messages are in the prompt, and why the others are not. Built on first use: `open` costs less."""
        if self._window is None:
            if self._make_window is None:
                raise InputError("this session was opened without a window; use recto.open")
            with self._making:
                if self._window is None:
                    window = self._make_window()
                    window.events.listen(self._record_event)
                    self._window = window
        return self._window

    @property
    def monitor(self) -> Monitor | None:
        """Measures how turns go; None where that is switched off. Built on first use."""
        if self._monitor is None and self._make_monitor is not None:
            with self._making:
                if self._monitor is None:
                    self._monitor = self._make_monitor()
        return self._monitor

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
        """What to send to the model now: it fits the window, is valid, and keeps what must be kept.

        `beside` is text that you send outside the messages, as JSON, and `answer` how many tokens the model may answer
        with: both take input budget. `wire` is the format of a prompt whose messages are valid in every format. With
        `defer_events`, status events of this prompt are stored in the commit of the next `append`, or by `close`, which
        saves a transaction per turn; decisions are always stored before this returns. `reader` is the name of the tool,
        if any, with which the model can look up evicted messages; Recto's own MCP tools are found among `tools`.
        The list of tools stays whole, also with `window.lazy_tools`: only the gateway can answer a search for tools.

        Raises:
            WindowOverflow: What may not be evicted does not fit.
            InputError: All messages are empty or tool results without their calls, so nothing could be sent.
        """
        check_count("'answer' of a prompt", answer, 0)
        if not isinstance(beside, bytes):
            raise InputError(f"'beside' of a prompt is JSON as bytes, not {describe(beside)}. Nothing was changed.")
        if not self.checkpoints.is_announced:
            self._announce_waiting()
        prompt = self.window.prompt(
            tools, beside=beside, answer=answer, wire=wire, defer_events=defer_events, reader=reader
        )
        if prompt.decisions:
            self._offer_consolidation(prompt.decisions)
        if not prompt.built.messages:
            refuse_only_orphans(prompt.built.arrangement, "They are stored, but in no prompt; append")
            refuse_only_empty(len(self.window.state.messages), prompt.built.system)
        return prompt

    def _offer_consolidation(self, decisions: Sequence[Entry]) -> None:
        """Records at a compaction that history waits to be reviewed for durable memory. Nothing is reviewed here."""
        from recto.engine.projection import COMPACTION, NEW_WINDOW  # noqa: PLC0415  # start-up

        boundary = next((entry for entry in decisions if entry.kind in (COMPACTION, NEW_WINDOW)), None)
        reviewed = self.memory.reviewed_until(self.key) if boundary is not None else None
        if boundary is None or reviewed is None or boundary.seq <= reviewed:
            return
        from recto.continuity.memory.events import DUE, due_key  # noqa: PLC0415  # start-up

        key = due_key(reviewed)
        if self.store.find(self.key, key) is None:
            payload = {"since": reviewed + 1, "entries": boundary.seq - reviewed, "decision": boundary.seq}
            self.window.events.record(DUE, payload, key)

    def _announce_waiting(self) -> None:
        """Logs at the first prompt that a checkpoint waits. Opening a session reads nothing for it."""
        waiting = self.checkpoints.waiting()
        if waiting is not None:
            _log.info(
                "session %s: checkpoint %d waits, up to entry %d; resume() continues from it in a new window",
                self.key,
                waiting.version,
                waiting.last,
            )

    def check(self, message: MessageLike) -> BudgetVerdict:
        """Whether a message would keep its component within its budget. Call it before `append`."""
        from recto.context.window.units import WindowMessage  # noqa: PLC0415  # start-up
        from recto.engine.relief import check_budget  # noqa: PLC0415  # start-up

        _, parsed, _ = self._parse(message)
        tokens = self.meter.message(parsed)
        candidate = WindowMessage(seq=0, id="", role=parsed.role, tokens=tokens)
        return check_budget(candidate, self.window.state, self.window.budget)

    def report(self, tools: Sequence[Any] = (), *, run: int | None = None) -> Report:
        """What the last prompt was made of, what the next would contain, and what it would not. Changes nothing.

        `run` is the entry of an earlier answer, whose prompt is wanted instead of the last one. Without `tools`, the
        next prompt has the tools and the system text of the last answered one.
        """
        from recto.engine.report import report  # noqa: PLC0415  # start-up

        if run is not None:
            check_entry_number("'run'", run)
        return report(self.window, tools, run=run)

    def pin(self, *entries: int | str) -> Entry:
        """Keeps messages in the prompt, by number or id, until they are unpinned; evicted ones are restored.

        Returns the event. Where all of them are pinned already, an earlier one is returned and nothing is stored.

        Raises:
            InputError: None is named, or one of them is no message of this session. Nothing is changed then.
        """
        return self.window.pin(self._messages_named(entries, "pin"))

    def unpin(self, *entries: int | str) -> Entry:
        """Allows messages to be evicted again.

        Raises:
            InputError: None is named, or one of them is no message of this session. Nothing is changed then.
        """
        return self.window.unpin(self._messages_named(entries, "unpin"))

    def _messages_named(self, entries: Sequence[int | str], action: str) -> list[int]:
        """The numbers of the messages that a caller names."""
        seqs = [self._seq(entry) for entry in entries]
        if not seqs:
            raise InputError(f"name at least one entry to {action}. Nothing was changed.")
        for seq in seqs:
            found = next(iter(self.read(seq, seq)), None) if seq > 0 else None
            if found is None:
                raise InputError(f"there is no entry {seq} in session '{session_in(self.key)}'. Nothing was changed.")
            if found.kind != MESSAGE:
                raise InputError(f"entry {seq} is an event; only messages can be {action}ned. Nothing was changed.")
        return seqs

    def restore(self, decision: int | str) -> Entry:
        """Undoes a decision, by the number or id of its event: what it evicted is in the prompt again and stays."""
        return self.window.restore(self._seq(decision))

    def redo(self, restored: int | str) -> Entry:
        """Repeats a decision that a restore undid."""
        return self.window.redo(self._seq(restored))

    def recall(
        self, query: str, *, most: int = 10, scope: Scope | None = None, project: str = "", agent: str = ""
    ) -> SearchResult:
        """Searches everything that was ever said, in the prompt or not, and explains what it finds.

        With `project` (a folder) or `agent` (such as `codex`), this session and those of that project and agent.

        Raises:
            InputError: The query is no text, `most` is below 1, or the scope is unknown. Nothing is searched then.
        """
        check_search(query, most, scope, project, agent)
        search = partial(self.window.recall, query, most=most, scope=scope, project=project, agent=agent)
        monitor = self.monitor
        return search() if monitor is None else monitor.search(search, most, self._clock)

    def compact(self, focus: str = "", *, below: int | None = None) -> tuple[Entry, ...]:
        """Compacts the prompt now: replaces all but the newest messages by a checked summary.

        With `below`, a number of tokens, fewer of the newest messages stay if they would take more than half of it.
        Returns the decision, which `restore` undoes; nothing where there is too little to be worth it.
        """
        check_text("the focus of a compaction", focus)
        if below is not None:
            check_count("'below' of a compaction", below, 1)
        decisions = self.window.compact(focus, below=below)
        self._offer_consolidation(decisions)
        return decisions

    def note(self, kind: NoteKind, text: str, *, level: NoteLevel = "normal", critical: bool = False) -> Entry:
        """Stores a note. It is in every prompt from the next question on, whatever is evicted.

        Args:
            kind: What it is about: task_progress, decisions, bugs, constraints, learnings or misc.
            text: The note.
            level: `critical`, `high` or `normal`; higher ones are shown first and kept longest.
            critical: The same as the level `critical`.
        """
        from recto.context.window.state import MAX_NOTE_CHARS, NOTE_KINDS, NOTE_LEVELS  # noqa: PLC0415  # start-up

        if level not in NOTE_LEVELS:
            raise InputError(f"the level of a note is {', '.join(NOTE_LEVELS)}, not '{level}'")
        if kind not in NOTE_KINDS:
            raise InputError(f"a note is of the kind {', '.join(NOTE_KINDS)}, not '{kind}'")
        check_text("a note", text)
        if not text.strip() or len(text) > MAX_NOTE_CHARS:
            raise InputError(
                f"a note has 1 to {MAX_NOTE_CHARS:,} characters; this one has {len(text):,}. Nothing was stored."
            )
        return self.window.note(kind, text, "critical" if critical else level)

    @property
    def notes(self) -> tuple[Note, ...]:
        """The notes, oldest first; of very many the newest and the critical ones."""
        return self.window.state.notes

    def checkpoint(self, /, *, expect: int | None = None, **changes: str | Sequence[str]) -> Entry:
        """Writes a checkpoint of the work, for programs, and a handoff, for readers.

        Known fields are filled in; `changes` overrides them: goal, success_criteria, plan, doing, done, issues,
        solved, decisions, learnings, services, each a text or several. With `expect`, a version, it is refused with
        nothing written unless that is the newest one.
        """
        from recto.continuity.checkpoints.checkpoint import changes_given  # noqa: PLC0415  # start-up

        return self.window.continuity.checkpoint(changes_given(changes), expect=expect)[0]

    def resume(
        self,
        source: str | os.PathLike[str] | None = None,
        *,
        changes: Changes | Mapping[str, str | Sequence[str]] | None = None,
        by: str = "",
        reason: str = "",
    ) -> Entry:
        """Opens a new window: evicts everything that may be evicted, and puts a handoff behind the next question.

        The handoff says what has changed around the work since the last checkpoint (drift). `source` is a
        checkpoint's file, for a session whose transcript is elsewhere. `changes` are stated for the new checkpoint, as
        `checkpoint` takes them; `by` and `reason` say in the decision who asked for the window, and why. Returns the
        decision, which `restore` undoes.
        """
        if not isinstance(source, str | os.PathLike | None):
            raise InputError(f"'source' is the path of a checkpoint, not {describe(source)}. Nothing was changed.")
        from recto.continuity.checkpoints.checkpoint import Changes, changes_given  # noqa: PLC0415  # start-up

        if isinstance(changes, Mapping):
            changes = changes_given(changes)
        if not isinstance(changes, Changes | None):
            raise InputError(f"'changes' are texts by name, not {describe(changes)}. Nothing was changed.")
        checkpoint = self._checkpoint_in(source) if source is not None else None
        decision = self.window.start_next(checkpoint, changes=changes, by=by, reason=reason)
        self._offer_consolidation([decision])
        return decision

    def _checkpoint_in(self, source: str | os.PathLike[str]) -> Checkpoint:
        from recto.engine.continuity import read_checkpoint  # noqa: PLC0415  # only where there is a file

        known = self.checkpoints.newest()
        newest = (known.version, known.window) if known else None
        return read_checkpoint(os.fspath(source), session=self.key, newest=newest)

    def facts(self) -> tuple[Fact, ...]:
        """Constraints, decisions, errors and whatever else must not be lost, in the words of the conversation."""
        from recto.engine.report import ledger  # noqa: PLC0415  # start-up

        return ledger(self.window)

    def delegate(self, task: str, *, entries: Iterable[int] = (), most: int = 1_000) -> Delegated:
        """Hands a task to a sub-agent, with the messages it concerns; its answer has at most `most` tokens."""
        from recto.context.facts.types import message_views  # noqa: PLC0415  # start-up

        if self._delegator is None:
            raise InputError("this session was opened without a dispatcher; give one: recto.open(…, dispatcher=…)")
        views = [view for seq in entries for view in message_views(self.read(seq, seq))]
        goal = self.window.messages.goal_of(self.window.state)
        return self._delegator.delegate(task, views, goal=goal, max_tokens=most)

    @property
    def title(self) -> str:
        """What people call this session: its last `rename`, else the first words of the first user message."""
        from recto.engine.titles import titles_of  # noqa: PLC0415  # start-up

        return titles_of(self.store, [self.key]).get(self.key, "")

    def rename(self, title: str) -> Entry:
        """Gives this session a title, of at most 120 characters. Its key stays; earlier titles stay in the transcript.

        Returns the event that holds the title.
        """
        from recto.engine.titles import rename_draft  # noqa: PLC0415  # start-up

        check_text("a title", title)
        return self._store([rename_draft(self._clock, title)])[0]

    def fork(self, name: str, *, at: int | str | None = None) -> Entry:
        """Copies this session into a new one, up to an entry or to its end; open that one to continue from there.

        Returns the event in the copy that records where they parted.
        """
        from recto.engine.fork import fork  # noqa: PLC0415  # start-up

        target = sibling_key(self.key, name)
        return fork(self.store, self.key, target, clock=self._clock, at=None if at is None else self._seq(at))

    def close(self) -> None:
        """Closes the index, and the store, if this session opened it."""
        if self._window is not None:
            self._window.close()
        if self._monitor is not None:
            self._monitor.close()
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _store(
        self,
        drafts: Sequence[Draft],
        expect: int | None = None,
        messages: Sequence[Message | None] = (),
        also: Records | None = None,
    ) -> list[Entry]:
        """Stores drafts, and hands them to the window, which need not read or parse them again."""
        if self._window is None:
            entries = self.store.append(self.key, drafts, expect=expect, also=also)
        else:
            entries = self._window.events.append_messages(drafts, expect, also)
            self._window.feed(entries, messages)
        monitor = self.monitor
        if monitor is not None:
            # An entry that an earlier call with the same key stored was recorded then.
            pairs = zip(entries, drafts, strict=True)
            monitor.record([entry for entry, draft in pairs if entry.id == draft.id])
        return entries

    def _record_event(self, entry: Entry) -> None:
        """Measures an event that the window stored."""
        monitor = self.monitor
        if monitor is not None:
            monitor.record([entry])

    def _unanswered(self) -> SentPrompt | None:
        """The last prompt, until its answer is stored."""
        last = self._window.last if self._window is not None else None
        return None if last is self._answered else last

    def _meta_with(self, meta: Mapping[str, Any], composition: PromptComposition) -> bytes:
        """The meta of a message that answers a prompt, with the prompt's composition, which is stored nowhere else."""
        from recto.engine.monitor import COMPOSITION  # noqa: PLC0415  # start-up

        monitor = self.monitor
        if monitor is not None:
            return monitor.meta_for(composition, meta)
        return to_json({**meta, COMPOSITION: composition.to_json()})

    def _event(self, kind: str, content: Mapping[str, Any], key: str | None = None) -> Draft:
        return event(self._clock, kind, content, key, surface="library")

    def _count_prompt(self, prompt: Sequence[MessageLike], tools: Sequence[Any]) -> int:
        check_messages("the prompt", prompt)
        schemas = schemas_json(tools).decode() if tools else ""
        return self.meter.prompt([self._parse(message)[1] for message in prompt], schemas)

    def _seq(self, entry: int | str) -> int:
        if isinstance(entry, int) and not isinstance(entry, bool):
            return entry
        if not isinstance(entry, str):
            raise InputError(f"an entry is named by its number or id, not {entry!r:.60}. Nothing was changed.")
        found = self.get(entry)
        if found is None:
            raise InputError(f"there is no entry with the id '{entry}' in session '{self.key}'")
        return found.seq

    def _drafts(
        self,
        parsed: Sequence[tuple[bytes, Message, str]],
        metas: Sequence[bytes],
        surface: str,
        keys: Sequence[str | None],
    ) -> list[Draft]:
        """The messages as they are stored, each counted, and with its row of the word index."""
        now, count, counter, make_row = self._clock.now, self.meter.message, self.meter.name, self._make_row
        tokens = [count(message) for _, message, _ in parsed]  # one after the other: tokenizers like warm caches
        moments = [(now(), now()) for _ in parsed]
        ids = new_ids([made_at for _, made_at in moments])
        return [
            Draft(
                id=ids[place],
                ts=moments[place][0],
                role=message.role,
                content=raw,
                wire=wire,
                surface=surface,
                tokens=tokens[place],
                counter=counter,
                meta=metas[place],
                key=keys[place],
                terms=b""
                if make_row is None
                else make_row(message.text, message.role, moments[place][0], metas[place]),
            )
            for place, (raw, message, wire) in enumerate(parsed)
        ]

    def _refuse_what_never_fits(self, raw: bytes, message: Message) -> None:
        """Raises `WindowOverflow` for a new user message that alone is longer than any prompt may be.

        Such a message may not be shortened, so every prompt with it would be refused. It is refused before it is
        stored, and only as much of it is counted as shows that.
        """
        if len(raw) < _LARGE_MESSAGE or message.role != "user" or message.results:
            return
        budget = self.window.budget.input_budget
        tokens = self.meter.count(message.text[: budget * _MAX_CHARS_PER_TOKEN])
        if tokens > budget:
            raise WindowOverflow(tokens, budget, [("the new message, at least", tokens)], stored=False)

    def _refuse_media(self, raw: bytes, message: Message, wire: str) -> None:
        """Raises `MediaRefused` for a new user message whose own media are in no request that a provider accepts.

        Older media become lines of text, but the model would answer a question about what it does not see.
        """
        if self._make_window is None or message.role != "user" or message.results or not (media := media_in(raw)):
            return
        from recto.tokens.media_limits import refusal_of  # noqa: PLC0415  # start-up: few messages hold images

        text_bytes = len(raw) - sum(item.weight for item in media)
        if reason := refusal_of(media, text_bytes, self.window.builder.media_limits(wire)):
            raise MediaRefused(reason)

    def _linked(self, parsed: list[tuple[bytes, Message, str]]) -> list[tuple[bytes, Message, str]]:
        """The messages, with results that lack the ids of their calls linked to these."""
        for place, (raw, message, wire) in enumerate(parsed):
            link = FORMATS[wire].link_results
            if link is None or message.role != "tool":
                continue
            before = [earlier for earlier, _, kind in parsed[:place] if kind == wire]
            if not any(one.role == "assistant" for _, one, kind in parsed[:place] if kind == wire):
                stored = (entry for entry in self.tail(_LINKED_ENTRIES) if entry.kind == MESSAGE)
                before = [*(entry.content for entry in stored if entry.wire == wire), *before]
            linked = link(before, raw)
            if linked != raw:
                parsed[place] = linked, read(linked, wire), wire
        return parsed

    def _parse(self, source: MessageLike, wire: str | None = None) -> tuple[bytes, Message, str]:
        raw = message_bytes(source)
        if len(raw) > self._max_message_bytes:
            raise TooLarge("the message in bytes", len(raw), self._max_message_bytes, "limits.message_bytes")
        wire = wire or detect(raw)
        parsed = read(raw, wire)
        if wrong := content_defect(fields_of(raw)):  # stored, it would be sent with every later prompt, and refused
            raise MalformedMessage(wrong)
        ids = [part.call_id for part in parsed.calls if part.call_id]
        if len(set(ids)) < len(ids):
            raise MalformedMessage("two of its calls have one id")
        return raw, parsed, wire


def _keys(key: str | Sequence[str | None] | None, count: int) -> Sequence[str | None]:
    """The key of each message of a batch."""
    if key is None:
        return [None] * count
    if isinstance(key, str) or not isinstance(key, Sequence):
        return [f"{key}/{place}" for place in range(count)]
    if len(key) != count:
        raise InputError(f"'key' is a text, or a list with one for each of the {count} messages. Nothing was stored.")
    return key


def _refuse_without_content(parsed: Iterable[tuple[bytes, Message, str]]) -> None:
    """Raises `MalformedMessage` for a user message that lacks its content: providers refuse every prompt with it."""
    for raw, message, _ in parsed:
        if not message.parts and (missing := missing_content(fields_of(raw), message)):
            raise MalformedMessage(missing)


def held_bytes(session: Session) -> int:
    """Bytes of the messages that the window of a session holds in memory; 0 where it was not needed so far."""
    window = session._window  # the property would build it
    return 0 if window is None else window.messages.size


class SessionMemory:
    """`session.memory`: what the agent remembers beyond this session."""

    def __init__(self, opener: Callable[[], Memories] | None) -> None:
        self._opener = opener

    def propose(
        self, kind: MemoryKind, text: str, *, sources: Sequence[str] = (), critical: bool = False, why: str = ""
    ) -> Proposal:
        """Proposes a memory that outlives this session; a person has to approve it.

        `sources` are pointers to where it was said.
        """
        return self._memories().propose(kind, text, sources=sources, critical=critical, why=why)

    def list(self) -> tuple[Memory, ...]:
        """The approved memories of this session's agent."""
        return tuple(remembered.memory for remembered in self._memories().remembered())

    def reviewed_until(self, key: str) -> int | None:
        """The last entry of a session that consolidation has reviewed; None where there is no durable memory."""
        if self._opener is None:
            return None
        from recto.continuity.memory.events import Cursor  # noqa: PLC0415  # start-up

        try:
            return self._opener().decisions.cursors.get(key, Cursor()).upto
        except RectoError:  # memory has no folder, or cannot be read: a turn never fails for it
            return None

    def _memories(self) -> Memories:
        if self._opener is None:
            raise InputError("this session was opened without memory; use recto.open")
        return self._opener()


class SessionCheckpoints:
    """`session.checkpoints`: checkpoints and handoffs beyond `session.checkpoint()` and `session.resume()`."""

    def __init__(self, session: Session) -> None:
        self._session = session

        self.is_announced = False
        """Whether the caller knows of a checkpoint that waits."""

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint. Raises `CheckpointRefused` where it is not valid."""
        return self._session.window.continuity.newest()

    def waiting(self) -> Checkpoint | None:
        """The checkpoint of earlier work that waits to be taken up, as by `session.resume()`; None where none does."""
        self.is_announced = True
        return self._session.window.continuity.waiting()

    def handoff(self) -> Entry:
        """Writes a page from which a reader without any context can continue, and the checkpoint it is made from."""
        return self._session.window.continuity.checkpoint(reason="a handoff")[1]

    def host_compacting(self) -> Entry:
        """Writes a checkpoint and a handoff. Call it before a host compacts its own history."""
        return self._session.window.continuity.checkpoint(reason="the host compacts")[0]

    def host_compacted(self) -> str:
        """The handoff for the next prompt of a host that has compacted its own history: once, then empty."""
        return self._session.window.continuity.host_compacted()


class SessionHealth:
    """`session.health`: how turns go, alerts, and the fidelity of the prompt."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def report(self, turns: int = 20) -> HealthReport:
        """The measures of the last turns, their trends, and the alerts that are active."""
        from recto.engine.monitor import Monitor  # noqa: PLC0415  # start-up
        from recto.engine.report import current_reading  # noqa: PLC0415  # start-up

        check_count("the number of turns in a report", turns, 0)
        session = self._session
        report = (session.monitor or Monitor(session.store, session.key)).report(
            turns, session.window.rules.thresholds.red
        )
        return report.now(current_reading(session.window))

    def on_alert(self, callback: Callable[[Alert], object]) -> None:
        """Calls back when an alert is raised, and when it is over."""
        from recto.engine.monitor import AlertsOnly  # noqa: PLC0415  # start-up

        check_listener(callback)
        self.watch(AlertsOnly(callback))

    def watch(self, sink: HealthSink) -> None:
        """Sends every turn, alert and event to a sink from now on."""
        if not all(callable(getattr(sink, call, None)) for call in ("turn", "alert", "event")):
            calls = "'turn', 'alert' and 'event'"
            raise InputError(f"a sink has the calls {calls}, and {describe(sink)} has not. Nothing was changed.")
        monitor = self._session.monitor
        if monitor is None:
            raise InputError("turns of this session are not measured; see the setting health.enabled")
        monitor.sinks.append(sink)

    def fidelity(self, model: ChatModel, questions: Sequence[Question] = ()) -> JudgedFidelity:
        """Lets a model answer the same questions from the full conversation and from the prompt, and judge both.

        Without questions, some are generated from the facts of the conversation. The result is stored as an event and
        shown in the report. The score is 0 where no answer was judged, as in a conversation without facts.

        Raises:
            InputError: The model has no call `complete`, or one of the questions is no `Question`.
        """
        from recto.context.window.state import FIDELITY_ALARM  # noqa: PLC0415  # only where there is a judge
        from recto.engine.llm_judge import judge_fidelity  # noqa: PLC0415
        from recto.engine.projection import FIDELITY_LOW, JUDGED  # noqa: PLC0415

        result = judge_fidelity(self._session.window, model, questions)
        if any(answer.score is not None for answer in result.answers):
            payload = {"score": result.score, "questions": len(result.answers), "model": model.name}
            self._session.record(JUDGED, payload)
            if result.score < FIDELITY_ALARM:
                low = {"score": result.score, "alarm": FIDELITY_ALARM, "policy": "judge"}
                self._session.record(FIDELITY_LOW, low)
        return result


class SessionTranscript:
    """`session.transcript`: the stored messages, searched and listed like files."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def grep(
        self,
        pattern: str,
        start: int | None = None,
        *,
        stop: int | None = None,
        regex: bool = False,
        case: bool = False,
        context: int = 0,
        newest_first: bool = True,
        limit: int = 50,
    ) -> GrepPage:
        """Searches the lines of stored messages for a text or a regular expression, from an entry on up to `stop`.

        Case is ignored without `case`. `context` is the number of lines before and after a match, at most 10. A regular
        expression knows no back-references and no look-around, so that no pattern can take long.
        """
        from recto.engine.transcript_search import grep  # noqa: PLC0415  # start-up
        from recto.text.line_pattern import LinePattern  # noqa: PLC0415  # start-up

        check_text("a pattern", pattern)
        check_count("'limit'", limit, 1)
        check_count("'context'", context, 0)
        for name, seq in (("'start'", start), ("'stop'", stop)):
            if seq is not None:
                check_entry_number(name, seq)
        compiled = LinePattern(pattern, regex=regex, case=case)
        return grep(
            self._session.store,
            self._session.key,
            compiled,
            start,
            stop=stop,
            newest_first=newest_first,
            context=context,
            limit=limit,
        )

    def outline(self, start: int | None = None, *, limit: int = 50, newest_first: bool = False) -> OutlinePage:
        """A page of entries from one on: role, size and first line of each."""
        from recto.engine.transcript_search import list_entries  # noqa: PLC0415  # start-up

        check_count("'limit'", limit, 1)
        if start is not None:
            check_entry_number("'start'", start)
        return list_entries(self._session.store, self._session.key, start, limit=limit, newest_first=newest_first)


class SessionUsage:
    """`session.usage`: what providers reported for earlier prompts, and how far our own counts were off."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._calibration: Calibration | None = None

    @property
    def calibration(self) -> Calibration:
        """How far counts of prompts were off lately, by the provider's own reports."""
        from recto.engine.projection import USAGE  # noqa: PLC0415  # start-up

        if self._calibration is None:
            name = self._session.meter.name
            self._calibration = Calibration(exact=self._session.meter.exact)
            for entry in self._session.tail(_USAGE_REACH):
                report = json.loads(entry.content) if entry.kind == USAGE else {}
                if report.get("counter") == name:
                    self._calibration = self._calibration.observe(report["counted"], report["reported"])
        return self._calibration

    def record(self, counted: int, usage: Usage) -> Entry:
        """Stores a report for a prompt that is counted already. Before its answer is stored, it belongs to its turn."""
        from recto.engine.projection import USAGE  # noqa: PLC0415  # start-up

        return self._session.record(USAGE, self.payload(counted, usage))

    def payload(self, counted: int, usage: Usage) -> dict[str, Any]:
        """The event payload of a report, which the calibration learns from."""
        self._calibration = self.calibration.observe(counted, usage.prompt)
        return {
            "counter": self._session.meter.name,
            "counted": counted,
            "reported": usage.prompt,
            "output": usage.output,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
        }
