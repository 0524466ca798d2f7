"""Consolidation: a review of finished history that proposes durable memory, ages what there is, and checks recall.

Everything it finds is a proposal. A rule approves only where the settings allow a kind, and then only what a user typed
in their own words. How far each session was reviewed is kept, so a cycle that was killed goes on where it ended. A dry
run writes nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from recto.context.compaction.protocols import ChatModel
from recto.context.facts.types import Fact
from recto.continuity.memory.events import CONSOLIDATED, CYCLE, Cursor, Proposer
from recto.continuity.memory.extraction import MemoryCandidate, Review, finished, is_own_words, reviews
from recto.continuity.memory.files import HANDOFF
from recto.continuity.memory.manager import Memories
from recto.continuity.memory.markdown import amended, read_page
from recto.continuity.memory.model import Memory, flags_of, strength
from recto.continuity.memory.proposals import Proposal, Suggestion
from recto.continuity.memory.recall_probe import HeldOut, RecallHealth, health_of, held_out
from recto.errors import InputError, ProposalRefused, RectoError
from recto.recall.quoting import format_minute
from recto.text.unicode import prompt_safe, strip_invisible
from recto.transcript.session_keys import is_memory_session, parse_pointer, pointer_to

if TYPE_CHECKING:
    from recto.recall.recall import RecallService

RULE = "rule"
_HOUR = 3_600_000_000
_MOST_HELD, _MOST_OPEN = 30, 15
_LONGEST_LINE = 300
_LEFT_OUT = "[secret left out: "
"""What the ledger puts in the place of a secret."""


@dataclass(slots=True)
class Cycle:
    """What one cycle did, or would do."""

    dry_run: bool
    sessions: dict[str, int] = field(default_factory=dict)
    """Entries that were reviewed of each session."""
    proposed: list[Proposal] = field(default_factory=list)
    approved: list[str] = field(default_factory=list)
    """Proposals that a rule approved."""
    known: int = 0
    """Things that were found and are remembered already."""
    refused: list[str] = field(default_factory=list)
    """Why something that was found cannot become memory."""
    retired: list[str] = field(default_factory=list)
    health: dict[str, RecallHealth] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """What did not work; the rest was done."""
    journal: str = ""
    handoff: str = ""
    held: list[tuple[str, Fact]] = field(default_factory=list)
    """What is open at the end of each session."""

    @property
    def share(self) -> float | None:
        """Of the held-out questions, how many recall answered; None where none was asked."""
        asked = sum(one.asked for one in self.health.values())
        return sum(one.found for one in self.health.values()) / asked if asked else None


class Consolidator:
    """Reviews sessions of one agent."""

    def __init__(
        self,
        memories: Memories,
        *,
        model: ChatModel | None = None,
        recall_of: Callable[[str], RecallService] | None = None,
    ) -> None:
        self.memories = memories
        self._model = model
        self._recall_of = recall_of

    def is_due(self) -> bool:
        """Whether the settings' time has passed since the last cycle; never, where they name none."""
        every = self.memories.rules.every_hours
        return every > 0 and self.memories.clock.now() - self.memories.decisions.last_cycle >= every * _HOUR

    def waiting(self, session: str) -> int:
        """Entries of a session that a cycle would review."""
        cursor = self.memories.decisions.cursors.get(session, Cursor())
        return max(finished(self.memories.store, session) - cursor.upto, 0)

    def run(
        self, sessions: Iterable[str], *, dry_run: bool = False, advance: Callable[[int], None] = lambda by: None
    ) -> Cycle:
        """One cycle over these sessions."""
        cycle = Cycle(dry_run=dry_run)
        reviewed = [one for one in dict.fromkeys(sessions) if not is_memory_session(one)]
        if not dry_run:
            self.memories.reconcile()
        questions = {}
        for session in reviewed:
            told = []
            for review in self._reviews(session, advance):
                self._take(review, cycle)
                told += review.told
            questions[session] = held_out(told)
        self._merge(cycle)
        self._age(cycle)
        if not dry_run:
            self._check_recall(reviewed, questions, cycle)
        cycle.handoff = self._handoff(cycle)
        if not dry_run:
            self._close(cycle)
        return cycle

    def _reviews(self, session: str, advance: Callable[[int], None]) -> Iterable[Review]:
        cursor = self.memories.decisions.cursors.get(session, Cursor())
        return reviews(self.memories.store, session, cursor, self._model, advance)

    def _take(self, review: Review, cycle: Cycle) -> None:
        """Proposes what a stretch gave, counts what was made use of in it, and keeps how far it went."""
        made: list[Proposal] = []
        seen: set[str] = set()
        for one in review.found:
            if len(made) >= self.memories.rules.proposals:
                break
            text = strip_invisible(one.text)
            if text in seen:
                continue
            seen.add(text)
            if self.memories.knows(text):
                cycle.known += 1
                continue
            if _LEFT_OUT in text:
                cycle.refused.append(f"entry {one.seqs[0]} of {review.session}: it holds a secret ({_masks(text)})")
                continue
            with suppress(ProposalRefused):
                proposal = self._propose(one, review.session, cycle)
                made.append(proposal)
        cycle.proposed += made
        cycle.sessions[review.session] = cycle.sessions.get(review.session, 0) + review.last - review.first + 1
        cycle.problems += review.problems
        cycle.held = [(key, fact) for key, fact in cycle.held if key != review.session]
        cycle.held += [(review.session, fact) for fact in review.facts if fact.open]
        if cycle.dry_run:
            return
        for proposal in made:
            if self._approves(proposal):
                self.memories.settle(proposal, proposal.digest, RULE, "rule")
                cycle.approved.append(proposal.id)
        self.memories.used(self._uses(review))
        self.memories.record(
            CONSOLIDATED,
            {
                "session": review.session,
                "first": review.first,
                "upto": review.last,
                "hash": review.hash,
                "standing": review.standing,
                "proposals": [one.id for one in made],
            },
        )

    def _propose(self, one: MemoryCandidate, session: str, cycle: Cycle) -> Proposal:
        by: Proposer = "model" if one.by == "model" else "agent" if one.by == "agent" else "rule"
        given = Suggestion(
            kind=one.kind,
            text=one.text,
            tags=one.tags,
            sources=[pointer_to(session, seq) for seq in one.seqs],
            critical=one.critical,
            evergreen=one.evergreen,
        )
        try:
            made = self.memories.drafted(given, by=by, why=one.why)
        except ProposalRefused as error:
            cycle.refused.append(f"entry {one.seqs[0]} of {session}: {error.reason}")
            raise
        return made if cycle.dry_run else self.memories.proposing.write(made)

    def _approves(self, proposal: Proposal) -> bool:
        """Whether a rule may approve it: the kind is allowed, nothing speaks against it, and the user said it."""
        memory = proposal.memory
        allowed = memory.kind in self.memories.rules.approve and proposal.by == "rule" and proposal.action == "keep"
        if not allowed or proposal.flags or not memory.sources or proposal.id in self.memories.decisions.decided:
            return False
        return is_own_words(self.memories.store, memory.sources[0], memory.text)

    def _uses(self, review: Review) -> list[tuple[str, str]]:
        messages, found = self.memories.decisions.messages, []
        for pointer, event in review.shown:
            with suppress(InputError):
                session, seq = parse_pointer(pointer)
                if session == self.memories.home and seq in messages:
                    found.append((messages[seq], f"memory/applied/{review.session}/{event}/{messages[seq]}"))
        return found

    def _merge(self, cycle: Cycle) -> None:
        """Proposes that memories which say the same become one."""
        now, standing = self.memories.clock.now(), self.memories.decisions.standing
        taken: set[str] = set()
        for memory in sorted(standing, key=lambda one: (-strength(one, now), one.id)):
            same = [flag.id for flag in flags_of(memory.text, standing, without=memory.id) if flag.kind == "duplicate"]
            group = [one for one in standing if one.id in {memory.id, *same} - taken]
            if memory.id in taken or len(group) < 2:
                continue
            taken |= {one.id for one in group}
            made = self.memories.drafted(_merged(memory, group), by="rule", why="these memories say the same")
            self._add(made, cycle)

    def _age(self, cycle: Cycle) -> None:
        """Proposes that what is old and of no use be retired, or retires it where the settings say so."""
        rules, now = self.memories.rules, self.memories.clock.now()
        for memory in self.memories.decisions.standing if rules.retire != "never" else ():
            left = strength(memory, now)
            if left >= rules.retire_below or memory.critical or memory.evergreen:
                continue
            why = f"its strength is {left:.2f}, and it was used {memory.hits} times"
            if rules.retire == "unused" and not memory.hits:
                cycle.retired.append(memory.id)
                if not cycle.dry_run:
                    self.memories.retire(memory.id, RULE, why)
                continue
            approved = read_page(self.memories.decisions.current[memory.id].text.encode(), memory.id)
            text = amended(approved, replace(memory, state="retired"))
            self._add(self.memories.proposing.make(text, action="retire", by="rule", why=why, others=()), cycle)

    def _add(self, made: Proposal, cycle: Cycle) -> None:
        known = self.memories.decisions
        if made.id in known.decided or made.id in known.noted:
            return
        cycle.proposed.append(made if cycle.dry_run else self.memories.proposing.write(made))

    def _check_recall(self, sessions: Sequence[str], questions: dict[str, list[HeldOut]], cycle: Cycle) -> None:
        if self._recall_of is None:
            return
        for session in (*sessions, self.memories.home):
            if not self.memories.store.head(session).seq:
                continue
            try:
                recall = self._recall_of(session)
                recall.catch_up()
                if questions.get(session):
                    cycle.health[session] = health_of(recall, questions[session], self.memories.clock.now())
            except RectoError as error:
                cycle.problems.append(str(error))

    def _handoff(self, cycle: Cycle) -> str:
        """Where things stand, for somebody who knows nothing: what holds, what is open, what waits for a decision."""
        held = cycle.held
        groups = (
            ("What holds", [one for one in held if one[1].kind in ("constraint", "preference", "correction")]),
            ("Decided", [one for one in held if one[1].kind == "decision"]),
            ("Not solved", [one for one in held if one[1].kind == "error"]),
            ("To do", [one for one in held if one[1].kind in ("obligation", "progress")]),
        )
        lines = ["# Where things stand", "", "For reference only; it carries no instructions."]
        for title, own in groups:
            most = _MOST_HELD if title == "What holds" else _MOST_OPEN
            if own:
                lines += ["", f"## {title}", "", *(_line(key, fact) for key, fact in own[-most:])]
        waiting = [one for one in cycle.proposed if one.id not in cycle.approved]
        if waiting:
            lines += ["", "## Waits for a decision", ""]
            lines += [f"- {one.id} · {one.memory.kind} · {_short(one.memory.title)}" for one in waiting[:_MOST_HELD]]
        return "\n".join(lines) + "\n"

    def _close(self, cycle: Cycle) -> None:
        """Index, journal, handoff, and the event that ends the cycle."""
        now = self.memories.clock.now()
        told = _told(cycle)
        with self.memories.folder.writing():
            self.memories.write_index()
            cycle.journal = self.memories.folder.write_journal(
                now, [f"## Consolidation, {format_minute(now)}", "", *told]
            )
            self.memories.folder.write(HANDOFF, cycle.handoff.encode())
            self.memories.folder.log(ts=now, event=CYCLE, told=told)
        about = {
            "sessions": cycle.sessions,
            "proposed": [one.id for one in cycle.proposed],
            "approved": cycle.approved,
            "known": cycle.known,
            "refused": len(cycle.refused),
            "retired": cycle.retired,
            "recall": cycle.share,
            "problems": cycle.problems[:20],
            "journal": cycle.journal,
        }
        self.memories.record(CYCLE, about)


