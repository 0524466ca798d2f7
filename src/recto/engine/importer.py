"""Imports session files: of coding agents, message arrays, Recto's own JSONL.

A file is read twice. The first pass stores nothing, so that an unreadable line never leaves half a file behind. The
second pass stores entries in batches, each under a key derived from its position and content, so that importing a file
again stores only what is new. Each entry keeps what is needed to reproduce the bytes of the file.

Memory is not imported as memory: a file of another machine may approve anything. The entries of a memory session are
stored under another name, and what was approved in them is proposed here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

from msgspec import Struct, field

from recto.continuity.memory.events import MemoryDecisions, brought_up
from recto.continuity.memory.model import Memory
from recto.engine.recorded_messages import IMPORT, RecordedMessages, RecordedSession, TimeRange, pieces_of
from recto.errors import AppendConflict, InputError, KeyReused, MalformedFile
from recto.formats import read
from recto.formats.session_files import (
    IMPORTED_LINE,
    ProblemReporter,
    ReadProblem,
    SourceEntry,
    aider,
    detect_file,
    detect_source,
    lines_of,
    names_session,
    read_file,
    recto_jsonl,
    session_of_file,
)
from recto.recall.protocols import Lexicon
from recto.recall.term_rows import with_row
from recto.tokens.meter import Meter
from recto.transcript.entries import IMPORTED, MESSAGE, Clock, Draft, Entry, new_id, session_key, to_json
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import TenantStore, is_internal, is_memory_session
from recto.transcript.sources import SessionSource, SessionSources

_UNREAD = "it looks like a message, and is not understood as one"
_CHUNK = 1 << 20
_DAY = 86_400_000_000
_BATCH_ENTRIES = 500
_BATCH_BYTES = 8 << 20

Advance = Callable[[int], None]


def import_key(digest: str) -> str:
    """The key of the event that ends the import of a file; by it the parts of the file are found."""
    return f"import:{digest}"


class ImportResult(Struct, frozen=True, kw_only=True):
    """The result of an import."""

    source: str
    reader: str
    sessions: tuple[str, ...]
    entries: int
    """Messages and other lines of the file."""
    new: int
    """How many of them were not stored before."""
    problems: tuple[ReadProblem, ...]
    """Lines that could not be parsed, or look like messages that were not understood; they were stored verbatim."""
    messages: int = 0
    """How many of the entries are messages."""
    proposed: int = 0
    """Memories that were approved where the file comes from. Here they are proposals."""
    recorded: int = 0
    """Messages that are stored already because they went through the gateway."""


class _FileScan(Struct):
    """The result of the first pass."""

    path: Path
    reader: str
    keep_going: bool
    session: str | None
    """The session everything goes to, if the caller named one."""
    file_session: str | None = None
    """The session that is named after the file, if neither the caller nor the file names one."""
    digest: str = ""
    size: int = 0
    model: str = ""
    entries: dict[str, int] = field(default_factory=dict)
    """How many entries each session gets, in the order of the file."""
    messages: int = 0
    problems: list[ReadProblem] = field(default_factory=list)
    unread: list[ReadProblem] = field(default_factory=list)
    """Lines that look like messages and were not understood as such."""
    renamed: dict[str, str] = field(default_factory=dict)
    """The names under which the memory sessions of the file are stored."""
    times: dict[str, TimeRange] = field(default_factory=dict)
    recorded: dict[str, RecordedSession] = field(default_factory=dict)
    """Sessions that are stored already because they went through the gateway."""
    source: SessionSource = field(default_factory=SessionSource)
    skipped: int = 0
    """Messages that are not stored for that reason."""

    def name_of(self, session: str) -> str:
        """The session in which an entry of the file is stored."""
        renamed = self.renamed.get(session, session)
        return renamed if self.session is None or renamed in self.entries else self.session

    def is_named_after_file(self, session: str) -> bool:
        """Whether a session has its name from the file's alone."""
        base = self.file_session
        return base is not None and (session == base or session.startswith((f"{base}/", f"{base}~")))

    @property
    def keeps_chain(self) -> bool:
        """Whether the entries have a hash chain of their own."""
        return self.reader == recto_jsonl.NAME and not self.keep_going


