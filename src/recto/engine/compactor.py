"""Writes the texts that plans ask for: summaries of evicted messages, checked, scored and recorded.

A summary is written from raw messages: those that are evicted now and, for older ranges, those in the store, which are
read again when a range becomes shorter. A model may write on a thread of its own before messages are evicted
(`SummaryPrefetch`), so that the turn does not wait for it. Nothing here decides what is evicted, and no failure here
fails a turn.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from recto.context.compaction.extractive import extract_sentences
from recto.context.compaction.fidelity import (
    FIDELITY_GATE,
    Fidelity,
    Losses,
    find_losses,
    measure_fidelity,
    merge_evidence,
    salient_entities,
)
from recto.context.compaction.layout import (
    Layout,
    LayoutShares,
    append_names,
    bullet,
    favor_facts,
    fill_layout,
    is_said,
    lay_out,
    only_facts,
    said_lines,
)
from recto.context.compaction.levels import level_for, render_level, title_by_request
from recto.context.compaction.writer import EXTRACTIVE, SummaryWriter, WriterAttempt, WrittenSummary
from recto.context.facts.extraction import extract_facts, lasting_sentences, missing_facts
from recto.context.facts.files import track_files
from recto.context.facts.types import Fact, FactKind, Level, MessageView, WorkedFile, message_views
from recto.context.policies.edits import frame_summary
from recto.context.window.state import ExecutedPlan, PartLevel, Summary, SummaryPart, WindowState, ranges_of
from recto.context.window.units import Plan, ShortenedResult, TextRequest, Unit, units_of
from recto.engine.delegation import Delegator
from recto.engine.prompt_builder import MessageCache
from recto.transcript.entries import MAX_SEQ, Draft, Role
from recto.transcript.protocols import TranscriptStore

_GOAL = 2_000
"""Characters of the task that a writer gets."""
_READ_AGAIN = 2_000
"""Entries of an older range that are read again when it becomes shorter."""
_TITLE_REACH = 24
"""Entries at the beginning of an older range that are read first."""
_FACT_REACH = 5_000
"""Entries that are read for facts at most, where much was evicted without a summary."""
_MAX_SAID = 400
"""Sentences of the user that fidelity is measured by, the newest."""
_MAX_PARTS = 40
"""Older ranges that are kept apart; beyond, neighbours are joined."""
_KEY_POINTS = 160
"""Tokens that are left of a compacted range when the next one is compacted."""
_RANK: dict[PartLevel, int] = {"sections": 0, "delegated": 0, "full": 0, "key_points": 1, "one_line": 2, "title": 3}
_FOR_NAMES = 14
"""One part in this many of a text is reserved for names that it does not contain."""
_MIN_FACT_CHARS = 12
_MAX_MODEL_FACTS = 20
_PREFETCH_COVERAGE = 0.6
"""The share of the evicted messages that a prefetched summary must cover, or it is written again."""
_LEVELS = LayoutShares(facts=0.35, files=0.1, earlier=0.55)
"""The layout of a text with exchanges at levels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What a summary is written from."""

    views: Sequence[MessageView]
    """The messages that are evicted now."""
    facts: tuple[Fact, ...]
    """The facts of everything that was evicted, as of the last message that is evicted now."""
    current: tuple[Fact, ...]
    """The same facts as of the end of the conversation: which of them are still open."""
    files: tuple[WorkedFile, ...]
    said: tuple[tuple[int, str], ...]
    """The user's lasting sentences of everything that was evicted."""
    standing: tuple[tuple[int, str], ...]
    """Those that are neither in the prompt nor taken back."""
    evidence: Mapping[str, float]
    """Files, names and numbers of everything that was evicted, with their weights."""
    covered_until: int
    earlier: tuple[SummaryPart, ...]
    goal: str
    turn: int
    beside: str = ""
    """The working record, which is shown with the summary: what it holds is not lost."""


