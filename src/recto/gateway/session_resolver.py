"""Resolves a request to a session: which one it continues, and which of its messages are new there.

A history that is sent again stores only its new messages. An edited history, a request of another kind under the same
name, and the same request while the first is in flight each open a branch; nothing is overwritten.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from recto.context.facts.statements import has_reminders
from recto.engine.fork import BRANCH, fork
from recto.engine.history_sync import Fingerprints
from recto.engine.projection import REFUSED, RETRIED
from recto.errors import IdempotencyKeyReused, InputError, NotHeld
from recto.formats import read
from recto.formats.message import fields_of, text_in
from recto.gateway.api_keys import Key
from recto.gateway.context_management import compaction_in
from recto.gateway.lineage import Lineage, LineagePoint, Summaries, aligned_entry, lookup_order, opening_name, seed_of
from recto.gateway.request import ANSWERED_KEY, ClientRequest, RetryKey
from recto.transcript.entries import (
    DEFAULT_SESSION,
    MESSAGE,
    Clock,
    Entry,
    client_messages,
    content_as_sent,
    event,
    is_hidden,
    new_id,
    refused_key,
)
from recto.transcript.session_keys import TenantStore, is_memory_session

_RECENT_ENTRIES = 200
"""Entries at the end of a session that are searched for the last response."""
_ENDING_MESSAGES = 4
"""Messages that identify the end of a history."""
_WITH_TOOLS = b"tools_offered/"
"""In the metadata of a response to a request with tools."""
_MAX_ALIGNED_ENTRIES = 2_000
"""Entries from the beginning of a session with which a rewritten history is compared."""
_MAX_OPENINGS = 4_096
_MAX_LIKE = 6
"""Sessions with the same opening that are compared."""
_SIDE_CALL_TEXT = 4_000
"""Characters of a request's instructions and message in which its purpose is stated."""
_MAX_SIDE_CALL_TOKENS = 16
"""Output limit of requests that only try whether they are accepted."""
_SIDE_CALL = re.compile(
    r"\b(?:generat|writ|creat|produc|output|extract|suggest|giv|need)\w*\b[^.\n]{0,60}\btitles?\b"
    r"|\btitle (?:generator|for|of)\b|\bconversation topic\b"
    r"|\bsummar\w+\b[^.\n]{0,60}\b(?:conversation|session|chat|thread|transcript|discussion)s?\b",
    re.IGNORECASE,
)
_MAX_COPIED_ENTRIES = 5_000
"""A branch copies a session of up to this many entries; of a longer one it starts with what the client sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSession:
    """The session that a request continues."""

    name: str
    """As the client names it."""
    key: str
    """As it is stored."""
    new_messages: tuple[bytes, ...]
    """The messages of the request that are not stored yet."""
    expected_head: int | None
    """The entry that must be the last one when they are stored; None where it does not matter."""
    history_hash: bytes | None
    """Hash of the complete history with them; None where the client does not send its history."""
    seed: bytes = b""
    """Start of the hash chain of the conversation."""
    chain: Sequence[bytes] = ()
    """Hash of the history up to each message; empty where the client does not send its history."""
    is_aside: bool = False
    """Whether the request is about a conversation and not part of it: often it has nothing but its first message."""
    superseded: tuple[int, ...] = ()
    """Entries of a response that the client does not go on from: it took another of the choices it was given."""
    opening: str = ""
    """Lineage name of the first messages without their reminders; empty where they have none."""
    is_serial: bool = False
    """Whether requests to this session wait for each other, because the client does not send its history."""


class AlreadyAnswered(Exception):  # ends the search, and is no failure
    """A request that comes again was answered: nothing is stored or asked."""

    def __init__(self, store: TenantStore, replies: Sequence[Entry]) -> None:
        super().__init__(replies[-1].session)
        self.store = store
        self.replies = replies
        """The messages of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHint:
    """What a client says about the session it means."""

    name: str
    """Empty: nothing."""
    is_explicit: bool
    """Whether it uses Recto's own header: then it knows that the history is stored here."""


