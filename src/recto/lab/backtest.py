"""What a recorded conversation comes to in a window: prompts, tokens, cache, money, decisions, and what was missed.

A prompt is judged where the model was asked; what it answered then is taken as it is. Which settings the window has is
not known here: whoever compares them opens a session for each and adds up what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from recto.context.window.cache_cost import cached_tokens, call_price
from recto.engine.prompt_builder import render_marker
from recto.engine.session import Session
from recto.errors import WindowOverflow
from recto.formats import read
from recto.formats.message import Message
from recto.health.regret import Regret, RegretTracker, merge_answer, mostly_quoted
from recto.lab.replay import replay
from recto.tokens.model_card import ModelCard
from recto.transcript.entries import Entry

if TYPE_CHECKING:
    from recto.engine.prompt_builder import Prompt, TurnNote


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTurn:
    """One time that the model was asked."""

    number: int
    """1, 2, 3, … in its session."""
    seq: int
    """The entry of the recording that answered."""
    tokens: int
    """Of the prompt; where it was refused, what it would have had."""
    room: int
    """What a prompt may have."""
    unchanged: int = 0
    """What stood at its beginning as in the prompt before."""
    broke: bool = False
    """Whether less than the whole prompt before stood there unchanged."""
    decisions: int = 0
    refused: bool = False
    """Whether what must not leave did not fit: then there was no prompt."""
    regret: Regret = field(default_factory=Regret)
    """What the answer needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """What it came to. Two of them can be added."""

    turns: int = 0
    """How often the model was asked."""
    over: int = 0
    """Prompts over what they may have: a window makes none, other ways of making prompts may."""
    refused: int = 0
    """Turns for which what must not leave did not fit: a typed error instead of a prompt."""
    tokens: int = 0
    """Of all prompts."""
    unchanged: int = 0
    """Of these, what stood unchanged at the beginning since the prompt before."""
    largest: int = 0
    decisions: int = 0
    picodollars: int | None = 0
    """What the prompts cost with unchanged beginnings cached; None where the model's prices are not known."""
    cache_read: int = 0
    """Tokens that are read from the provider's cache, and below those that are written to it at a price of their own;
    where there is no such price, they are plain input."""
    cache_write: int = 0
    breaks: int = 0
    """Prompts that changed something of the prompt before, rather than only going on from its end."""
    fetched_again: int = 0
    """Tool calls made again because the result had left or was shortened, and below those whose result was recalled."""
    fetched_met: int = 0
    referred: int = 0
    """Names and numbers that answers and questions took from messages that had left or were shortened, each once a
    turn, and below those that stood elsewhere in the prompt."""
    referred_met: int = 0
    entities_used: int = 0
    """Names and numbers in answers that were known from before, and below those that stood anywhere in the prompt."""
    entities_there: int = 0

    @property
    def share(self) -> float:
        """The share of all tokens that stood unchanged."""
        return self.unchanged / max(self.tokens, 1)

    @property
    def regret(self) -> int:
        """What was needed and did not stand whole any more."""
        return self.fetched_again + self.referred

    @property
    def met(self) -> int:
        """What of the regret stood in the prompt all the same: recalled, in a summary, a handoff or a placeholder."""
        return self.fetched_met + self.referred_met

    @property
    def missed(self) -> int:
        """What was needed and stood nowhere."""
        return self.regret - self.met

    @property
    def regret_rate(self) -> float:
        """Regret for each turn."""
        return self.regret / max(self.turns, 1)

    @property
    def survival(self) -> float:
        """The share of the known names and numbers in answers that stood in their prompts; 1 where none was used."""
        return self.entities_there / self.entities_used if self.entities_used else 1.0

    def with_turn(self, turn: ReplayedTurn, card: ModelCard | None) -> Backtest:
        """With one more turn. One that was refused sent nothing, and is judged in nothing else."""
        if turn.refused:
            return self + Backtest(turns=1, refused=1)
        fresh = turn.tokens - turn.unchanged
        cache_read, cache_write = cached_tokens(card, turn.unchanged, fresh)
        priced = card is not None and card.input_price is not None
        return self + Backtest(
            turns=1,
            over=int(turn.tokens > turn.room),
            tokens=turn.tokens,
            unchanged=turn.unchanged,
            largest=turn.tokens,
            decisions=turn.decisions,
            picodollars=call_price(card, turn.unchanged, fresh) if card is not None and priced else None,
            cache_read=cache_read,
            cache_write=cache_write,
            breaks=int(turn.broke),
            fetched_again=turn.regret.fetched_again,
            fetched_met=turn.regret.fetched_met,
            referred=turn.regret.referred,
            referred_met=turn.regret.referred_met,
            entities_used=turn.regret.entities_used,
            entities_there=turn.regret.entities_there,
        )

    def __add__(self, other: Backtest) -> Backtest:
        sums = {one: getattr(self, one) + getattr(other, one) for one in _ADDED}
        known = self.picodollars is not None and other.picodollars is not None
        return Backtest(
            **sums,
            largest=max(self.largest, other.largest),
            picodollars=(self.picodollars or 0) + (other.picodollars or 0) if known else None,
        )


