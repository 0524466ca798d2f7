"""Metrics of one turn. A turn is measured when a prompt gets its answer.

Everything is derived from the transcript, so live metrics and metrics computed later from the stored entries are the
same. The composition of a prompt cannot be derived from messages alone; it is stored with the answer.
`recto.engine.monitor` reads the entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from inspect import signature
from typing import Any, Literal, Self, cast, get_args

from msgspec import Struct, field

from recto.context.window.budget import MIN_BASELINE_TURNS, VELOCITY_TURNS
from recto.context.window.report import PieceKind, PromptPiece

Direction = Literal["rising", "falling", "steady"]
Grade = Literal["critical", "degradation", "anomaly"]
AlertName = Literal["utilization", "evictions", "fidelity", "ratio", "bloat", "burn", "loop"]


class TurnHealth(Struct, frozen=True, kw_only=True):
    """The metrics of one turn."""

    turn: int
    """Turn number since measuring began in this transcript: 1, 2, 3, …"""
    seq: int
    """The entry of the answer."""
    ts: int
    model: str
    tokens: int
    """Tokens of the prompt."""
    room: int
    utilization: float
    evicted: int
    """Messages evicted since the previous turn."""
    freed: int
    """Tokens freed by decisions since the previous turn."""
    burn: int
    """Tokens added since the previous turn, including its answer."""
    burn_usual: float | None
    """Average of recent turns; None while unknown."""
    ratio: float | None
    """Compression ratio since the previous turn; None if nothing was compressed."""
    fidelity: float | None
    """Lowest fidelity score since the previous turn; None if nothing was scored."""
    bloat: float
    """The share of the input budget that tool results take."""
    loop: int
    """How many times in a row the last tool calls gave the same results; 0 without calls since the user's message."""
    prefix: float
    """The share of the prompt that is an unchanged prefix of the previous one."""
    recall_hits: int
    """Searches that recalled something; `recall_misses` counts those that did not."""
    recall_misses: int
    regret: int
    """Content evicted within the last turns and fetched or requested again."""
    index_lag: int
    """Entries not yet in the keyword index, as known to the measuring process; 0 before anything needed indexing."""
    protected: float
    """The share of the input budget that may not be evicted."""
    estimate_error: float | None
    """Relative error of our token count against the provider's: 0.1 means 10 % more; None if not reported."""
    cache_read: int
    """Prompt tokens that the provider read from its cache, as reported."""
    cache_write: int


class TurnMetric(Struct, frozen=True, kw_only=True):
    """How one metric of a turn is labelled, judged and exported. Trends, exporters, CLI and TUI read this table."""

    field: str
    """The field of `TurnHealth` that holds its value."""
    label: str
    """Its name on screens."""
    is_ratio: bool = False
    """Whether it is shown as a percentage."""
    worse: Direction | None = None
    """The direction in which it gets worse; None for a metric whose trend is not tracked."""
    attribute: str = ""
    """Its OpenTelemetry attribute; empty: not exported there."""
    prometheus: str = ""
    """Its Prometheus metric; empty: not exported there."""
    help: str = ""
    """The help text of the Prometheus metric."""
    buckets: tuple[float, ...] = ()
    """Histogram buckets in Prometheus; without any it is a counter."""


TOKEN_BUCKETS = tuple(float(4**power) for power in range(3, 12))
"""64 to 4,194,304: from a greeting to the largest context window."""
_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.95, 1.0)