class SessionResolver:
    """Finds the session of a request, and opens branches."""

    def __init__(self, clock: Clock) -> None:
        self.lineage = Lineage(clock)
        self.fingerprints = Fingerprints()
        self._clock = clock
        self._openings = Openings()
        self.summaries = Summaries()

    def resolve(
        self,
        key: Key,
        store: TenantStore,
        request: ClientRequest,
        hint: SessionHint,
        busy: Collection[str],
        retry: RetryKey | None = None,
    ) -> ResolvedSession:
        """Find the session that a request continues, or a name for a new one.

        Args:
            key: The API key of the caller.
            store: The store of the caller's tenant.
            request: The request.
            hint: The session that the client names, if any.
            busy: Stored keys of sessions with a turn in flight.
            retry: Identifies a request that may come again.

        Raises:
            AlreadyAnswered: It does, and its answer is stored.
            IdempotencyKeyReused: Its key was used for another request.
            NotHeld: The request names a history that is not stored here.
            InputError: The key may not write to the session that it names.
        """
        shared = False
        if retry is not None:
            self._refuse_answered(store, retry)
            shared = retry.asks_again or retry.is_new
        if stored := self._stored_history(key, store, request, shared):
            point, new_messages = stored
            return self._continue(store, point, new_messages, request, busy, retry)
        base = base_name(key, hint)
        base_key = store.key(base)
        if _is_next_turn(key, store, request, hint, base_key):
            return self._next_turn(store, base, base_key, request, shared)
        is_aside = not request.replies and is_side_call(request)
        seed = seed_of(key.tenant, key.agent, hint.name, request.wire)
        chain = self._chain(seed, request)
        last = chain[-1] if chain else seed
        known = self._known_prefix(store, request, chain, is_aside)
        resolved = None
        if request.replies and (known is None or known[1] <= request.replies[-1]):
            resolved = self._other_choice(store, request, chain, busy)
            if resolved is None:
                known = self._aligned(store, request, chain, seed) or known or self._known_ending(store, request, seed)
        if resolved is None and known is not None:
            resolved = self._continue(store, known[0], request.messages[known[1] :], request, busy, retry)
        if resolved is None:
            resolved = self._opened(key, store, request, hint, base, is_free=base_key not in busy and not is_aside)
        if not is_aside and not resolved.superseded and (known is None or resolved.key != known[0].session):
            self._openings.add(store, _opening(chain, seed, request), resolved.key)
            first = _before_replies(request)
            if any(map(has_reminders, first)):
                resolved = replace(resolved, opening=opening_name(seed, first, request.wire))
                self._openings.add(store, resolved.opening, resolved.key)
        return replace(resolved, history_hash=last, seed=seed, chain=chain, is_aside=is_aside)

    def _opened(
        self, key: Key, store: TenantStore, request: ClientRequest, hint: SessionHint, base: str, *, is_free: bool
    ) -> ResolvedSession:
        """Open a session for a history that is not known, under the name that the client uses if that is free."""
        if not hint.name and (summary := self.summaries.source(key, request)) is not None:
            return self._linked(store, LineagePoint(session=summary.session, seq=summary.seq), request)
        name = base if hint.name else f"agent:{key.agent}:{new_id(self._clock)}"
        point = LineagePoint(session=store.key(name), seq=0)
        if hint.name and (not is_free or store.head(point.session).seq):
            return self._branch(store, point, request.messages, request)
        return ResolvedSession(
            name=name, key=point.session, new_messages=request.messages, expected_head=0, history_hash=None
        )

    def stored_history(
        self, key: Key, store: TenantStore, request: ClientRequest, hint: SessionHint
    ) -> tuple[str, tuple[bytes, ...]] | None:
        """Find the session whose stored history a request continues, and what it adds. Stores nothing.

        None where the client sends its history. Raises `NotHeld` and `InputError` as `resolve` does.
        """
        if stored := self._stored_history(key, store, request, shared=False):
            point, new_messages = stored
            return store.name(point.session), new_messages
        base = base_name(key, hint)
        if not _is_next_turn(key, store, request, hint, store.key(base)):
            return None
        return base, self._next_turn(store, base, store.key(base), request, again=False).new_messages

    def lane(self, key: Key, store: TenantStore, request: ClientRequest, hint: SessionHint) -> str:
        """Return the lane of requests that wait for each other because the client does not send its history.

        Empty where it does.
        """
        if conversation := request.format.request.conversation_id(request.fields):
            return f"conversation/{key.tenant}/{conversation}"
        if request.replies or not (hint.is_explicit or (request.is_bare and not hint.name and key.canonical)):
            return ""
        return store.key(base_name(key, hint))

    def turn_key(self, key: Key, store: TenantStore, request: ClientRequest, hint: SessionHint) -> str:
        """Return the stored session whose turn the requests of a lane wait for, across processes; empty without one."""
        if conversation := request.format.request.conversation_id(request.fields):
            point = self.find_by_id(key, store, f"conversation/{conversation}")
            return point.session if point else ""
        return self.lane(key, store, request, hint)

    def ending(self, seed: bytes, messages: Sequence[bytes], wire: str) -> str:
        """Return the lineage name of the end of a history, whatever it begins with."""
        return f"ending/{self.fingerprints.chain(seed, messages[-_ENDING_MESSAGES:], wire)[-1].hex()}"

    def _chain(self, seed: bytes, request: ClientRequest) -> list[bytes]:
        """Hash the history up to each message; what an earlier request began with is hashed already."""
        before: Sequence[bytes] = ()
        if request.known is not None and request.known.request.seed == seed:
            before = request.known.request.chain[: request.shared]
        rest = request.messages[len(before) :]
        return [*before, *self.fingerprints.chain(before[-1] if before else seed, rest, request.wire)]

    def _known_prefix(
        self, store: TenantStore, request: ClientRequest, chain: list[bytes], is_aside: bool
    ) -> tuple[LineagePoint, int] | None:
        """Find the longest prefix of a history that is stored as it was sent, and its number of messages."""
        if not request.messages:
            return None
        if not request.replies:
            point = self.lineage.find(store, question_name(chain[-1], is_aside=is_aside))
            return (point, len(chain)) if point else None
        newest = request.replies[-1]
        point = self.lineage.take_recent(store, chain[newest])
        if point is not None:
            return point, newest + 1
        for last, name in lookup_order(chain, request.replies):
            point = self.lineage.find(store, name)
            if point is not None:
                return point, last + 1
        point = self.lineage.find(store, chain[-1])  # stored as a complete history, and not answered yet
        return (point, len(chain)) if point else None

    def _aligned(
        self, store: TenantStore, request: ClientRequest, chain: Sequence[bytes], seed: bytes
    ) -> tuple[LineagePoint, int] | None:
        """Find the session of a history that the client has rewritten; None where several would do."""
        history = request.messages[: request.replies[-1] + 1]
        names = _opening(chain, seed, request), opening_name(seed, _before_replies(request), request.wire)
        sessions = [session for name in names for session in self._openings.sessions(store, name, self.lineage)]
        found: list[Entry] = []
        for session in dict.fromkeys(sessions):
            stored = list(conversation_messages(store.read(session, 1, _MAX_ALIGNED_ENTRIES)))
            entry = aligned_entry(stored, history, request.wire)
            if entry is not None:
                found.append(entry)
        if len({entry.id for entry in found}) != 1:
            return None
        # a branch is a copy: of several the first one counts behind which nothing is stored
        entry = next((entry for entry in found if self._is_last(store, entry)), found[0])
        return LineagePoint(session=entry.session, seq=entry.seq), len(history)

    def _is_last(self, store: TenantStore, entry: Entry) -> bool:
        later = store.read(entry.session, entry.seq + 1, entry.seq + _RECENT_ENTRIES)
        return next(conversation_messages(later), None) is None

    def _known_ending(self, store: TenantStore, request: ClientRequest, seed: bytes) -> tuple[LineagePoint, int] | None:
        """Find a history that ends with this one: its client has dropped the beginning itself."""
        history = request.messages[: request.replies[-1] + 1]
        point = self.lineage.find(store, self.ending(seed, history, request.wire))
        if point is None:
            return None
        stored: list[Entry] = []
        at = point.seq
        while at > 0 and len(stored) < len(history):
            page = list(store.read(point.session, max(at - _RECENT_ENTRIES, 0) + 1, at))
            stored = [*conversation_messages(page), *stored]
            at -= len(page)
        is_same = self._common_prefix(stored[-len(history) :], history, request.wire) == len(history)
        return (point, len(history)) if is_same else None

    def _continue(
        self,
        store: TenantStore,
        point: LineagePoint,
        rest: tuple[bytes, ...],
        request: ClientRequest,
        busy: Collection[str],
        retry: RetryKey | None,
    ) -> ResolvedSession:
        """Continue after an entry: messages that are stored there already are skipped; where they differ, branch.

        A request that comes again and is stored there with its answer raises `AlreadyAnswered`, also if another gateway
        has stored the answer just now.
        """
        # what others add from here on is a conflict
        head = store.head(point.session).seq if point.head is None else point.head
        entries = store.read(point.session, point.seq + 1, head)
        later = list(islice(conversation_messages(entries), len(rest) + 1))
        same = self._common_prefix(later, rest, request.wire)
        if same < len(later) and store.find(point.session, refused_key(later[same].seq)) is not None:
            # a client that does not send a refused message again goes on without it
            later = _accepted(store.read(point.session, point.seq + 1, head))[: len(rest) + 1]
            same = self._common_prefix(later, rest, request.wire)
        if same == len(later) and point.session not in busy and not self._is_aside(store, point, request):
            return ResolvedSession(
                name=store.name(point.session),
                key=point.session,
                new_messages=rest[same:],
                expected_head=head,
                history_hash=None,
            )
        last = later[same - 1].seq if same else point.seq
        if retry is not None and same == len(rest):
            self._refuse_answered(store, retry)
            self._refuse_stored(store, point.session, last, retry)
        return self._branch(store, LineagePoint(session=point.session, seq=last), rest[same:], request)

    def _is_aside(self, store: TenantStore, point: LineagePoint, request: ClientRequest) -> bool:
        """Whether a request asks about the conversation of an agent with tools, which goes on without it.

        An agent that takes its own tools away, to get an answer, keeps its instructions.
        """
        if request.body.tools or not request.replies or not is_side_call(request):
            return False
        answer = next(iter(store.read(point.session, point.seq, point.seq)), None)
        if request.closing:
            return answer is not None and _WITH_TOOLS in answer.meta
        instructions = hashlib.sha256(request.instructions).hexdigest()[:32].encode()
        return answer is not None and _WITH_TOOLS in answer.meta and instructions not in answer.meta

    def _common_prefix(self, entries: Sequence[Entry], messages: Sequence[bytes], wire: str) -> int:
        """Return how many messages are the same from the beginning."""
        pairs = zip(entries, messages, strict=False)
        return next(
            (
                count
                for count, (entry, message) in enumerate(pairs)
                if self.fingerprints.of(content_as_sent(entry), entry.wire) != self.fingerprints.of(message, wire)
            ),
            min(len(entries), len(messages)),
        )

    def sent_again(self, store: TenantStore, key: str, messages: Sequence[bytes], wire: str) -> list[Entry]:
        """Return the unanswered entries of a session that hold these messages, one for each, in their order."""
        wanted = Counter(self.fingerprints.of(message, wire) for message in messages)
        found: list[Entry] = []
        for entry in reversed(self.unanswered(store, key)):
            fingerprint = self.fingerprints.of(entry.content, entry.wire)
            if wanted[fingerprint] > 0:
                wanted[fingerprint] -= 1
                found.append(entry)
        return found[::-1]

    def _next_turn(
        self, store: TenantStore, name: str, key: str, request: ClientRequest, again: bool
    ) -> ResolvedSession:
        """Add a turn to a session whose history is stored here. A retry of an unanswered request adds nothing."""
        is_stored = self._is_waiting(store, key, request, again)
        return ResolvedSession(
            name=name,
            key=key,
            new_messages=() if is_stored else request.messages,
            expected_head=None,
            history_hash=None,
            is_serial=True,
        )

    def _is_waiting(self, store: TenantStore, key: str, request: ClientRequest, again: bool) -> bool:
        """Whether a session holds a request that was not answered.

        Other clients of the session may have asked in between. What they asked is answered together with a request
        that comes `again`, so it may have been answered, too: then this raises `AlreadyAnswered`. A request without a
        mark is only taken for a retry where no later question was asked: the model answers the last question.
        """
        messages = list(conversation_messages(store.tail(key, _RECENT_ENTRIES)))
        end = _end_of_last(messages, is_reply=True)
        unanswered = messages[end:]
        if self._holds(unanswered if again else unanswered[-len(request.messages) :], request):
            return True
        begin = _end_of_last(messages[:end], is_reply=False)
        asked = messages[_end_of_last(messages[:begin], is_reply=True) : begin]
        if again and self._holds(asked, request):
            raise AlreadyAnswered(store, messages[begin:end])
        return False

    def _holds(self, entries: Sequence[Entry], request: ClientRequest) -> bool:
        """Whether entries, one after the other, hold the messages of a request."""
        count, wire = len(request.messages), request.wire
        starts = range(len(entries) - count + 1) if count else ()
        return any(self._common_prefix(entries[at : at + count], request.messages, wire) == count for at in starts)

    def unanswered(self, store: TenantStore, key: str) -> list[Entry]:
        """Return the messages after the last response."""
        messages = list(client_messages(store.tail(key, _RECENT_ENTRIES)))
        return messages[_end_of_last(messages, is_reply=True) :]

    def _refuse_answered(self, store: TenantStore, retry: RetryKey) -> None:
        """Raise `AlreadyAnswered` for an `Idempotency-Key` whose answer is stored."""
        point = self.lineage.find(store, retry.lineage_name) if retry.lineage_name else None
        if point is None:
            return
        entries = store.read(point.session, max(point.seq - _RECENT_ENTRIES, 0) + 1, point.seq)
        messages = list(conversation_messages(entries))
        replies = list(takewhile(lambda entry: entry.role == "assistant", reversed(messages)))[::-1]
        if point.request != retry.body.hex() or not replies:
            raise IdempotencyKeyReused
        raise AlreadyAnswered(store, replies)

    def _refuse_stored(self, store: TenantStore, session: str, seq: int, retry: RetryKey) -> None:
        """Raise `AlreadyAnswered` where an answer follows an entry; with an `Idempotency-Key`, only for its answer."""
        if not retry.name and not retry.asks_again:
            return
        later = conversation_messages(store.read(session, seq + 1, seq + _RECENT_ENTRIES))
        replies = list(takewhile(lambda entry: entry.role == "assistant", later))
        if replies and (retry.asks_again or replies[-1].metadata.get(ANSWERED_KEY) == retry.answer_mark):
            raise AlreadyAnswered(store, replies)

    def _branch(
        self, store: TenantStore, point: LineagePoint, rest: tuple[bytes, ...], request: ClientRequest
    ) -> ResolvedSession:
        """Open a session that begins like another, up to an entry."""
        name = self._branch_name(store, point)
        key = store.key(name)
        if 0 < point.seq <= _MAX_COPIED_ENTRIES:
            fork(store, point.session, key, clock=self._clock, at=point.seq)
            head = store.head(key).seq
            return ResolvedSession(name=name, key=key, new_messages=rest, expected_head=head, history_hash=None)
        return self._linked(store, point, request, name)

    def _linked(
        self, store: TenantStore, point: LineagePoint, request: ClientRequest, name: str = ""
    ) -> ResolvedSession:
        """Open a session that says where it comes from, and begins with what the client sent."""
        name = name or self._branch_name(store, point)
        key = store.key(name)
        payload = {"from": point.session, "at": point.seq}
        entry = store.append(key, [event(self._clock, BRANCH, payload, surface="gateway")])[0]
        return ResolvedSession(
            name=name, key=key, new_messages=request.messages, expected_head=entry.seq, history_hash=None
        )

    def _branch_name(self, store: TenantStore, point: LineagePoint) -> str:
        return f"{store.name(point.session).split('~')[0]}~{new_id(self._clock)[-12:]}"

    def choice_names(self, history: bytes, choices: Sequence[bytes], wire: str) -> list[bytes | str]:
        """Return the names of a history with each of the choices that were not stored as its response."""
        chains = [self.fingerprints.chain(history, [choice], wire) for choice in choices]
        return [f"choice/{chain[-1].hex()}" for chain in chains]

    def _other_choice(
        self, store: TenantStore, request: ClientRequest, chain: Sequence[bytes], busy: Collection[str]
    ) -> ResolvedSession | None:
        """Continue with another choice than the one that was stored as the response, in its place."""
        newest = request.replies[-1] if request.replies else 0
        point = self.lineage.find(store, f"choice/{chain[newest].hex()}") if request.replies else None
        if point is None:
            return None
        entries = list(
            conversation_messages(store.read(point.session, max(point.seq - _RECENT_ENTRIES, 0) + 1, point.seq))
        )
        response = entries[_end_of_last(entries, is_reply=False) :]
        rest = request.messages[newest:]
        head = store.head(point.session).seq
        if point.session in busy or next(conversation_messages(store.read(point.session, point.seq + 1, head)), None):
            return self._branch(store, LineagePoint(session=point.session, seq=response[0].seq - 1), rest, request)
        return ResolvedSession(
            name=store.name(point.session),
            key=point.session,
            new_messages=rest,
            expected_head=head,
            history_hash=None,
            superseded=tuple(entry.seq for entry in response),
        )

    def find_by_id(self, key: Key, store: TenantStore, name: str) -> LineagePoint | None:
        """Find a history by the id that a client was given for it; None for one of another agent."""
        point = self.lineage.find(store, name)
        return point if point is not None and _is_agents(key, store.name(point.session)) else None

    def _stored_history(
        self, key: Key, store: TenantStore, request: ClientRequest, shared: bool
    ) -> tuple[LineagePoint, tuple[bytes, ...]] | None:
        """Find the stored history that a request names, if it names one, and what it adds."""
        compacted, rest = compaction_in(request)
        if compacted:
            says = "The compaction item is not one that was made here."
            return self._recorded(key, store, f"compaction/{compacted}", says), rest
        if not request.format.body.stored_history:
            return None
        previous = text_in(request.fields.get("previous_response_id"))
        if previous:
            says = f"Previous response with id '{previous:.80}' not found."
            return self._recorded(key, store, f"response/{previous}", says), request.messages
        conversation = request.format.request.conversation_id(request.fields)
        if not conversation:
            return None
        says = f"Conversation '{conversation:.80}' not found."
        point = self._recorded(key, store, f"conversation/{conversation}", says)
        is_stored = self._is_waiting(store, point.session, request, shared)
        return replace(point, seq=store.head(point.session).seq), () if is_stored else request.messages

    def _recorded(self, key: Key, store: TenantStore, name: str, says: str) -> LineagePoint:
        point = self.find_by_id(key, store, name)
        if point is None:
            raise NotHeld(says)
        return point


