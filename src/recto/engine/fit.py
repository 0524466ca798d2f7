"""`fit`: one stateless call that prunes a list of messages, for programs that keep their own history.

Old messages are evicted anyway, so counting them is wasted: the list is walked from its end until the budget is full,
and everything before that is planned as one message. What was read of a list is kept for the next call with a longer
list (`_Memo`), which reads, counts and lays out only what is new: what is far from the place where the last call
pruned is planned as one message too.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple, TypeAlias, TypeVar, get_args

from recto.context.policies.eviction import Prune
from recto.context.policies.planner import Relief, ReliefRules, plan_relief
from recto.context.window.state import Protection, WindowState
from recto.context.window.units import Policy, WindowMessage
from recto.engine.arguments import (
    check_messages,
    check_number,
    refuse_only_empty,
    refuse_only_orphans,
    schemas_json,
)
from recto.engine.prompt_builder import BuiltPrompt, MessageCache, PromptBuilder, PromptExtras, PromptLines
from recto.errors import MalformedMessage
from recto.formats import DEFAULT_FORMAT, detect, own_format
from recto.formats import read as read_message
from recto.formats.arrangement import missing_results
from recto.formats.message import content_defect, fields_of, missing_content
from recto.formats.prompt_layout import LaidLine, LaidOut, PromptLayout
from recto.formats.response_objects import MessageLike, message_bytes
from recto.formats.tool_calls import NO_CALLS, ToolCallIds
from recto.tokens.meter import Meter
from recto.tokens.model_card import ModelCard
from recto.transcript.entries import Role

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
    policy: str = "prune"
    """What chose them."""
    freed: int = 0
    """Tokens that are freed; only after `evict`, because `fit` does not count all that leaves."""
    scores: Mapping[int, Mapping[str, float]]
    """Every part of the score of each message that left, by its place; only after `evict`."""

    def __init__(self, messages: Iterable[M] = (), evicted: _Evicted | None = None) -> None:
        super().__init__(messages)
        self.scores = {}
        self._left: _Evicted | list[M] = [] if evicted is None else evicted

    @property
    def evicted(self) -> list[M]:
        """The messages that left, in order."""
        if isinstance(self._left, _Evicted):  # of a long list nearly all, and few callers read them
            self._left = self._left.messages()
        return self._left

    @property
    def evicted_count(self) -> int:
        """How many messages left."""
        return len(self._left)


class _Evicted:
    """The messages of a list that do not stay."""

    def __init__(self, sent: list[Any], kept: set[int]) -> None:
        self._sent, self._kept = sent, kept
        self._length = len(sent)

    def __len__(self) -> int:
        return self._length - len(self._kept)

    def messages(self) -> list[Any]:
        """These messages: few of a long list stay, so what is between those is copied in runs."""
        found, start = list[Any](), 0
        for seq in sorted(self._kept):
            found += self._sent[start : seq - 1]
            start = seq
        return found + self._sent[start : self._length]


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
    What must stay and does not fit is cut to head and tail, as in a session: results, then the task and other
    protected messages, last the system text.

    Raises:
        WindowOverflow: The current question does not fit, even so.
        MalformedMessage: A message that a session would refuse.
        InputError: All messages are empty or tool results without their calls.
    """
    check_messages("'messages'", messages)
    check_number("max_tokens", max_tokens, "a number of at least 1", 1)
    check_number("threshold", threshold, "a number above 0 and at most 1", sys.float_info.min, 1)
    check_number("keep_turns", keep_turns, "a whole number, not below zero", 0, whole=True)
    sent = list(messages)
    read = _MEMO.take(sent, meter)
    try:
        read.extend(sent)
        schemas = meter.tools(schemas_json(tools).decode()) if tools else 0
        budget = _Budget(max_tokens, threshold, keep_turns)
        fitted = _fit(read, budget, schemas, card, marker) or _fit(read, budget, schemas, card, marker, whole=True)
        assert fitted is not None  # noqa: S101  # of a whole list there is always a prompt
    finally:
        _MEMO.keep(read)
    if pruned := fitted.evicted_count:
        figures = pruned, len(sent), fitted.tokens, max_tokens
        _log.info("fit: %d of %d messages were pruned; the prompt has %d of %d tokens", *figures)
    return fitted