class Importer(Struct, frozen=True, kw_only=True):
    """Imports session files into a store."""

    store: TranscriptStore
    clock: Clock
    meter_for: Callable[[str], Meter]
    """Returns the token counter for the model that the file names; empty text if it names none."""
    model: str = ""
    """The model that tokens are counted for; empty: the one that the file names."""
    lexicon: Lexicon | None = None
    """Makes the rows of the word index, which are stored with the messages; None where recall is switched off."""
    propose: Callable[[str, Memory], bool] = lambda session, memory: False
    """Proposes a memory of an imported memory session; returns whether it is a new proposal."""
    sources: SessionSources
    view: TenantStore
    """The store as a tenant sees it, who gets the sessions under the names that files give them."""

    def import_file(
        self,
        path: Path,
        *,
        session: str | None = None,
        keep_going: bool = False,
        advance: Advance = lambda _: None,
        recorded: RecordedMessages | None = None,
        source: SessionSource | None = None,
    ) -> ImportResult:
        """Import a file. `advance` is called for every byte read; each is read twice.

        With `recorded`, messages of sessions that went through the gateway are not stored again. `source` is the
        agent and the folder that it worked in, where the file does not name them.
        """
        scan = self._scan(path, None if session is None else session_key(session), keep_going, advance)
        if recorded is not None and not scan.keeps_chain:
            if scan.reader == aider.NAME:
                _end_ranges(list(scan.times.values()))
            for name, times in scan.times.items():
                if stored := recorded.of(name, times, partial(self._messages, scan, name)):
                    scan.recorded[name] = stored
        before = {name: self.store.head(name).seq for name in scan.entries}
        if scan.keeps_chain:
            self._import_chain(scan, advance)
        else:
            self._import_messages(scan, advance)
        self._record_sources(scan, source or SessionSource())
        proposed = sum(
            self.propose(name, memory)
            for name in scan.renamed
            for memory in brought_up(MemoryDecisions(), self.store, scan.name_of(name)).standing
        )
        new = sum(self.store.head(name).seq - before[name] for name in scan.entries)
        return ImportResult(
            source=path.name,
            reader=scan.reader,
            sessions=tuple(scan.entries),
            entries=sum(scan.entries.values()),
            new=new if scan.keeps_chain else max(new - len(scan.entries) + len(scan.recorded), 0),
            problems=(*scan.problems, *scan.unread),
            messages=scan.messages,
            proposed=proposed,
            recorded=scan.skipped,
        )

    def _scan(self, path: Path, session: str | None, keep_going: bool, advance: Advance) -> _FileScan:
        with path.open("rb") as file:
            head = file.read(_CHUNK)
        scan = _FileScan(path=path, reader=detect_file(head, path.name), keep_going=keep_going, session=session)
        agent, project = detect_source(head, path.name)
        scan.source = SessionSource(agent=agent, project=project)
        if session is None and not names_session(head, path.name):
            name = session_of_file(path.name)
            scan.file_session = self.view.key(name) if self.view.tenant else name
        digest = hashlib.sha256()

        def hashed(chunks: Iterable[bytes]) -> Iterator[bytes]:
            for chunk in chunks:
                digest.update(chunk)
                scan.size += len(chunk)
                yield chunk

        chunks = hashed(_chunks(path, advance))
        entries: Iterable[Entry | SourceEntry]
        if scan.keeps_chain:
            entries = recto_jsonl.read_entries(lines_of(chunks), path.name)
        else:
            entries = self._read(scan, chunks, scan.problems.append)
        for entry in entries:
            scan.messages += entry.kind == MESSAGE
            if isinstance(entry, SourceEntry) and _is_unread_message(entry):
                scan.unread.append(ReadProblem(_line_of(entry), _UNREAD))
            scan.entries[entry.session] = scan.entries.get(entry.session, 0) + 1
            scan.times.setdefault(entry.session, TimeRange()).add(entry.ts)
            if not scan.model and isinstance(entry, SourceEntry):
                model = entry.meta.get("model")
                scan.model = model if isinstance(model, str) else ""
        scan.digest = digest.hexdigest()
        if scan.unread and not keep_going:
            first, others = scan.unread[0], len(scan.unread) - 1
            more = f", and so do {others:,} more lines" if others else ""
            raise MalformedFile(path.name, first.line, f"{first.reason}{more}")
        self._rename_memory(scan)
        self._retarget(scan)
        if own := next((name for name in scan.entries if is_internal(name)), ""):
            # Otherwise a foreign file could bring in a gateway key.
            raise InputError(f"'{path.name}' names session '{own:.80}', which is Recto's own. Nothing was imported.")
        return scan

    def _read(self, scan: _FileScan, chunks: Iterable[bytes], report: ProblemReporter) -> Iterator[SourceEntry]:
        """Read the entries of a file, under the names of the tenant."""
        entries = read_file(chunks, scan.path.name, session=scan.session, keep_going=scan.keep_going, report=report)
        if not self.view.tenant or scan.session is not None:
            return entries
        return (replace(entry, session=self.view.key(entry.session)) for entry in entries)

    def _messages(self, scan: _FileScan, session: str) -> Iterator[tuple[bytes, str]]:
        for entry in self._read(scan, _chunks(scan.path, lambda _: None), lambda _: None):
            if entry.session == session and entry.kind == MESSAGE:
                yield entry.content, entry.wire

    def _record_sources(self, scan: _FileScan, other: SessionSource) -> None:
        """Record the agent and the project of sessions that an agent's file holds."""
        source = SessionSource(agent=scan.source.agent or other.agent, project=scan.source.project or other.project)
        if not source.agent:
            return
        for name in scan.entries:
            stored = scan.recorded.get(name)
            for key in stored.sessions if stored else (name,):
                if self.view.owns(key):
                    self.sources.record(self.clock, key, source)

    def _rename_memory(self, scan: _FileScan) -> None:
        if scan.session is not None and is_memory_session(scan.session):
            raise InputError(f"session '{scan.session:.80}' holds memory; it is written by approval only")
        scan.renamed = {name: f"{name}-imported-{scan.digest[:12]}" for name in scan.entries if is_memory_session(name)}
        scan.entries = {scan.renamed.get(name, name): count for name, count in scan.entries.items()}

    def _retarget(self, scan: _FileScan) -> None:
        if scan.session is None:
            return
        if scan.session in scan.entries and all(f"{name}/".startswith(f"{scan.session}/") for name in scan.entries):
            return  # sub-agents in the same file stay conversations of their own, below it
        if len(scan.entries) != 1:
            raise InputError(
                f"'{scan.path.name}' holds {len(scan.entries)} conversations, so they cannot all go to "
                f"'{scan.session}'; import it without naming a session"
            )
        if scan.keeps_chain and self.store.head(scan.session).seq:
            raise InputError(
                f"session '{scan.session}' is not empty; a Recto file can only be taken over into a new session"
            )
        scan.entries = {scan.session: sum(scan.entries.values())}

    def _import_messages(self, scan: _FileScan, advance: Advance) -> None:
        meter = self.meter_for(scan.model)
        places = dict.fromkeys(scan.entries, 0)
        ended = {name: self.store.find(name, import_key(scan.digest)) for name in scan.entries}
        # The same bytes under another file name are the same file: entries are known by the name they first had.
        files = {name: scan.path.name if end is None else _file_in(end) for name, end in ended.items()}
        self._refuse_other_conversation(scan, [name for name, end in ended.items() if end is None])

        def drafts() -> Iterator[tuple[str, Draft]]:
            for entry in self._read(scan, _chunks(scan.path, advance), lambda _: None):
                name = scan.name_of(entry.session)
                if _is_recorded(entry, scan.recorded.get(name)):
                    scan.skipped += entry.kind == MESSAGE
                else:
                    yield name, self._draft(entry, files[name], places[name], meter)
                places[name] += 1

        heads = {name: self.store.head(name).seq for name in scan.entries}
        try:
            self._store(drafts())
        except (AppendConflict, KeyReused) as error:
            is_stored = any(self.store.head(name).seq != seq for name, seq in heads.items())
            raise _other_conversation(scan, error.session, is_stored=is_stored) from error
        for part, (name, count) in enumerate(scan.entries.items()):
            if name in scan.recorded or ended[name] is not None:
                continue  # this event is a promise to give back the file as it was
            payload = {
                "file": scan.path.name,
                "reader": scan.reader,
                "bytes": scan.size,
                "sha256": scan.digest,
                "part": part,
                "parts": len(scan.entries),
                "entries": count,
            } | ({"model": model} if (model := self.model or scan.model) else {})
            event = Draft(
                id=new_id(self.clock),
                ts=self.clock.now(),
                role="event",
                kind=IMPORTED,
                content=to_json(payload),
                surface=IMPORT,
                key=import_key(scan.digest),
            )
            self.store.append(name, [event])

    def _refuse_other_conversation(self, scan: _FileScan, sessions: Iterable[str]) -> None:
        """Refuse a file if a session that is named after it holds another conversation, before anything is stored.

        The file may hold the beginning of what was imported before, or continue it.
        """
        named = filter(scan.is_named_after_file, sessions)
        imported = {name: found for name in named if (found := self._imported_digests(name, scan.path.name))}
        if not imported:
            return
        places = dict.fromkeys(scan.entries, 0)
        for entry in self._read(scan, _chunks(scan.path, lambda _: None), lambda _: None):
            name = scan.name_of(entry.session)
            stored = imported.get(name, {}).get(str(places[name]))
            places[name] += 1
            if stored and entry.kind == MESSAGE and _digest_of(entry.content) not in stored:
                raise _other_conversation(scan, name, is_stored=False)

    def _imported_digests(self, session: str, file: str) -> Mapping[str, set[str]]:
        """The digests of a session's imported messages by place; of files of this name, or of all if there are none."""
        found: dict[str, dict[str, set[str]]] = {}
        every: dict[str, set[str]] = {}
        for entry in self.store.read(session):
            if entry.kind == MESSAGE and entry.surface == IMPORT and entry.key and entry.key.count(":") > 2:
                source, place, digest = entry.key.rsplit(":", 2)
                for digests in (every, found.setdefault(source, {})):
                    digests.setdefault(place, set()).add(digest)
        return found.get(_source_key(file), every)

    def _import_chain(self, scan: _FileScan, advance: Advance) -> None:
        """Store the entries of a Recto file unchanged, with their ids, times and hashes."""
        heads = {name: self.store.head(name) for name in scan.entries}

        def fresh() -> Iterator[tuple[str, Draft]]:
            for entry in recto_jsonl.read_entries(lines_of(_chunks(scan.path, advance)), scan.path.name):
                name = scan.session or scan.name_of(entry.session)
                if entry.seq > heads[name].seq:
                    yield name, entry
                elif entry.session not in scan.renamed and entry.seq in (heads[name].seq, scan.entries[name]):
                    self._refuse_other_history(name, entry)

        self._store(fresh())

    def _refuse_other_history(self, session: str, entry: Entry) -> None:
        stored = next(iter(self.store.read(session, entry.seq, entry.seq)), None)
        if stored is None or stored.hash != entry.hash:
            reason = f"entry {entry.seq} is stored already and is another one than in the file"
            raise AppendConflict(session, None, self.store.head(session).seq, reason)

    def _store(self, drafts: Iterable[tuple[str, Draft]]) -> None:
        for session, group in groupby(drafts, key=lambda pair: pair[0]):
            batch: list[Draft] = []
            size = 0
            for _, draft in group:
                batch.append(draft if self.lexicon is None else with_row(draft, self.lexicon))
                size += len(draft.content) + len(draft.meta)
                if len(batch) == _BATCH_ENTRIES or size >= _BATCH_BYTES:
                    self.store.append(session, batch)
                    batch, size = [], 0
            if batch:
                self.store.append(session, batch)

    def _draft(self, entry: SourceEntry, file: str, place: int, meter: Meter) -> Draft:
        return Draft(
            id=new_id(self.clock),
            ts=self.clock.now() if entry.ts is None else entry.ts,
            role=entry.role,
            kind=entry.kind,
            wire=entry.wire,
            content=entry.content,
            surface=IMPORT,
            tokens=_tokens(entry, meter),
            counter=meter.name if entry.kind == MESSAGE else "",
            meta=to_json({**entry.meta, "file": file, "layout": entry.layout}),
            key=f"{_source_key(file)}:{place}:{_digest_of(entry.content)}",
        )


