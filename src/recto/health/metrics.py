"""How well one turn went, in numbers. A turn is a prompt that got its answer.

Everything here is derived from the transcript: whatever was told while it happened can be told again from what is
stored, and is the same. What a prompt was made of cannot be seen from messages alone, so it is kept with its answer.
Which entries say what is not known here; `recto.engine.monitor` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any, Literal, Self

from recto.context.window.pressure import MIN_BASELINE_TURNS, VELOCITY_TURNS

Grade = Literal["critical", "degradation", "anomaly"]
AlertName = Literal["utilization", "evictions", "fidelity", "ratio", "bloat", "burn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnHealth:
    """The measures of one turn."""

    turn: int
    """Which one it is since measuring began in this transcript: 1, 2, 3, …"""
    seq: int
    """The entry that answered."""
    ts: int
    model: str
    tokens: int
    """What the prompt cost."""
    room: int
    utilization: float
    evicted: int
    """Messages that left since the turn before."""
    freed: int
    """Tokens that decisions freed since then."""
    burn: int
    """Tokens that came in since the turn before, its own answer included."""
    burn_usual: float | None
    """What turns added lately; None before that is known."""
    ratio: float | None
    """How many times shorter text was made since then; None where nothing was."""
    fidelity: float | None
    """The lowest score of what was written or judged since then; None where nothing was."""
    bloat: float
    """The share of the prompt that is tool results."""
    prefix: float
    """The share of the prompt that stood unchanged at the beginning of the one before."""
    recall_hits: int
    """How often something that had left came back for a question, and below how often nothing did."""
    recall_misses: int
    regret: int
    """What left within the last turns and was fetched or asked for again."""
    index_lag: int
    """Entries whose words are not indexed yet, as the process knew that asked; 0 before anything had to be."""
    protected: float
    """The share of the room that may not leave."""
    estimate_error: float | None
    """How far the provider's count was off ours: 0.1 is 10 % more; None where it told nothing."""
    cache_read: int
    """Prompt tokens that the provider read from its cache, as it told."""
    cache_write: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that should be looked at: raised when it begins, and ended when it is over."""

    name: AlertName
    grade: Grade
    session: str
    turn: int
    ts: int
    value: float
    threshold: float
    says: str
    """What is the matter, in one sentence."""
    action: str
    """What to do about it."""
    ended: bool = False


MOST_GONE = 64
"""Decisions, and things asked for again, that are remembered for regret."""
_SORTED = json.JSONEncoder(sort_keys=True).encode
_DIGITS = 4
"""Shares are rounded, so that they are the same numbers once written and read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptComposition:
    """What a prompt was made of, in tokens. Kept with the message that answers it."""

    tokens: int
    room: int
    prefix: int
    """Unchanged at the beginning, since the prompt before."""
    results: int
    """Tool results."""
    protected: int
    """What may not leave, schemas included."""
    recalled: int
    tools: int
    """Schemas."""
    lag: int
    """Entries whose words were not indexed."""
    model: str

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {name: getattr(self, name) for name in _MADE_OF}

    @classmethod
    def from_json(cls, about: object) -> Self | None:
        """What was kept; None for anything else that others may keep under the same name."""
        if not isinstance(about, Mapping):
            return None
        found: dict[str, Any] = {name: about.get(name) for name in _MADE_OF}
        *numbers, model = found.values()
        if isinstance(model, str) and all(type(number) is int and number >= 0 for number in numbers):
            return cls(**found)
        return None


_MADE_OF = tuple(one.name for one in fields(PromptComposition))


