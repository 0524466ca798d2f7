"""What the transcript says about an agent's memory: what was proposed, approved, rejected, retired and used.

The decisions stand in a session of their own, `agent:<agent>:memory`, each approval followed by a message with the
text, which is what recall finds. It is small, and it is folded as it grows. An approval that is not of the bytes it
names counts for nothing; what a message there says by itself counts for nothing either.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from recto.continuity.memory.markdown import read_page
from recto.continuity.memory.model import Memory, digest_of
from recto.errors import InputError, MalformedMemory
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import parse_pointer, reach_of

PROPOSED, NOTED = "memory_proposed", "memory_noted"
"""A proposal stands in the session its evidence is in; that there is one is noted in the session of the memory."""
APPROVED, REJECTED, RETIRED, APPLIED = "memory_approved", "memory_rejected", "memory_retired", "memory_applied"
CONSOLIDATED, CYCLE = "consolidated", "consolidation_finished"

Action = Literal["keep", "merge", "edit", "retire"]
Proposer = Literal["rule", "model", "agent", "person"]
_MOST_STANDING = 400


def proposal_id(digest: str, action: str, session: str) -> str:
    """The id of a proposal: the same bytes proposed again in the same session are the same proposal."""
    return hashlib.sha256(f"{digest} {action} {session}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def decision_key(proposal: str) -> str:
    """The key that every decision about a proposal is stored under: there can be only one."""
    return f"memory/decided/{proposal}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What was approved, as its event says."""

    proposal: str
    action: Action
    text: str
    """The exact page."""
    memory: Memory
    digest: str
    by: str
    how: str
    """`person` or `rule`."""
    ts: int
    seq: int
    retired: str = ""
    """Why it no longer counts; empty while it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a session was reviewed."""

    upto: int = 0
    hash: str = ""
    """Of that entry: another transcript under the same key begins anew."""
    standing: tuple[int, ...] = ()
    """Entries before it whose facts still hold; they are read again, since an event is no evidence."""