def _markers_in(sent: Sequence[Any], marker: str) -> list[tuple[int, int]]:
    """The markers of earlier calls in a list that was fitted before, each with the number of messages that it replaces.

    A program that keeps the fitted list has one marker in it, behind the system text and the task.
    """
    before, _, after = marker.partition("{count}")
    found: list[tuple[int, int]] = []
    for seq, message in enumerate(sent[:_FEW], start=1):
        text = _plain_text(message, before)
        if text.startswith(before) and text.endswith(after):
            figure = text[len(before) : len(text) - len(after)].replace(",", "")
            if figure.isdecimal():
                found.append((seq, int(figure)))
    return found


def _plain_text(message: Any, beginning: str) -> str:  # noqa: ANN401  # a message as the caller has it
    """The text of a message that is a dict or bytes and holds one text; empty for any other."""
    if isinstance(message, bytes):
        message = fields_of(message) if beginning.encode() in message else None
    if not isinstance(message, dict):
        return ""
    parts = message.get("parts") or [{"text": message.get("content")}]
    text = parts[0].get("text") if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict) else None
    return text if isinstance(text, str) else ""


def _holds(span: _Span | None, seq: int) -> bool:
    return span is not None and span.seq <= seq < span.seq + span.length


class _Budget(NamedTuple):
    """What `fit` may keep."""

    max_tokens: int
    threshold: float
    keep_turns: int

    @property
    def enough(self) -> int:
        """Tokens from which on messages are pruned."""
        return ceil(self.threshold * self.max_tokens)


def _fit(
    read: _ReadList, budget: _Budget, schemas: int, card: ModelCard | None, marker: str, *, whole: bool = False
) -> FittedMessages[Any] | None:
    """The messages that stay. `None` if messages that were planned as one do not stay as they are."""
    planned = read.state(budget.enough, budget.keep_turns, whole=whole)
    unread, middle = planned.unread, planned.middle

    earlier = _markers_in(read.sent, marker)

    def marker_of(state: WindowState) -> str:
        evicted, unread_leaves = state.evicted_messages, unread is not None and unread.seq not in state.messages
        if unread is not None and unread_leaves:
            evicted += unread.length - 1
        for seq, count in earlier:
            stays = seq in state.messages or _holds(middle, seq) or (_holds(unread, seq) and not unread_leaves)
            evicted += 0 if stays else count - 1
        return marker.replace("{count}", f"{evicted:,}")

    builder = _builder(read, schemas, card, marker_of)
    relief = _relieve(planned.state, builder, budget, read.recent(budget.keep_turns))
    state = relief.state
    if not planned.holds(state) or (middle is not None and relief.after > budget.max_tokens):
        return None
    if relief.after > budget.max_tokens:
        raise builder.overflow(state, budget.max_tokens, stored=None)
    if middle is None:
        built = builder.build(state)
    else:
        lines = builder.lines(state)
        laid = read.laid_out(lines, middle)
        if laid is None:
            return None
        built = builder.build(state, lines, laid)
    kept = {seq for seq in state.messages if unread is None or seq != unread.seq}
    if middle is not None:
        kept.update(range(middle.seq, middle.seq + middle.length))
    read.note_kept(kept, budget.enough)
    return _fitted(read, built, kept)


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
    check_messages("'messages'", messages)
    check_number("free", free, "a number of tokens, not below zero", 0)
    check_number("keep_turns", keep_turns, "a whole number, not below zero", 0, whole=True)
    sent, read = list(messages), _ReadList(meter)
    read.extend(sent)
    state = read.state(_ALL, keep_turns, whole=True).state

    earlier = _markers_in(sent, marker)

    def marker_of(state: WindowState) -> str:
        evicted = state.evicted_messages + sum(count - 1 for seq, count in earlier if seq not in state.messages)
        return marker.replace("{count}", f"{evicted:,}")

    builder = _builder(read, meter.tools(schemas_json(tools).decode()) if tools else 0, card, marker_of)
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
    fitted: FittedMessages[M] = _fitted(read, builder.build(planned), set(planned.messages))
    fitted.policy, fitted.scores, fitted.freed = policy.name, scores, before - fitted.tokens
    if fitted.evicted:
        figures = len(fitted.evicted), len(sent), fitted.freed, fitted.tokens
        _log.info("evict: %d of %d messages were evicted and %d tokens freed; the prompt has %d", *figures)
    return fitted


