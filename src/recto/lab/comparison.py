"""Compares ways of keeping one session within a window, by five measures that are computed by rule.

The recording is replayed in each way, and the same prompts of all ways are examined. The measures say what prompts
contain; what a model would have answered is unknown. No model is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from recto.config.factory import make_indexer, make_meter, model_card, open_session
from recto.config.modes import make_budget
from recto.context.facts.claims import Evidence, find_claims, fold_words
from recto.context.facts.extraction import extract_facts
from recto.context.facts.types import Fact, MessageViewReader
from recto.context.policies.scorers import SCORERS
from recto.engine.audit import audit
from recto.errors import RectoError, WindowOverflow
from recto.formats import read
from recto.lab.baselines import OldestTrimmed, baseline_message, with_calls
from recto.lab.recordings import RecordingClock
from recto.lab.replay import replay, replay_steps
from recto.lab.variants import Variant
from recto.stores.memory import MemoryStore
from recto.text.lazy_re import lazy_re
from recto.transcript.audit import AuditFilter
from recto.transcript.entries import MESSAGE, Entry

if TYPE_CHECKING:
    from recto.engine.prompt_builder import Prompt
    from recto.engine.session import Session

MeasureName = Literal["facts", "reachable", "traceable", "corrections", "invented", "explained"]
MEASURES: Mapping[MeasureName, tuple[str, str]] = {
    "facts": (
        "factual retention",
        "Of the statements so far that still hold (extracted by rule), the share whose words are in the prompt.",
    ),
    "reachable": (
        "within recall",
        "Of those that are not in the last prompt, the share whose message is among the first 5 hits of a search for "
        "the first half of its words.",
    ),
    "traceable": (
        "source traceability",
        "Of the lines in summaries, working record and handoff, the share that names an entry which contains their "
        "names, numbers and most of their words.",
    ),
    "corrections": (
        "correction retention",
        "Of the user's corrections so far, the share that is in the prompt, with or instead of what it corrects.",
    ),
    "invented": (
        "hallucinated continuity",
        "Of those lines that contain names or numbers, the share with one that is in no message so far; less is "
        "better.",
    ),
    "explained": (
        "explainability",
        "Of the messages that are not in the prompt in full, the share for which the audit trail gives a decision with "
        "policy and reason, and with a score where the policy scores.",
    ),
}
"""Title and definition of each measure. `reachable` belongs to factual retention."""
EXAMINED = 8
"""Prompts of a session that are examined: evenly spaced, the last one included."""
_MAX_SEARCHED = 40
"""Statements that are searched for at the end."""
_HITS = 5
_MIN_WORDS = 0.6
"""Share of the words of a line that its entry has to contain."""
_POINTER = lazy_re(r" \((?:edited, )?(\d+)(?: to (\d+))?\)")
_CUT = lazy_re(r"\S*\s?(?:…|\.\.\.)\s?\S*")
"""Where a line was shortened: the words at both sides may be parts of words."""
_FRAME = lazy_re(r"^(?:not begun|begun|noted): | → ok$")
"""Words that Recto adds to a line."""
_NAMES = ("Files in them: ", "Names in them: ")


@dataclass(frozen=True, slots=True)
class Share:
    """A share as two counts. Two of them can be added."""

    part: int = 0
    total: int = 0

    @property
    def value(self) -> float | None:
        """From 0 to 1; None if there was nothing to count."""
        return self.part / self.total if self.total else None

    def __add__(self, other: Share) -> Share:
        return Share(self.part + other.part, self.total + other.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class WayMeasures:
    """One way in one window. Two of the same way can be added."""

    way: str
    window: int
    prompts: int = 0
    """Prompts that were built; those that did not fit are not among them."""
    tokens: int = 0
    """Tokens of all of them."""
    evicted: int = 0
    """Messages that were not in the last prompt in full."""
    outdated: int = 0
    """Corrected statements that were in an examined prompt without their correction."""
    shares: Mapping[MeasureName, Share] = field(default_factory=dict)
    lacking: tuple[str, ...] = field(default=(), repr=False)
    """Statements that still hold and are not in the last examined prompt."""

    def __add__(self, other: WayMeasures) -> WayMeasures:
        shares = {name: self.shares.get(name, Share()) + other.shares.get(name, Share()) for name in MEASURES}
        return replace(
            self,
            prompts=self.prompts + other.prompts,
            tokens=self.tokens + other.tokens,
            evicted=self.evicted + other.evicted,
            outdated=self.outdated + other.outdated,
            shares=shares,
            lacking=(*self.lacking, *other.lacking),
        )


class Recording:
    """A recorded session, with what its messages say as of each examined prompt."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = [entry for entry in entries if entry.kind == MESSAGE]
        calls = sum(bool(step.answers) for step in replay_steps(self.entries))
        self.examined = frozenset(-(-number * calls // EXAMINED) for number in range(1, EXAMINED + 1)) - {0}
        """Which model calls are examined, counted from 1."""
        self._known: dict[int, _Known] = {}
        self._reader = MessageViewReader()
        self._facts: tuple[Fact, ...] = ()
        self._texts: list[str] = []

    def known_before(self, seq: int) -> _Known:
        """What the messages before an entry say. Every way asks for the same entries, in order."""
        if seq not in self._known:
            entries = [entry for entry in self.entries[len(self._texts) :] if entry.seq < seq]
            messages = [read(entry.content, entry.wire) for entry in entries]
            views = [self._reader.view(entry.seq, message) for entry, message in zip(entries, messages, strict=True)]
            self._facts = extract_facts(views, self._facts)
            self._texts += [message.text for message in messages]
            self._known[seq] = _Known(self._facts, self._texts[:])
        return self._known[seq]


class _Known:
    """What the first messages of a recording say."""

    def __init__(self, facts: tuple[Fact, ...], texts: list[str]) -> None:
        self.facts = facts
        self._texts = texts

    @cached_property
    def _evidence(self) -> Evidence:
        return Evidence(self._texts)

    def supports(self, line: str) -> bool:
        """Whether every name and number of a line is in a message."""
        return all(map(self._evidence.supports, find_claims(line)))

    def has(self, name: str) -> bool:
        """Whether a message contains a name."""
        return any(name in text for text in self._texts)


def compare(
    entries: Sequence[Entry], variants: Iterable[Variant], advance: Callable[[int], object] = lambda by: None
) -> list[WayMeasures]:
    """Replays a recording in each way and measures it. `advance` is called with 1 for each entry of each way."""
    recording = Recording(entries)
    return [_measure(recording, variant, advance) for variant in variants]


def _measure(recording: Recording, variant: Variant, advance: Callable[[int], object]) -> WayMeasures:
    if variant.way.mode is None:
        return _measure_trimmed(recording, variant, advance)
    clock, settings = RecordingClock(), variant.settings
    with (
        closing(MemoryStore()) as store,
        closing(make_indexer(settings, store)) as indexer,
        closing(open_session(settings, store, indexer, clock=clock)) as session,
    ):
        examiner = _Examiner(recording, session, _empty(variant))
        replay(session, _timed(recording.entries, clock), advance, examiner.on_prompt, examiner.on_message)
        if settings.recall.enabled:
            indexer.catch_up(session.key)
            examiner.search()
    return replace(examiner.result, lacking=examiner.lacking)


def _empty(variant: Variant) -> WayMeasures:
    return WayMeasures(way=variant.way.name, window=model_card(variant.settings).window)


def _timed(entries: Iterable[Entry], clock: RecordingClock) -> Iterator[Entry]:
    for entry in entries:
        clock.reach(entry.ts)
        yield entry


class _Examiner:
    """Examines the prompts of a session while a recording is replayed in it."""

    def __init__(self, recording: Recording, session: Session, result: WayMeasures) -> None:
        self.result = result
        self._recording = recording
        self._session = session
        self._calls = 0
        self._texts: dict[int, str] = {}
        """Texts of the messages, by their entries in the replayed session."""
        self._results: set[int] = set()
        """Those that are tool results."""
        self._seqs: dict[int, int] = {}
        """Their entries in the replayed session, by those of the recording."""
        self._lacking: tuple[Fact, ...] = ()
        """Statements that are not in the last examined prompt."""
        self._grounded: dict[str, bool] = {}
        """Lines that were checked against the messages."""

    def on_message(self, seq: int, entry: Entry) -> None:
        self._texts[seq] = read(entry.content, entry.wire).text
        self._seqs[entry.seq] = seq
        if entry.role == "tool":
            self._results.add(seq)

    def on_prompt(self, prompt: Prompt | WindowOverflow, answers: Sequence[Entry]) -> None:
        self._calls += 1
        if isinstance(prompt, WindowOverflow):
            return
        self.result = replace(self.result, prompts=self.result.prompts + 1, tokens=self.result.tokens + prompt.tokens)
        if self._calls not in self._recording.examined:
            return
        known = self._recording.known_before(answers[0].seq)
        built = prompt.built
        text = "\n".join(read(raw, built.wire).text for raw in (*built.system, *built.messages))
        lines = list(_statements(self._written()))
        shares, self._lacking, outdated = retention(known.facts, text)
        shares["traceable"] = Share(sum(map(self._is_traceable, lines)), len(lines))
        shares["invented"] = self._invented(lines, known)
        evicted, shares["explained"] = self._explained()
        self.result = replace(
            self.result + WayMeasures(way="", window=0, shares=shares, outdated=outdated), evicted=evicted
        )

    @property
    def lacking(self) -> tuple[str, ...]:
        """The texts of these statements."""
        return tuple(fact.text for fact in self._lacking)

    def search(self) -> None:
        """Searches for what is not in the last prompt."""
        lacking = [fact for fact in self._lacking if fact.seq in self._seqs][-_MAX_SEARCHED:]
        found = sum(self._is_found(fact) for fact in lacking)
        self.result += WayMeasures(way="", window=0, shares={"reachable": Share(found, len(lacking))})

    def _is_found(self, fact: Fact) -> bool:
        words = fact.text.split()
        try:
            hits = self._session.recall(" ".join(words[: max(len(words) // 2, 3)]), most=_HITS).hits
        except RectoError:
            return False
        return any(hit.seq == self._seqs[fact.seq] for hit in hits)

    def _written(self) -> Iterator[str]:
        """The texts of the prompt that stand for messages."""
        state, extras = self._session.window.state, self._session.window.builder.extras
        if state.summary is not None:
            yield state.summary.text
        if state.record is not None:
            yield state.record.text
        if extras.handoff is not None:
            yield extras.handoff.text

    def _is_traceable(self, line: str) -> bool:
        named = {
            seq
            for pointer in _POINTER.finditer(line)
            for seq in self._sources(int(pointer[1]), int(pointer[2] or pointer[1]))
        }
        source = "\n".join(self._texts[seq] for seq in sorted(named))
        return bool(named) and contains(source, statement_of(line))

    def _sources(self, first: int, last: int) -> Iterator[int]:
        """The messages of a range, and the results of the calls in its last one."""
        for seq in self._texts:
            if seq > last and seq not in self._results:
                return
            if seq >= first:
                yield seq

    def _invented(self, lines: Sequence[str], known: _Known) -> Share:
        share = Share()
        for line in map(statement_of, lines):
            if not find_claims(line):
                continue
            if not self._grounded.get(line):  # what was in a message once still is
                self._grounded[line] = known.supports(line)
            share += Share(not self._grounded[line], 1)
        for name in self._named():
            if not self._grounded.get(name):
                self._grounded[name] = known.has(name)
            share += Share(not self._grounded[name], 1)
        return share

    def _named(self) -> Iterator[str]:
        """Names that the working record lists without a statement."""
        for text in self._written():
            for line in text.splitlines():
                title = next((title for title in _NAMES if line.startswith(title)), None)
                if title is not None:
                    yield from line.removeprefix(title).split()

    def _explained(self) -> tuple[int, Share]:
        state = self._session.window.state
        gone = [seq for seq in self._texts if seq not in state.messages or seq in state.shortened]
        explained = set[int]()
        for line in audit(self._session.store, self._session.key, AuditFilter(kinds=("decision",))):
            is_scored = bool(line.scores) or line.policy not in SCORERS
            if line.policy and line.reason and is_scored and line.undone_by is None:
                for first, last in (*line.entries, *line.shrunk):
                    explained.update(range(first, last + 1))
        return len(gone), Share(len(explained.intersection(gone)), len(gone))


def retention(facts: Sequence[Fact], text: str) -> tuple[dict[MeasureName, Share], tuple[Fact, ...], int]:
    """Factual and correction retention of a prompt's text, the statements it lacks, and the outdated ones it has."""
    words = f" {fold_words(text)} "
    present = {id(fact): f" {fold_words(fact.text)} " in words for fact in facts}
    held = [fact for fact in facts if fact.open]
    corrected = [fact for fact in facts if fact.superseded_by is not None]
    correcting = {fact.superseded_by for fact in corrected}
    corrections = [fact for fact in facts if fact.kind == "correction" or fact.seq in correcting]
    shown = {fact.seq for fact in corrections if present[id(fact)]}
    shares: dict[MeasureName, Share] = {
        "facts": Share(sum(present[id(fact)] for fact in held), len(held)),
        "corrections": Share(sum(present[id(fact)] for fact in corrections), len(corrections)),
    }
    outdated = sum(present[id(fact)] and fact.superseded_by not in shown for fact in corrected)
    return shares, tuple(fact for fact in held if not present[id(fact)]), outdated


def statement_of(line: str) -> str:
    """What a line states: without its bullet, its pointers, what Recto adds, and where it was shortened."""
    return _CUT.sub(" ", _FRAME.sub("", _POINTER.sub("", line.removeprefix("- ")).strip())).strip()


def contains(source: str, statement: str) -> bool:
    """Whether a source has every name and number of a statement, and most of its words."""
    evidence = Evidence([source])
    words = fold_words(statement).split()
    known = set(fold_words(source).split())
    if sum(word in known for word in words) < _MIN_WORDS * len(words):
        return False
    return all(evidence.supports(claim) or claim.text in source for claim in find_claims(statement))


def _statements(texts: Iterable[str]) -> Iterator[str]:
    """The lines of written texts that state something: each once."""
    yield from dict.fromkeys(line for text in texts for line in text.splitlines() if line.startswith("- "))


def _measure_trimmed(recording: Recording, variant: Variant, advance: Callable[[int], object]) -> WayMeasures:
    """Measures plain trimming: the prompt is what is left of the messages, and nothing replaces the others."""
    meter, card = make_meter(variant.settings), model_card(variant.settings)
    budget = make_budget(variant.settings.window, card).input_budget - meter.frame.prompt
    trimmed, result = OldestTrimmed(), _empty(variant)
    kept: dict[int, str] = {}
    evicted = 0
    for number, entry, is_called in with_calls(recording.entries):
        if is_called:
            sent = trimmed.prompt(budget)
            for seq in sent.evicted:
                evicted += kept.pop(seq, None) is not None
            result = replace(result, prompts=result.prompts + 1, tokens=result.tokens + sent.tokens, evicted=evicted)
            if number in recording.examined:
                facts = recording.known_before(entry.seq).facts
                shares, lacking, outdated = retention(facts, "\n".join(kept.values()))
                shares["explained"] = Share(0, evicted)
                # nothing of it can be searched
                reachable = Share(0, min(len(lacking), _MAX_SEARCHED))
                shares |= {"reachable": reachable} if number == max(recording.examined) else {}
                result += WayMeasures(way="", window=0, shares=shares, outdated=outdated)
                result = replace(result, lacking=tuple(fact.text for fact in lacking))
        message = read(entry.content, entry.wire)
        kept[entry.seq] = message.text
        trimmed.take(baseline_message(entry, meter.message(message)))
        advance(1)
    return result
