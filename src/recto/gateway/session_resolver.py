"""Where a request belongs: which session it goes on, and which of its messages are new there.

A history that comes again stores only what is new. One that was edited, a request of another kind under the same name,
the same request a second time: each opens a branch, and nothing is overwritten.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from recto.engine.fingerprints import Fingerprints
from recto.engine.fork import BRANCH, fork
from recto.errors import InputError, NotHeld
from recto.formats.message import fields_of, text_in
from recto.gateway.api_keys import Key
from recto.gateway.lineage import Lineage, LineagePoint, longest, seed_of
from recto.gateway.request import ClientRequest
from recto.transcript.entries import DEFAULT_SESSION, MESSAGE, Entry
from recto.transcript.events import event, new_id
from recto.transcript.protocols import Clock
from recto.transcript.session_keys import is_memory_session
from recto.transcript.tenancy import TenantStore

COMPACTED = "recto:"
"""What the content of a compaction item of ours begins with; behind it stands under which id it is noted."""
_RECENT = 200
"""Entries at the end among which the last answer is looked for."""
_ENDING = 4
"""Messages that tell how a history ends."""
_COPIED = 5_000
"""Entries up to which a branch begins as a copy; of a longer session it begins with what the client sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a request belongs."""

    session: str
    """As the key's holder names it."""
    stored: str
    fresh: tuple[bytes, ...]
    """Its messages that are not stored yet."""
    after: int | None
    """The entry that must be the last one when they are stored; None where it does not matter."""
    chain: bytes | None
    """The hash of the whole history with them; None where the client does not tell its history."""
    seed: bytes = b""
    """Where the hashes of the conversation begin."""
    turns: bool = False
    """Whether requests of this session wait for each other: the client does not tell its history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a client says about the session it means."""

    name: str
    """Empty: nothing."""
    own: bool
    """Whether it says so in Recto's own header: then it knows that the history is held here."""


