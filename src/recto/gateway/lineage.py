"""Finds where the history of a request is stored: by its hashes, by comparing it with a session, or by a summary.

Hashes (`Lineage`): each message is hashed onto the hash of those before it. Every response is recorded under the hash
of the history up to it. When a client sends its history again, the hash up to its last response is looked up once,
however long the history is. The records are entries in sessions of their own that no caller can name; they are sharded
by hash, so that no two conversations wait for each other. Nearly every history is sent again to the process that stored
it, so the newest records are also kept in memory. Such a record is used once and proves nothing: the append that goes
on from it names the entry that it expects to be the last.

Comparison (`aligned_entry`): clients strip reasoning from the messages of the assistant, shorten them or wrap them, and
clear old tool results. Such a history is aligned by its user and tool messages: all of them have to be there, in order.
Messages of the assistant have to be derived from the stored ones: the same calls, and words that are contained in the
words of the other. A history that an edit or another conversation explains as well is not aligned: a wrong session is
worse than a new one. Coding agents add reminders of their own (`<system-reminder>`) to what the user says, and not the
same ones when they resume a session. Reminders are not compared.

Summaries (`Summaries`): a client that compacts its history asks the model for a summary and begins a new history with
it. The new history has nothing else in common with the old one. It is linked where its first messages quote the
summary.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from recto.context.facts.statements import without_reminders
from recto.errors import AppendConflict, KeyReused
from recto.formats import read
from recto.formats.message import Message
from recto.gateway.api_keys import Key
from recto.gateway.request import ClientRequest
from recto.transcript.entries import Clock, Draft, Entry, content_as_sent, event
from recto.transcript.protocols import Records
from recto.transcript.session_keys import TenantStore

_AREA = "lineage"
"""The records of a tenant, and the kind of their entries."""
_ATTEMPTS = 4
_MAX_RECENT = 4_096
"""Records kept in memory."""
_WORD = re.compile(r"\w+")
_MIN_WORDS = 3
"""Words that two different texts have in common, at least, if one is derived from the other."""
_ASKS = re.compile(r"\b(?:summar|compact|handoff|hand-off|recap)", re.IGNORECASE)
_ASKED_TEXT = 4_000
"""Characters of a message in which a summary is asked for."""
_MIN_REPLIES = 2
"""Responses in a conversation that is worth compacting."""
_MAX_SUMMARIES = 256
_FIRST_MESSAGES = 4
"""Messages at the beginning of a history that may quote a summary."""
_LINE = 40
"""Characters of a line that identifies a summary."""
_LINES = 3
"""Lines of a summary that have to be quoted; all where it has fewer."""
_MIN_QUOTED = 80
"""Characters that have to be quoted, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineagePoint:
    """A point of a session: everything up to and including an entry."""

    session: str
    """The stored key."""
    seq: int
    head: int | None = field(default=None, compare=False)
    """The last entry of the session when the point was looked up."""
    request: str = field(default="", compare=False)
    """Digest of the request that was answered there, where it has an `Idempotency-Key`."""


@lru_cache(maxsize=4_096)
def seed_of(tenant: str, agent: str, name: str, wire: str) -> bytes:
    """Return the start of a hash chain: chains of two tenants, agents, names or formats never meet."""
    return hashlib.sha256(json.dumps(["recto lineage 1", tenant, agent, name, wire]).encode()).digest()


