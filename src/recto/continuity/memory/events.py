"""Memory events: what the transcript records about an agent's memory, folded into the current decisions.

Decisions are in a session of their own, `agent:<agent>:memory`; each approval is followed by a message with the text,
which recall finds. The session is small and folded as it grows. An approval that does not match the bytes it names has
no effect, and neither has a message by itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from recto.continuity.memory.markdown import read_page
from recto.continuity.memory.model import Memory, digest_of
from recto.errors import InputError, MalformedMemory
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import parse_pointer, reach_of

FILE_INDEXED = "memory_file_indexed"
"""A section of a file in the memory folder; the message after it has its text."""
PROPOSED, NOTED = "memory_proposed", "memory_noted"
"""A proposal is stored in the session of its evidence and noted in the memory session."""
APPROVED, REJECTED, RETIRED, APPLIED = "memory_approved", "memory_rejected", "memory_retired", "memory_applied"
UNDONE = "memory_approval_undone"
CONSOLIDATED, CYCLE, DUE = "consolidated", "consolidation_finished", "consolidation_due"

Action = Literal["keep", "merge", "edit", "retire"]
Proposer = Literal["rule", "model", "agent", "person"]
_MAX_STANDING = 400


def proposal_id(digest: str, action: str, session: str) -> str:
    """Return the id of a proposal: the same bytes proposed again in the same session have the same id."""
    return hashlib.sha256(f"{digest} {action} {session}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def file_key(section: str) -> str:
    """Return the key under which a section of a file is stored once."""
    return f"memory/file/{section}"


def due_key(upto: int) -> str:
    """Return the key of the offer to review what follows an entry, so that it is made once."""
    return f"memory/due/{upto}"


def decision_key(proposal: str) -> str:
    """Return the key of every decision about a proposal, so that there can be only one."""
    return f"memory/decided/{proposal}"


class Approval(Struct, frozen=True, kw_only=True):
    """An approval, as recorded."""

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
    """Why it no longer applies; empty while it does."""


class Cursor(Struct, frozen=True, kw_only=True):
    """How far a session was reviewed."""

    upto: int = 0
    hash: str = ""
    """Hash of that entry: a different transcript under the same key is reviewed from the beginning."""
    standing: tuple[int, ...] = ()
    """Earlier entries whose facts still hold; they are read again, since an event is not evidence."""


class MemoryDecisions(Struct):
    """All decisions about an agent's memory, up to an entry."""

    upto: int = 0
    noted: dict[str, str] = field(default_factory=dict)
    """The pointer of each proposal."""
    decided: dict[str, str] = field(default_factory=dict)
    """The decision about each: `approved` or `rejected`."""
    current: dict[str, Approval] = field(default_factory=dict)
    """The current approval of each memory."""
    messages: dict[int, str] = field(default_factory=dict)
    """The messages that recall may find, each with its memory."""
    files: dict[int, str] = field(default_factory=dict)
    """The messages that are sections of files, each with the key of its section."""
    uses: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Hits, prevented mistakes and last use of each memory."""
    cursors: dict[str, Cursor] = field(default_factory=dict)
    last_cycle: int = 0
    """When the last consolidation cycle ended."""
    _before: dict[str, dict[str, Approval | None]] = field(default_factory=dict)
    """For each approval that can be undone, the memories it changed as they were before; None for a new one."""
    _announced: tuple[int, str] = (0, "")
    _announced_file: tuple[int, str] = (0, "")

    def memory(self, id: str) -> Memory:
        """Return a memory as approved, with its current usage and state."""
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
        """Memories that are not retired."""
        return [self.memory(id) for id, approval in self.current.items() if not approval.retired]

    def is_current(self, seq: int) -> bool:
        """Whether a message is the text of a current memory."""
        approval = self.current.get(self.messages.get(seq, ""))
        return approval is not None and not approval.retired and approval.seq == seq - 1

    def undoable(self, proposal: str) -> list[str]:
        """The memories that an approval changed, while nothing else has changed them since; else empty."""
        return list(self._before.get(proposal, ()))

    def apply(self, entry: Entry) -> None:
        """Fold the next entry of the session."""
        self.upto = entry.seq
        if entry.kind == MESSAGE:
            at, id = self._announced
            if at == entry.seq - 1 and id:
                self.messages[entry.seq] = id
            at, section = self._announced_file
            if at == entry.seq - 1 and section:
                self.files[entry.seq] = section
        elif entry.role == "event":
            self._apply_event(entry, payload_of(entry))

    def _apply_event(self, entry: Entry, payload: dict[str, Any]) -> None:
        match entry.kind:
            case "memory_file_indexed":
                self._announced_file = entry.seq, _word(payload, "section")
            case "memory_noted":
                self.noted.setdefault(_word(payload, "proposal"), _word(payload, "pointer"))
            case "memory_approved":
                self._approved(entry, payload)
            case "memory_rejected":
                self.decided.setdefault(_word(payload, "proposal"), "rejected")
            case "memory_approval_undone":
                self._undo(_word(payload, "proposal"))
            case "memory_retired":
                self._settle([id := _word(payload, "memory")])
                self._retire(id, _word(payload, "why") or "retired")
            case "memory_applied":
                self._applied(payload, entry.ts)
            case "consolidated":
                self._consolidated(payload)
            case "consolidation_finished":
                self.last_cycle = max(self.last_cycle, entry.ts)

    def _consolidated(self, payload: dict[str, Any]) -> None:
        upto, standing = payload.get("upto"), payload.get("standing")
        if type(upto) is int and upto > 0:
            seqs = standing[:_MAX_STANDING] if isinstance(standing, list) else []
            self.cursors[_word(payload, "session")] = Cursor(
                upto=upto,
                hash=_word(payload, "hash"),
                standing=tuple(seq for seq in seqs if type(seq) is int and 0 < seq <= upto),
            )

    def _approved(self, entry: Entry, payload: dict[str, Any]) -> None:
        approval = _approval(entry, payload)
        if approval is None or approval.proposal in self.decided:
            return
        self.decided[approval.proposal] = "approved"
        id = approval.memory.id
        changed = dict.fromkeys((id,) if approval.action == "retire" else (id, *approval.memory.replaces))
        self._settle(changed)
        self._before[approval.proposal] = {one: self.current.get(one) for one in changed}
        if approval.action == "retire":
            self._retire(id, "retired")
            return
        self.current[id] = approval
        self._announced = (entry.seq, id)
        for older in approval.memory.replaces:
            if older != id:
                self._retire(older, f"replaced by {id}")

    def _settle(self, ids: Iterable[str]) -> None:
        """Earlier approvals of these memories can no longer be undone."""
        self._before = {proposal: before for proposal, before in self._before.items() if before.keys().isdisjoint(ids)}

    def _undo(self, proposal: str) -> None:
        for id, before in self._before.pop(proposal, {}).items():
            if before is None:
                self._retire(id, "its approval was undone")
            else:
                self.current[id] = before

    def _retire(self, id: str, why: str) -> None:
        if id in self.current:
            self.current[id] = replace(self.current[id], retired=why)

    def _applied(self, payload: dict[str, Any], ts: int) -> None:
        id = _word(payload, "memory")
        times, prevented = payload.get("times"), payload.get("prevented")
        if id in self.current and type(times) is int and type(prevented) is int and 0 <= prevented <= times < 10**6:
            hits, before, last = self.uses.get(id, (0, 0, 0))
            self.uses[id] = (hits + times, before + prevented, max(last, ts // 1_000_000 * 1_000_000))


def brought_up(known: MemoryDecisions, store: TranscriptStore, session: str) -> MemoryDecisions:
    """Fold what was added to the session since, and return the current decisions."""
    head = store.head(session).seq
    if head < known.upto:
        known = MemoryDecisions()
    if head > known.upto:
        for entry in store.read(session, known.upto + 1, head):
            known.apply(entry)
    return known


def payload_of(entry: Entry) -> dict[str, Any]:
    """Parse the payload of an event; empty if it cannot be parsed, since events may be imported."""
    try:
        parsed = json.loads(entry.content)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _word(payload: dict[str, Any], name: str) -> str:
    value = payload.get(name)
    return value if isinstance(value, str) else ""


def _is_bound(home: str, payload: dict[str, Any]) -> bool:
    """Whether an approval matches its bytes, the proposal it names, and this memory."""
    digest, (session, _) = _word(payload, "digest"), parse_pointer(_word(payload, "pointer"))
    is_ours = reach_of(home, "tenant").contains(session)
    expected_id = proposal_id(digest, _word(payload, "action"), session)
    return is_ours and digest_of(_word(payload, "text")) == digest and expected_id == _word(payload, "proposal")


def _approval(entry: Entry, payload: dict[str, Any]) -> Approval | None:
    text, action = _word(payload, "text"), _word(payload, "action")
    try:
        if action not in get_args(Action) or not _is_bound(entry.session, payload):
            return None
        memory = read_page(text.encode("utf-8", "surrogatepass"), "approved").memory
    except (MalformedMemory, InputError):
        return None
    checked_action: Any = action
    return Approval(
        proposal=_word(payload, "proposal"),
        action=checked_action,
        text=text,
        memory=memory,
        digest=_word(payload, "digest"),
        by=_word(payload, "by"),
        how=_word(payload, "how"),
        ts=entry.ts,
        seq=entry.seq,
    )
