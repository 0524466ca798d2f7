"""Consolidation: reviews finished history, proposes durable memory, ages existing memory, and probes recall.

Every result is a proposal. A rule approves only kinds that the settings allow, and only what a user typed in their own
words. The review position is stored per session, so an interrupted cycle continues where it ended. A dry run writes
nothing.

The probe makes each question by rule from some words of one message, and that message should be found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from recto.context.compaction.protocols import ChatModel
from recto.context.facts.types import Fact
from recto.continuity.memory._extraction import MemoryCandidate, Review, finished, is_own_words, reviews
from recto.continuity.memory.events import CONSOLIDATED, CYCLE, DUE, Cursor, Proposer, due_key
from recto.continuity.memory.files import CYCLE_HEADING, HANDOFF
from recto.continuity.memory.manager import Memories
from recto.continuity.memory.markdown import amended, read_page
from recto.continuity.memory.model import Memory, flags_of, strength
from recto.continuity.memory.proposals import Proposal, Suggestion
from recto.errors import InputError, ProposalRefused, RectoError
from recto.recall.types import format_minute
from recto.text.unicode import prompt_safe, strip_invisible
from recto.transcript.session_keys import is_memory_session, parse_pointer, pointer_to

if TYPE_CHECKING:
    from recto.recall.recall import RecallService
from typing import TYPE_CHECKING

from recto.context.facts.claims import fold_words
from recto.context.facts.statements import user_sentences
from recto.context.facts.types import MessageView
from recto.recall.types import Query

if TYPE_CHECKING:
    from recto.recall.recall import RecallService


MOST = 20
"""Maximum questions per session."""
TOP = 5
_MIN_WORDS = 6
_MIN_WORD_LENGTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A question, and the entry that answers it."""

    question: str
    seq: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHealth:
    """The result of a probe."""

    asked: int
    found: int
    missed: tuple[int, ...]
    """Entries that were not found."""

    @property
    def share(self) -> float:
        """Share of questions that found the right entry among the first five; 1 if there were none."""
        return self.found / self.asked if self.asked else 1.0


def held_out(messages: Sequence[MessageView], most: int = MOST) -> list[HeldOut]:
    """Build questions about these messages, evenly spread: every other significant word of a sentence."""
    questions = []
    for message in messages:
        sentences = user_sentences(message.text) if message.role in ("user", "assistant") else []
        for sentence in sentences[:3]:
            words = [word for word in dict.fromkeys(fold_words(sentence).split()) if len(word) >= _MIN_WORD_LENGTH]
            if len(words) >= _MIN_WORDS:
                questions.append(HeldOut(question=" ".join(words[::2]), seq=message.seq, sentence=sentence))
                break
    step = max(len(questions) / most, 1.0)
    return [questions[int(place * step)] for place in range(min(most, len(questions)))]


def health_of(recall: RecallService, questions: Sequence[HeldOut], now: int) -> RecallHealth:
    """Run the questions and count how often the right entry, or one with the same sentence, is found."""
    found, missed = 0, []
    for question in questions:
        hits = recall.search(Query(text=question.question, now=now), limit=TOP, scope="session").hits[:TOP]
        sentence = fold_words(question.sentence)
        if any(hit.seq == question.seq or sentence in fold_words(hit.text) for hit in hits):
            found += 1
        else:
            missed.append(question.seq)
    return RecallHealth(asked=len(questions), found=found, missed=tuple(missed))


RULE = "rule"
_HOUR = 3_600_000_000
_MAX_FACTS, _MAX_OPEN = 30, 15
_MAX_LINE = 300
_MASK_PREFIX = "[secret left out: "
"""How the ledger marks a masked secret."""