TURN_METRICS = (
    TurnMetric(
        field="utilization",
        label="utilization",
        is_ratio=True,
        worse="rising",
        attribute="recto.utilization",
        prometheus="recto_utilization_ratio",
        help="Share of its room that a prompt takes.",
        buckets=_SHARES,
    ),
    TurnMetric(
        field="evicted",
        label="messages left",
        worse="rising",
        attribute="recto.messages.evicted",
        prometheus="recto_messages_evicted",
        help="Messages that left prompts.",
    ),
    TurnMetric(
        field="ratio",
        label="ratio",
        worse="falling",
        attribute="recto.compression.ratio",
        prometheus="recto_compression_ratio",
        help="How many times shorter text was made.",
        buckets=(1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0),
    ),
    TurnMetric(
        field="burn",
        label="tokens added",
        worse="rising",
        attribute="recto.tokens.burnt",
        prometheus="recto_burn_tokens",
        help="Tokens that came in since the turn before.",
        buckets=TOKEN_BUCKETS,
    ),
    TurnMetric(
        field="fidelity",
        label="fidelity",
        worse="falling",
        attribute="recto.fidelity",
        prometheus="recto_fidelity_ratio",
        help="How much of its sources a summary still tells.",
        buckets=(0.25, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0),
    ),
    TurnMetric(
        field="bloat",
        label="bloat",
        is_ratio=True,
        worse="rising",
        attribute="recto.tool_results.share",
        prometheus="recto_tool_result_ratio",
        help="Share of the input budget that tool results take.",
        buckets=_SHARES,
    ),
    TurnMetric(
        field="prefix",
        label="prefix",
        is_ratio=True,
        worse="falling",
        attribute="recto.cache.prefix",
        prometheus="recto_cache_prefix_ratio",
        help="Share of a prompt that stood unchanged at the beginning of the last.",
        buckets=_SHARES,
    ),
    TurnMetric(
        field="regret",
        label="regret",
        worse="rising",
        attribute="recto.regrets",
        prometheus="recto_regrets",
        help="Things that left and were soon fetched or asked for again.",
    ),
    TurnMetric(field="loop", label="repeated calls", attribute="recto.loop"),
    TurnMetric(field="index_lag", label="index lag", worse="rising", attribute="recto.index.lag"),
    TurnMetric(
        field="protected",
        label="protected",
        is_ratio=True,
        worse="rising",
        attribute="recto.protected",
        prometheus="recto_protected_ratio",
        help="Share of the input budget that is protected.",
        buckets=_SHARES,
    ),
    TurnMetric(
        field="estimate_error",
        label="estimate error",
        is_ratio=True,
        worse="rising",
        attribute="recto.estimate.error",
        prometheus="recto_estimate_error_ratio",
        help="How far the provider's count of a prompt was off ours: 0.1 is 10 % more.",
        buckets=(-0.5, -0.2, -0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    ),
    TurnMetric(
        field="recall_hits",
        label="recall hits",
        attribute="recto.recall.hits",
        prometheus="recto_recall_hits",
        help="Times that recall brought something back.",
    ),
    TurnMetric(
        field="recall_misses",
        label="recall misses",
        attribute="recto.recall.misses",
        prometheus="recto_recall_misses",
        help="Times that it found nothing relevant enough.",
    ),
    TurnMetric(field="turn", label="turn", attribute="recto.turn"),
    TurnMetric(field="room", label="input budget", attribute="recto.room"),
    TurnMetric(field="freed", label="tokens freed", attribute="recto.tokens.freed"),
)
"""Every metric of a turn. A new one is a field of `TurnHealth`, its computation, and a line here."""
METRICS_BY_FIELD = {metric.field: metric for metric in TURN_METRICS}


class SearchHealth(Struct, frozen=True, kw_only=True):
    """A search of the history that a program or a model asked for."""

    scope: str = "session"
    """What was searched: the session, those of its agent, of its tenant."""
    most: int
    """How many hits it may return."""
    hits: int = 0
    searched: int = 0
    """Messages that were searched."""
    began: int
    """Microseconds since 1970."""
    ended: int
    error: str = ""
    """The type of the error, where it failed."""


class Alert(Struct, frozen=True, kw_only=True):
    """A condition that needs attention: raised when it begins, ended when it is over."""

    name: AlertName
    grade: Grade
    session: str
    turn: int
    ts: int
    value: float
    threshold: float
    says: str
    """The problem, in one sentence."""
    action: str
    """What to do about it."""
    ended: bool = False


MAX_LOOP_CALLS = 4
"""The longest sequence of calls whose repetition is a loop: a call alone, two that alternate, a few parallel ones."""
MAX_EVICTIONS = 64
"""How many decisions, and how many repeated requests, are remembered to detect regret."""
_SORTED = json.JSONEncoder(sort_keys=True).encode
_DIGITS = 4
"""Ratios are rounded so that they survive a JSON round trip unchanged."""


class PromptComposition(Struct, frozen=True, kw_only=True):
    """The composition of a prompt, in tokens. Stored with the message that answers it."""

    tokens: int
    room: int
    prefix: int
    """Unchanged prefix of the previous prompt."""
    results: int
    """Tool results."""
    protected: int
    """What may not be evicted, tool schemas included."""
    recalled: int
    tools: int
    """Tool schemas."""
    lag: int
    """Entries not yet in the keyword index."""
    model: str
    system: int = 0
    """System text outside the messages of the session."""
    window: int = 0
    """The context window of the model."""
    reserve: int = 0
    """What was kept free for the answer."""
    wire: str = ""
    """The format of the messages."""
    reader: str = ""
    """The tool with which the model could look up evicted messages."""
    pieces: tuple[PromptPiece, ...] = ()
    """All of it, piece by piece."""

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        payload = {name: getattr(self, name) for name in _STORED_FIELDS}
        payload["pieces"] = [
            [piece.kind, piece.name, piece.tokens]
            if piece.raw is None
            else [piece.kind, piece.name, piece.tokens, piece.raw]
            for piece in self.pieces
        ]
        return payload

    @classmethod
    def from_json(cls, payload: object, *, pieces: bool = True) -> Self | None:
        """Parse the stored form, with its pieces or without; None for anything else stored under the same name."""
        if not isinstance(payload, Mapping):
            return None
        values: dict[str, Any] = {name: payload.get(name, default) for name, default in _STORED_FIELDS.items()}
        texts = [values.pop(name) for name in _STORED_TEXTS]
        if not all(isinstance(text, str) for text in texts):
            return None
        if all(type(number) is int and number >= 0 for number in values.values()):
            values |= zip(_STORED_TEXTS, texts, strict=True)
            return cls(**values, pieces=tuple(_pieces_in(payload.get("pieces"))) if pieces else ())
        return None


_STORED_FIELDS = {
    name: None if member.default is member.empty else member.default
    for name, member in signature(PromptComposition).parameters.items()
    if name != "pieces"
}
"""The members of the stored form besides the pieces, and what those mean that are missing."""
_STORED_TEXTS = ("model", "wire", "reader")
_PIECE_KINDS = frozenset(get_args(PieceKind))


def _pieces_in(payload: object) -> Iterable[PromptPiece]:
    """The pieces of a stored form, without those that are none."""
    for item in payload if isinstance(payload, list) else ():
        values: list[Any] = item if isinstance(item, list) else []
        if len(values) not in (3, 4) or not all(type(number) is int for number in values[2:]):
            continue
        kind, name, tokens, raw = (*values, None)[:4]
        if isinstance(kind, str) and kind in _PIECE_KINDS and isinstance(name, str):
            yield PromptPiece(kind=cast(PieceKind, kind), name=name, tokens=tokens, raw=raw)


def call_fingerprint(name: str, arguments: str) -> str:
    """Identify a tool call by its name and arguments, independent of JSON whitespace and key order."""
    with suppress(ValueError, RecursionError):  # not JSON: used verbatim
        arguments = _SORTED(json.loads(arguments))
    return _digest(name, arguments)


def _digest(*texts: str) -> str:
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


class EvictionRecord(Struct, frozen=True, kw_only=True):
    """What one decision evicted."""

    seq: int
    turn: int
    """Number of turns that had ended."""
    ranges: tuple[tuple[int, int], ...]
    """Evicted entries, as ranges."""
    calls: frozenset[str]
    """Fingerprints of the tool calls whose results are no longer visible."""


class CallRepetition(Struct):
    """Counts how often the last tool calls were repeated with the same results.

    A call alone counts, and so does a sequence of up to `MAX_LOOP_CALLS` calls. A user message starts over: what the
    user asks for again is no loop.
    """

    pending: dict[str, str] = field(default_factory=dict)
    """Fingerprints of the newest calls without a result, by call id."""
    recent: tuple[str, ...] = ()
    """The last calls with their results, newest first."""
    matched: tuple[int, ...] = (0,) * MAX_LOOP_CALLS
    """For each distance, how many of the last calls were the same as the one at that distance before."""

    @property
    def times(self) -> int:
        """How many times in a row the last calls gave the same results."""
        if not self.recent:
            return 0
        return max(1 + same // distance for distance, same in enumerate(self.matched, 1))

    def add_calls(self, calls: Mapping[str, str]) -> None:
        """Add the calls of an assistant message: fingerprints by call id."""
        if calls:
            self.pending = dict(calls)

    def add_result(self, call_id: str, text: str) -> None:
        """Add the result of a call."""
        call = self.pending.pop(call_id, None)
        if call is None:
            return
        result = _digest(call, text)
        self.matched = tuple(
            same + 1 if distance <= len(self.recent) and self.recent[distance - 1] == result else 0
            for distance, same in enumerate(self.matched, 1)
        )
        self.recent = (result, *self.recent)[:MAX_LOOP_CALLS]

    def reset(self) -> None:
        """Start over."""
        self.pending, self.recent, self.matched = {}, (), (0,) * MAX_LOOP_CALLS

    def to_state(self) -> list[Any]:
        """Serialise the state."""
        return [dict(self.pending), list(self.recent), list(self.matched)]

    def load_state(self, state: object) -> None:
        """Restore a serialised state; any other value starts over."""
        self.reset()
        with suppress(TypeError, ValueError):
            pending, recent, matched = cast(list[Any], state)
            if len(matched) == MAX_LOOP_CALLS:
                self.pending, self.recent, self.matched = dict(pending), tuple(recent), tuple(map(int, matched))


class _TurnTotals(Struct):
    """Totals since the previous turn."""

    burn: int = 0
    evicted: int = 0
    freed: int = 0
    tokens_from: int = 0
    tokens_to: int = 0
    fidelity: float | None = None
    hits: int = 0
    misses: int = 0
    regret: int = 0
    error: float | None = None
    cache_read: int = 0
    cache_write: int = 0


class TurnAccumulator(Struct):
    """Folds the entries of a session into the metrics of its turns. Its memory is bounded."""

    regret_turns: int = 10
    turn: int = 0
    """Number of turns that have ended."""
    last: int = 0
    """The entry that ended the last turn."""
    burns: tuple[int, ...] = ()
    """Growth of the last turns, without what the first one began with."""
    evictions: tuple[EvictionRecord, ...] = ()
    """Evictions of the last turns."""
    requested_again: tuple[str, ...] = ()
    """Evicted content that was already requested again: it counts once."""
    repetition: CallRepetition = field(default_factory=CallRepetition)
    _totals: _TurnTotals = field(default_factory=_TurnTotals)
    _at_last_turn: tuple[int, tuple[EvictionRecord, ...], tuple[str, ...], list[Any]] = 0, (), (), []
    """Tokens of the last answer, and `evictions`, `requested_again` and `repetition` as of that answer."""

    def add_message(self, tokens: int) -> None:
        """Count a message that ends no turn."""
        self._totals.burn += tokens

    def add_decision(self, eviction: EvictionRecord, freed: int) -> None:
        """Count an eviction or compression."""
        self._totals.evicted += sum(last - first + 1 for first, last in eviction.ranges)
        self._totals.freed += freed
        self.evictions = (*self.evictions, eviction)[-MAX_EVICTIONS:]

    def add_compression(self, before: int, after: int) -> None:
        """Count a compression."""
        self._totals.tokens_from += before
        self._totals.tokens_to += after

    def add_score(self, score: float) -> None:
        """Record the fidelity score of a summary or a prompt."""
        known = self._totals.fidelity
        self._totals.fidelity = score if known is None else min(known, score)

    def add_recall(self, seqs: Iterable[int]) -> None:
        """Count a search that recalled entries."""
        self._totals.hits += 1
        self.add_fetch(seqs)

    def add_recall_miss(self) -> None:
        """Count a search that recalled nothing."""
        self._totals.misses += 1

    def add_fetch(self, seqs: Iterable[int]) -> None:
        """Count entries brought back by recall or by hand."""
        for seq in seqs:
            if any(first <= seq <= last for eviction in self.evictions for first, last in eviction.ranges):
                self._regret(str(seq))

    def add_restore(self, decision: int) -> None:
        """Count a decision that was undone."""
        if any(eviction.seq == decision for eviction in self.evictions):
            self._totals.regret += 1
            self.evictions = tuple(eviction for eviction in self.evictions if eviction.seq != decision)

    def add_calls(self, fingerprints: Iterable[str]) -> None:
        """Count the tool calls of an assistant message."""
        for fingerprint in fingerprints:
            if any(fingerprint in eviction.calls for eviction in self.evictions):
                self._regret(fingerprint)

    def _regret(self, key: str) -> None:
        if key not in self.requested_again:
            self.requested_again = (*self.requested_again, key)[-MAX_EVICTIONS:]
            self._totals.regret += 1

    def add_usage(self, counted: int, reported: int, cache_read: int, cache_write: int) -> None:
        """Record the provider's token count of a prompt."""
        self._totals.error = round(reported / counted - 1, _DIGITS) if counted > 0 else None
        self._totals.cache_read += cache_read
        self._totals.cache_write += cache_write

    def end_turn(self, seq: int, ts: int, tokens: int, composition: PromptComposition) -> TurnHealth:
        """End a turn with the answer to a prompt, and return its metrics."""
        totals, self._totals = self._totals, _TurnTotals(burn=tokens)
        usual_burn = sum(self.burns) / len(self.burns) if len(self.burns) >= MIN_BASELINE_TURNS else None
        if self.turn:
            self.burns = (*self.burns, totals.burn)[-VELOCITY_TURNS:]
        self.turn, self.last = self.turn + 1, seq
        self.evictions = tuple(
            eviction for eviction in self.evictions if self.turn - eviction.turn <= self.regret_turns
        )
        self._at_last_turn = tokens, self.evictions, self.requested_again, self.repetition.to_state()
        return TurnHealth(
            turn=self.turn,
            seq=seq,
            ts=ts,
            model=composition.model,
            tokens=composition.tokens,
            room=composition.room,
            utilization=_ratio(composition.tokens, composition.room),
            evicted=totals.evicted,
            freed=totals.freed,
            burn=totals.burn,
            burn_usual=None if usual_burn is None else round(usual_burn, 1),
            ratio=round(totals.tokens_from / max(totals.tokens_to, 1), _DIGITS) if totals.tokens_from else None,
            fidelity=totals.fidelity,
            bloat=_ratio(composition.results, composition.room),
            loop=self.repetition.times,
            prefix=_ratio(composition.prefix, composition.tokens),
            recall_hits=totals.hits,
            recall_misses=totals.misses,
            regret=totals.regret,
            index_lag=composition.lag,
            protected=_ratio(composition.protected, composition.room),
            estimate_error=totals.error,
            cache_read=totals.cache_read,
            cache_write=totals.cache_write,
        )

    def to_state(self) -> dict[str, Any]:
        """Serialise the state as of the end of the last turn, for measuring to continue without earlier entries."""
        answer, evictions, requested_again, repetition = self._at_last_turn
        return {
            "after": self.last,
            "turn": self.turn,
            "answer": answer,
            "burns": list(self.burns),
            "gone": [[eviction.seq, eviction.turn] for eviction in evictions],
            "again": list(requested_again),
            "loop": repetition,
        }

    def load_state(self, state: Mapping[str, Any], evictions: Sequence[EvictionRecord]) -> None:
        """Restore a serialised state; `evictions` are the decisions it names."""
        self.turn, self.last, self.burns = state["turn"], state["after"], tuple(state["burns"])
        self.evictions, self.requested_again, self._totals = (
            tuple(evictions),
            tuple(state["again"]),
            _TurnTotals(burn=state["answer"]),
        )
        self.repetition.load_state(state.get("loop"))
        self._at_last_turn = state["answer"], self.evictions, self.requested_again, self.repetition.to_state()

    def reset(self) -> None:
        """Forget everything: the state before this point is unknown."""
        self.turn = self.last = 0
        self.burns, self.evictions, self.requested_again, self._totals = (), (), (), _TurnTotals()
        self.repetition.reset()


def _ratio(part: int, total: int) -> float:
    return round(part / total, _DIGITS) if total > 0 else float(part > 0)