class Lineage:
    """Records where histories are stored."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: OrderedDict[tuple[str, bytes], LineagePoint] = OrderedDict()
        self._lock = threading.Lock()

    def take_recent(self, store: TenantStore, name: bytes) -> LineagePoint | None:
        """Return where this process has stored a history, once: what follows it there is not known afterwards."""
        with self._lock:
            return self._recent.pop((store.tenant, name), None)

    def keep_recent(self, store: TenantStore, name: bytes, point: LineagePoint) -> None:
        """Keep a point that was just recorded, and behind which nothing is stored."""
        with self._lock:
            self._recent[store.tenant, name] = replace(point, head=point.seq)
            if len(self._recent) > _MAX_RECENT:
                self._recent.popitem(last=False)

    def find(self, store: TenantStore, name: bytes | str) -> LineagePoint | None:
        """Find a history by its hash, or by the id that a client was given for it."""
        key = _key(name)
        entry = store.find_record(_AREA, _shard(key), key)
        if entry is None:
            return None
        payload: dict[str, Any] = json.loads(entry.content)
        head = store.head(payload["session"]).seq
        request = payload.get("request", "")
        point = LineagePoint(session=payload["session"], seq=payload["seq"], head=head, request=request)
        # The record of a session that was erased on purpose is still there, but leads nowhere.
        return point if point.seq <= head else None

    def record(self, store: TenantStore, name: bytes | str, point: LineagePoint) -> None:
        """Record where a history is. The first record of a history wins."""
        key = _key(name)
        draft = self._draft(key, point)
        for _ in range(_ATTEMPTS):
            try:
                store.append_record(_AREA, _shard(key), [draft])
            except KeyReused:
                return
            except AppendConflict:
                continue
            return

    def records(self, store: TenantStore, names: Sequence[bytes | str], request: str = "") -> Records:
        """Return records, under several names, of the point at the end of the entries that they are stored with.

        `request` is the digest of the request that the entries answer, if it has an `Idempotency-Key`.
        """

        def made(entries: Sequence[Entry]) -> list[tuple[str, Draft]]:
            point = LineagePoint(session=entries[-1].session, seq=entries[-1].seq, request=request)
            return [(store.record_session(_AREA, _shard(key)), self._draft(key, point)) for key in map(_key, names)]

        return made

    def _draft(self, key: str, point: LineagePoint) -> Draft:
        payload: dict[str, Any] = {"session": point.session, "seq": point.seq}
        if point.request:
            payload["request"] = point.request
        return event(self._clock, _AREA, payload, key, surface="gateway")


def lookup_order(chain: Sequence[bytes], replies: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield where a history may be known up to, longest first: after each response, then at growing distances.

    Few are tried: an edit is nearly always near the end.
    """
    places = list(reversed(replies))
    near, far = places[:8], places[8::8]
    for place in (*near, *far[:8]):
        yield place, chain[place]


def _key(name: bytes | str) -> str:
    # An id may be any text of a client, half characters too: it is hashed, and found or not.
    digest = "" if isinstance(name, bytes) else hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return name.hex() if isinstance(name, bytes) else f"id/{digest}"


def _shard(key: str) -> str:
    return key.removeprefix("id/")[:2]


@dataclass(slots=True)
class _Round:
    """A message that is not the assistant's, and what the assistant said next."""

    prompt: Message | None
    answers: list[Message] = field(default_factory=list)
    last: Entry | None = None
    """The last stored message of the assistant."""


def aligned_entry(stored: Sequence[Entry], sent: Sequence[bytes], wire: str) -> Entry | None:
    """Return the stored message up to which a history is stored; None where it is not.

    Args:
        stored: The messages of a session, from its first one on.
        sent: The history of a client, up to and with a message of the assistant.
        wire: The format of the history.
    """
    if any(entry.wire != wire for entry in stored):
        return None
    history = _rounds([(read(raw, wire), None) for raw in sent])
    session = _rounds([(read(content_as_sent(entry), wire), entry) for entry in stored])[: len(history)]
    if len(session) < len(history) or not all(map(_matches, session, history)):
        return None
    return session[-1].last


def opening_name(seed: bytes, sent: Sequence[bytes], wire: str) -> str:
    """Return the lineage name of what precedes the first response in a history, whatever reminders it has."""
    messages = [read(raw, wire) for raw in sent]
    text = json.dumps([(message.role, _parts(message)) for message in messages])
    return f"opening/{hashlib.sha256(seed + text.encode()).hexdigest()}"


def _rounds(messages: Sequence[tuple[Message, Entry | None]]) -> list[_Round]:
    found: list[_Round] = []
    for message, entry in messages:
        if message.role != "assistant":
            found.append(_Round(message))
            continue
        if not found:
            found.append(_Round(None))
        found[-1].answers.append(message)
        found[-1].last = entry
    return found


def _matches(stored: _Round, sent: _Round) -> bool:
    if (stored.prompt is None) != (sent.prompt is None):
        return False
    if stored.prompt is not None and sent.prompt is not None and not _same_question(stored.prompt, sent.prompt):
        return False
    return _is_derived(stored.answers, sent.answers)


