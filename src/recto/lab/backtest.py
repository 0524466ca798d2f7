"""Measures a recorded conversation in a window: prompts, tokens, cache, cost, decisions, and what was missed.

Every prompt is judged where the recorded model was called; the recorded response is appended unchanged. To compare
settings, open a session for each and add up the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from recto.context.window.budget import cached_tokens, call_price
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
    """One model call of the replay."""

    number: int
    """Counted from 1 in its session."""
    seq: int
    """The recorded entry with the response."""
    tokens: int
    """Size of the prompt; if it was refused, the size it would have had."""
    input_budget: int
    unchanged: int = 0
    """Tokens of its prefix that are the same as in the previous prompt."""
    broke: bool = False
    """Whether the prefix is shorter than the previous prompt."""
    decisions: int = 0
    refused: bool = False
    """Whether the protected content did not fit, so that there was no prompt."""
    regret: Regret = field(default_factory=Regret)
    """What the response needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Measures of a replay. Two of them can be added."""

    turns: int = 0
    """Model calls."""
    over: int = 0
    """Prompts over the input budget; a window produces none, baselines may."""
    refused: int = 0
    """Turns whose protected content did not fit: a typed error instead of a prompt."""
    tokens: int = 0
    """Tokens of all prompts."""
    unchanged: int = 0
    """Of these, tokens of prefixes that are the same as in the previous prompt."""
    largest: int = 0
    decisions: int = 0
    picodollars: int | None = 0
    """Cost of the prompts with unchanged prefixes cached; None if the model's prices are unknown."""
    cache_read: int = 0
    """Tokens read from the provider's cache, and below those written to it at a price of their own; without such a
    price, they are plain input.
    """
    cache_write: int = 0
    breaks: int = 0
    """Prompts that changed something of the previous prompt, rather than only extending it."""
    fetched_again: int = 0
    """Tool calls repeated after their result was evicted or trimmed, and below those whose result was recalled."""
    fetched_met: int = 0
    referred: int = 0
    """Names and numbers that answers and questions took from evicted or trimmed messages, each once per turn, and below
    those that were elsewhere in the prompt.
    """
    referred_met: int = 0
    entities_used: int = 0
    """Names and numbers in answers that were known from before, and below those that were anywhere in the prompt."""
    entities_there: int = 0

    @property
    def share(self) -> float:
        """The share of all tokens that were unchanged."""
        return self.unchanged / max(self.tokens, 1)

    @property
    def regret(self) -> int:
        """Needs for content that was no longer complete in the prompt."""
        return self.fetched_again + self.referred

    @property
    def met(self) -> int:
        """Of the regret, what was in the prompt all the same: recalled, or in a summary, handoff or placeholder."""
        return self.fetched_met + self.referred_met

    @property
    def missed(self) -> int:
        """Needs that nothing in the prompt met."""
        return self.regret - self.met

    @property
    def regret_rate(self) -> float:
        """Regret per turn."""
        return self.regret / max(self.turns, 1)

    @property
    def survival(self) -> float:
        """The share of the known names and numbers in answers that were in their prompts; 1 if none was used."""
        return self.entities_there / self.entities_used if self.entities_used else 1.0

    def with_turn(self, turn: ReplayedTurn, card: ModelCard | None) -> Backtest:
        """Returns the measures with one more turn. A refused turn sent nothing and counts only as refused."""
        if turn.refused:
            return self + Backtest(turns=1, refused=1)
        fresh = turn.tokens - turn.unchanged
        cache_read, cache_write = cached_tokens(card, turn.unchanged, fresh)
        priced = card is not None and card.input_price is not None
        return self + Backtest(
            turns=1,
            over=int(turn.tokens > turn.input_budget),
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
        sums = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        known = self.picodollars is not None and other.picodollars is not None
        return Backtest(
            **sums,
            largest=max(self.largest, other.largest),
            picodollars=(self.picodollars or 0) + (other.picodollars or 0) if known else None,
        )


_ADDED = tuple(measure.name for measure in fields(Backtest) if measure.name not in ("largest", "picodollars"))


class _BacktestRun:
    """Collects the measures of one session."""

    def __init__(self, session: Session, on_turn: Callable[[ReplayedTurn], object]) -> None:
        self.tally = Backtest()
        self._session = session
        self._on_turn = on_turn
        self._needs = RegretTracker()
        self._complete: set[int] = set()
        """Messages that were complete in the last prompt, and those appended since."""
        self._last_tokens: int | None = None
        """Tokens of the last prompt's messages; None before the first prompt."""
        self._quoted: tuple[TurnNote | None, frozenset[int]] = None, frozenset()
        self._last_read: tuple[Entry, Message] | None = None
        """The last message read: an answer is read twice, when it is judged and when it is appended."""

    def on_message(self, seq: int, entry: Entry) -> None:
        """Takes a message that was appended."""
        self._needs.add(seq, self._message(entry))
        self._complete.add(seq)

    def on_prompt(self, prompt: Prompt | WindowOverflow, answers: Sequence[Entry]) -> None:
        """Takes a prompt and the recorded response."""
        number, seq = self.tally.turns + 1, answers[0].seq
        if isinstance(prompt, WindowOverflow):
            turn = ReplayedTurn(number=number, seq=seq, tokens=prompt.tokens, input_budget=prompt.room, refused=True)
        else:
            turn = ReplayedTurn(
                number=number,
                seq=seq,
                tokens=prompt.tokens,
                input_budget=prompt.reading.room,
                unchanged=prompt.prefix,
                broke=self._last_tokens is not None and prompt.prefix < self._last_tokens,
                decisions=len(prompt.decisions),
                regret=self._judge(prompt, answers),
            )
            self._last_tokens = sum(prompt.built.costs)
        self.tally = self.tally.with_turn(turn, self._session.window.rules.card)
        self._on_turn(turn)

    def _judge(self, prompt: Prompt, answers: Sequence[Entry]) -> Regret:
        state, extras = self._session.window.state, self._session.window.builder.extras
        complete = {seq for seq in self._complete if seq in state.messages and seq not in state.shortened}
        self._needs.evict(self._complete - complete)
        self._complete = complete
        if self._quoted[0] is not extras.recalled:
            own = [hit for hit in prompt.recalled if hit.session == self._session.key]
            text = extras.recalled.text if extras.recalled is not None else ""
            self._quoted = extras.recalled, mostly_quoted({hit.seq: hit.text for hit in own}, text)
        other_texts = [extras.foreword, render_marker(state) if state.evicted_messages else ""]
        other_texts += [block.text for block in (extras.recalled, extras.handoff) if block is not None]
        other_texts += [shrink.text for shrink in state.shortened.values()]
        answer = merge_answer([self._message(entry) for entry in answers])
        return self._needs.judge(answer, other_texts, self._quoted[1])

    def _message(self, entry: Entry) -> Message:
        if self._last_read is None or self._last_read[0] is not entry:
            self._last_read = entry, read(entry.content, entry.wire)
        return self._last_read[1]


def backtest(
    session: Session,
    entries: Iterable[Entry],
    advance: Callable[[int], object] = lambda by: None,
    on_turn: Callable[[ReplayedTurn], object] = lambda turn: None,
) -> Backtest:
    """Replays a conversation in an empty session. Calls `advance` for every entry and `on_turn` for every turn."""
    run = _BacktestRun(session, on_turn)
    replay(session, entries, advance, run.on_prompt, run.on_message)
    return run.tally