_ADDED = tuple(one.name for one in fields(Backtest) if one.name not in ("largest", "picodollars"))


class _Course:
    """The turns of one session, as they come."""

    def __init__(self, session: Session, told: Callable[[ReplayedTurn], object]) -> None:
        self.tally = Backtest()
        self._session = session
        self._told = told
        self._needs = RegretTracker()
        self._whole: set[int] = set()
        """Messages that stood whole when the last prompt was made, and those said since."""
        self._sent: int | None = None
        """What the messages of the last prompt cost; None before there was one."""
        self._quoted: tuple[TurnNote | None, frozenset[int]] = None, frozenset()
        self._read: tuple[Entry, Message] | None = None
        """An answer is looked at twice: when it is judged, and when it is said."""

    def said(self, seq: int, entry: Entry) -> None:
        """A message is part of the session."""
        self._needs.add(seq, self._message(entry))
        self._whole.add(seq)

    def asked(self, prompt: Prompt | WindowOverflow, answers: Sequence[Entry]) -> None:
        """A prompt was made, and answered as it was then."""
        number, seq = self.tally.turns + 1, answers[0].seq
        if isinstance(prompt, WindowOverflow):
            turn = ReplayedTurn(number=number, seq=seq, tokens=prompt.tokens, room=prompt.room, refused=True)
        else:
            turn = ReplayedTurn(
                number=number,
                seq=seq,
                tokens=prompt.tokens,
                room=prompt.reading.room,
                unchanged=prompt.prefix,
                broke=self._sent is not None and prompt.prefix < self._sent,
                decisions=len(prompt.decisions),
                regret=self._judged(prompt, answers),
            )
            self._sent = sum(prompt.built.costs)
        self.tally = self.tally.with_turn(turn, self._session.window.rules.card)
        self._told(turn)

    def _judged(self, prompt: Prompt, answers: Sequence[Entry]) -> Regret:
        state, extras = self._session.window.state, self._session.window.builder.extras
        whole = {seq for seq in self._whole if seq in state.messages and seq not in state.shortened}
        self._needs.evict(self._whole - whole)
        self._whole = whole
        if self._quoted[0] is not extras.recalled:
            own = [hit for hit in prompt.recalled if hit.session == self._session.key]
            text = extras.recalled.text if extras.recalled is not None else ""
            self._quoted = extras.recalled, mostly_quoted({hit.seq: hit.text for hit in own}, text)
        beside = [extras.foreword, render_marker(state) if state.evicted_messages else ""]
        beside += [standing.text for standing in (extras.recalled, extras.handoff) if standing is not None]
        beside += [shrink.text for shrink in state.shortened.values()]
        answer = merge_answer([self._message(entry) for entry in answers])
        return self._needs.judge(answer, beside, self._quoted[1])

    def _message(self, entry: Entry) -> Message:
        if self._read is None or self._read[0] is not entry:
            self._read = entry, read(entry.content, entry.wire)
        return self._read[1]


def backtest(
    session: Session,
    entries: Iterable[Entry],
    advance: Callable[[int], object] = lambda by: None,
    turned: Callable[[ReplayedTurn], object] = lambda turn: None,
) -> Backtest:
    """Goes through a conversation in an empty session. `advance` is told of every entry, `turned` of every turn."""
    course = _Course(session, turned)
    replay(session, entries, advance, course.asked, course.said)
    return course.tally