def _builder(
    read: _ReadList, schemas: int, card: ModelCard | None, marker_of: Callable[[WindowState], str]
) -> PromptBuilder:
    extras = PromptExtras(frame=read.meter.frame.prompt, tools=schemas)
    return PromptBuilder(messages=read.cache, marker_of=marker_of, extras=extras, card=card)


def _fitted(read: _ReadList, built: BuiltPrompt, kept: set[int]) -> FittedMessages[Any]:
    """The messages of a prompt as they were passed in, where they are sent unchanged."""
    if not built.messages:
        refuse_only_orphans(built.arrangement, "Pass")
        refuse_only_empty(len(read.sent), built.system)
    sent, raws = read.sent, read.cache.raws
    originals = {raws[seq]: sent[seq - 1] for seq in sorted(kept) if seq - 1 not in read.repaired}
    as_bytes = bool(sent) and isinstance(sent[0], bytes)
    fitted: FittedMessages[Any] = FittedMessages(
        [
            originals[raw] if raw in originals else raw if as_bytes else json.loads(raw)
            for raw in (*built.system, *built.messages)
        ],
        _Evicted(sent, kept),
    )
    fitted.tokens = built.tokens
    return fitted


def _relieve(state: WindowState, builder: PromptBuilder, budget: _Budget, recent: int) -> Relief:
    rules = ReliefRules(
        input_budget=budget.max_tokens,
        ceiling=budget.threshold,
        floor=budget.threshold * _STEP,
        protection=Protection(min_recent_messages=recent, answered=False),
        policies=(Prune(),),
    )
    return plan_relief(state, rules, builder)


_FEW = 64
"""Messages that are counted although they may not stay. Of more new ones than are known, the end is enough."""
_STAND_IN = DEFAULT_FORMAT.text_message("assistant", "[earlier messages]")
"""The bytes of placeholders for messages that are not read; they are never sent."""


_MANY = 32
"""Messages from which on it pays to plan them as one."""
_MARGIN, _MARGIN_TOKENS = 0.04, 2_000
"""By how much the tokens that stay are assumed to differ from those of the last call: a share of these, and some more
because whole exchanges leave."""


class _Span(NamedTuple):
    """Messages that are planned as one."""

    seq: int
    """The number of the first of them."""
    length: int


