"""Looks whether pages and approvals agree, and what somebody should see: changes, repetitions, contradictions, age."""

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
    """Something to look at."""

    about: Concern
    where: str
    """The page, or the id of the memory."""
    says: str


def look(memories: Memories) -> list[MemoryFinding]:
    """Everything that should be looked at. Changes nothing."""
    known, pages = memories.decisions, memories.folder.pages()
    found = [MemoryFinding(about="broken", where=one.source, says=str(one)) for one in pages.problems]
    for kept in pages.by_id.values():
        approval = known.current.get(kept.memory.id)
        if approval is None:
            says = "nobody approved this page, so it is not memory; 'recto memory check --propose' proposes it"
            found.append(MemoryFinding(about="not approved", where=kept.path, says=says))
        elif is_edited(approval, kept):
            says = "changed since it was approved; 'recto memory check --propose' proposes the change"
            found.append(MemoryFinding(about="edited", where=kept.path, says=says))
    for id, approval in known.current.items():
        if not approval.retired and id not in pages.by_id:
            says = "approved, but there is no page of it here; 'recto memory check --restore' writes it"
            found.append(MemoryFinding(about="no page", where=id, says=says))
    return [*found, *_between(memories), *_old(memories)]


def propose_changes(memories: Memories) -> tuple[list[Proposal], list[MemoryFinding]]:
    """Proposes every page that people made or changed; what cannot be proposed is told."""
    known, made, refused = memories.decisions, [], []
    for kept in memories.folder.pages().by_id.values():
        approval = known.current.get(kept.memory.id)
        if approval is not None and not is_edited(approval, kept):
            continue
        why = f"{'changed' if approval else 'written'} by hand in {kept.path}"
        try:
            proposal = memories.proposing.make(
                proposable(kept), action="edit", by="person", why=why, others=known.standing
            )
            made.append(memories.proposing.write(proposal))
        except ProposalRefused as error:
            refused.append(MemoryFinding(about="edited", where=kept.path, says=str(error)))
    return made, refused


def proposable(kept: StoredPage) -> str:
    """A page that people wrote, as it would be approved: with its id, and without uses."""
    page = kept.page
    if not page.has_id:
        text = f"{page.text[: page.end]}id: {page.memory.id}\n{page.text[page.end :]}"
        page = _read_again(replace(page, text=text))
    return essence(page)


def _read_again(page: MarkdownPage) -> MarkdownPage:
    return read_page(page.text.encode(), "the page")


def restore_pages(memories: Memories) -> list[str]:
    """Writes the pages of what was approved and has none here: after a move to another machine, for one."""
    known = memories.decisions
    missing = [
        id for id, approval in known.current.items() if not approval.retired and id not in memories.folder.pages().by_id
    ]
    return [id for id in missing if memories.rewrite(id)]


def _between(memories: Memories) -> Iterator[MemoryFinding]:
    standing = memories.decisions.standing
    told: set[frozenset[str]] = set()
    for memory in standing:
        for flag in flags_of(memory.text, standing, without=memory.id):
            pair = frozenset((memory.id, flag.id))
            if pair not in told:
                told.add(pair)
                verb = "says the same as" if flag.kind == "duplicate" else "contradicts"
                yield MemoryFinding(
                    about=flag.kind, where=memory.id, says=f"{verb} {flag.id} (likeness {flag.score:.2f})"
                )


def _old(memories: Memories) -> Iterator[MemoryFinding]:
    now, rules = memories.clock.now(), memories.rules
    for memory in memories.decisions.standing:
        left = strength(memory, now)
        if left < rules.retire_below:
            yield MemoryFinding(
                about="stale", where=memory.id, says=f"its strength is {left:.2f}, used {memory.hits} times"
            )