class Openings:
    """The recent sessions of each opening: what precedes the first response. Thread-safe."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str, bytes | str], tuple[str, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, store: TenantStore, opening: bytes | str, session: str) -> None:
        """Add a session that was opened."""
        name = store.tenant, opening
        with self._lock:
            known = self._sessions.pop(name, ())
            self._sessions[name] = known if session in known else (*known, session)[-_MAX_LIKE:]
            if len(self._sessions) > _MAX_OPENINGS:
                self._sessions.popitem(last=False)

    def sessions(self, store: TenantStore, opening: bytes | str, lineage: Lineage) -> Sequence[str]:
        """Return sessions with an opening: the first one that was recorded, and recent ones."""
        with self._lock:
            known = self._sessions.get((store.tenant, opening), ())
        first = lineage.find(store, opening)
        return tuple(dict.fromkeys((*((first.session,) if first else ()), *known)))


def question_name(history: bytes, *, is_aside: bool) -> bytes | str:
    """Return the lineage name of a history that is not answered."""
    return f"aside/{history.hex()}" if is_aside else history


def _opening(chain: Sequence[bytes], seed: bytes, request: ClientRequest) -> bytes:
    """Return the hash of what precedes the first response in a history."""
    if not request.replies:
        return chain[-1] if chain else seed
    return chain[request.replies[0] - 1] if request.replies[0] else seed


def _before_replies(request: ClientRequest) -> Sequence[bytes]:
    return request.messages[: request.replies[0]] if request.replies else request.messages


def is_side_call(request: ClientRequest) -> bool:
    """Whether an agent asks about a conversation instead of going on with it: for its title, topic or summary.

    Such a request has no tools, and says what it is for in its instructions or its last message.
    """
    if request.body.tools:
        return False
    if 0 < request.max_output_tokens <= _MAX_SIDE_CALL_TOKENS:
        return True
    text = b"\n".join((request.instructions, *request.closing)).decode(errors="replace")[:_SIDE_CALL_TEXT]
    return _SIDE_CALL.search(f"{text}\n{_last_question(request)}") is not None


def _last_question(request: ClientRequest) -> str:
    """Return the beginning of the last message, if it is the user's own."""
    if not request.messages:
        return ""
    message = read(request.messages[-1], request.wire)
    return message.text[:_SIDE_CALL_TEXT] if message.role == "user" and not message.results else ""