class _Planned(NamedTuple):
    """What a plan is made on."""

    state: WindowState
    unread: _Span | None
    """Messages before all others that are evicted without being counted."""
    middle: _Span | None
    """Counted messages between the oldest and the newest ones, of which all are assumed to stay."""
    first_behind: int
    """The number of the first message behind the unread ones."""

    def holds(self, state: WindowState) -> bool:
        """Whether a plan that leads to this state is that for all messages, each by itself.

        The oldest leave first. So what is assumed to leave does if something behind it leaves too, and what is assumed
        to stay does if it stays as a whole.
        """
        if self.middle is None:
            return True
        reached = self.unread is None or self.first_behind not in state.messages
        return reached and self.middle.seq in state.messages


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
        self.repaired: set[int] = set()
        """Messages that are sent with other bytes, because half of a surrogate pair is in them, by their place."""
        self._lines: dict[int, WindowMessage] = {}
        """Messages that were counted, by their place."""
        self._copies: dict[int, object] = {}
        """Copies of these, because a message can be changed where it is."""
        self._compared_from = 0
        """The place from which on messages were compared with their copies for this call."""
        self._first = 0
        """The place from which on the last call planned messages one by one; 0: all of them."""
        self._counted_from = 0
        """The place from which on all messages were counted; 0 before the first call."""
        self._sums = [0]
        """Tokens from that place up to each one behind it."""
        self._stayed = 0, 0
        """The tokens above which the last call pruned, and those of the messages at the end that stayed."""
        self._layout: PromptLayout | None = None
        """The messages from a place on, laid out; it only grows."""
        self._laid_from = 0
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
        # What lies before is evicted; a call that needs it after all compares it then.
        self._compared_from = self._first
        places = [*self._head(self._first), *range(self._first, shorter)]
        return self._first_changed([place for place in places if place < shorter], sent, shorter)

    def _head(self, first: int) -> list[int]:
        """The places before this one whose messages are planned one by one: system messages and the task, which stay,
        and messages with calls that have no result, for which one is synthesised until they are evicted."""
        places = {*self._systems, *self._users[:1], *self._open_calls.values()}
        return sorted(place for place in places if place < first)

    def _first_changed(self, places: Iterable[int], sent: list[Any], none: int) -> int:
        """The first of these places whose message is not as it was counted; `none` if all are."""
        counted = [place for place in places if place in self._copies]
        copies, messages = [self._copies[place] for place in counted], _members([sent[place] for place in counted])
        if copies == messages:
            return none
        pairs = zip(counted, copies, messages, strict=True)
        return next(place for place, copy, message in pairs if copy != message)

    def cut(self, length: int) -> None:
        """Forgets the messages behind a place."""
        if length == len(self.sent):
            return
        self.sent = self.sent[:length]  # another list: earlier results refer to the one before
        del self._structures[length:]
        self._linked = {place: raw for place, raw in self._linked.items() if place < length}
        self.repaired = {place for place in self.repaired if place < length}
        cache, self.cache = self.cache, MessageCache(meter=self.meter, pointer_of=_pointer_to, knows_parts=False)
        for place, line in list(self._lines.items()):
            if place >= length:
                del self._lines[place], self._copies[place]
            else:
                self.cache.take(line.seq, line.id, cache.raws[line.seq], cache.wires[line.seq], line.tokens)
        del self._sums[max(length - self._counted_from, 0) + 1 :]
        self._layout, self._stayed = None, (0, 0)
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
        except MalformedMessage as error:
            which = f"message {len(self._structures) + 1} of {len(sent)}"
            raise MalformedMessage(f"{error.reason.removesuffix('.')} ({which})") from None
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
        if wrong := content_defect(fields) or _lacks_content(fields, role):
            raise MalformedMessage(wrong)
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
        elif role == "system":
            self._systems.append(place)
        if format != DEFAULT_FORMAT.name:
            self._own_formats.add(format)
        if ids.calls or ids.answers:
            regular = True
            for answer in ids.answers:
                call_place = self._open_calls.pop(answer, None)
                regular = call_place is not None and regular
                if call_place is not None and self._users and self._users[-1] > call_place:
                    self._tied.update(self._users[bisect_left(self._users, call_place) :])
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

    def state(self, enough: int, keep_turns: int, *, whole: bool = False) -> _Planned:
        """The state to plan on: what costs enough alone, and the head of the list; the others as one message.

        Unless the `whole` is wanted, what is likely to stay as it is is one message too.
        """
        first = self._first_counted(enough, len(self.sent) - self.recent(keep_turns))
        if first <= len(self._head(first)) + 1:  # the number of one replaced message would not show that it is missing
            first = 0
        changed = self._first_changed(range(first, self._compared_from), self.sent, len(self.sent))
        if changed < len(self.sent):
            sent = self.sent
            self.cut(changed)
            self.extend(sent)
            return self.state(enough, keep_turns, whole=whole)
        self._first = self._compared_from = first
        behind = self._boundary(first, 1) if first and self._is_known(enough) else first
        middle = None if whole or not self._is_known(enough) else self._middle(behind, keep_turns)
        return self._planned(first if middle is None else behind, middle, enough)

    def _planned(self, first: int, middle: _Span | None, enough: int) -> _Planned:
        head, own = self._head(first), next(iter(self._own_formats), "")
        lines = [self._without_results(self._line(place)) for place in head]
        if middle is None:
            lines += map(self._line, range(first, len(self.sent)))
        else:
            begin, end = middle.seq - 1, middle.seq - 1 + middle.length
            lines += map(self._line, range(first, begin))
            tokens = self._tokens_of(begin, end, own)
            lines.append(WindowMessage(seq=middle.seq, id="", role="user", tokens=tokens, wire=own))
            lines += map(self._line, range(end, len(self.sent)))
        unread = None
        if first:
            hole = next((place for place, at in enumerate(head) if place != at), len(head))
            unread = _Span(hole + 1, first - len(head))
            self.cache.raws.setdefault(unread.seq, _STAND_IN)
            # It is evicted first, like the messages that it replaces, and frees what it costs.
            lines.insert(hole, WindowMessage(seq=unread.seq, id="", role="assistant", tokens=enough, wire=own))
        return _Planned(WindowState.of(lines), unread, middle, first + 1)

    def _is_known(self, enough: int) -> bool:
        """Whether the last call had the same budget, and nothing in the list has to be looked at as a whole."""
        counted = self._counted_from + len(self._sums) - 1 if self._counted_from else 0
        return (
            self._stayed[0] == enough
            and counted == len(self.sent) == self._first_irregular
            and not self.cache.media
            and not self.cache.cache_marked
        )

    def _boundary(self, first: int, sign: int) -> int:
        """The last place from which on messages cost what stayed at the last call and a margin, or less a margin: an
        exchange begins there, and nothing before is tied to anything behind. `first` if there is none behind that."""
        start, sums, users = self._counted_from, self._sums, self._users
        most = sums[-1] - self._stayed[1] - sign * (_MARGIN * self._stayed[1] + _MARGIN_TOKENS)
        place = bisect_right(users, bisect_right(sums, most) - 1 + start) - 1
        while place >= 0 and users[place] > first and users[place] in self._tied:
            place -= 1
        return max(users[place], first) if place >= 0 else first

    def _middle(self, first: int, keep_turns: int) -> _Span | None:
        """Exchanges behind those that may be pruned and before those that are protected."""
        begin = self._boundary(max(first, self._counted_from), -1)
        end = min(len(self.sent) - self.recent(keep_turns), self._users[-1] if self._users else 0)
        is_plain = self._is_apart(begin) and self._is_apart(end) and self._users[:1] < [begin] > self._systems[-1:]
        return _Span(begin + 1, end - begin) if is_plain and end - begin >= _MANY else None

    def _is_apart(self, place: int) -> bool:
        """Whether an exchange begins here, and nothing before is tied to anything behind."""
        at = bisect_left(self._users, place)
        return at < len(self._users) and self._users[at] == place and place not in self._tied

    def _tokens_of(self, begin: int, end: int, wire: str) -> int:
        """What counted messages cost, with the results that are synthesised for their calls."""
        tokens = self._sums[end - self._counted_from] - self._sums[begin - self._counted_from]
        for place in {place for place in self._open_calls.values() if begin <= place < end}:
            missing = missing_results([self._without_results(self._line(place))])
            tokens += self.cache.synthetic_cost(missing, wire or DEFAULT_FORMAT.name)
        return tokens

    def _without_results(self, line: WindowMessage) -> WindowMessage:
        """A message with those of its calls that have no result."""
        if not line.calls:
            return line
        missing = [(call, tool) for call, tool in missing_results([line]) if call in self._open_calls]
        return line._replace(
            calls=tuple([call for call, _ in missing]), answers=(), tools=tuple([tool for _, tool in missing])
        )

    def note_kept(self, kept: set[int], enough: int) -> None:
        """Notes what stays of the list, for the next call."""
        first, start = self._first, self._counted_from
        oldest = min([seq for seq in kept if seq > max(first, start)], default=len(self.sent) + 1) - 1
        self._stayed = enough, self._sums[-1] - self._sums[oldest - start] if start else 0

    def laid_out(self, lines: PromptLines, middle: _Span) -> LaidOut | None:
        """The prompt of a plan, with all messages of the middle; `None` if it has to be laid out as a whole."""
        begin = middle.seq - 1
        reply = next(place for place in range(begin, len(self.sent) + 1) if self._is_reply(place))
        if reply == len(self.sent):
            return None
        layout = self._layout_from(begin, lines.wire)
        pruned = lines.seqs[: lines.seqs.index(middle.seq)]
        return layout.laid_behind([*map(lines.laid, pruned), *map(self._laid, range(begin, reply))], reply + 1)

    def _is_reply(self, place: int) -> bool:
        return place == len(self.sent) or self._line(place).role == "assistant"

    def _layout_from(self, begin: int, wire: str) -> PromptLayout:
        """The layout of the messages from a place on, and of some before it."""
        layout, count = self._layout, len(self.sent)
        if layout is None or layout.wire != wire or not 0 <= begin - self._laid_from <= count - begin:
            layout = PromptLayout(wire, lambda raw: self.meter.message(read_message(raw, wire)), many=_ALL)
            self._layout, self._laid_from = layout, begin
        layout.extend([self._laid(place) for place in range(self._laid_from + len(layout.seqs), count)])
        return layout

    def _laid(self, place: int) -> LaidLine:
        line = self._line(place)
        return LaidLine(line, self.cache.raws[line.seq], line.tokens)

    def _first_counted(self, enough: int, latest: int) -> int:
        """The place from which everything is counted: an exchange begins there, nothing before it is tied to anything
        behind, and what is behind costs enough alone. 0: everything is."""
        if len(self._own_formats) > 1:
            return 0
        latest = min(latest, self._first_irregular)
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
                copy = message if isinstance(message, bytes) else _copied_members(message)
            except _Opaque:
                copy, self.can_be_kept = None, False
            line = self.cache.take(place + 1, str(place + 1), raw, wire)
            if self.cache.raws[place + 1] is not raw:
                self.repaired.add(place)
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


