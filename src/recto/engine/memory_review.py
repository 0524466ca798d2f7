"""Reads the finished part of one session and finds what might be remembered of it.

By rule from the ledger and the agent's notes, and by a model where there is one: then only what is quoted word for
word. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from recto.core.entries import MESSAGE, Entry
from recto.core.ledger import facts_of
from recto.core.memory_asking import memory_request, suggested
from recto.core.memory_rules import Candidate, candidates, lessons, noted, said_in_own_words
from recto.core.scopes import parse_pointer
from recto.core.told import Fact, Told
from recto.engine.intake import is_raw
from recto.engine.memory_events import Cursor, about_of
from recto.engine.telling import Teller
from recto.errors import InputError, RectoError
from recto.ports import ChatModel, TranscriptStore
from recto.wire import read

CHUNK = 5_000
"""Entries that are reviewed at a time; after each, how far it came is kept."""
_LOOKED_AT = 2_000
"""Entries at the end of a session in which its last turn is looked for."""
_ANSWER, _SECONDS = 1_000, 60.0
_DURABLE = ("constraint", "preference", "correction", "decision", "approval")
_NOTE, _INJECTED = "note", "recall_injected"
_IMPORTED = "import"


@dataclass(slots=True)
class Review:
    """What was found in a stretch of a session."""

    session: str
    first: int
    last: int
    hash: str
    facts: tuple[Fact, ...] = ()
    told: list[Told] = field(default_factory=list)
    """What was said in it."""
    found: list[Candidate] = field(default_factory=list)
    shown: list[tuple[str, int]] = field(default_factory=list)
    """Pointers that recall quoted, and the event that says so."""
    problems: list[str] = field(default_factory=list)

    @property
    def standing(self) -> list[int]:
        """Entries whose facts still hold."""
        return sorted({fact.seq for fact in self.facts if fact.open and fact.kind in _DURABLE})


def finished(store: TranscriptStore, session: str) -> int:
    """The last entry of the finished part: everything, or what is before the turn that is still going on."""
    tail = store.tail(session, _LOOKED_AT)
    for entry in reversed(tail):
        if entry.kind == MESSAGE and entry.role == "assistant" and not _calls(entry):
            return tail[-1].seq
        if entry.kind == MESSAGE and entry.role == "user":
            return entry.seq - 1
    return tail[0].seq - 1 if tail else 0


def reviews(
    store: TranscriptStore,
    session: str,
    cursor: Cursor,
    model: ChatModel | None = None,
    advance: Callable[[int], None] = lambda by: None,
) -> Iterator[Review]:
    """Reviews what was not reviewed yet, a stretch at a time."""
    upto, facts = _trusted(store, session, cursor)
    last = finished(store, session)
    teller = Teller()
    while upto < last:
        entries = list(store.read(session, upto + 1, min(upto + CHUNK, last)))
        if not entries:
            return
        made = Review(session=session, first=upto + 1, last=entries[-1].seq, hash=entries[-1].hash.hex())
        made.told = list(heard(entries, teller))
        facts = made.facts = facts_of(made.told, facts)
        made.found = [*_noted(entries), *candidates(facts, upto), *lessons(made.told)]
        made.shown = list(_shown(entries))
        if model is not None:
            _ask(model, made)
        advance(len(entries))
        yield made
        upto = made.last


def heard(entries: Iterable[Entry], teller: Teller) -> Iterator[Told]:
    """The messages among entries. What cannot be read, and what a client wrote about its own history, is left out."""
    for entry in entries:
        if is_raw(entry):
            try:
                yield teller.tell(entry.seq, read(entry.content, entry.wire))
            except InputError:
                continue


def is_own_words(store: TranscriptStore, pointer: str, text: str) -> bool:
    """Whether the entry a pointer names is a message that its user typed here, with this sentence in it.

    What was imported, what carries anything but text, and what is not a user's message is not.
    """
    session, seq = parse_pointer(pointer)
    entry = next(iter(store.read(session, seq, seq)), None)
    if entry is None or entry.role != "user" or entry.surface == _IMPORTED or not is_raw(entry):
        return False
    try:
        message = read(entry.content, entry.wire)
    except InputError:
        return False
    if message.role != "user" or any(part.kind != "text" for part in message.parts):
        return False
    return said_in_own_words(text, Teller().tell(seq, message))


def _trusted(store: TranscriptStore, session: str, cursor: Cursor) -> tuple[int, tuple[Fact, ...]]:
    """Where to go on, and the facts that held there, read again from the entries themselves."""
    entry = next(iter(store.read(session, cursor.upto, cursor.upto)), None) if cursor.upto else None
    if entry is None or entry.hash.hex() != cursor.hash:
        return 0, ()
    held = [one for seq in cursor.standing for one in store.read(session, seq, seq)]
    return cursor.upto, facts_of(heard(held, Teller()))


def _calls(entry: Entry) -> bool:
    try:
        return bool(read(entry.content, entry.wire).calls)
    except InputError:
        return False


def _noted(entries: Iterable[Entry]) -> Iterator[Candidate]:
    for entry in entries:
        if entry.kind == _NOTE and entry.role == "event" and entry.surface != _IMPORTED:
            about = about_of(entry)
            kind, text = about.get("kind"), about.get("text")
            if isinstance(kind, str) and isinstance(text, str):
                one = noted(kind, text, entry.seq, critical=about.get("critical") is True)
                if one is not None:
                    yield one


def _shown(entries: Iterable[Entry]) -> Iterator[tuple[str, int]]:
    for entry in entries:
        hits = about_of(entry).get("hits") if entry.kind == _INJECTED else None
        for hit in hits[:100] if isinstance(hits, list) else ():
            if isinstance(hit, dict) and isinstance(hit.get("pointer"), str):
                yield hit["pointer"], entry.seq


def _ask(model: ChatModel, made: Review) -> None:
    """What a model picks out. One that fails is told of, and the rules are enough."""
    request = memory_request(made.told, max_tokens=_ANSWER, seconds=_SECONDS)
    if not request.text:
        return
    try:
        made.found += suggested(model.complete(request).text, made.told)
    except RectoError as error:
        made.problems.append(str(error))
    except Exception as error:  # noqa: BLE001  # a model is not ours: it may raise what it likes
        made.problems.append(f"model '{model.name}' broke ({type(error).__name__})")
