"""Proposals: what might be remembered, as exact bytes, stored in the session of its evidence.

A proposal changes nothing. It is made visible, refused if it contains a secret, and bound to its bytes by their digest.
Approval is decided elsewhere.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from recto.continuity.memory import KINDS, MemoryKind
from recto.continuity.memory.events import NOTED, PROPOSED, Action, MemoryDecisions, Proposer, payload_of, proposal_id
from recto.continuity.memory.markdown import page_of, read_page
from recto.continuity.memory.model import (
    LONGEST_TAG,
    LONGEST_TEXT,
    LONGEST_TITLE,
    MOST_SOURCES,
    MOST_TAGS,
    Memory,
    MemoryFlag,
    digest_of,
    flags_of,
    memory_id,
    title_of,
)
from recto.errors import InputError, MalformedMemory, ProposalRefused
from recto.text.secrets import find_secrets, mask_secrets
from recto.text.unicode import strip_invisible
from recto.transcript.entries import Clock, Draft, event
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import parse_pointer, pointer_to, reach_of

_SECOND = 1_000_000
_MAX_TIME = 253_402_300_799_000_000
_MAX_REASON = 500
_MAX_FLAGS = 10


class Proposal(Struct, frozen=True, kw_only=True):
    """A memory that might be approved."""

    id: str
    action: Action
    """`keep` a new memory, `merge` several into one, accept an `edit` made in a file, or `retire` one."""
    text: str
    """The exact page as it would be written."""
    digest: str
    """SHA-256 of those bytes, as stated by the proposal."""
    memory: Memory
    by: Proposer
    why: str
    flags: tuple[MemoryFlag, ...]
    """What it repeats or contradicts, as known when it was made."""
    pointer: str
    """Its entry."""
    ts: int

    def is_bound_to(self, digest: str) -> bool:
        """Whether a digest matches the bytes of this proposal, and the proposal's own digest."""
        actual = digest_of(self.text)
        session = parse_pointer(self.pointer)[0]
        return (
            hmac.compare_digest(actual.encode(), digest.encode("utf-8", "replace"))
            and hmac.compare_digest(actual.encode(), self.digest.encode("utf-8", "replace"))
            and self.id == proposal_id(actual, self.action, session)
        )


class Suggestion(Struct, frozen=True, kw_only=True):
    """What should be remembered, before it is a page."""

    kind: MemoryKind
    text: str
    title: str = ""
    tags: Sequence[str] = ()
    sources: Sequence[str] = ()
    """Pointers to the entries it was learnt from."""
    replaces: Sequence[str] = ()
    critical: bool = False
    evergreen: bool = False
    created: int = 0
    """When it was learnt; 0: the time of its newest source."""


