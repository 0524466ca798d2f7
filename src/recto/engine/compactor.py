"""Carries out plans that want something written: what leaves is told in fewer words, checked, scored and recorded.

A summary is made of raw messages: those that leave now, and for older ranges those in the store, read again when they
are to become shorter. Nothing here decides what leaves, and nothing here can fail a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recto.context.compaction.extractive import extract
from recto.context.compaction.fidelity import FIDELITY_GATE, Fidelity, fidelity_of, salient
from recto.context.compaction.layout import Layout, LayoutShares, bullet, filled, lay_out, more_for_facts, with_names
from recto.context.compaction.levels import at_level, level_for
from recto.context.compaction.loss_report import Losses, losses_of
from recto.context.compaction.writer import EXTRACTIVE, Attempt, SummaryWriter, WrittenSummary
from recto.context.facts.extraction import extract_facts, missing_facts
from recto.context.facts.files import track_files
from recto.context.facts.types import Fact, FactKind, Level, MessageView, WorkedFile, message_views
from recto.context.policies.summarize_results import frame_summary
from recto.context.window.plan import Plan, ShortenedResult, TextRequest
from recto.context.window.state import WindowState, ranges_of
from recto.context.window.summary import ExecutedPlan, PartLevel, Summary, SummaryPart
from recto.context.window.units import Unit, units_of
from recto.engine.compactor_prefetch import Ahead
from recto.engine.delegation import Delegator
from recto.engine.prompt_builder import MessageCache
from recto.transcript.entries import MAX_SEQ, Role
from recto.transcript.protocols import TranscriptStore

_GOAL = 2_000
"""Characters of the task that a writer is told."""
_READ_AGAIN = 2_000
"""Entries of an older range that are read again when it becomes shorter."""
_HEARD = 5_000
"""Entries that are read for facts at most, where much left without a word."""
_MOST_PARTS = 40
"""Older ranges that are told apart; beyond, neighbours become one."""
_KEY_POINTS = 160
"""Tokens that stay of a compacted range when the next one is made."""
_LOWER: dict[PartLevel, int] = {"sections": 0, "delegated": 0, "full": 0, "key_points": 1, "one_line": 2, "title": 3}
_FOR_NAMES = 14
"""What part of a text is kept free for names that it does not say."""
_SHORTEST_FACT = 12
_MOST_FOUND = 20
_LEVELS = LayoutShares(facts=0.35, files=0.1, earlier=0.55)
"""Shares of a text that tells exchanges at levels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What a summary is made of."""

    told: Sequence[MessageView]
    """What leaves now."""
    facts: tuple[Fact, ...]
    """What is known of everything that left, as of the end of what leaves."""
    current: tuple[Fact, ...]
    """The same, knowing what was said since: what is still open."""
    touched: tuple[WorkedFile, ...]
    known: int
    earlier: tuple[SummaryPart, ...]
    goal: str
    turn: int


class Compactor:
    """Writes what a window's plans ask for."""

    def __init__(
        self,
        store: TranscriptStore,
        session: str,
        messages: MessageCache,
        writer: SummaryWriter,
        delegator: Delegator | None = None,
        *,
        ahead: bool = False,
    ) -> None:
        self.writer = writer
        self.ahead = Ahead(writer) if ahead else None
        self._store = store
        self._session = session
        self._messages = messages
        self._delegator = delegator
        self._count = messages.meter.count

    def close(self) -> None:
        """Ends what is under way."""
        self.writer.close()

    def prepare(self, plan: Plan, state: WindowState) -> None:
        """Has a model write ahead what this plan will need, if there is one and it is not at it already."""
        leaving = [seq for unit in plan.evicts for seq in unit.seqs]
        if self.ahead is None or plan.writes is None or not self.writer.has_model or not self.ahead.wants(leaving):
            return
        self.ahead.begin(
            self._messages.views(sorted(leaving)), goal=self._goal(state), tokens=plan.writes.max_tokens // 3
        )

    def carry_out(self, plans: Sequence[Plan], state: WindowState) -> list[ExecutedPlan]:
        """The plans with their texts, each seeing what those before it did."""
        state = state.copy()
        done: list[ExecutedPlan] = []
        for plan in plans:
            carried = self._written(plan, state)
            state.shorten(carried.plan.shortens)
            state.evict(seq for unit in plan.evicts for seq in unit.seqs)
            state.summary = carried.summary or state.summary
            done.append(carried)
        return done

    def _written(self, plan: Plan, state: WindowState) -> ExecutedPlan:
        if plan.writes is None:
            return ExecutedPlan(plan=plan)
        if plan.writes.style == "results":
            return self._results(plan, plan.writes, state)
        source = self._source(plan.evicts, state)
        if plan.writes.style == "levels":
            parts = self._by_level(plan.evicts, state)
            written = WrittenSummary(
                lines=(), engine=EXTRACTIVE, attempts=(Attempt(engine=EXTRACTIVE, outcome="used"),)
            )
            source = replace(source, earlier=(*source.earlier, *parts))
            summary, fidelity = self._composed(source, written, plan.writes.max_tokens, _LEVELS)
        else:
            written, summary, fidelity = self._sections(source, plan.writes)
        losses = losses_of(source.told, self._kept(plan, state, summary.text))
        record = self._record(plan, state, written, summary, fidelity, losses)
        return ExecutedPlan(plan=plan, summary=summary, record=record)

    def _sections(self, source: _Source, order: TextRequest) -> tuple[WrittenSummary, Summary, Fidelity]:
        layout = self._layout(source, order.max_tokens - order.max_tokens // _FOR_NAMES, LayoutShares())
        room = max(layout.left, order.max_tokens // 5)
        written = self._delegated(source, order, room) or self._narrative(source, order, room)
        level: PartLevel = "delegated" if order.style == "delegated" else "sections"
        part = SummaryPart(
            first=source.told[0].seq,
            last=source.told[-1].seq,
            level=level,
            turn=source.turn,
            text="\n".join(written.lines),
        )
        found = _told_by_model(written, source)
        source = replace(source, facts=(*source.facts, *found), current=(*source.current, *found))
        summary, fidelity = self._composed(source, written, order.max_tokens, LayoutShares())
        return written, replace(summary, parts=(*source.earlier, part)), fidelity

    def _composed(
        self, source: _Source, written: WrittenSummary, most: int, shares: LayoutShares
    ) -> tuple[Summary, Fidelity]:
        """The text, with more room for facts where it lost too much; the better of the two.

        What is left of its room names what matters most of what it does not say.
        """
        entities = salient(source.told)
        left = [fact for fact in source.current if fact.open]
        best: tuple[str, Fidelity] | None = None
        for tried in (shares, more_for_facts(shares)):
            kept = most - most // _FOR_NAMES
            text = filled(self._layout(source, kept, tried), written.lines, kept, self._count)
            missed = fidelity_of(text, left, entities).missing_entities
            text = with_names(text, missed, most, self._count)
            found = fidelity_of(text, left, entities)
            if best is None or found.score > best[1].score:
                best = text, found
            if best[1].score >= FIDELITY_GATE:
                break
        assert best is not None  # noqa: S101  # there are two tries
        made = Summary(
            text=best[0], covered_until=source.known, parts=source.earlier, facts=source.facts, files=source.touched
        )
        return made, best[1]

    def _layout(self, source: _Source, most: int, shares: LayoutShares) -> Layout:
        return lay_out(
            source.current,
            source.touched,
            source.earlier,
            pointer=self._messages.pointer_of(MAX_SEQ).replace(str(MAX_SEQ), "N"),
            most=most,
            count=self._count,
            shares=shares,
        )

    def _source(self, leaves: Sequence[Unit], state: WindowState) -> _Source:
        leaving = sorted(seq for unit in leaves for seq in unit.seqs)
        told = self._messages.views(leaving)
        before = state.summary or Summary(text="")
        # What left without a word since then counts too, and is read again; what stays is told of when it leaves.
        heard = self._heard(before.covered_until + 1, leaving[-1])
        facts = extract_facts(heard, before.facts)
        since = self._messages.views(seq for seq in state.messages if seq > leaving[-1])
        shown = state.messages.keys() - set(leaving)
        known = {(fact.seq, fact.text) for fact in facts if fact.seq not in shown}
        current = tuple(fact for fact in extract_facts(since, facts) if (fact.seq, fact.text) in known)
        return _Source(
            told=told,
            facts=facts,
            current=current,
            touched=track_files(heard, before.files),
            earlier=self._aged(before.parts, state.turn),
            known=max(leaving[-1], before.covered_until),
            goal=self._goal(state),
            turn=state.turn,
        )

    def _narrative(self, source: _Source, order: TextRequest, room: int) -> WrittenSummary:
        prepared = self.ahead.take({one.seq for one in source.told}) if self.ahead and not order.focus else None
        if prepared is None:
            return self.writer.narrative(source.told, goal=source.goal, focus=order.focus, tokens=room)
        written = prepared.written
        rest = [one for one in source.told if one.seq not in prepared.seqs]
        room -= sum(self._count(line) + 1 for line in written.lines)
        picked = extract(rest, goal=source.goal, tokens=max(room, 0), count=self._count)
        return replace(written, lines=(*written.lines, *(bullet(one.text, one.seq) for one in picked)))

    def _delegated(self, source: _Source, order: TextRequest, room: int) -> WrittenSummary | None:
        if order.style != "delegated" or self._delegator is None:
            return None
        return self._delegator.narrative(source.told, goal=source.goal, focus=order.focus, most=room)

    def _results(self, plan: Plan, order: TextRequest, state: WindowState) -> ExecutedPlan:
        """Results are extracted already; the largest of them a model may write anew, if that is not longer."""
        attempts: list[Attempt] = []
        invented: list[str] = []
        shrinks = {shrink.seq: shrink for shrink in plan.shortens}
        goal = self._goal(state)
        largest = sorted(shrinks, key=lambda seq: (-state.cost(seq), seq))
        for seq in largest[: self.writer.rules.calls] if self.writer.has_model else ():
            size = state.messages[seq].tokens
            written = self.writer.result(self._messages.result_of(state, seq), goal=goal, most=order.max_tokens)
            if written is None:
                continue
            attempts += written.attempts
            invented += written.invented
            text = frame_summary("\n".join(written.lines), size, self._messages.pointer_of(seq))
            tokens = self._messages.cost_with(seq, text)
            if tokens <= shrinks[seq].tokens:
                shrinks[seq] = ShortenedResult(seq=seq, text=text, tokens=tokens)
        before = sum(state.cost(seq) for seq in shrinks)
        after = sum(shrink.tokens for shrink in shrinks.values())
        record = {
            "style": order.style,
            "engine": attempts[-1].engine if attempts else EXTRACTIVE,
            "attempts": [attempt.to_json() for attempt in attempts],
            "invented": invented[:20],
            "tokens_from": before,
            "tokens_to": after,
            "sources": ranges_of(sorted(shrinks)),
            "generation": 1,
        }
        return ExecutedPlan(plan=replace(plan, shortens=tuple(shrinks.values())), record=record)

    def _by_level(self, leaves: Sequence[Unit], state: WindowState) -> tuple[SummaryPart, ...]:
        """Each exchange that leaves, in the words its age allows."""
        newest = max((unit.exchange for unit in units_of(state.messages.values())), default=0)
        exchanges: dict[int, list[int]] = {}
        for unit in leaves:
            exchanges.setdefault(unit.exchange, []).extend(unit.seqs)
        parts: list[SummaryPart] = []
        for number, seqs in sorted(exchanges.items()):
            age = newest - number
            level = level_for(age)
            chosen: Level = "key_points" if level == "full" else level
            said = at_level(self._messages.views(sorted(seqs)), chosen, self._count)
            parts.append(_part(min(seqs), max(seqs), chosen, state.turn - age, [said]))
        return tuple(parts)

    def _aged(self, parts: Sequence[SummaryPart], turn: int) -> tuple[SummaryPart, ...]:
        """Older ranges with the words they still deserve; what becomes shorter is written anew from its messages."""
        aged = [self._shorter(part, turn) for part in parts]
        while len(aged) > _MOST_PARTS:
            first, second = aged[0], aged[1]
            joined = self._told(first.first, second.last)
            aged[:2] = [_part(first.first, second.last, "title", second.turn, [self._at(joined, "title")])]
        return tuple(aged)

    def _shorter(self, part: SummaryPart, turn: int) -> SummaryPart:
        level = level_for(turn - part.turn)
        wanted: Level = "key_points" if level == "full" else level
        if _LOWER[wanted] <= _LOWER[part.level]:
            return part
        told = self._told(part.first, part.last)
        if wanted == "key_points":
            lines = [f"{picked.text} ({picked.seq})" for picked in extract(told, tokens=_KEY_POINTS, count=self._count)]
            return replace(part, level=wanted, text="\n".join(bullet(line) for line in lines))
        return _part(part.first, part.last, wanted, part.turn, [self._at(told, wanted)])

    def _at(self, told: Sequence[MessageView], level: Level) -> str:
        return at_level(told, level, self._count) if told else ""

    def _heard(self, first: int, last: int) -> list[MessageView]:
        """Messages as the transcript has them, whether they are in the prompt or not."""
        return message_views(self._store.read(self._session, max(first, last - _HEARD), last)) if first <= last else []

    def _told(self, first: int, last: int) -> list[MessageView]:
        return message_views(self._store.read(self._session, first, min(last, first + _READ_AGAIN - 1)))

    def _goal(self, state: WindowState) -> str:
        return self._messages.goal_of(state)[:_GOAL]

    def _kept(self, plan: Plan, state: WindowState, text: str) -> str:
        """Everything that can still be read in the prompt."""
        gone = {seq for unit in plan.evicts for seq in unit.seqs}
        return "\n".join((text, *(self._messages.text_of(seq) for seq in state.messages if seq not in gone)))

    def _record(
        self,
        plan: Plan,
        state: WindowState,
        written: WrittenSummary,
        summary: Summary,
        fidelity: Fidelity,
        losses: Losses,
    ) -> dict[str, Any]:
        before = sum(state.cost(seq) for unit in plan.evicts for seq in unit.seqs)
        said = "\n".join(written.lines)
        kept = [fact for fact in summary.facts if fact.open and fact not in missing_facts(summary.facts, summary.text)]
        return {
            "style": plan.writes.style if plan.writes else "",
            "engine": written.engine,
            "attempts": [attempt.to_json() for attempt in written.attempts],
            "claims": written.claims,
            "invented": list(written.invented[:20]),
            "commands": written.commands,
            "from_ledger": len(missing_facts(kept, said)),
            "fidelity": {
                "score": round(fidelity.score, 4),
                "ledger": round(fidelity.ledger, 4),
                "entities": round(fidelity.entities, 4),
                "missing_facts": fidelity.missing_facts,
            },
            "tokens_from": before,
            "tokens_to": self._count(summary.text),
            "sources": [[part.first, part.last] for part in summary.parts],
            "generation": 1,
            "lost": losses.to_json(),
        }


_SECTION_KINDS: dict[str, tuple[FactKind, tuple[Role, ...]]] = {
    "Constraints": ("constraint", ("user",)),
    "Decisions": ("decision", ("user", "assistant")),
    "Errors": ("error", ("user", "tool")),
}
"""What a model's sections may add to the facts, and whose words those have to be."""


def _told_by_model(written: WrittenSummary, source: _Source) -> tuple[Fact, ...]:
    """What a model found that must not be lost: only where it is quoted from a message of somebody who may say it."""
    known = {fact.text for fact in source.facts}
    found: list[Fact] = []
    for line in written.lines if written.engine != EXTRACTIVE else ():
        section, _, quoted = line.removeprefix("- ").partition(": ")
        text = quoted.strip().strip("\"'“”`")
        if section not in _SECTION_KINDS or len(text) < _SHORTEST_FACT or text in known:
            continue
        kind, roles = _SECTION_KINDS[section]
        by = next(
            (one for one in reversed(source.told) if one.role in roles and text in " ".join(one.text.split())), None
        )
        if by is not None:
            found.append(Fact(kind=kind, text=text, seq=by.seq, role=by.role))
    return tuple(found[:_MOST_FOUND])


def _part(first: int, last: int, level: Level, turn: int, said: Sequence[str]) -> SummaryPart:
    where = f"{first} to {last}" if first != last else str(first)
    lines = [bullet(f"{line} ({where})") for text in said for line in text.splitlines() if line.strip()]
    return SummaryPart(first=first, last=last, level=level, turn=turn, text="\n".join(lines))