class Placing:
    """Finds where requests belong, and opens branches."""

    def __init__(self, clock: Clock) -> None:
        self.lineage = Lineage(clock)
        self.prints = Fingerprints()
        self._clock = clock

    def place(self, key: Key, store: TenantStore, asked: ClientRequest, named: Named, busy: Collection[str]) -> Placed:
        """Where a request belongs. `busy` are stored sessions in which a turn is under way. Raises `NotHeld`."""
        if asked.format.body.stored_history and (held := self._held(store, asked)):
            place, fresh = held
            return self._behind(store, place, fresh, asked, busy)
        base = _base(key, named)
        stored = store.key(base)
        if asked.is_bare and (named.own or (not named.name and key.canonical)):
            return self._next_turn(store, base, stored, asked)
        seed = seed_of(key.tenant, key.agent, named.name, asked.wire)
        chain = self.prints.chain(seed, asked.messages, asked.wire)
        last = chain[-1] if chain else seed
        found = self._known(store, asked, chain, seed)
        if found is not None:
            place, count = found
            return replace(self._behind(store, place, asked.messages[count:], asked, busy), chain=last, seed=seed)
        if not named.name:
            name = f"agent:{key.agent}:{new_id(self._clock)}"
            return Placed(session=name, stored=store.key(name), fresh=asked.messages, after=0, chain=last, seed=seed)
        if not store.head(stored).seq and stored not in busy:
            return Placed(session=base, stored=stored, fresh=asked.messages, after=0, chain=last, seed=seed)
        if named.own and not asked.replies:
            return self._next_turn(store, base, stored, asked)
        return replace(
            self._branched(store, LineagePoint(session=stored, seq=0), asked.messages, asked), chain=last, seed=seed
        )

    def lane(self, key: Key, store: TenantStore, asked: ClientRequest, named: Named) -> str:
        """What requests wait for each other by, where the client does not tell its history; empty where it does."""
        if conversation := asked.format.request.conversation_id(asked.fields):
            return f"conversation/{key.tenant}/{conversation}"
        if asked.replies or not (named.own or (asked.is_bare and not named.name and key.canonical)):
            return ""
        return store.key(_base(key, named))

    def held_in(self, key: Key, store: TenantStore, asked: ClientRequest, named: Named) -> str:
        """The stored session whose turn requests of a lane wait for, over all processes; empty where they do not."""
        if conversation := asked.format.request.conversation_id(asked.fields):
            place = self.lineage.find(store, f"conversation/{conversation}")
            return place.session if place else ""
        return self.lane(key, store, asked, named)

    def _known(
        self, store: TenantStore, asked: ClientRequest, chain: list[bytes], seed: bytes
    ) -> tuple[LineagePoint, int] | None:
        """The longest part of a history that is known, and how many of its messages that is."""
        if not asked.messages:
            return None
        if not asked.replies:
            place = self.lineage.find(store, chain[-1])
            return (place, len(chain)) if place else None
        for last, name in longest(chain, asked.replies):
            place = self.lineage.find(store, name)
            if place is not None:
                return place, last + 1
        place = self.lineage.find(store, chain[-1])  # it came in whole, and nobody has answered it yet
        return (place, len(chain)) if place else self._trimmed(store, asked, seed)

    def _trimmed(self, store: TenantStore, asked: ClientRequest, seed: bytes) -> tuple[LineagePoint, int] | None:
        """Where a history is the end of one that is known: its client let go of the beginning by itself."""
        told = asked.messages[: asked.replies[-1] + 1]
        place = self.lineage.find(store, self.ending(seed, told, asked.wire))
        if place is None:
            return None
        spoken: list[Entry] = []
        at = place.seq
        while at > 0 and len(spoken) < len(told):
            page = list(store.read(place.session, max(at - _RECENT, 0) + 1, at))
            spoken = [one for one in page if one.kind == MESSAGE] + spoken
            at -= len(page)
        same = self._same(spoken[-len(told) :], told, asked.wire) == len(told)
        return (place, len(told)) if same else None

    def ending(self, seed: bytes, told: Sequence[bytes], wire: str) -> str:
        """The name of how a history ends, whatever it begins with."""
        return f"ending/{self.prints.chain(seed, told[-_ENDING:], wire)[-1].hex()}"

    def _behind(
        self,
        store: TenantStore,
        place: LineagePoint,
        rest: tuple[bytes, ...],
        asked: ClientRequest,
        busy: Collection[str],
    ) -> Placed:
        """Behind an entry: what is stored there already is not stored again; what differs parts from it."""
        head = store.head(place.session).seq  # what others add from here on is a conflict
        after = store.read(place.session, place.seq + 1, head)
        later = list(islice((one for one in after if one.kind == MESSAGE), len(rest) + 1))
        same = self._same(later, rest, asked.wire)
        if same == len(later) and place.session not in busy:
            name = store.name(place.session)
            return Placed(session=name, stored=place.session, fresh=rest[same:], after=head, chain=None)
        last = later[same - 1].seq if same else place.seq
        return self._branched(store, LineagePoint(session=place.session, seq=last), rest[same:], asked)

    def _same(self, later: Sequence[Entry], rest: Sequence[bytes], wire: str) -> int:
        """How many of the messages are the same from the beginning."""
        pairs = zip(later, rest, strict=False)
        return next(
            (
                count
                for count, (stored, sent) in enumerate(pairs)
                if self.prints.of(stored.content, stored.wire) != self.prints.of(sent, wire)
            ),
            min(len(later), len(rest)),
        )

    def _next_turn(self, store: TenantStore, base: str, stored: str, asked: ClientRequest) -> Placed:
        """One more thing said in a session whose history is held here; the same once more where it was not answered."""
        many = len(asked.messages)
        again = self._same(self._unanswered(store, stored)[-many:], asked.messages, asked.wire) == many
        fresh = () if again else asked.messages
        return Placed(session=base, stored=stored, fresh=fresh, after=None, chain=None, turns=True)

    def _unanswered(self, store: TenantStore, stored: str) -> list[Entry]:
        """The messages since the last answer."""
        spoken = [entry for entry in store.tail(stored, _RECENT) if entry.kind == MESSAGE]
        answered = next((place for place, one in enumerate(reversed(spoken)) if one.role == "assistant"), len(spoken))
        return spoken[len(spoken) - answered :]

    def _branched(
        self, store: TenantStore, place: LineagePoint, rest: tuple[bytes, ...], asked: ClientRequest
    ) -> Placed:
        """A session that begins like another, up to an entry, and goes its own way from there."""
        name = f"{store.name(place.session).split('~')[0]}~{new_id(self._clock)[-12:]}"
        stored = store.key(name)
        if 0 < place.seq <= _COPIED:
            fork(store, place.session, stored, clock=self._clock, at=place.seq)
            after = store.head(stored).seq
            return Placed(session=name, stored=stored, fresh=rest, after=after, chain=None)
        about = {"from": place.session, "at": place.seq}
        made = store.append(stored, [event(self._clock, BRANCH, about, surface="gateway")])[0]
        return Placed(session=name, stored=stored, fresh=asked.messages, after=made.seq, chain=None)

    def _held(self, store: TenantStore, asked: ClientRequest) -> tuple[LineagePoint, tuple[bytes, ...]] | None:
        """The point of a history that a Responses request goes on from, where it names one, and what it adds."""
        at, compacted = compacted_in(asked.messages)
        if compacted:
            says = "The compaction item is not one that was made here."
            return self._noted(store, f"compaction/{compacted}", says), asked.messages[at + 1 :]
        before = text_in(asked.fields.get("previous_response_id"))
        if before:
            says = f"Previous response with id '{before:.80}' not found."
            return self._noted(store, f"response/{before}", says), asked.messages
        conversation = asked.format.request.conversation_id(asked.fields)
        if not conversation:
            return None
        begun = self._noted(store, f"conversation/{conversation}", f"Conversation '{conversation:.80}' not found.")
        many = len(asked.messages)
        waiting = self._unanswered(store, begun.session)[-many:] if many else []
        again = bool(waiting) and self._same(waiting, asked.messages, asked.wire) == many
        last = waiting[0].seq - 1 if again else store.head(begun.session).seq
        return replace(begun, seq=last), asked.messages

    def _noted(self, store: TenantStore, name: str, says: str) -> LineagePoint:
        place = self.lineage.find(store, name)
        if place is None:
            raise NotHeld(says)
        return place


def compacted_in(messages: Sequence[bytes]) -> tuple[int, str]:
    """Where the last compaction item of ours stands and under which id it is noted; -1 where there is none."""
    for place in range(len(messages) - 1, -1, -1):
        if b"compaction" in messages[place]:
            fields = fields_of(messages[place])
            content = text_in(fields.get("encrypted_content"))
            if fields.get("type") == "compaction" and content.startswith(COMPACTED):
                return place, content.removeprefix(COMPACTED)
    return -1, ""


def _base(key: Key, named: Named) -> str:
    """The session that a request means at first sight. Raises `InputError` for one that is not the key's to write."""
    main = DEFAULT_SESSION.rpartition(":")[2]
    own = f"agent:{key.agent}:"
    name = named.name if named.own and named.name.startswith("agent:") else f"{own}{named.name or main}"
    if not name.startswith(own):
        raise InputError(f"session '{name:.80}': this key writes to sessions that begin with '{own}'")
    if is_memory_session(name):
        raise InputError(f"session '{name:.80}' holds memory; it is written by approval only. Choose another name.")
    return name