class Proposing:
    """Writes proposals for one agent's memory into transcripts."""

    def __init__(self, store: TranscriptStore, session: str, home: str, clock: Clock, half_life_days: float) -> None:
        self._store = store
        self._session = session
        self._home = home
        self._clock = clock
        self._half_life = half_life_days

    def memory_of(self, suggestion: Suggestion) -> Memory:
        """Convert a suggestion to a memory. Raises `ProposalRefused` if it cannot become one."""
        text = strip_invisible(suggestion.text).strip()
        if suggestion.kind not in KINDS:
            raise ProposalRefused(f"its kind is none of {', '.join(KINDS)}")
        if not text:
            raise ProposalRefused("it is empty")
        if len(text) > LONGEST_TEXT:
            raise ProposalRefused(f"it has {len(text):,} characters, at most {LONGEST_TEXT:,} are kept")
        sources = tuple(dict.fromkeys(suggestion.sources))[:MOST_SOURCES]
        tags = dict.fromkeys(" ".join(strip_invisible(tag).split())[:LONGEST_TAG] for tag in suggestion.tags)
        title = " ".join(strip_invisible(suggestion.title).split())[:LONGEST_TITLE].strip() or title_of(text)
        return Memory(
            id=memory_id(suggestion.kind, text, sources),
            kind=suggestion.kind,
            title=title,
            text=text,
            created=self._learnt_at(sources, suggestion.created),
            tags=tuple(tag for tag in tags if tag)[:MOST_TAGS],
            half_life_days=self._half_life,
            critical=suggestion.critical,
            evergreen=suggestion.evergreen,
            sources=sources,
            replaces=tuple(suggestion.replaces),
        )

    def make(self, text: str, *, action: Action, by: Proposer, why: str, others: Iterable[Memory]) -> Proposal:
        """Build a proposal of an exact page, without writing it. Raises `ProposalRefused`."""
        if by not in get_args(Proposer):
            raise ProposalRefused(f"it is proposed by none of {', '.join(get_args(Proposer))}")
        memory = checked_page(text)
        session = parse_pointer(memory.sources[0])[0] if memory.sources else self._session
        digest = digest_of(text)
        flags = () if action == "retire" else flags_of(memory.text, others, without=memory.id)
        return Proposal(
            id=proposal_id(digest, action, session),
            action=action,
            text=text,
            digest=digest,
            memory=memory,
            by=by,
            why=mask_secrets(strip_invisible(" ".join(why.split())))[:_MAX_REASON],
            flags=tuple(flag for flag in flags if flag.id not in memory.replaces)[:_MAX_FLAGS],
            pointer=pointer_to(session, 1),
            ts=self._clock.now(),
        )

    def page_for(self, suggestion: Suggestion) -> str:
        """Render a suggestion as the page it would be."""
        return page_of(self.memory_of(suggestion))

    def write(self, proposal: Proposal) -> Proposal:
        """Append a proposal to the session of its evidence, and note it in the memory session; idempotent."""
        session = parse_pointer(proposal.pointer)[0]
        key = f"memory/proposed/{proposal.id}"
        entry = self._store.find(session, key)
        if entry is None:
            payload = {
                "proposal": proposal.id,
                "action": proposal.action,
                "memory": proposal.memory.id,
                "text": proposal.text,
                "digest": proposal.digest,
                "sources": list(proposal.memory.sources),
                "by": proposal.by,
                "why": proposal.why,
                "flags": [asdict(flag) for flag in proposal.flags],
            }
            entry = self._store.append(session, [self._event(PROPOSED, payload, key)])[0]
        pointer = pointer_to(session, entry.seq)
        note_key = f"memory/noted/{proposal.id}"
        if self._store.find(self._home, note_key) is None:
            self._store.append(
                self._home, [self._event(NOTED, {"proposal": proposal.id, "pointer": pointer}, note_key)]
            )
        return replace(proposal, pointer=pointer, ts=entry.ts)

    def _event(self, kind: str, payload: dict[str, Any], key: str) -> Draft:
        return event(self._clock, kind, payload, key, surface="memory")

    def _learnt_at(self, sources: Sequence[str], created: int) -> int:
        """The time of the newest source; each source must exist and be within reach."""
        newest = 0
        for pointer in sources:
            session, seq = parse_pointer(pointer)
            reachable = reach_of(self._session, "tenant").contains(session)
            entry = next(iter(self._store.read(session, seq, seq)), None) if reachable else None
            if entry is None:
                raise ProposalRefused(f"there is nothing at its source '{pointer:.200}'")
            newest = max(newest, entry.ts)
        when = created or newest or self._clock.now()
        return min(max(when // _SECOND * _SECOND, _SECOND), _MAX_TIME)


def checked_page(text: str) -> Memory:
    """Parse a page that may become memory: readable, without hidden characters and secrets."""
    try:
        memory = read_page(text.encode(), "the page").memory
    except UnicodeEncodeError:
        raise ProposalRefused("it contains a lone surrogate") from None
    except MalformedMemory as error:
        raise ProposalRefused(str(error)) from None
    if secrets := find_secrets(text):
        kinds = ", ".join(dict.fromkeys(name for _, _, name in secrets))
        raise ProposalRefused(f"it holds what looks like a secret ({kinds})")
    return memory


def proposal_at(store: TranscriptStore, known: MemoryDecisions, id: str) -> Proposal | None:
    """Return the stored proposal with an id; None if there is none that can be parsed."""
    try:
        session, seq = parse_pointer(known.noted[id])
        entry = next(iter(store.read(session, seq, seq)), None)
        if entry is None or entry.kind != PROPOSED or entry.role != "event":
            return None
        payload: dict[str, Any] = payload_of(entry)
        action: Any = payload.get("action")
        by: Any = payload.get("by")
        text = payload.get("text")
        if payload.get("proposal") != id or action not in get_args(Action) or by not in get_args(Proposer):
            return None
        return Proposal(
            id=id,
            action=action,
            text=str(text),
            digest=str(payload.get("digest")),
            memory=read_page(str(text).encode("utf-8", "surrogatepass"), id).memory,
            by=by,
            why=str(payload.get("why", ""))[:_MAX_REASON],
            flags=tuple(_flags(payload.get("flags"))),
            pointer=known.noted[id],
            ts=entry.ts,
        )
    except (InputError, KeyError):
        return None


def _flags(flags: object) -> Iterable[MemoryFlag]:
    for flag in flags[:_MAX_FLAGS] if isinstance(flags, list) else ():
        if isinstance(flag, dict) and flag.get("kind") in ("duplicate", "conflict"):
            score = flag.get("score")
            yield MemoryFlag(
                kind=flag["kind"], id=str(flag.get("id", "")), score=score if isinstance(score, float) else 0.0
            )
