"""Takes session files into a store: Claude Code, Codex, message arrays, Recto's own JSONL.

A file is read twice. The first time nothing is stored, so that a line that cannot be read leaves no half of a file
behind; the second time entries are stored in batches, each under a key made from its place and content, so that a file
imported again stores only what is new in it. How to get the file's own bytes back is kept beside each entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from recto.errors import AppendConflict, InputError
from recto.formats import read
from recto.formats.session_files import ReadProblem, SourceEntry, detect_file, lines_of, read_file, recto_jsonl
from recto.tokens.meter import Meter
from recto.transcript.entries import MESSAGE, Draft, Entry, session_key
from recto.transcript.events import new_id, to_json
from recto.transcript.protocols import Clock, TranscriptStore
from recto.transcript.session_keys import is_internal

IMPORTED = "imported"
"""The event that ends an import: which file it was, and its digest."""

_CHUNK = 1 << 20
_BATCH_ENTRIES = 500
_BATCH_BYTES = 8 << 20

Advance = Callable[[int], None]


def import_key(digest: str) -> str:
    """The key of the event that ends the import of a file; by it the parts of the file are found again."""
    return f"import:{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import did."""

    source: str
    reader: str
    sessions: tuple[str, ...]
    entries: int
    """Messages and other lines of the file."""
    new: int
    """How many of them were not stored before."""
    problems: tuple[ReadProblem, ...]
    """Lines that could not be read, and were kept as they are."""


@dataclass(slots=True)
class _Look:
    """What the first reading found."""

    path: Path
    reader: str
    keep_going: bool
    session: str | None
    """The session everything goes to, where the caller named one."""
    digest: str = ""
    size: int = 0
    model: str = ""
    entries: dict[str, int] = field(default_factory=dict)
    """How many entries each session gets, in the order of the file."""
    problems: list[ReadProblem] = field(default_factory=list)

    @property
    def keeps_chain(self) -> bool:
        """Whether the entries bring a chain of their own."""
        return self.reader == recto_jsonl.NAME and not self.keep_going


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """Takes session files into a store."""

    store: TranscriptStore
    clock: Clock
    meter_for: Callable[[str], Meter]
    """Gives the meter for the model that the file names; the empty text where it names none."""

    def take(
        self,
        path: Path,
        *,
        session: str | None = None,
        keep_going: bool = False,
        advance: Advance = lambda _: None,
    ) -> Imported:
        """Imports a file. `advance` is told of every byte read; each is read twice."""
        look = self._look(path, None if session is None else session_key(session), keep_going, advance)
        before = {name: self.store.head(name).seq for name in look.entries}
        if look.keeps_chain:
            self._take_over(look, advance)
        else:
            self._take_in(look, advance)
        new = sum(self.store.head(name).seq - before[name] for name in look.entries)
        return Imported(
            source=path.name,
            reader=look.reader,
            sessions=tuple(look.entries),
            entries=sum(look.entries.values()),
            new=new if look.keeps_chain else max(new - len(look.entries), 0),
            problems=tuple(look.problems),
        )

    def _look(self, path: Path, session: str | None, keep_going: bool, advance: Advance) -> _Look:
        with path.open("rb") as file:
            reader = detect_file(file.read(_CHUNK), path.name)
        look = _Look(path=path, reader=reader, keep_going=keep_going, session=session)
        digest = hashlib.sha256()

        def noted(chunks: Iterable[bytes]) -> Iterator[bytes]:
            for chunk in chunks:
                digest.update(chunk)
                look.size += len(chunk)
                yield chunk

        chunks = noted(_chunks(path, advance))
        entries: Iterable[Entry | SourceEntry]
        if look.keeps_chain:
            entries = recto_jsonl.read_entries(lines_of(chunks), path.name)
        else:
            entries = read_file(chunks, path.name, session=session, keep_going=keep_going, report=look.problems.append)
        for entry in entries:
            look.entries[entry.session] = look.entries.get(entry.session, 0) + 1
            if not look.model and isinstance(entry, SourceEntry):
                model = entry.meta.get("model")
                look.model = model if isinstance(model, str) else ""
        look.digest = digest.hexdigest()
        self._retarget(look)
        if own := next((name for name in look.entries if is_internal(name)), ""):
            # Else a file from somewhere could bring a key of the gateway with it.
            raise InputError(f"'{path.name}' names session '{own:.80}', which is Recto's own. Nothing was imported.")
        return look

    def _retarget(self, look: _Look) -> None:
        if look.session is None:
            return
        if look.session in look.entries and all(f"{name}/".startswith(f"{look.session}/") for name in look.entries):
            return  # sub-agents that wrote into the same file stay conversations of their own, below it
        if len(look.entries) != 1:
            raise InputError(
                f"'{look.path.name}' holds {len(look.entries)} conversations, so they cannot all go to "
                f"'{look.session}'; import it without naming a session"
            )
        if look.keeps_chain and self.store.head(look.session).seq:
            raise InputError(
                f"session '{look.session}' is not empty; a Recto file can only be taken over into a new session"
            )
        look.entries = {look.session: sum(look.entries.values())}

    def _take_in(self, look: _Look, advance: Advance) -> None:
        meter = self.meter_for(look.model)
        places = dict.fromkeys(look.entries, 0)

        def drafts() -> Iterator[tuple[str, Draft]]:
            chunks = _chunks(look.path, advance)
            for entry in read_file(
                chunks, look.path.name, session=look.session, keep_going=look.keep_going, report=lambda _: None
            ):
                name = entry.session if look.session is None or entry.session in places else look.session
                yield name, self._draft(entry, look.path.name, places[name], meter)
                places[name] += 1

        self._store(drafts())
        for part, (name, count) in enumerate(look.entries.items()):
            about = {
                "file": look.path.name,
                "reader": look.reader,
                "bytes": look.size,
                "sha256": look.digest,
                "part": part,
                "parts": len(look.entries),
                "entries": count,
            }
            event = Draft(
                id=new_id(self.clock),
                ts=self.clock.now(),
                role="event",
                kind=IMPORTED,
                content=to_json(about),
                surface="import",
                key=import_key(look.digest),
            )
            self.store.append(name, [event])

    def _take_over(self, look: _Look, advance: Advance) -> None:
        """Stores the entries of a Recto file as they are, so that they keep their ids, times and hashes."""
        heads = {name: self.store.head(name) for name in look.entries}

        def fresh() -> Iterator[tuple[str, Draft]]:
            for entry in recto_jsonl.read_entries(lines_of(_chunks(look.path, advance)), look.path.name):
                name = look.session or entry.session
                if entry.seq > heads[name].seq:
                    yield name, entry
                elif entry.seq in (heads[name].seq, look.entries[name]):
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
                batch.append(draft)
                size += len(draft.content) + len(draft.meta)
                if len(batch) == _BATCH_ENTRIES or size >= _BATCH_BYTES:
                    self.store.append(session, batch)
                    batch, size = [], 0
            if batch:
                self.store.append(session, batch)

    def _draft(self, entry: SourceEntry, file: str, place: int, meter: Meter) -> Draft:
        digest = hashlib.sha256(entry.content).hexdigest()[:16]
        return Draft(
            id=new_id(self.clock),
            ts=self.clock.now() if entry.ts is None else entry.ts,
            role=entry.role,
            kind=entry.kind,
            wire=entry.wire,
            content=entry.content,
            surface="import",
            tokens=_tokens(entry, meter),
            counter=meter.name if entry.kind == MESSAGE else "",
            meta=to_json({**entry.meta, "file": file, "layout": entry.layout}),
            key=f"import:{file[-128:]}:{place}:{digest}",
        )


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