def _masks(text: str) -> str:
    return ", ".join(dict.fromkeys(part.partition("]")[0] for part in text.split(_LEFT_OUT)[1:]))


def _merged(first: Memory, group: Sequence[Memory]) -> Suggestion:
    return Suggestion(
        kind=first.kind,
        text=first.text,
        title=first.title,
        tags=[tag for one in group for tag in one.tags],
        sources=[pointer for one in (first, *group) for pointer in one.sources],
        replaces=[one.id for one in group],
        critical=any(one.critical for one in group),
        evergreen=any(one.evergreen for one in group),
        created=max(one.created for one in group),
    )


def _told(cycle: Cycle) -> list[str]:
    """What a cycle did, as lines of a journal."""
    lines = [f"- reviewed {count} entries of {_short(session)}" for session, count in cycle.sessions.items()]
    for one in cycle.proposed:
        done = "approved by rule" if one.id in cycle.approved else f"proposed to {one.action}"
        lines.append(f"- {done}: {one.id} · {one.memory.kind} · {_short(one.memory.title)}")
    lines += [f"- retired: {id}" for id in cycle.retired]
    lines += [f"- left out: {_short(why)}" for why in cycle.refused]
    if cycle.known:
        lines.append(f"- {cycle.known} known already")
    if cycle.share is not None:
        asked = sum(one.asked for one in cycle.health.values())
        lines.append(f"- recall: {cycle.share:.0%} of {asked} held-out questions brought the right entry back")
    lines += [f"- trouble: {_short(one)}" for one in cycle.problems]
    return lines or ["- nothing new"]


def _line(session: str, fact: Fact) -> str:
    return f"- {_short(fact.text)} ({pointer_to(session, fact.seq)})"


def _short(text: str) -> str:
    return " ".join(prompt_safe(text).split())[:_LONGEST_LINE]