@dataclass(slots=True)
class Cycle:
    """What one cycle did, or would do."""

    dry_run: bool
    sessions: dict[str, int] = field(default_factory=dict)
    """Entries reviewed per session."""
    proposed: list[Proposal] = field(default_factory=list)
    approved: list[str] = field(default_factory=list)
    """Proposals approved by a rule."""
    known: int = 0
    """Candidates that are remembered already."""
    refused: list[str] = field(default_factory=list)
    """Why candidates cannot become memory."""
    retired: list[str] = field(default_factory=list)
    health: dict[str, RecallHealth] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Failures; everything else was done."""
    journal: str = ""
    handoff: str = ""
    held: list[tuple[str, Fact]] = field(default_factory=list)
    """Open facts at the end of each session."""

    @property
    def share(self) -> float | None:
        """Share of held-out questions that recall answered; None if there were none."""
        asked = sum(one.asked for one in self.health.values())
        return sum(one.found for one in self.health.values()) / asked if asked else None


class Consolidator:
    """Reviews the sessions of one agent."""

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
        """Whether the configured interval has passed since the last cycle; never if none is configured."""
        every = self.memories.rules.every_hours
        return every > 0 and self.memories.clock.now() - self.memories.decisions.last_cycle >= every * _HOUR

    def waiting(self, session: str) -> int:
        """Number of entries of a session that a cycle would review."""
        cursor = self.memories.decisions.cursors.get(session, Cursor())
        return max(finished(self.memories.store, session) - cursor.upto, 0)

    def offered(self, session: str) -> str:
        """What a compaction offered to review, in words; empty where nothing is due."""
        cursor = self.memories.decisions.cursors.get(session, Cursor())
        offer = self.memories.store.find(session, due_key(cursor.upto))
        waiting = self.waiting(session) if offer is not None and offer.kind == DUE else 0
        return f"{waiting:,} entries since entry {cursor.upto + 1}, offered at a compaction" if waiting else ""

    def run(
        self, sessions: Iterable[str], *, dry_run: bool = False, advance: Callable[[int], None] = lambda by: None
    ) -> Cycle:
        """Run one cycle over these sessions."""
        cycle = Cycle(dry_run=dry_run)
        reviewed = [session for session in dict.fromkeys(sessions) if not is_memory_session(session)]
        if not dry_run:
            self.memories.reconcile()
        questions = {}
        for session in reviewed:
            messages = []
            for review in self._reviews(session, advance):
                self._propose_from(review, cycle)
                messages += review.messages
            questions[session] = held_out(messages)
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

    def _propose_from(self, review: Review, cycle: Cycle) -> None:
        """Propose the candidates of a review, count the memory it used, and store its position."""
        proposals: list[Proposal] = []
        seen: set[str] = set()
        for candidate in review.found:
            if len(proposals) >= self.memories.rules.proposals:
                break
            text = strip_invisible(candidate.text)
            if text in seen:
                continue
            seen.add(text)
            if self.memories.knows(text):
                cycle.known += 1
                continue
            if _MASK_PREFIX in text:
                cycle.refused.append(
                    f"entry {candidate.seqs[0]} of {review.session}: it holds a secret ({_masks(text)})"
                )
                continue
            with suppress(ProposalRefused):
                proposal = self._propose(candidate, review.session, cycle)
                proposals.append(proposal)
        cycle.proposed += proposals
        cycle.sessions[review.session] = cycle.sessions.get(review.session, 0) + review.last - review.first + 1
        cycle.problems += review.problems
        cycle.held = [(key, fact) for key, fact in cycle.held if key != review.session]
        cycle.held += [(review.session, fact) for fact in review.facts if fact.open]
        if cycle.dry_run:
            return
        for proposal in proposals:
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
                "proposals": [proposal.id for proposal in proposals],
            },
        )

    def _propose(self, candidate: MemoryCandidate, session: str, cycle: Cycle) -> Proposal:
        by: Proposer = "model" if candidate.by == "model" else "agent" if candidate.by == "agent" else "rule"
        suggestion = Suggestion(
            kind=candidate.kind,
            text=candidate.text,
            tags=candidate.tags,
            sources=[pointer_to(session, seq) for seq in candidate.seqs],
            critical=candidate.critical,
            evergreen=candidate.evergreen,
        )
        try:
            proposal = self.memories.drafted(suggestion, by=by, why=candidate.why)
        except ProposalRefused as error:
            cycle.refused.append(f"entry {candidate.seqs[0]} of {session}: {error.reason}")
            raise
        return proposal if cycle.dry_run else self.memories.proposing.write(proposal)

    def _approves(self, proposal: Proposal) -> bool:
        """Whether a rule may approve it: the kind is allowed, nothing contradicts it, and the user said it."""
        memory = proposal.memory
        allowed = memory.kind in self.memories.rules.approve and proposal.by == "rule" and proposal.action == "keep"
        if not allowed or proposal.flags or not memory.sources or proposal.id in self.memories.decisions.decided:
            return False
        return is_own_words(self.memories.store, memory.sources[0], memory.text)

    def _uses(self, review: Review) -> list[tuple[str, str]]:
        messages, uses = self.memories.decisions.messages, []
        for pointer, event in review.shown:
            with suppress(InputError):
                session, seq = parse_pointer(pointer)
                if session == self.memories.home and seq in messages:
                    uses.append((messages[seq], f"memory/applied/{review.session}/{event}/{messages[seq]}"))
        return uses

    def _merge(self, cycle: Cycle) -> None:
        """Propose to merge memories that state the same."""
        now, standing = self.memories.clock.now(), self.memories.decisions.standing
        merged: set[str] = set()
        for memory in sorted(standing, key=lambda other: (-strength(other, now), other.id)):
            same = [flag.id for flag in flags_of(memory.text, standing, without=memory.id) if flag.kind == "duplicate"]
            group = [other for other in standing if other.id in {memory.id, *same} - merged]
            if memory.id in merged or len(group) < 2:
                continue
            merged |= {other.id for other in group}
            proposal = self.memories.drafted(_merged(memory, group), by="rule", why="these memories say the same")
            self._add(proposal, cycle)

    def _age(self, cycle: Cycle) -> None:
        """Propose to retire old, unused memory, or retire it if the settings say so."""
        rules, now = self.memories.rules, self.memories.clock.now()
        for memory in self.memories.decisions.standing if rules.retire != "never" else ():
            remaining = strength(memory, now)
            if remaining >= rules.retire_below or memory.critical or memory.evergreen:
                continue
            why = f"its strength is {remaining:.2f}, and it was used {memory.hits} times"
            if rules.retire == "unused" and not memory.hits:
                cycle.retired.append(memory.id)
                if not cycle.dry_run:
                    self.memories.retire(memory.id, RULE, why)
                continue
            approved = read_page(self.memories.decisions.current[memory.id].text.encode(), memory.id)
            text = amended(approved, replace(memory, state="retired"))
            self._add(self.memories.proposing.make(text, action="retire", by="rule", why=why, others=()), cycle)

    def _add(self, proposal: Proposal, cycle: Cycle) -> None:
        known = self.memories.decisions
        if proposal.id in known.decided or proposal.id in known.noted:
            return
        cycle.proposed.append(proposal if cycle.dry_run else self.memories.proposing.write(proposal))

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
        """Summarise for a reader without context: what applies, what is open, what waits for a decision."""
        facts = cycle.held
        holding = ("constraint", "instruction", "preference", "correction")
        groups = (
            ("What holds", [one for one in facts if one[1].kind in holding]),
            ("Decided", [one for one in facts if one[1].kind == "decision"]),
            ("Not solved", [one for one in facts if one[1].kind == "error"]),
            ("To do", [one for one in facts if one[1].kind in ("obligation", "deferral", "progress")]),
        )
        lines = ["# Where things stand", "", "For reference only; it carries no instructions."]
        for title, own in groups:
            most = _MAX_FACTS if title == "What holds" else _MAX_OPEN
            if own:
                lines += ["", f"## {title}", "", *(_line(key, fact) for key, fact in own[-most:])]
        waiting = [one for one in cycle.proposed if one.id not in cycle.approved]
        if waiting:
            lines += ["", "## Waits for a decision", ""]
            lines += [f"- {one.id} · {one.memory.kind} · {_short(one.memory.title)}" for one in waiting[:_MAX_FACTS]]
        return "\n".join(lines) + "\n"

    def _close(self, cycle: Cycle) -> None:
        """Write index, journal and handoff, and the event that ends the cycle."""
        now = self.memories.clock.now()
        lines = _journal_lines(cycle)
        with self.memories.folder.writing():
            self.memories.write_index()
            cycle.journal = self.memories.folder.write_journal(
                now, [f"## {CYCLE_HEADING}{format_minute(now)}", "", *lines]
            )
            self.memories.folder.write(HANDOFF, cycle.handoff.encode())
            self.memories.folder.log(ts=now, event=CYCLE, told=lines)
        payload = {
            "sessions": cycle.sessions,
            "proposed": [proposal.id for proposal in cycle.proposed],
            "approved": cycle.approved,
            "known": cycle.known,
            "refused": len(cycle.refused),
            "retired": cycle.retired,
            "recall": cycle.share,
            "problems": cycle.problems[:20],
            "journal": cycle.journal,
        }
        self.memories.record(CYCLE, payload)


def _masks(text: str) -> str:
    return ", ".join(dict.fromkeys(part.partition("]")[0] for part in text.split(_MASK_PREFIX)[1:]))


def _merged(first: Memory, group: Sequence[Memory]) -> Suggestion:
    return Suggestion(
        kind=first.kind,
        text=first.text,
        title=first.title,
        tags=[tag for memory in group for tag in memory.tags],
        sources=[pointer for memory in (first, *group) for pointer in memory.sources],
        replaces=[memory.id for memory in group],
        critical=any(memory.critical for memory in group),
        evergreen=any(memory.evergreen for memory in group),
        created=max(memory.created for memory in group),
    )


def _journal_lines(cycle: Cycle) -> list[str]:
    """The lines of a journal about a cycle."""
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
    return " ".join(prompt_safe(text).split())[:_MAX_LINE]
