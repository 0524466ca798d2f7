"""Checks memory pages against approvals, and reports edits, duplicates, contradictions and stale memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from recto.continuity.memory.files import StoredPage
from recto.continuity.memory.manager import Memories, is_edited
from recto.continuity.memory.markdown import MarkdownPage, essence, read_page
from recto.continuity.memory.model import flags_of, strength
from recto.continuity.memory.proposals import Proposal
from recto.errors import ProposalRefused

Concern = Literal["broken", "edited", "not approved", "no page", "duplicate", "conflict", "stale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFinding:
    """Something that needs attention."""

    about: Concern
    where: str
    """The page, or the id of the memory."""
    says: str


def look(memories: Memories) -> list[MemoryFinding]:
    """Return all findings. Changes nothing."""
    known, pages = memories.decisions, memories.folder.pages()
    findings = [MemoryFinding(about="broken", where=problem.source, says=str(problem)) for problem in pages.problems]
    for stored in pages.by_id.values():
        approval = known.current.get(stored.memory.id)
        if approval is None:
            says = "this page was not approved, so it is not memory; 'recto memory check --propose' proposes it"
            findings.append(MemoryFinding(about="not approved", where=stored.path, says=says))
        elif is_edited(approval, stored):
            says = "changed since it was approved; 'recto memory check --propose' proposes the change"
            findings.append(MemoryFinding(about="edited", where=stored.path, says=says))
    for id, approval in known.current.items():
        if not approval.retired and id not in pages.by_id:
            says = "approved, but there is no page of it here; 'recto memory check --restore' writes it"
            findings.append(MemoryFinding(about="no page", where=id, says=says))
    return [*findings, *_duplicates_and_conflicts(memories), *_stale(memories)]


def propose_changes(memories: Memories) -> tuple[list[Proposal], list[MemoryFinding]]:
    """Propose every page that people created or edited; returns the proposals and what was refused."""
    known, proposals, refused = memories.decisions, [], []
    for stored in memories.folder.pages().by_id.values():
        approval = known.current.get(stored.memory.id)
        if approval is not None and not is_edited(approval, stored):
            continue
        why = f"{'changed' if approval else 'written'} by hand in {stored.path}"
        try:
            proposal = memories.proposing.make(
                proposable(stored), action="edit", by="person", why=why, others=known.standing
            )
            proposals.append(memories.proposing.write(proposal))
        except ProposalRefused as error:
            refused.append(MemoryFinding(about="edited", where=stored.path, says=str(error)))
    return proposals, refused


def proposable(stored: StoredPage) -> str:
    """Return a hand-written page as it would be approved: with its id, and without usage counts."""
    page = stored.page
    if not page.has_id:
        text = f"{page.text[: page.end]}id: {page.memory.id}\n{page.text[page.end :]}"
        page = _read_again(replace(page, text=text))
    return essence(page)


def _read_again(page: MarkdownPage) -> MarkdownPage:
    return read_page(page.text.encode(), "the page")


def restore_pages(memories: Memories) -> list[str]:
    """Write the missing pages of approved memories, for example after a move to another machine."""
    known = memories.decisions
    missing = [
        id for id, approval in known.current.items() if not approval.retired and id not in memories.folder.pages().by_id
    ]
    return [id for id in missing if memories.rewrite(id)]


def _duplicates_and_conflicts(memories: Memories) -> Iterator[MemoryFinding]:
    standing = memories.decisions.standing
    reported: set[frozenset[str]] = set()
    for memory in standing:
        for flag in flags_of(memory.text, standing, without=memory.id):
            pair = frozenset((memory.id, flag.id))
            if pair not in reported:
                reported.add(pair)
                verb = "says the same as" if flag.kind == "duplicate" else "contradicts"
                yield MemoryFinding(
                    about=flag.kind, where=memory.id, says=f"{verb} {flag.id} (likeness {flag.score:.2f})"
                )


def _stale(memories: Memories) -> Iterator[MemoryFinding]:
    now, rules = memories.clock.now(), memories.rules
    for memory in memories.decisions.standing:
        remaining = strength(memory, now)
        if remaining < rules.retire_below:
            yield MemoryFinding(
                about="stale", where=memory.id, says=f"its strength is {remaining:.2f}, used {memory.hits} times"
            )