def _lacks_content(fields: Mapping[str, Any], role: Role) -> str:
    """What a message lacks that has neither `content` nor `parts`; empty where it needs none."""
    if role != "user" or fields.get("content") is not None or fields.get("parts") is not None:
        return ""
    raw = message_bytes(dict(fields))
    return missing_content(fields, read_message(raw, detect(raw)))


def _pointer_to(seq: int) -> str:
    return f"message {seq}"


def _counts_alike(meter: Meter, other: Meter) -> bool:
    return (meter.name, meter.images, meter.frame) == (other.name, other.images, other.frame)


class _Opaque(Exception):  # never leaves this module
    """A message holds a value whose JSON cannot be distinguished from an equal one's."""


def _members(messages: list[Any]) -> list[Any]:
    """The members of messages that are dicts, in order; other messages as they are."""
    if set(map(type, messages)) == {dict}:
        return list(map(tuple, map(dict.items, messages)))
    return [tuple(message.items()) if type(message) is dict else message for message in messages]


def _copied_members(message: object) -> tuple[tuple[str, object], ...]:
    """A copy of `_members` of a message that is equal only to those with the same JSON."""
    if type(message) is not dict or not all(type(name) is str for name in message):
        raise _Opaque
    return tuple([(name, _copy(member)) for name, member in message.items()])


def _copy(value: object) -> object:
    """A copy that is equal only to values with the same JSON."""
    if value is None or type(value) is str:
        return value
    if type(value) in (bool, int, float):
        return _Exact(value)
    if type(value) is list:
        return [_copy(element) for element in value]
    return _ExactDict(_copied_members(value))


class _Exact:
    """A number or truth value that is equal to none of another type: `1`, `1.0` and `true` are not the same JSON."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self.value) and other == self.value

    def __repr__(self) -> str:
        return repr(self.value)


class _ExactDict:
    """A dict that is equal only to one with its members in the same order, which counters can tell apart."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, members: tuple[tuple[str, object], ...]) -> None:
        self._members = members

    def __eq__(self, other: object) -> bool:
        return type(other) is dict and self._members == tuple(other.items())