def conversation_messages(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Return the messages that identify a conversation, as a request has them: without system messages."""
    return (entry for entry in client_messages(entries) if entry.role != "system")


def _accepted(entries: Iterable[Entry]) -> list[Entry]:
    """Return the messages among entries, without those that the provider refused."""
    messages: dict[int, Entry] = {}
    refused: dict[int, Entry] = {}
    for entry in entries:
        if entry.kind == MESSAGE:
            if not is_hidden(entry.meta) and entry.role != "system":
                messages[entry.seq] = entry
        elif entry.kind in (REFUSED, RETRIED):
            seq = fields_of(entry.content).get("entry")
            source, target = (messages, refused) if entry.kind == REFUSED else (refused, messages)
            if isinstance(seq, int) and seq in source:
                target[seq] = source.pop(seq)
    return [messages[seq] for seq in sorted(messages)]


def _end_of_last(messages: Sequence[Entry], *, is_reply: bool) -> int:
    """Return the place behind the last response, or behind the last message that is none; 0 without one."""
    places = range(len(messages), 0, -1)
    return next((place for place in places if (messages[place - 1].role == "assistant") is is_reply), 0)


def _agent_prefix(key: Key) -> str:
    return f"agent:{key.agent}:"


def _is_agents(key: Key, name: str) -> bool:
    """Whether a session belongs to the agent of an API key: the one check, for names and ids alike."""
    return name.startswith(_agent_prefix(key))


def _is_next_turn(key: Key, store: TenantStore, request: ClientRequest, hint: SessionHint, base_key: str) -> bool:
    """Whether a request is the next turn of a session whose history the client leaves to this gateway."""
    if request.is_bare and (hint.is_explicit or (not hint.name and key.canonical)):
        return True
    return hint.is_explicit and not request.replies and store.head(base_key).seq > 0


def base_name(key: Key, hint: SessionHint) -> str:
    """Return the session that a request names, before its history is looked at.

    Raises:
        InputError: The key may not write to it.
    """
    main = DEFAULT_SESSION.rpartition(":")[2]
    prefix = _agent_prefix(key)
    name = hint.name if hint.is_explicit and hint.name.startswith("agent:") else f"{prefix}{hint.name or main}"
    if not _is_agents(key, name):
        raise InputError(f"session '{name:.80}': this key writes to sessions that begin with '{prefix}'")
    if is_memory_session(name):
        raise InputError(f"session '{name:.80}' holds memory; it is written by approval only. Choose another name.")
    return name
