"""`fit`: one stateless call that prunes a list of messages, for programs that keep their own history.

Old messages are evicted anyway, so counting them is wasted: the list is walked from its end until the budget is full,
and everything before that is planned as one message. What was read of a list is kept for the next call with a longer
list (`_Memo`), which reads and counts only what is new.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast, get_args

from recto.context.policies.eviction import Prune
from recto.context.policies.planner import Relief, ReliefRules, plan_relief
from recto.context.window.plan import Policy
from recto.context.window.state import Protection, WindowState
from recto.context.window.units import WindowMessage
from recto.engine.prompt_builder import MessageCache, PromptBuilder, PromptExtras
from recto.errors import SettingsError
from recto.formats import DEFAULT_FORMAT, own_format
from recto.formats.message import fields_of
from recto.formats.response_objects import MessageLike, message_bytes
from recto.formats.tool_calls import NO_CALLS, ToolCallIds
from recto.tokens.meter import Meter
from recto.tokens.model_card import ModelCard
from recto.transcript.entries import Role
from recto.transcript.events import to_json

_log = logging.getLogger("recto.fit")
M = TypeVar("M", bound=MessageLike)
_MARKER = "[{count} earlier messages are not shown here, to keep within the context window.]"
_ALL = 2**62
"""More tokens than any list has: every message is counted."""
_MAX_ROUNDS = 40
_STEP = 0.875
"""Pruning goes to this share of the threshold, so that the next few messages fit without pruning again."""
_KEPT_LISTS = 8
"""Lists of messages that are remembered."""
_KEPT_BYTES = 32 * 1024 * 1024
"""Roughly how much of them is remembered in all."""


class FittedMessages(list[M]):
    """The messages that stay, and what is known of those that do not."""

    tokens: int = 0
    """What the messages cost, with tool schemas and the frame."""
    evicted: list[M]
    """The messages that left, in order."""
    policy: str = "prune"
    """What chose them."""
    freed: int = 0
    """Tokens that are freed; only after `evict`, because `fit` does not count all that leaves."""
    scores: Mapping[int, Mapping[str, float]]
    """Every part of the score of each message that left, by its place; only after `evict`."""

    def __init__(self, messages: Iterable[M] = ()) -> None:
        super().__init__(messages)
        self.evicted, self.scores = [], {}


def fit_messages(
    messages: Sequence[M],
    *,
    max_tokens: int,
    meter: Meter,
    tools: Sequence[Any] = (),
    threshold: float = 0.8,
    keep_turns: int = 3,
    card: ModelCard | None = None,
    marker: str = _MARKER,
) -> FittedMessages[M]:
    """Prunes the oldest messages, where all of them would fill more than `threshold` of `max_tokens`.

    Older images, documents and audio become lines of text where the provider would refuse so many or such large ones.

    Raises:
        WindowOverflow: The messages that must stay do not fit.
    """
    if max_tokens < 1 or not 0 < threshold <= 1 or keep_turns < 0:
        raise SettingsError("fit", "max_tokens is at least 1, threshold between 0 and 1, keep_turns not below zero")
    sent = list(messages)
    read = _MEMO.take(sent, meter)
    try:
        read.extend(sent)
        state, unread = read.state(ceil(threshold * max_tokens), keep_turns)

        def marker_of(state: WindowState) -> str:
            evicted = state.evicted_messages
            if unread is not None and unread.seq not in state.messages:
                evicted += unread.length - 1
            return marker.replace("{count}", f"{evicted:,}")

        builder = _builder(read, meter, tools, card, marker_of)
        relief = _relieve(state, builder, max_tokens, threshold, read.recent(keep_turns))
        if relief.after > max_tokens:
            raise builder.overflow(relief.state, max_tokens, stored=None)
        fitted = _fitted(sent, read, builder, relief.state, unread)
    finally:
        _MEMO.keep(read)
    if fitted.evicted:
        figures = len(fitted.evicted), len(sent), fitted.tokens, max_tokens
        _log.info("fit: %d of %d messages were pruned; the prompt has %d of %d tokens", *figures)
    return fitted


def evict_messages(
    messages: Sequence[M],
    *,
    free: int,
    policy: Policy,
    meter: Meter,
    tools: Sequence[Any] = (),
    keep_turns: int = 1,
    card: ModelCard | None = None,
    marker: str = _MARKER,
) -> FittedMessages[M]:
    """Evicts what a policy chooses, until `free` tokens are free or nothing more may leave."""
    if free < 0 or keep_turns < 0:
        raise SettingsError("evict", "free and keep_turns must not be below zero")
    sent, read = list(messages), _ReadList(meter)
    read.extend(sent)
    state, _ = read.state(_ALL, keep_turns)

    def marker_of(state: WindowState) -> str:
        return marker.replace("{count}", f"{state.evicted_messages:,}")

    builder = _builder(read, meter, tools, card, marker_of)
    before = builder.prompt_tokens(state)
    protection = Protection(min_recent_messages=read.recent(keep_turns), answered=False)
    scores: dict[int, Mapping[str, float]] = {}
    planned = state.copy()
    for _ in range(_MAX_ROUNDS):  # the marker costs tokens too
        need = builder.prompt_tokens(planned) - (before - free)
        plan = policy.plan(builder.view(planned, protection), need) if need > 0 else None
        if not plan:
            break
        planned.shorten(plan.shortens)
        planned.evict(seq for unit in plan.evicts for seq in unit.seqs)
        scores |= {seq - 1: plan.scores[unit.first] for unit in plan.evicts for seq in unit.seqs if plan.scores}
    if builder.prompt_tokens(planned) >= before:  # the marker would cost more than leaves
        planned, scores = state, {}
    fitted = _fitted(sent, read, builder, planned, None)
    fitted.policy, fitted.scores, fitted.freed = policy.name, scores, before - fitted.tokens
    if fitted.evicted:
        figures = len(fitted.evicted), len(sent), fitted.freed, fitted.tokens
        _log.info("evict: %d of %d messages were evicted and %d tokens freed; the prompt has %d", *figures)
    return fitted


def _builder(
    read: _ReadList,
    meter: Meter,
    tools: Sequence[Any],
    card: ModelCard | None,
    marker_of: Callable[[WindowState], str],
) -> PromptBuilder:
    schemas = meter.tools(to_json(tools).decode()) if tools else 0
    extras = PromptExtras(frame=meter.frame.prompt, tools=schemas)
    return PromptBuilder(messages=read.cache, marker_of=marker_of, extras=extras, card=card)


def _fitted(
    sent: list[M], read: _ReadList, builder: PromptBuilder, state: WindowState, unread: _Unread | None
) -> FittedMessages[M]:
    """The messages of a state as they were passed in, where they are sent unchanged."""
    built = builder.build(state)
    kept = {seq for seq in state.messages if unread is None or seq != unread.seq}
    originals = {read.cache.raws[seq]: sent[seq - 1] for seq in kept}
    as_bytes = bool(sent) and isinstance(sent[0], bytes)
    fitted: FittedMessages[M] = FittedMessages(
        originals[raw] if raw in originals else cast("M", raw if as_bytes else json.loads(raw))
        for raw in (*built.system, *built.messages)
    )
    fitted.tokens = built.tokens
    fitted.evicted = _between(sent, kept)
    return fitted


def _between(sent: list[M], kept: set[int]) -> list[M]:
    """The messages that do not stay: few do of a long list, so what is between them is copied in runs."""
    found, start = list[M](), 0
    for seq in sorted(kept):
        found += sent[start : seq - 1]
        start = seq
    return found + sent[start:]


def _relieve(state: WindowState, builder: PromptBuilder, max_tokens: int, threshold: float, recent: int) -> Relief:
    rules = ReliefRules(
        input_budget=max_tokens,
        ceiling=threshold,
        floor=threshold * _STEP,
        protection=Protection(min_recent_messages=recent, answered=False),
        policies=(Prune(),),
        clamp_protected=False,
    )
    return plan_relief(state, rules, builder)


_FEW = 64
"""Messages that are counted although they may not stay. Of more new ones than are known, the end is enough."""
_STAND_IN = DEFAULT_FORMAT.text_message("assistant", "[earlier messages]")
"""The bytes of placeholders for messages that are not read; they are never sent."""


class _Unread(NamedTuple):
    """The messages that are evicted without being counted, planned as one message."""

    seq: int
    """The number of the first of them."""
    length: int


_Structure: TypeAlias = "tuple[Role, str, ToolCallIds]"
"""The role, the format and the calls of a message."""
_PLAIN: dict[Any, _Structure] = {
    role: (role, DEFAULT_FORMAT.name, NO_CALLS) for role in get_args(Role) if role in ("system", "user", "assistant")
}
_PLAIN_ASSISTANT = _PLAIN["assistant"]


class _ReadList:
    """What is known of the messages of one list. Messages are numbered from 1.

    The role, the format and the calls of every message are read; its tokens are counted when they are needed.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.size = 0
        """Roughly the bytes that are held here."""
        self.can_be_kept = True
        self.sent: list[Any] = []
        """The messages themselves."""
        self._structures: list[_Structure] = []
        self._linked: dict[int, bytes] = {}
        """Messages whose results lack the ids of their calls, with these, by their place."""
        self._lines: dict[int, WindowMessage] = {}
        """Messages that were counted, by their place."""
        self._copies: dict[int, object] = {}
        """Copies of these, because a message can be changed where it is."""
        self._counted_from = 0
        """The place from which on all messages were counted; 0 before the first call."""
        self._sums = [0]
        """Tokens from that place up to each one behind it."""
        self.cache = MessageCache(meter=meter, pointer_of=_pointer_to, knows_parts=False)
        self._index_all()

    def common(self, sent: list[Any]) -> int:
        """How many messages a list has in common with this one at its beginning: those that are read and counted alike.

        Of messages that were not counted, only those that are other objects are compared: they are evicted anyway.
        """
        shorter = min(len(self.sent), len(sent))
        if not shorter or self.sent[0] != sent[0]:
            return 0
        # Most lists have grown. Every copy touches all messages, so none is made of what is compared as a whole.
        if (self.sent if shorter == len(self.sent) else self.sent[:shorter]) != sent[:shorter]:
            pairs = zip(self.sent, sent, strict=False)
            shorter = next(place for place, (ours, theirs) in enumerate(pairs) if ours != theirs)
        places = [place for place in self._copies if place < shorter]
        copies = [self._copies[place] for place in places]
        if copies != [sent[place] for place in places]:
            shorter = min(place for place in places if self._copies[place] != sent[place])
        return shorter

    def cut(self, length: int) -> None:
        """Forgets the messages behind a place."""
        if length == len(self.sent):
            return
        del self.sent[length:], self._structures[length:]
        self._linked = {place: raw for place, raw in self._linked.items() if place < length}
        cache, self.cache = self.cache, MessageCache(meter=self.meter, pointer_of=_pointer_to, knows_parts=False)
        for place, line in list(self._lines.items()):
            if place >= length:
                del self._lines[place], self._copies[place]
            else:
                self.cache.take(line.seq, line.id, cache.raws[line.seq], cache.wires[line.seq], line.tokens)
        del self._sums[max(length - self._counted_from, 0) + 1 :]
        self._index_all()

    def extend(self, sent: list[Any]) -> None:
        """Reads the messages that are new, and keeps the list. Raises `MalformedMessage` for what is no message."""
        known, self.sent = len(self.sent), sent
        try:
            for place in range(known, len(sent)):
                structure = self._read(sent[place], place)
                self._structures.append(structure)
                self._first_irregular += self._first_irregular == place
                if structure is not _PLAIN_ASSISTANT:
                    self._index(place, *structure)
        finally:
            del sent[len(self._structures) :]  # what could not be read

    def _read(self, message: Any, place: int) -> _Structure:  # noqa: ANN401  # whatever was passed in
        fields = message if type(message) is dict else fields_of(message_bytes(message))
        content = fields.get("content")
        self.size += 300 + (len(content) if isinstance(content, str | list) else 0)
        # Nearly all messages have one of two forms, which need not be examined further.
        if type(content) is str:
            if len(fields) == 2 + ("name" in fields) and (plain := _PLAIN.get(fields.get("role"))):
                return plain
            answered = fields.get("tool_call_id")
            if type(answered) is str and fields.get("role") == "tool" and "type" not in fields:
                return "tool", DEFAULT_FORMAT.name, ToolCallIds((), (answered,))
        if fields is message and _has_objects(fields):
            fields = fields_of(message_bytes(message))
        format = own_format(fields) or DEFAULT_FORMAT
        role = format.messages.role_of(fields)
        if format.link_results is not None and role == "tool":
            fields = self._with_ids(message_bytes(message), place, format.link_results)
        return role, format.name, format.validation.tool_call_ids(fields)

    def _with_ids(self, raw: bytes, place: int, link: Callable[[Sequence[bytes], bytes], bytes]) -> dict[str, Any]:
        """The members of a message with results, which are linked to their calls."""
        start = place
        while start and place - start < _FEW and self._structures[start - 1][0] != "assistant":
            start -= 1
        before = [self._linked.get(at) or message_bytes(self.sent[at]) for at in range(max(start - 1, 0), place)]
        linked = link(before, raw)
        if linked != raw:
            self._linked[place] = linked
        return fields_of(linked)

    def _index_all(self) -> None:
        self._users: list[int] = []
        self._systems: list[int] = []
        self._own_formats: set[str] = set()
        self._open_calls: dict[str, int] = {}
        """Calls without a result, with the place of their message."""
        self._first_irregular = len(self.sent)
        """Where a result without its call is, or a call whose id is in use: nothing behind it is planned as one."""
        self._tied: set[int] = set()
        """User messages between a call and its result."""
        for place, structure in enumerate(self._structures):
            self._index(place, *structure)

    def _index(self, place: int, role: Role, format: str, ids: ToolCallIds) -> None:
        if role == "user":
            self._users.append(place)
            if self._open_calls:
                self._tied.add(place)
        elif role == "system":
            self._systems.append(place)
        if format != DEFAULT_FORMAT.name:
            self._own_formats.add(format)
        if ids.calls or ids.answers:
            regular = True
            for answer in ids.answers:
                regular = self._open_calls.pop(answer, None) is not None and regular
            for call in ids.calls:
                regular = regular and call not in self._open_calls
                self._open_calls[call] = place
            if not regular:
                self._first_irregular = min(self._first_irregular, place)

    def recent(self, turns: int) -> int:
        """The number of messages in the last turns."""
        if not turns or not self._users:
            return 0
        return len(self.sent) - self._users[-min(turns, len(self._users))]

    def state(self, enough: int, keep_turns: int) -> tuple[WindowState, _Unread | None]:
        """The state to plan on: what costs enough alone, system messages and the task; the others as one message."""
        first = self._first_counted(enough, len(self.sent) - self.recent(keep_turns))
        kept = sorted(place for place in {*self._systems, *self._users[:1]} if place < first)
        if first <= len(kept) + 1:  # at most one could stand for others: its number would not show that any are missing
            first, kept = 0, []
        lines = [self._line(place) for place in (*kept, *range(first, len(self.sent)))]
        unread = None
        if first:
            hole = next((place for place, at in enumerate(kept) if place != at), len(kept))
            unread = _Unread(hole + 1, first - len(kept))
            wire = next(iter(self._own_formats), "")
            self.cache.raws.setdefault(unread.seq, _STAND_IN)
            # It is evicted first, like the messages that it replaces, and frees what it costs.
            lines.insert(hole, WindowMessage(seq=unread.seq, id="", role="assistant", tokens=enough, wire=wire))
        return WindowState.of(lines), unread

    def _first_counted(self, enough: int, latest: int) -> int:
        """The place from which everything is counted: an exchange begins there, nothing before it is tied to anything
        behind, and what is behind costs enough alone. 0: everything is."""
        if len(self._own_formats) > 1:
            return 0
        latest = min(latest, self._first_irregular, *self._open_calls.values())
        if (known := self._known_first(enough, latest)) is not None:
            return known
        tokens, unresolved = 0, set[str]()
        for place in range(len(self.sent) - 1, 0, -1):
            line = self._line(place)
            tokens += line.tokens
            unresolved.update(line.answers)
            unresolved.difference_update(line.calls)
            if tokens >= enough and place <= latest and line.role == "user" and not unresolved:
                self._sum_from(place)
                return place
        self._sum_from(1)
        return 0

    def _sum_from(self, first: int) -> None:
        """Notes that all messages from a place on were counted, so that the next call counts only what is new."""
        counted = (self._lines[place].tokens for place in range(first, len(self.sent)))
        self._counted_from, self._sums = first, list(accumulate(counted, initial=0))

    def _known_first(self, enough: int, latest: int) -> int | None:
        """What `_first_counted` returns, by what was counted for an earlier call; None if more has to be counted."""
        first, sums = self._counted_from, self._sums
        end = first + len(sums) - 1
        if self._first_irregular < len(self.sent) or not first or len(self.sent) - end > max(len(sums), _FEW):
            return None
        for place in range(end, len(self.sent)):
            sums.append(sums[-1] + self._line(place).tokens)
        for place in reversed(self._users):
            if place < first:
                break
            if sums[-1] - sums[place - first] >= enough and place <= latest and place not in self._tied:
                return place
        return 0 if first == 1 else None

    def _line(self, place: int) -> WindowMessage:
        line = self._lines.get(place)
        if line is None:
            message, wire = self.sent[place], self._structures[place][1]
            raw = self._linked.get(place) or message_bytes(message)
            try:
                copy = message if isinstance(message, bytes) else _copy(message)
            except _Opaque:
                copy, self.can_be_kept = None, False
            line = self.cache.take(place + 1, str(place + 1), raw, wire)
            self._lines[place], self._copies[place] = line, copy
            self.size += 2 * len(raw)
        return line


