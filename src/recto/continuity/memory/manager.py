"""The durable memory of one agent: proposals become pages only by approval.

An approval is an event with the digest of the exact bytes that were shown; it can be used once, and the page is written
after it is stored. Events are authoritative and pages follow them: what a killed process left undone is done when the
memory is opened again. Edited pages are detected; the approved version counts until the edit is approved too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from msgspec import Struct

from recto.continuity.memory import MemoryKind
from recto.continuity.memory.events import (
    APPLIED,
    APPROVED,
    REJECTED,
    RETIRED,
    UNDONE,
    Approval,
    MemoryDecisions,
    Proposer,
    brought_up,
    decision_key,
)
from recto.continuity.memory.files import FolderPages, MemoryFolder, StoredPage
from recto.continuity.memory.markdown import amended, essence, read_page
from recto.continuity.memory.model import Memory, is_known
from recto.continuity.memory.proposals import Proposal, Proposing, Suggestion, checked_page, proposal_at
from recto.errors import ApprovalRefused, InputError, KeyReused, MalformedMemory, ProposalRefused
from recto.formats import DEFAULT_FORMAT
from recto.recall.stemmer import shared_lexicon
from recto.recall.term_rows import with_row
from recto.text.unicode import strip_invisible
from recto.tokens.meter import Meter
from recto.transcript.entries import Clock, Draft, Entry, event, new_id, to_json
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import memory_session

How = Literal["person", "rule"]
_MAX_NAME = 100


class MemoryRules(Struct, frozen=True, kw_only=True):
    """What happens automatically, and when memory is old."""

    approve: frozenset[str] = frozenset()
    """Kinds that a rule may approve when the user stated them in their own words."""
    half_life_days: float = 90.0
    retire: str = "propose"
    """`never`, `propose`, or `unused`."""
    retire_below: float = 0.1
    proposals: int = 20
    """Maximum number of proposals per session in one cycle."""
    every_hours: float = 0.0


class Remembered(Struct, frozen=True, kw_only=True):
    """A memory, and how its page compares with what was approved."""

    memory: Memory
    path: str
    """Its page, relative to the folder; empty if there is none."""
    approved_by: str
    how: str
    approved: int
    edited: bool
    """Whether the page was edited since."""
    retired: str
    """Why it no longer applies; empty while it does."""


class Memories:
    """The memory of one agent."""

    def __init__(
        self,
        store: TranscriptStore,
        session: str,
        folder: MemoryFolder,
        *,
        clock: Clock,
        meter: Meter,
        rules: MemoryRules | None = None,
    ) -> None:
        self.store = store
        self.session = session
        """The session of the evidence if no source is named."""
        self.home = memory_session(session)
        """The session of the decisions."""
        self.folder = folder
        self.clock = clock
        self.rules = rules or MemoryRules()
        self.proposing = Proposing(store, session, self.home, clock, self.rules.half_life_days)
        self._meter = meter
        self._known = MemoryDecisions()

    @property
    def decisions(self) -> MemoryDecisions:
        """The current decisions."""
        self._known = brought_up(self._known, self.store, self.home)
        return self._known

    def remembered(self, *, retired: bool = False) -> list[Remembered]:
        """Return the memories, oldest first; optionally with retired ones."""
        known, pages = self.decisions, self.folder.pages()
        return [
            _remembered(known, approval, pages.by_id.get(id))
            for id, approval in known.current.items()
            if retired or not approval.retired
        ]

    def get(self, id: str) -> Remembered:
        """Return the memory with an id, or with the only one that starts with it."""
        known = self.decisions
        matches = [full_id for full_id in known.current if full_id.startswith(id)] if len(id) >= 4 else []
        if len(matches) != 1:
            raise InputError(f"there is no memory '{id:.40}'; 'recto memory list --all' shows what there is")
        approval = known.current[matches[0]]
        return _remembered(known, approval, self.folder.kept(approval.memory))

    def proposals(self) -> list[Proposal]:
        """Return the proposals that wait for a decision, oldest first."""
        known = self.decisions
        found = (proposal_at(self.store, known, id) for id in known.noted if id not in known.decided)
        return [proposal for proposal in found if proposal is not None]

    def proposal(self, id: str) -> Proposal:
        """Return the proposal with an id, or with the only one that starts with it. Raises `ApprovalRefused`."""
        known = self.decisions
        matches = [full_id for full_id in known.noted if full_id.startswith(id)] if len(id) >= 4 else []
        if len(matches) != 1:
            raise ApprovalRefused(id, "there is no such proposal")
        return self._undecided(matches[0])

    def propose(
        self,
        kind: MemoryKind,
        text: str,
        *,
        title: str = "",
        tags: Sequence[str] = (),
        sources: Sequence[str] = (),
        critical: bool = False,
        by: Proposer = "agent",
        why: str = "",
    ) -> Proposal:
        """Propose a memory; `sources` are pointers to where it was said.

        Nothing is remembered until it is approved. Raises `ProposalRefused` for text that contains a secret, is empty
        or too long.
        """
        suggestion = Suggestion(kind=kind, text=text, title=title, tags=tags, sources=sources, critical=critical)
        return self.suggest(suggestion, by=by, why=why)

    def suggest(self, suggestion: Suggestion, *, by: Proposer, why: str) -> Proposal:
        """`propose` with every field of a memory."""
        return self.proposing.write(self.drafted(suggestion, by=by, why=why))

    def drafted(self, suggestion: Suggestion, *, by: Proposer, why: str) -> Proposal:
        """Build a proposal without writing it."""
        page, others = self.proposing.page_for(suggestion), self.decisions.standing
        return self.proposing.make(
            page, action="merge" if suggestion.replaces else "keep", by=by, why=why, others=others
        )

    def knows(self, text: str) -> bool:
        """Whether this is remembered already, verbatim."""
        return is_known(text, self.decisions.standing)

    def approve(self, proposal: str, digest: str, by: str) -> Approval:
        """Approve a proposal; `digest` is the SHA-256 of the exact bytes that were shown to the approver.

        Raises `ApprovalRefused`, with nothing written, if the bytes differ or the proposal was decided before.
        """
        return self.settle(self._undecided(proposal), digest, by, "person")

    def settle(self, proposal: Proposal, digest: str, by: str, how: How) -> Approval:
        """Store an approval, once, and then write the page."""
        if not proposal.is_bound_to(digest):
            raise ApprovalRefused(proposal.id, "the approval is not of the bytes that were proposed; look at it again")
        try:
            checked_page(proposal.text)
        except ProposalRefused as error:
            raise ApprovalRefused(proposal.id, error.reason) from None
        payload = {
            "proposal": proposal.id,
            "pointer": proposal.pointer,
            "action": proposal.action,
            "memory": proposal.memory.id,
            "text": proposal.text,
            "digest": digest,
            "receipt": os.urandom(16).hex(),
            "by": _name(by),
            "how": how,
        }
        drafts = [self._event(APPROVED, payload, decision_key(proposal.id))]
        if proposal.action != "retire":
            drafts.append(self._message(proposal.memory))
        with self.folder.writing(), self._logged("approve", proposal.memory.id, proposal.id):
            self._decide(proposal.id, drafts)
            self._write(proposal.memory.id, fresh=proposal.action != "retire")
            for older in proposal.memory.replaces:
                self._write(older, fresh=False)
            self.write_index()
        return self.decisions.current[proposal.memory.id]

    def reject(self, proposal: str, by: str, why: str = "") -> Entry:
        """Reject a proposal permanently."""
        found = self._undecided(proposal)
        payload = {
            "proposal": found.id,
            "by": _name(by),
            "why": strip_invisible(why)[:500],
            "receipt": os.urandom(16).hex(),
        }
        return self._decide(found.id, [self._event(REJECTED, payload, decision_key(found.id))])

    def undo(self, proposal: str, by: str) -> Entry:
        """Undo an approval: what it added is retired, and what it changed, merged or retired is as before.

        Raises `ApprovalRefused` for a proposal that was not approved, or whose memories were changed again since.
        """
        changed = self.decisions.undoable(proposal)
        if not changed:
            raise ApprovalRefused(proposal, "it was not approved, or its memory was changed again since")
        with self.folder.writing(), ExitStack() as logged:
            for id in changed:
                logged.enter_context(self._logged("undo", id, proposal))
            entry = self.record(UNDONE, {"proposal": proposal, "by": _name(by)}, f"memory/undone/{proposal}")
            for id in changed:
                self._write(id, fresh=not self.decisions.current[id].retired)
            self.write_index()
        return entry

    def retire(self, id: str, by: str, why: str = "") -> Entry:
        """Retire a memory: its page stays and says so, and recall no longer finds it."""
        found = self.get(id)
        if found.retired:
            raise InputError(f"memory '{found.memory.id}' is retired already: {found.retired}")
        payload = {"memory": found.memory.id, "by": _name(by), "why": strip_invisible(why)[:500] or "retired"}
        return self._append_logged(RETIRED, payload, "retire", found.memory.id)

    def applied(self, id: str, times: int = 1, prevented: int = 0, *, key: str | None = None) -> Entry:
        """Count uses of a memory, and how many of them prevented a mistake."""
        found = self.get(id)
        if not 0 <= prevented <= times < 10**6:
            raise InputError("prevented is not above times, and times is below a million")
        payload = {"memory": found.memory.id, "times": times, "prevented": prevented}
        return self._append_logged(APPLIED, payload, "applied", found.memory.id, key=key)

    def used(self, uses: Sequence[tuple[str, str]]) -> None:
        """Count uses recorded in the transcript: memory ids, each with an idempotency key."""
        for id in dict.fromkeys(id for id, _ in uses if id in self.decisions.current):
            payload = {"memory": id, "times": 1, "prevented": 0}
            keys = [key for used_id, key in uses if used_id == id and self.store.find(self.home, key) is None]
            if keys:
                with self.folder.writing(), self._logged("applied", id):
                    self.store.append(self.home, [self._event(APPLIED, payload, key) for key in dict.fromkeys(keys)])
                    self._write(id, fresh=False)

    def record(self, kind: str, payload: dict[str, Any], key: str | None = None) -> Entry:
        """Append an event to the memory session."""
        return self.store.append(self.home, [self._event(kind, payload, key)])[0]

    def write_index(self) -> None:
        """Rewrite INDEX.md."""
        listed = [(item.path, item.memory) for item in self.remembered() if item.path]
        self.folder.write_index(listed, self.clock.now())

    def rewrite(self, id: str) -> bool:
        """Write the page of an approved memory as it was approved."""
        approval = self.decisions.current.get(id)
        if approval is None:
            return False
        with self.folder.writing(), self._logged("approve", id, approval.proposal):
            written = self._write(id, fresh=True)
            self.write_index()
        return written

    def reconcile(self) -> list[str]:
        """Finish what a killed process left undone, and retire memories whose page was removed by hand.

        Returns a description of each action.
        """
        if not self.folder.root.is_dir():
            return []
        done: list[str] = []
        with self.folder.writing():
            lines = self.folder.logged()
            ended = {line.get("op") for line in lines if line.get("done")}
            known = self.decisions
            for line in lines:
                id = line.get("memory")
                if "what" in line and line.get("op") not in ended and isinstance(id, str):
                    if self._finish(known, id, line):
                        done.append(f"finished: {line['what']} {id}")
                    self.folder.log(op=line.get("op"), done=True, again=True)
            done += self._removed(known, self.folder.pages(), lines)
            if done:
                self.write_index()
        return done

    def _finish(self, known: MemoryDecisions, id: str, line: dict[str, Any]) -> bool:
        approval = known.current.get(id)
        if approval is None:
            return False
        what, proposal = line.get("what"), line.get("proposal")
        fresh = what == "approve" and approval.proposal == proposal
        for older in approval.memory.replaces if fresh else ():
            self._write(older, fresh=False)
        fresh |= what == "undo" and not known.undoable(str(proposal)) and not approval.retired
        return self._write(id, fresh=fresh)

    def _removed(self, known: MemoryDecisions, pages: FolderPages, lines: Sequence[dict[str, Any]]) -> list[str]:
        """Retire approved memories whose page was removed. A damaged page still counts as present."""
        if pages.problems:
            return []
        written = {line.get("proposal") for line in lines if line.get("what") == "approve"}
        done = []
        for id, approval in list(known.current.items()):
            if not approval.retired and id not in pages.by_id and approval.proposal in written:
                payload = {"memory": id, "by": "person", "why": "its page was removed"}
                self.store.append(self.home, [self._event(RETIRED, payload, f"memory/removed/{approval.proposal}")])
                done.append(f"retired, its page was removed: {id}")
        return done

    def _undecided(self, id: str) -> Proposal:
        known = self.decisions
        if id not in known.noted:
            raise ApprovalRefused(id, "there is no such proposal")
        if id in known.decided:
            raise ApprovalRefused(id, f"it was {known.decided[id]} already, and a decision counts once")
        found = proposal_at(self.store, known, id)
        if found is None:
            raise ApprovalRefused(id, "what was proposed cannot be read")
        return found

    def _decide(self, id: str, drafts: list[Draft]) -> Entry:
        try:
            return self.store.append(self.home, drafts)[0]
        except KeyReused:
            raise ApprovalRefused(id, "it was decided on already, and a decision counts once") from None

    def _append_logged(
        self, kind: str, payload: dict[str, Any], what: str, id: str, *, key: str | None = None
    ) -> Entry:
        with self.folder.writing(), self._logged(what, id):
            entry = self.store.append(self.home, [self._event(kind, payload, key)])[0]
            self._write(id, fresh=False)
            self.write_index()
        return entry

    def _write(self, id: str, *, fresh: bool) -> bool:
        """Update the page of a memory; with `fresh`, write the approved version whatever the page contains."""
        known = self.decisions
        approval = known.current.get(id)
        stored = self.folder.kept(approval.memory) if approval is not None else None
        if approval is None or (stored is None and not fresh):
            return False
        page = read_page(approval.text.encode(), id) if fresh or stored is None else stored.page
        self.folder.write_page(known.memory(id), amended(page, known.memory(id)), stored.path if stored else "")
        return True

    @contextmanager
    def _logged(self, what: str, id: str, proposal: str = "") -> Iterator[None]:
        """Log the start and the end of an operation, so that a missing end is detected."""
        op = os.urandom(8).hex()
        self.folder.log(
            op=op, ts=self.clock.now(), what=what, memory=id, **({"proposal": proposal} if proposal else {})
        )
        try:
            yield
        except ApprovalRefused:
            self.folder.log(op=op, done=True, refused=True)
            raise
        self.folder.log(op=op, done=True)

    def _event(self, kind: str, payload: dict[str, Any], key: str | None) -> Draft:
        return event(self.clock, kind, payload, key, surface="memory")

    def _message(self, memory: Memory) -> Draft:
        """The text that recall finds, dated by when it was learnt."""
        begins = memory.text.startswith(memory.title.rstrip("…"))
        content = memory.text if begins else f"{memory.title}\n\n{memory.text}"
        raw = to_json({"role": "user", "content": content})
        draft = Draft(
            id=new_id(self.clock),
            ts=memory.created,
            role="user",
            content=raw,
            wire=DEFAULT_FORMAT.name,
            surface="memory",
            tokens=self._meter.message(DEFAULT_FORMAT.messages.read(raw)),
            counter=self._meter.name,
            meta=to_json({"memory": memory.id, "kind": memory.kind, "sources": list(memory.sources)}),
        )
        return with_row(draft, shared_lexicon())


def is_edited(approval: Approval, stored: StoredPage) -> bool:
    """Whether a page differs from what was approved."""
    try:
        approved = read_page(approval.text.encode(), "approved")
    except MalformedMemory:
        return True
    return essence(approved) != essence(stored.page)


def _remembered(known: MemoryDecisions, approval: Approval, stored: StoredPage | None) -> Remembered:
    return Remembered(
        memory=known.memory(approval.memory.id),
        path=stored.path if stored else "",
        approved_by=approval.by,
        how=approval.how,
        approved=approval.ts,
        edited=stored is not None and is_edited(approval, stored),
        retired=approval.retired,
    )


def _name(by: str) -> str:
    found = " ".join(strip_invisible(by).split())[:_MAX_NAME]
    if not found:
        raise InputError("say who decides")
    return found