def _source_key(file: str) -> str:
    """The beginning of the keys of a file's entries."""
    return f"import:{file[-128:]}"


def _digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _other_conversation(scan: _FileScan, session: str, *, is_stored: bool) -> InputError:
    cure = "name another session with --session" if len(scan.entries) == 1 else "give the file another name"
    return InputError(
        f"'{scan.path.name}': another conversation was imported under the name '{session:.80}' before. "
        f"{'Only its beginning' if is_stored else 'Nothing'} was imported; to keep both, {cure}."
    )


def _file_in(end: Entry) -> str:
    """The name of the file whose import an event ends."""
    return str(json.loads(end.content)["file"])


def _end_ranges(ranges: Sequence[TimeRange]) -> None:
    """Let sessions of which only the beginning is known end where the next one of the file begins, or after a day."""
    for times, following in zip(ranges, (*ranges[1:], TimeRange()), strict=True):
        if times.first is not None and times.first == times.last:
            end = times.first + _DAY
            is_bounded = following.first is not None and times.first < following.first < end
            times.last = following.first if is_bounded else end


def _is_recorded(entry: SourceEntry, stored: RecordedSession | None) -> bool:
    """Whether an entry is stored already elsewhere; of such a session other lines than messages are not kept."""
    return stored is not None and (entry.kind != MESSAGE or pieces_of(entry.content, entry.wire) <= stored.pieces)


def _is_unread_message(entry: SourceEntry) -> bool:
    """Whether a line that was not understood may be a message."""
    return entry.kind == IMPORTED_LINE and not entry.is_known and _looks_like_message(entry.content)


def _looks_like_message(line: bytes) -> bool:
    """Whether a line has a role and a content, itself or in its `message`."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return False
    inner = fields.get("message") if isinstance(fields, dict) else None
    candidates = [one for one in (fields, inner) if isinstance(one, dict)]
    return any(isinstance(one.get("role"), str) and one.get("content") for one in candidates)


def _line_of(entry: SourceEntry) -> int:
    line = entry.meta.get("line")
    return line if isinstance(line, int) else 0


def _tokens(entry: SourceEntry, meter: Meter) -> int:
    if entry.kind != MESSAGE:
        return 0
    try:
        return meter.message(read(entry.content, entry.wire))
    except InputError:
        return meter.count(entry.content.decode(errors="replace"))


def _chunks(path: Path, advance: Advance) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            advance(len(chunk))
            yield chunk
