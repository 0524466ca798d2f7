"""Runs a session with known needs and probes each where it is due: is the answer readable in the prompt?

Prompts are built before every model call, or only for the probes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import process_time
from typing import TYPE_CHECKING, Literal, get_args

from recto.engine.session import Session
from recto.errors import WindowOverflow
from recto.formats import read
from recto.lab.readability import Case, Where
from recto.lab.replay import probe
from recto.transcript.entries import Draft

if TYPE_CHECKING:
    from recto.engine.prompt_builder import Prompt
    from recto.lab.readability import ProbeOutcome


NeedKind = Literal["exact", "preference", "correction", "decision", "file", "source", "cause"]
"""An exact value; a preference; a value that was corrected later; a decision with its reason; a value in a file that
was read; the source of a claim; the first cause in a series of alarms.
"""
NEED_KINDS: tuple[NeedKind, ...] = get_args(NeedKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A question that a turn asks, and what it needs."""

    kind: NeedKind
    turn: int
    """The turn whose user message is the question."""
    ask: str
    expect: tuple[str, ...]
    """Texts that must all be readable. They occur only in the entries below."""
    said_turn: int
    """The last turn that contains them."""
    entries: tuple[int, ...]
    """Numbers of the entries that contain them; one of these is enough."""
    outdated: tuple[str, ...] = ()
    """Values that were right before."""

    @property
    def distance(self) -> int:
        """Turns between the statement and the question."""
        return self.turn - self.said_turn

    @property
    def case(self) -> Case:
        """The need as a case for `probe`."""
        return Case(ask=self.ask, expect=tuple((text,) for text in self.expect))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTurn:
    """One turn of a simulated session: a user message and all that follows it."""

    number: int
    """Counted from 1."""
    first: int
    """The number of its first entry, in a session that holds nothing else."""
    drafts: tuple[Draft, ...]
    """Its messages, without token counts."""
    need: Need | None = None
    """What its user message asks for; that message is then the first draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCounts:
    """How many needs were met, and where. Two of them can be added."""

    asked: int = 0
    prompt: int = 0
    summary: int = 0
    recalled: int = 0

    @property
    def met(self) -> int:
        """Needs that were readable somewhere."""
        return self.prompt + self.summary + self.recalled

    @property
    def missed(self) -> int:
        """Needs that were readable nowhere."""
        return self.asked - self.met

    @property
    def share(self) -> float:
        """The share that was met; 1 if nothing was asked."""
        return self.met / self.asked if self.asked else 1.0

    @property
    def share_of_evicted(self) -> float:
        """The share met of what was no longer in the messages: the work of recall and summaries."""
        evicted = self.asked - self.prompt
        return (self.met - self.prompt) / evicted if evicted else 1.0

    def with_outcome(self, where: Where) -> ProbeCounts:
        """Returns the counts with one more need."""
        return self + ProbeCounts(
            asked=1, prompt=where == "prompt", summary=where == "summary", recalled=where == "recalled"
        )

    def __add__(self, other: ProbeCounts) -> ProbeCounts:
        return ProbeCounts(
            asked=self.asked + other.asked,
            prompt=self.prompt + other.prompt,
            summary=self.summary + other.summary,
            recalled=self.recalled + other.recalled,
        )


def total_counts(counts: Mapping[NeedKind, ProbeCounts]) -> ProbeCounts:
    """Sums the counts of all kinds."""
    return sum(counts.values(), ProbeCounts())


@dataclass(slots=True, kw_only=True)
class ProbeRun:
    """Measures of a run so far."""

    turns: int = 0
    entries: int = 0
    prompts: int = 0
    over: int = 0
    """Prompts over the input budget: there are none."""
    refused: int = 0
    """Prompts that were refused because the protected content did not fit."""
    tokens: int = 0
    """Tokens of all prompts."""
    largest: int = 0
    seconds: float = 0.0
    """Processor time to store messages and build prompts, without counting tokens and simulating."""
    fared: dict[NeedKind, ProbeCounts] = field(default_factory=dict)
    by_distance: dict[int, ProbeCounts] = field(default_factory=dict)
    """By upper bound of the distance in turns: 10, 100, and so on."""

    def note(self, need: Need, outcome: ProbeOutcome) -> None:
        """Adds a need."""
        below = 10 ** len(str(need.distance))
        self.fared[need.kind] = self.fared.get(need.kind, ProbeCounts()).with_outcome(outcome.where)
        self.by_distance[below] = self.by_distance.get(below, ProbeCounts()).with_outcome(outcome.where)


_NO_PLACES: Mapping[int, int] = {}


def run_probes(
    session: Session,
    turns: Iterable[SimulatedTurn],
    *,
    needs_only: bool = False,
    on_prompt: Callable[[Prompt | WindowOverflow], object] = lambda prompt: None,
    on_turn: Callable[[SimulatedTurn], object] = lambda turn: None,
) -> ProbeRun:
    """Runs the turns in a session that holds only what came before them.

    Args:
        needs_only: Build prompts only where a need is due, for long sessions; evictions then come in fewer and
            larger steps.
        on_prompt: Called with every prompt, or with the error if none fitted.
        on_turn: Called after every turn.
    """
    run = ProbeRun()
    for turn in turns:
        drafts = [with_tokens(session, draft) for draft in turn.drafts]
        started = process_time()
        if turn.need is not None:  # the question is the first message, and `probe` stores it
            run.note(turn.need, probe(session, turn.need.case, _NO_PLACES))
            drafts = drafts[1:]
        if needs_only:
            session.store.append(session.key, drafts)
        else:
            _feed(session, drafts, run, on_prompt, waiting=turn.need is not None)
        run.seconds += process_time() - started
        run.turns += 1
        run.entries += len(turn.drafts)
        on_turn(turn)
    return run


def _feed(
    session: Session,
    drafts: Iterable[Draft],
    run: ProbeRun,
    on_prompt: Callable[[Prompt | WindowOverflow], object],
    *,
    waiting: bool,
) -> None:
    """Stores messages, and builds a prompt before each response of the model."""
    for draft in drafts:
        if draft.role == "assistant" and waiting:
            prompt = _prompt(session)
            run.prompts += 1
            if isinstance(prompt, WindowOverflow):
                run.refused += 1
            else:
                run.over += prompt.tokens > prompt.reading.room
                run.tokens += prompt.tokens
                run.largest = max(run.largest, prompt.tokens)
            on_prompt(prompt)
        waiting = draft.role != "assistant"
        session.store.append(session.key, [draft])


def _prompt(session: Session) -> Prompt | WindowOverflow:
    try:
        return session.prompt()
    except WindowOverflow as error:
        return error


def with_tokens(session: Session, draft: Draft) -> Draft:
    """Returns a message with the session's token count."""
    tokens = session.meter.message(read(draft.content, draft.wire))
    return replace(draft, tokens=tokens, counter=session.meter.name)