class _Memo:
    """The lists that were read last, for calls with the same list, grown or with another end. Thread-safe."""

    def __init__(self) -> None:
        self._lists: list[_ReadList] = []
        self._lock = threading.Lock()

    def take(self, sent: list[Any], meter: Meter) -> _ReadList:
        """Takes out a list that has half of its beginning in common with this one, cut to that; else a new one."""
        with self._lock:
            for place in range(len(self._lists) - 1, -1, -1):
                read = self._lists[place]
                common = read.common(sent) if _counts_alike(read.meter, meter) else 0
                if common and 2 * common >= min(len(read.sent), len(sent)):
                    del self._lists[place]
                    read.cut(common)
                    return read
        return _ReadList(meter)

    def keep(self, read: _ReadList) -> None:
        """Remembers a list, and forgets the oldest ones where there are too many."""
        if not read.can_be_kept or not read.sent:
            return
        with self._lock:
            self._lists.append(read)
            while len(self._lists) > _KEPT_LISTS or sum(kept.size for kept in self._lists) > _KEPT_BYTES:
                del self._lists[0]


_MEMO = _Memo()


_JSON_TYPES = frozenset((dict, list, str, int, float, bool, type(None)))


def _has_objects(fields: Mapping[str, Any]) -> bool:
    """Whether blocks or calls of a message are objects of a client, or have such as members."""
    for items in fields.values():
        if type(items) is not list:
            continue
        for item in items:
            values = item.values() if type(item) is dict else (item,)
            if not all(type(value) in _JSON_TYPES for value in values):
                return True
    return False


def _pointer_to(seq: int) -> str:
    return f"message {seq}"


def _counts_alike(meter: Meter, other: Meter) -> bool:
    return (meter.name, meter.images, meter.frame) == (other.name, other.images, other.frame)


class _Opaque(Exception):  # never leaves this module
    """A message holds a value whose JSON cannot be distinguished from an equal one's."""


def _copy(value: object) -> object:
    """A copy that is equal only to values with the same JSON."""
    if value is None or type(value) is str:
        return value
    if type(value) in (bool, int, float):
        return _Exact(value)
    if type(value) is list:
        return [_copy(element) for element in value]
    if type(value) is dict and all(type(name) is str for name in value):
        return _ExactDict({name: _copy(member) for name, member in value.items()})
    raise _Opaque


class _Exact:
    """A number or truth value that is equal to none of another type: `1`, `1.0` and `true` are not the same JSON."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self.value) and other == self.value

    def __repr__(self) -> str:
        return repr(self.value)


class _ExactDict(dict[str, object]):
    """A dict that is equal only to one with its members in the same order, which counters can tell apart."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and list(self) == list(other) and dict.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other