def _same_question(stored: Message, sent: Message) -> bool:
    """Whether two messages of the user or a tool are the same, except that results may have been cleared."""
    if stored.role != sent.role or _parts(stored) != _parts(sent):
        return False
    pairs = zip(stored.results, sent.results, strict=False)
    return len(stored.results) == len(sent.results) and all(
        before.call_id == after.call_id and (before.text == after.text or len(after.text) < len(before.text))
        for before, after in pairs
    )


def _parts(message: Message) -> list[tuple[str, str, int]]:
    """Return what a message holds beside tool results, beside the media of results and beside reminders."""
    if message.results:
        return [
            ("text", text, 0)
            for part in message.parts
            if part.kind == "text" and (text := without_reminders(part.text))
        ]
    return [
        (part.kind, text, part.weight)
        for part in message.parts
        if (text := without_reminders(part.text)) or part.kind not in ("other", "text")
    ]


def _is_derived(stored: Sequence[Message], sent: Sequence[Message]) -> bool:
    """Whether what a client sends as the assistant's is what the assistant said, or made from it."""
    if _calls(stored) != _calls(sent):
        return False
    before, after = _words(stored), _words(sent)
    if before == after:
        return True
    if not before or not after:
        return bool(_calls(stored))
    short, long = sorted((before, after), key=len)
    return len(short) >= _MIN_WORDS and _contains(long, short)


def _calls(messages: Sequence[Message]) -> list[tuple[str, str, str]]:
    calls = [call for message in messages for call in message.calls]
    return [(call.call_id, call.name, _arguments(call.text)) for call in calls]


def _arguments(text: str) -> str:
    try:
        return json.dumps(json.loads(text or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _words(messages: Sequence[Message]) -> list[str]:
    texts = [part.text for message in messages for part in message.parts if part.kind == "text"]
    return [word for text in texts for word in _WORD.findall(text.lower())]


def _contains(long: Sequence[str], short: Sequence[str]) -> bool:
    """Whether the words are in the longer text, one after the other."""
    return f" {' '.join(short)} " in f" {' '.join(long)} "


def asks_for_summary(request: ClientRequest) -> bool:
    """Whether the last message of a conversation asks for a summary of it."""
    if len(request.replies) < _MIN_REPLIES or request.replies[-1] == len(request.messages) - 1:
        return False
    message = read(request.messages[-1], request.wire)
    if message.role != "user" or message.results:
        return False
    return _ASKS.search(message.text[:_ASKED_TEXT]) is not None


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A summary, and where it is stored."""

    entry: Entry
    lines: tuple[str, ...]


class Summaries:
    """The recent summaries of each tenant and agent. Thread-safe."""

    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[str, str, str], StoredSummary] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, key: Key, entry: Entry, messages: Sequence[bytes]) -> None:
        """Keep the summary of a session."""
        text = "\n".join(read(raw, entry.wire).text for raw in messages)
        lines = tuple(line.strip() for line in text.splitlines() if len(line.strip()) >= _LINE)
        if sum(map(len, lines)) < _MIN_QUOTED:
            return
        with self._lock:
            self._recent[key.tenant, key.agent, entry.session] = StoredSummary(entry, lines)
            if len(self._recent) > _MAX_SUMMARIES:
                self._recent.popitem(last=False)

    def source(self, key: Key, request: ClientRequest) -> Entry | None:
        """Return the summary that a new history begins with, if any."""
        with self._lock:
            own = [
                one for (tenant, agent, _), one in self._recent.items() if (tenant, agent) == (key.tenant, key.agent)
            ]
        if not own:
            return None
        messages = [read(raw, request.wire) for raw in (*request.front, *request.messages[:_FIRST_MESSAGES])]
        text = "\n".join([request.instructions.decode(errors="replace"), *(message.text for message in messages)])
        return next((one.entry for one in reversed(own) if _is_quoted(one, text)), None)


def _is_quoted(summary: StoredSummary, text: str) -> bool:
    quoted = [line for line in summary.lines if line in text]
    return len(quoted) >= min(_LINES, len(summary.lines)) and sum(map(len, quoted)) >= _MIN_QUOTED