@dataclass(slots=True)
class MemoryDecisions:
    """Everything that was decided about an agent's memory, up to an entry."""

    upto: int = 0
    noted: dict[str, str] = field(default_factory=dict)
    """Where each proposal stands."""
    decided: dict[str, str] = field(default_factory=dict)
    """What was decided about each: `approved` or `rejected`."""
    current: dict[str, Approval] = field(default_factory=dict)
    """What holds for each memory now."""
    messages: dict[int, str] = field(default_factory=dict)
    """The messages that recall may find, with the memory each is of."""
    uses: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Hits, prevented mistakes and the last time, for each memory."""
    cursors: dict[str, Cursor] = field(default_factory=dict)
    last_cycle: int = 0
    """When the last cycle of consolidation ended."""
    _announced: tuple[int, str] = (0, "")

    def memory(self, id: str) -> Memory:
        """A memory as it is now: as approved, with its uses and its state."""
        approval = self.current[id]
        hits, prevented, last = self.uses.get(id, (0, 0, 0))
        return replace(
            approval.memory,
            hits=hits,
            prevented=prevented,
            last_applied=last,
            state="retired" if approval.retired else "approved",
        )

    @property
    def standing(self) -> list[Memory]:
        """What is remembered and not retired."""
        return [self.memory(id) for id, approval in self.current.items() if not approval.retired]

    def is_current(self, seq: int) -> bool:
        """Whether a message is the text of a memory that holds."""
        approval = self.current.get(self.messages.get(seq, ""))
        return approval is not None and not approval.retired and approval.seq == seq - 1

    def take(self, entry: Entry) -> None:
        """Takes in the next entry of the session."""
        self.upto = entry.seq
        if entry.kind == MESSAGE:
            at, id = self._announced
            if at == entry.seq - 1 and id:
                self.messages[entry.seq] = id
        elif entry.role == "event":
            about = about_of(entry)
            match entry.kind:
                case "memory_noted":
                    self.noted.setdefault(_word(about, "proposal"), _word(about, "pointer"))
                case "memory_approved":
                    self._approved(entry, about)
                case "memory_rejected":
                    self.decided.setdefault(_word(about, "proposal"), "rejected")
                case "memory_retired":
                    self._retire(_word(about, "memory"), _word(about, "why") or "retired")
                case "memory_applied":
                    self._applied(about, entry.ts)
                case "consolidated":
                    self._consolidated(about)
                case "consolidation_finished":
                    self.last_cycle = max(self.last_cycle, entry.ts)

    def _consolidated(self, about: dict[str, Any]) -> None:
        upto, standing = about.get("upto"), about.get("standing")
        if type(upto) is int and upto > 0:
            seqs = standing[:_MOST_STANDING] if isinstance(standing, list) else []
            self.cursors[_word(about, "session")] = Cursor(
                upto=upto,
                hash=_word(about, "hash"),
                standing=tuple(seq for seq in seqs if type(seq) is int and 0 < seq <= upto),
            )

    def _approved(self, entry: Entry, about: dict[str, Any]) -> None:
        approval = _approval(entry, about)
        if approval is None or approval.proposal in self.decided:
            return
        self.decided[approval.proposal] = "approved"
        id = approval.memory.id
        if approval.action == "retire":
            self._retire(id, "retired")
            return
        self.current[id] = approval
        self._announced = (entry.seq, id)
        for older in approval.memory.replaces:
            if older != id:
                self._retire(older, f"replaced by {id}")

    def _retire(self, id: str, why: str) -> None:
        if id in self.current:
            self.current[id] = replace(self.current[id], retired=why)

    def _applied(self, about: dict[str, Any], ts: int) -> None:
        id = _word(about, "memory")
        times, prevented = about.get("times"), about.get("prevented")
        if id in self.current and type(times) is int and type(prevented) is int and 0 <= prevented <= times < 10**6:
            hits, before, last = self.uses.get(id, (0, 0, 0))
            self.uses[id] = (hits + times, before + prevented, max(last, ts // 1_000_000 * 1_000_000))


def brought_up(known: MemoryDecisions, store: TranscriptStore, session: str) -> MemoryDecisions:
    """The decisions as of now: what was added to the session since is taken in."""
    head = store.head(session).seq
    if head < known.upto:
        known = MemoryDecisions()
    if head > known.upto:
        for entry in store.read(session, known.upto + 1, head):
            known.take(entry)
    return known


def about_of(entry: Entry) -> dict[str, Any]:
    """What an event says; nothing where it cannot be read, since events may be imported."""
    try:
        found = json.loads(entry.content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _word(about: dict[str, Any], name: str) -> str:
    found = about.get(name)
    return found if isinstance(found, str) else ""


def _is_bound(home: str, about: dict[str, Any]) -> bool:
    """Whether an approval is of the bytes it holds, of the proposal it names, and of this memory."""
    digest, (session, _) = _word(about, "digest"), parse_pointer(_word(about, "pointer"))
    is_ours = reach_of(home, "tenant").contains(session)
    made = proposal_id(digest, _word(about, "action"), session)
    return is_ours and digest_of(_word(about, "text")) == digest and made == _word(about, "proposal")


def _approval(entry: Entry, about: dict[str, Any]) -> Approval | None:
    text, action = _word(about, "text"), _word(about, "action")
    try:
        if action not in get_args(Action) or not _is_bound(entry.session, about):
            return None
        memory = read_page(text.encode("utf-8", "surrogatepass"), "approved").memory
    except (MalformedMemory, InputError):
        return None
    made: Any = action
    return Approval(
        proposal=_word(about, "proposal"),
        action=made,
        text=text,
        memory=memory,
        digest=_word(about, "digest"),
        by=_word(about, "by"),
        how=_word(about, "how"),
        ts=entry.ts,
        seq=entry.seq,
    )