def call_mark(name: str, arguments: str) -> str:
    """What a tool call is recognised by when it is made again: its name and arguments, however they are spaced."""
    with suppress(ValueError, RecursionError):  # not JSON: then as it stands
        arguments = _SORTED(json.loads(arguments))
    said = f"{name}\0{arguments}".encode("utf-8", "surrogatepass")
    return blake2b(said, digest_size=6).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What one decision took away."""

    seq: int
    turn: int
    """How many turns had ended."""
    left: tuple[tuple[int, int], ...]
    """The entries, as ranges."""
    calls: frozenset[str]
    """Marks of the tool calls whose results nobody can see any more."""


@dataclass(slots=True)
class _Since:
    """What has happened since the turn before."""

    burn: int = 0
    evicted: int = 0
    freed: int = 0
    longer: int = 0
    shorter: int = 0
    fidelity: float | None = None
    hits: int = 0
    misses: int = 0
    regret: int = 0
    error: float | None = None
    cache_read: int = 0
    cache_write: int = 0


@dataclass(slots=True)
class Measures:
    """Folds what happens to a session into how its turns went. Its memory is bounded, whatever happens."""

    regret_turns: int = 10
    turn: int = 0
    """How many turns have ended."""
    last: int = 0
    """The entry that ended the last one."""
    burns: tuple[int, ...] = ()
    """What the last turns added, but not what the first one began with."""
    gone: tuple[Gone, ...] = ()
    """What left within the last turns."""
    again: tuple[str, ...] = ()
    """What of it was asked for again already: that counts once."""
    _since: _Since = field(default_factory=_Since)
    _ended: tuple[int, tuple[Gone, ...], tuple[str, ...]] = 0, (), ()
    """What the last answer cost, and `gone` and `again` as they were when it came."""

    def came_in(self, tokens: int) -> None:
        """A message was stored that ends no turn."""
        self._since.burn += tokens

    def decided(self, gone: Gone, freed: int) -> None:
        """Messages left, or became shorter."""
        self._since.evicted += sum(last - first + 1 for first, last in gone.left)
        self._since.freed += freed
        self.gone = (*self.gone, gone)[-MOST_GONE:]

    def compressed(self, before: int, after: int) -> None:
        """Something was made shorter."""
        self._since.longer += before
        self._since.shorter += after

    def scored(self, score: float) -> None:
        """A summary, or a prompt, was held against what it stands for."""
        known = self._since.fidelity
        self._since.fidelity = score if known is None else min(known, score)

    def recalled(self, seqs: Iterable[int]) -> None:
        """Entries came back for a question."""
        self._since.hits += 1
        self.fetched(seqs)

    def missed(self) -> None:
        """Nothing came back for a question."""
        self._since.misses += 1

    def fetched(self, seqs: Iterable[int]) -> None:
        """Entries were brought back, by recall or by hand."""
        for seq in seqs:
            if any(first <= seq <= last for gone in self.gone for first, last in gone.left):
                self._regret(str(seq))

    def restored(self, decision: int) -> None:
        """A decision was undone."""
        if any(gone.seq == decision for gone in self.gone):
            self._since.regret += 1
            self.gone = tuple(gone for gone in self.gone if gone.seq != decision)

    def called(self, marks: Iterable[str]) -> None:
        """The model called tools."""
        for mark in marks:
            if any(mark in gone.calls for gone in self.gone):
                self._regret(mark)

    def _regret(self, what: str) -> None:
        if what not in self.again:
            self.again = (*self.again, what)[-MOST_GONE:]
            self._since.regret += 1

    def reported(self, counted: int, reported: int, cache_read: int, cache_write: int) -> None:
        """The provider told what a prompt cost."""
        self._since.error = round(reported / counted - 1, _DIGITS) if counted > 0 else None
        self._since.cache_read += cache_read
        self._since.cache_write += cache_write

    def answered(self, seq: int, ts: int, tokens: int, made: PromptComposition) -> TurnHealth:
        """A prompt got its answer, and the turn is over."""
        since, self._since = self._since, _Since(burn=tokens)
        usual = sum(self.burns) / len(self.burns) if len(self.burns) >= MIN_BASELINE_TURNS else None
        if self.turn:
            self.burns = (*self.burns, since.burn)[-VELOCITY_TURNS:]
        self.turn, self.last = self.turn + 1, seq
        self.gone = tuple(gone for gone in self.gone if self.turn - gone.turn <= self.regret_turns)
        self._ended = tokens, self.gone, self.again
        return TurnHealth(
            turn=self.turn,
            seq=seq,
            ts=ts,
            model=made.model,
            tokens=made.tokens,
            room=made.room,
            utilization=_share(made.tokens, made.room),
            evicted=since.evicted,
            freed=since.freed,
            burn=since.burn,
            burn_usual=None if usual is None else round(usual, 1),
            ratio=round(since.longer / max(since.shorter, 1), _DIGITS) if since.longer else None,
            fidelity=since.fidelity,
            bloat=_share(made.results, made.tokens),
            prefix=_share(made.prefix, made.tokens),
            recall_hits=since.hits,
            recall_misses=since.misses,
            regret=since.regret,
            index_lag=made.lag,
            protected=_share(made.protected, made.room),
            estimate_error=since.error,
            cache_read=since.cache_read,
            cache_write=since.cache_write,
        )

    def carried(self) -> dict[str, Any]:
        """The state as of the end of the last turn, for who goes on from there without reading what was before."""
        answer, gone, again = self._ended
        return {
            "after": self.last,
            "turn": self.turn,
            "answer": answer,
            "burns": list(self.burns),
            "gone": [[one.seq, one.turn] for one in gone],
            "again": list(again),
        }

    def take_up(self, carried: Mapping[str, Any], gone: Sequence[Gone]) -> None:
        """Goes on from a state that was carried along; `gone` are the decisions it names."""
        self.turn, self.last, self.burns = carried["turn"], carried["after"], tuple(carried["burns"])
        self.gone, self.again, self._since = tuple(gone), tuple(carried["again"]), _Since(burn=carried["answer"])
        self._ended = carried["answer"], self.gone, self.again

    def begin_anew(self) -> None:
        """Forgets everything: nobody knows what was before."""
        self.turn = self.last = 0
        self.burns, self.gone, self.again, self._since = (), (), (), _Since()


def _share(part: int, whole: int) -> float:
    return round(part / whole, _DIGITS) if whole > 0 else float(part > 0)
