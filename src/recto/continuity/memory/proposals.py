"""Proposals: what might be remembered, as the exact bytes it would have, in the session its evidence is in.

A proposal changes nothing. It is made visible, refused where it holds a secret, and bound to its bytes by their digest.
Whether it is approved is not decided here.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from recto.continuity.memory.events import NOTED, PROPOSED, Action, MemoryDecisions, Proposer, about_of, proposal_id
from recto.continuity.memory.markdown import page_of, read_page
from recto.continuity.memory.model import (
    KINDS,
    LONGEST_TAG,
    LONGEST_TEXT,
    LONGEST_TITLE,
    MOST_SOURCES,
    MOST_TAGS,
    Memory,
    MemoryFlag,
    MemoryKind,
    digest_of,
    flags_of,
    memory_id,
    title_of,
)
from recto.errors import InputError, MalformedMemory, ProposalRefused
from recto.text.secrets import find_secrets, mask_secrets
from recto.text.unicode import strip_invisible
from recto.transcript.entries import Draft
from recto.transcript.events import event
from recto.transcript.protocols import Clock, TranscriptStore
from recto.transcript.session_keys import parse_pointer, pointer_to, reach_of

_SECOND = 1_000_000
_LATEST = 253_402_300_799_000_000
_LONGEST_WHY = 500
_MOST_FLAGS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Something that might be remembered."""

    id: str
    action: Action
    """`keep` something new, `merge` several into one, take over an `edit` made in a file, or `retire` one."""
    text: str
    """The exact page as it would be written."""
    digest: str
    """SHA-256 of those bytes, as the proposal states it."""
    memory: Memory
    by: Proposer
    why: str
    flags: tuple[MemoryFlag, ...]
    """What it repeats or contradicts, as far as that was known when it was made."""
    pointer: str
    """The entry it stands in."""
    ts: int

    def is_bound_to(self, digest: str) -> bool:
        """Whether a digest is that of the bytes of this proposal, and the proposal says so itself."""
        made = digest_of(self.text)
        session = parse_pointer(self.pointer)[0]
        return (
            hmac.compare_digest(made.encode(), digest.encode("utf-8", "replace"))
            and hmac.compare_digest(made.encode(), self.digest.encode("utf-8", "replace"))
            and self.id == proposal_id(made, self.action, session)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What somebody wants to be remembered, before it is a page."""

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
    """When it was learnt; 0: when the newest of its sources was said."""


class Proposing:
    """Writes proposals of one agent's memory into transcripts."""

    def __init__(self, store: TranscriptStore, session: str, home: str, clock: Clock, half_life_days: float) -> None:
        self._store = store
        self._session = session
        self._home = home
        self._clock = clock
        self._half_life = half_life_days

    def memory_of(self, given: Suggestion) -> Memory:
        """A suggestion as a memory. Raises `ProposalRefused` for what cannot become one."""
        text = strip_invisible(given.text).strip()
        if given.kind not in KINDS:
            raise ProposalRefused(f"its kind is none of {', '.join(KINDS)}")
        if not text:
            raise ProposalRefused("it says nothing")
        if len(text) > LONGEST_TEXT:
            raise ProposalRefused(f"it has {len(text):,} characters, at most {LONGEST_TEXT:,} are kept")
        sources = tuple(dict.fromkeys(given.sources))[:MOST_SOURCES]
        tags = dict.fromkeys(" ".join(strip_invisible(tag).split())[:LONGEST_TAG] for tag in given.tags)
        title = " ".join(strip_invisible(given.title).split())[:LONGEST_TITLE].strip() or title_of(text)
        return Memory(
            id=memory_id(given.kind, text, sources),
            kind=given.kind,
            title=title,
            text=text,
            created=self._learnt(sources, given.created),
            tags=tuple(tag for tag in tags if tag)[:MOST_TAGS],
            half_life_days=self._half_life,
            critical=given.critical,
            evergreen=given.evergreen,
            sources=sources,
            replaces=tuple(given.replaces),
        )

    def make(self, text: str, *, action: Action, by: Proposer, why: str, others: Iterable[Memory]) -> Proposal:
        """A proposal of an exact page, not written yet. Raises `ProposalRefused`."""
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
            why=mask_secrets(strip_invisible(" ".join(why.split())))[:_LONGEST_WHY],
            flags=tuple(flag for flag in flags if flag.id not in memory.replaces)[:_MOST_FLAGS],
            pointer=pointer_to(session, 1),
            ts=self._clock.now(),
        )

    def page_for(self, given: Suggestion) -> str:
        """A suggestion as the page it would be."""
        return page_of(self.memory_of(given))

    def write(self, made: Proposal) -> Proposal:
        """Appends a proposal to the session of its evidence, and notes it in the memory's; once, however often."""
        session = parse_pointer(made.pointer)[0]
        key = f"memory/proposed/{made.id}"
        entry = self._store.find(session, key)
        if entry is None:
            about = {
                "proposal": made.id,
                "action": made.action,
                "memory": made.memory.id,
                "text": made.text,
                "digest": made.digest,
                "sources": list(made.memory.sources),
                "by": made.by,
                "why": made.why,
                "flags": [asdict(flag) for flag in made.flags],
            }
            entry = self._store.append(session, [self._event(PROPOSED, about, key)])[0]
        pointer = pointer_to(session, entry.seq)
        noted = f"memory/noted/{made.id}"
        if self._store.find(self._home, noted) is None:
            self._store.append(self._home, [self._event(NOTED, {"proposal": made.id, "pointer": pointer}, noted)])
        return replace(made, pointer=pointer, ts=entry.ts)

    def _event(self, kind: str, about: dict[str, Any], key: str) -> Draft:
        return event(self._clock, kind, about, key, surface="memory")

    def _learnt(self, sources: Sequence[str], given: int) -> int:
        """When the newest of its sources was said; each must be there, and within reach."""
        newest = 0
        for pointer in sources:
            session, seq = parse_pointer(pointer)
            held = reach_of(self._session, "tenant").contains(session)
            entry = next(iter(self._store.read(session, seq, seq)), None) if held else None
            if entry is None:
                raise ProposalRefused(f"there is nothing at its source '{pointer:.200}'")
            newest = max(newest, entry.ts)
        when = given or newest or self._clock.now()
        return min(max(when // _SECOND * _SECOND, _SECOND), _LATEST)


def checked_page(text: str) -> Memory:
    """What a page says, if it may become memory: it can be read, hides nothing and holds no secret."""
    try:
        memory = read_page(text.encode(), "the page").memory
    except UnicodeEncodeError:
        raise ProposalRefused("it holds half a character") from None
    except MalformedMemory as error:
        raise ProposalRefused(str(error)) from None
    if found := find_secrets(text):
        kinds = ", ".join(dict.fromkeys(name for _, _, name in found))
        raise ProposalRefused(f"it holds what looks like a secret ({kinds})")
    return memory


def proposal_at(store: TranscriptStore, known: MemoryDecisions, id: str) -> Proposal | None:
    """The proposal with an id as it stands in the transcript; None where there is none that can be read."""
    try:
        session, seq = parse_pointer(known.noted[id])
        entry = next(iter(store.read(session, seq, seq)), None)
        if entry is None or entry.kind != PROPOSED or entry.role != "event":
            return None
        about: dict[str, Any] = about_of(entry)
        action: Any = about.get("action")
        by: Any = about.get("by")
        text = about.get("text")
        if about.get("proposal") != id or action not in get_args(Action) or by not in get_args(Proposer):
            return None
        return Proposal(
            id=id,
            action=action,
            text=str(text),
            digest=str(about.get("digest")),
            memory=read_page(str(text).encode("utf-8", "surrogatepass"), id).memory,
            by=by,
            why=str(about.get("why", ""))[:_LONGEST_WHY],
            flags=tuple(_flags(about.get("flags"))),
            pointer=known.noted[id],
            ts=entry.ts,
        )
    except (InputError, KeyError):
        return None


def _flags(given: object) -> Iterable[MemoryFlag]:
    for one in given[:_MOST_FLAGS] if isinstance(given, list) else ():
        if isinstance(one, dict) and one.get("kind") in ("duplicate", "conflict"):
            score = one.get("score")
            yield MemoryFlag(
                kind=one["kind"], id=str(one.get("id", "")), score=score if isinstance(score, float) else 0.0
            )