class Compactor:
    """Writes the texts that the plans of a window ask for."""

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
        self.prefetch = SummaryPrefetch(writer) if ahead else None
        self._store = store
        self._session = session
        self._messages = messages
        self._delegator = delegator
        self._count = messages.count
        self._refused: Set[int] = frozenset()
        """Messages that the provider refused: nothing is derived from them."""

    def take_events(self) -> list[Draft]:
        """The events of sub-agents to store with the decision that they wrote for."""
        return self._delegator.take_events() if self._delegator is not None else []

    def close(self) -> None:
        """Stops the writer."""
        self.writer.close()

    def prepare(self, plan: Plan, state: WindowState) -> None:
        """Lets a model write what this plan will need in advance, if there is one and it is not writing already."""
        seqs = [seq for unit in plan.evicts for seq in unit.seqs]
        if self.prefetch is None or plan.writes is None or not self.writer.has_model or not self.prefetch.wants(seqs):
            return
        self.prefetch.begin(
            self._messages.views(sorted(seqs)), goal=self._goal(state), tokens=plan.writes.max_tokens // 3
        )

    def carry_out(self, plans: Sequence[Plan], state: WindowState, beside: str = "") -> list[ExecutedPlan]:
        """Writes the texts of the plans, in order; each plan sees the effect of those before it.

        `beside` is the working record that is shown with them.
        """
        state = state.copy()
        self._refused = state.refused
        done: list[ExecutedPlan] = []
        for plan in plans:
            executed = self._execute(plan, state, beside)
            state.shorten(executed.plan.shortens)
            state.evict(seq for unit in plan.evicts for seq in unit.seqs)
            state.summary = executed.summary or state.summary
            done.append(executed)
        return done

    def _execute(self, plan: Plan, state: WindowState, beside: str) -> ExecutedPlan:
        if plan.writes is None:
            return ExecutedPlan(plan=plan)
        if plan.writes.style == "results":
            return self._shorten_results(plan, plan.writes, state)
        source = replace(self._source(plan.evicts, state), beside=beside)
        if plan.writes.style == "levels":
            parts = self._parts_by_level(plan.evicts, state)
            written = WrittenSummary(
                lines=(), engine=EXTRACTIVE, attempts=(WriterAttempt(engine=EXTRACTIVE, outcome="used"),)
            )
            source = replace(source, earlier=(*source.earlier, *parts))
            summary, fidelity = self._compose(source, written, plan.writes.max_tokens, _LEVELS)
        else:
            written, summary, fidelity = self._write_sections(source, plan.writes)
        losses = find_losses(source.views, self._readable(plan, state, summary.text))
        record = self._record(plan, state, written, summary, fidelity, losses)
        return ExecutedPlan(plan=plan, summary=summary, record=record)

    def _write_sections(self, source: _Source, request: TextRequest) -> tuple[WrittenSummary, Summary, Fidelity]:
        layout = self._layout(source, request.max_tokens - request.max_tokens // _FOR_NAMES, LayoutShares())
        tokens = max(layout.narrative_tokens, request.max_tokens // 5)
        written = self._delegated(source, request, tokens) or self._narrative(source, request, tokens)
        level: PartLevel = "delegated" if request.style == "delegated" else "sections"
        part = SummaryPart(
            first=source.views[0].seq,
            last=source.views[-1].seq,
            level=level,
            turn=source.turn,
            text="\n".join(written.lines),
        )
        quoted = _facts_of_model(written, source)
        source = replace(source, facts=(*source.facts, *quoted), current=(*source.current, *quoted))
        summary, fidelity = self._compose(source, written, request.max_tokens, LayoutShares())
        return written, structs.replace(summary, parts=(*source.earlier, part)), fidelity

    def _compose(
        self, source: _Source, written: WrittenSummary, most: int, shares: LayoutShares
    ) -> tuple[Summary, Fidelity]:
        """The text; where it lost too much, it is repaired: facts get more of it, then all of it, and the best is kept.

        What remains of its tokens lists the most important names that it does not contain.
        """
        open_facts = [fact for fact in source.current if fact.open]
        said = [text for _, text in source.standing]
        shown = said_lines(source.beside)

        def measure(text: str) -> Fidelity:
            return measure_fidelity(text, open_facts, source.evidence, said, source.beside)

        first = 0.0
        best: tuple[str, Fidelity] | None = None
        for tried in (shares, favor_facts(shares), only_facts(shares)):
            limit = most - most // _FOR_NAMES
            lines = [line for line in written.lines if not is_said(line, shown)] if tried.earlier else ()
            text = fill_layout(self._layout(source, limit, tried), lines, limit, self._count)
            text = append_names(text, measure(text).missing_entities, most, self._count)
            fidelity = measure(text)
            if best is None:
                first = fidelity.score
            if best is None or fidelity.score > best[1].score:
                best = text, fidelity
            if best[1].score >= FIDELITY_GATE:
                break
        assert best is not None  # noqa: S101  # there are three tries
        summary = Summary(
            text=best[0],
            covered_until=source.covered_until,
            parts=source.earlier,
            facts=source.facts,
            files=source.files,
            said=source.said,
            evidence=source.evidence,
        )
        return summary, replace(best[1], first_score=first)

    def _layout(self, source: _Source, most: int, shares: LayoutShares) -> Layout:
        return lay_out(
            source.current,
            source.files,
            source.earlier,
            pointer=self._messages.pointer_of(MAX_SEQ).replace(str(MAX_SEQ), "N"),
            max_tokens=most,
            count=self._count,
            shares=shares,
            beside=source.beside,
        )

    def _source(self, evicted: Sequence[Unit], state: WindowState) -> _Source:
        seqs = sorted(seq for unit in evicted for seq in unit.seqs)
        before = state.summary or Summary(text="")
        # Messages that were evicted without a summary since then count too, and are read again. Messages that stay are
        # summarised when they are evicted.
        unread = self._unread(before.covered_until + 1, seqs[-1])
        facts = extract_facts(unread, before.facts)
        since = self._messages.views(seq for seq in state.messages if seq > seqs[-1])
        shown = state.messages.keys() - set(seqs)
        known = {(fact.seq, fact.text) for fact in facts if fact.seq not in shown}
        as_of_now = extract_facts(since, facts)
        current = tuple(fact for fact in as_of_now if (fact.seq, fact.text) in known)
        views = self._messages.views(seqs)
        said = (*before.said, *lasting_sentences(unread))[-_MAX_SAID:]
        closed = {(fact.seq, fact.text) for fact in as_of_now if not fact.open}
        return _Source(
            views=views,
            said=said,
            standing=tuple(sentence for sentence in said if sentence[0] not in shown and sentence not in closed),
            evidence=merge_evidence(before.evidence, salient_entities(views)),
            facts=facts,
            current=current,
            files=track_files(unread, before.files),
            earlier=self._aged(before.parts, state.turn),
            covered_until=max(seqs[-1], before.covered_until),
            goal=self._goal(state),
            turn=state.turn,
        )

    def _narrative(self, source: _Source, request: TextRequest, tokens: int) -> WrittenSummary:
        seqs = {view.seq for view in source.views}
        prefetched = self.prefetch.take(seqs) if self.prefetch and not request.focus else None
        if prefetched is None:
            return self.writer.write_narrative(source.views, goal=source.goal, focus=request.focus, tokens=tokens)
        written = prefetched.written
        rest = [view for view in source.views if view.seq not in prefetched.seqs]
        tokens -= sum(self._count(line) + 1 for line in written.lines)
        picked = extract_sentences(rest, goal=source.goal, tokens=max(tokens, 0), count=self._count)
        return structs.replace(written, lines=(*written.lines, *(bullet(found.text, found.seq) for found in picked)))

    def _delegated(self, source: _Source, request: TextRequest, tokens: int) -> WrittenSummary | None:
        if request.style != "delegated" or self._delegator is None:
            return None
        return self._delegator.narrative(source.views, goal=source.goal, focus=request.focus, max_tokens=tokens)

    def _shorten_results(self, plan: Plan, request: TextRequest, state: WindowState) -> ExecutedPlan:
        """Results are shortened by extraction already; a model may rewrite the largest, if that is not longer."""
        attempts: list[WriterAttempt] = []
        invented: list[str] = []
        results = {result.seq: result for result in plan.shortens}
        goal = self._goal(state)
        largest = sorted(results, key=lambda seq: (-state.cost(seq), seq))
        for seq in largest[: self.writer.rules.calls] if self.writer.has_model else ():
            size = state.messages[seq].tokens
            written = self.writer.shorten_result(
                self._messages.result_of(state, seq), goal=goal, max_tokens=request.max_tokens
            )
            if written is None:
                continue
            attempts += written.attempts
            invented += written.invented
            text = frame_summary("\n".join(written.lines), size, self._messages.pointer_of(seq))
            tokens = self._messages.cost_with(seq, text)
            if tokens <= results[seq].tokens:
                results[seq] = ShortenedResult(seq=seq, text=text, tokens=tokens)
        before = sum(state.cost(seq) for seq in results)
        after = sum(result.tokens for result in results.values())
        record = {
            "style": request.style,
            "engine": attempts[-1].engine if attempts else EXTRACTIVE,
            "attempts": [attempt.to_json() for attempt in attempts],
            "invented": invented[:20],
            "tokens_from": before,
            "tokens_to": after,
            "sources": ranges_of(sorted(results)),
            "generation": 1,
        }
        return ExecutedPlan(plan=structs.replace(plan, shortens=tuple(results.values())), record=record)

    def _parts_by_level(self, evicted: Sequence[Unit], state: WindowState) -> tuple[SummaryPart, ...]:
        """Each evicted exchange, at the level of detail for its age."""
        newest = max((unit.exchange for unit in units_of(state.messages.values())), default=0)
        exchanges: dict[int, list[int]] = {}
        for unit in evicted:
            exchanges.setdefault(unit.exchange, []).extend(unit.seqs)
        parts: list[SummaryPart] = []
        for number, seqs in sorted(exchanges.items()):
            age = newest - number
            level = level_for(age)
            chosen: Level = "key_points" if level == "full" else level
            text = render_level(self._messages.views(sorted(seqs)), chosen, self._count)
            parts.append(_part(min(seqs), max(seqs), chosen, state.turn - age, text))
        return tuple(parts)

    def _aged(self, parts: Sequence[SummaryPart], turn: int) -> tuple[SummaryPart, ...]:
        """Older ranges at the level for their age; a range that becomes shorter is rewritten from its messages."""
        aged = [self._shorter(part, turn) for part in parts]
        if len(aged) > _MAX_PARTS:
            joined = aged[: len(aged) - _MAX_PARTS + 1]
            first, last = joined[0].first, joined[-1].last
            text = self._title(first, last)
            aged[: len(joined)] = [_part(first, last, "title", joined[-1].turn, text)]
        return tuple(aged)

    def _title(self, first: int, last: int) -> str:
        """The title of a range. It is mostly the first request, so that a long range need not be read whole."""
        beginning = self._views(first, min(last, first + _TITLE_REACH - 1))
        return title_by_request(beginning, self._count) or self._at(self._views(first, last), "title")

    def _shorter(self, part: SummaryPart, turn: int) -> SummaryPart:
        level = level_for(turn - part.turn)
        target: Level = "key_points" if level == "full" else level
        if _RANK[target] <= _RANK[part.level]:
            return part
        views = self._views(part.first, part.last)
        if target == "key_points":
            lines = [
                f"{picked.text} ({picked.seq})"
                for picked in extract_sentences(views, tokens=_KEY_POINTS, count=self._count)
            ]
            return structs.replace(part, level=target, text="\n".join(bullet(line) for line in lines))
        return _part(part.first, part.last, target, part.turn, self._at(views, target))

    def _at(self, views: Sequence[MessageView], level: Level) -> str:
        return render_level(views, level, self._count) if views else ""

    def _unread(self, first: int, last: int) -> list[MessageView]:
        """Messages of the transcript, whether they are in the prompt or not."""
        return self._read(max(first, last - _FACT_REACH), last) if first <= last else []

    def _views(self, first: int, last: int) -> list[MessageView]:
        return self._read(first, min(last, first + _READ_AGAIN - 1))

    def _read(self, first: int, last: int) -> list[MessageView]:
        entries = self._store.read(self._session, first, last)
        return message_views(entry for entry in entries if entry.seq not in self._refused)

    def _goal(self, state: WindowState) -> str:
        return self._messages.goal_of(state)[:_GOAL]

    def _readable(self, plan: Plan, state: WindowState, text: str) -> list[str]:
        """All texts that are still in the prompt."""
        evicted = {seq for unit in plan.evicts for seq in unit.seqs}
        return [text, *(self._messages.text_of(seq) for seq in state.messages if seq not in evicted)]

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
        text = "\n".join(written.lines)
        missing = frozenset(missing_facts(summary.facts, summary.text))
        kept = [fact for fact in summary.facts if fact.open and fact not in missing]
        return {
            "style": plan.writes.style if plan.writes else "",
            "engine": written.engine,
            "attempts": [attempt.to_json() for attempt in written.attempts],
            "claims": written.claims,
            "invented": list(written.invented[:20]),
            "commands": written.commands,
            "from_ledger": len(missing_facts(kept, text)),
            "fidelity": {
                "score": round(fidelity.score, 4),
                "ledger": round(fidelity.ledger, 4),
                "entities": round(fidelity.entities, 4),
                "said": round(fidelity.said, 4),
                "before_repair": round(fidelity.first_score, 4),
                "missing_facts": fidelity.missing_facts,
                "missing_sentences": list(fidelity.missing_sentences),
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
"""Which facts the sections of a model may add, and whose messages they have to quote."""


def _facts_of_model(written: WrittenSummary, source: _Source) -> tuple[Fact, ...]:
    """The facts that a model found: only quotations from messages of a role that may state them."""
    known = {fact.text for fact in source.facts}
    facts: list[Fact] = []
    for line in written.lines if written.engine != EXTRACTIVE else ():
        section, _, quoted = line.removeprefix("- ").partition(": ")
        text = quoted.strip().strip("\"'“”`")
        if section not in _SECTION_KINDS or len(text) < _MIN_FACT_CHARS or text in known:
            continue
        kind, roles = _SECTION_KINDS[section]
        quotable = (view for view in reversed(source.views) if view.role in roles)
        source_view = next((view for view in quotable if text in " ".join(view.text.split())), None)
        if source_view is not None:
            facts.append(Fact(kind=kind, text=text, seq=source_view.seq, role=source_view.role))
    return tuple(facts[:_MAX_MODEL_FACTS])


def _part(first: int, last: int, level: Level, turn: int, text: str) -> SummaryPart:
    where = f"{first} to {last}" if first != last else str(first)
    lines = [bullet(f"{line} ({where})") for line in text.splitlines() if line.strip()]
    return SummaryPart(first=first, last=last, level=level, turn=turn, text="\n".join(lines))


@dataclass(frozen=True, slots=True)
class PrefetchedSummary:
    """What was written about some messages before they were evicted."""

    seqs: frozenset[int]
    written: WrittenSummary


class SummaryPrefetch:
    """One text that a model writes ahead of need, on a thread of its own. A text that is never taken is discarded."""

    def __init__(self, writer: SummaryWriter) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._prefetched: PrefetchedSummary | None = None
        self.idle = threading.Event()
        """Set while nothing is being written."""
        self.idle.set()

    def wants(self, seqs: Collection[int]) -> bool:
        """Whether a text about these should be started: nothing is being written, and too few of them are covered."""
        with self._lock:
            covered = self._prefetched.seqs if self._prefetched else frozenset()
            return self.idle.is_set() and not _covers(covered, seqs)

    def begin(self, views: Sequence[MessageView], *, goal: str, tokens: int) -> None:
        """Starts to write; one text at a time."""
        with self._lock:
            if not self.idle.is_set() or not views:
                return
            self.idle.clear()
        seqs = frozenset(view.seq for view in views)
        work = threading.Thread(
            target=self._write, args=(seqs, list(views), goal, tokens), name="recto writing ahead", daemon=True
        )
        work.start()

    def take(self, seqs: Collection[int]) -> PrefetchedSummary | None:
        """The text about these messages, if it covers most of them and no others."""
        with self._lock:
            prefetched = self._prefetched
            if prefetched is None or not prefetched.seqs <= set(seqs) or not _covers(prefetched.seqs, seqs):
                return None
            self._prefetched = None
            return prefetched

    def _write(self, seqs: frozenset[int], views: list[MessageView], goal: str, tokens: int) -> None:
        try:
            written = self._writer.write_narrative(views, goal=goal, focus="", tokens=tokens)
            # An extractive text takes a moment, and is better when made from everything that is evicted.
            if written.engine != EXTRACTIVE:
                with self._lock:
                    self._prefetched = PrefetchedSummary(seqs, written)
        finally:
            self.idle.set()


def _covers(covered: frozenset[int], seqs: Collection[int]) -> bool:
    return len(covered.intersection(seqs)) >= _PREFETCH_COVERAGE * max(len(seqs), 1)
