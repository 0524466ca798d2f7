"""Orders the messages of a prompt so that every tool call is followed by its result.

A transcript records what happened: results come late, twice, or never. A prompt must be what the provider accepts.
Messages in a valid position stay; a late result moves behind its call, a missing result is synthesised, and a result
without a call is omitted and reported.

The input is metadata about messages, not their text and not their wire format. A message that Recto adds itself (a
marker, recalled text) is like any other, with a sequence number of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from recto.transcript.entries import Role

OPENING: Final = "[The conversation so far continues below.]"
"""The user message that is put before a history without one, where a format requires it."""

Adjacency = Literal["strict", "merging", "anywhere"]
"""Where a provider looks for the results of calls.

`strict`: directly behind the message with the calls. `merging`: behind the run of assistant messages with the calls,
because adjacent messages of one role are one turn. `anywhere`: behind the call and before the next user message.
"""

MissingReason = Literal["interrupted", "not arrived yet"]
OmissionReason = Literal["no such call before it", "the call has a result already"]


class Orderable(Protocol):
    """The metadata of a message that ordering needs: its role, and the calls it makes or answers."""

    @property
    def seq(self) -> int:
        """The sequence number of its entry."""
        ...

    @property
    def role(self) -> Role:
        """The role of its author."""
        ...

    @property
    def calls(self) -> tuple[str, ...]:
        """Ids of the tool calls it makes."""
        ...

    @property
    def answers(self) -> tuple[str, ...]:
        """Ids of the calls whose results it carries."""
        ...

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools it calls, or whose results it carries."""
        ...


class Keep(NamedTuple):
    """A message, as it is."""

    seq: int


class KeepSome(Struct, frozen=True):
    """A message with only these results. It is skipped if nothing remains of it."""

    seq: int
    answers: tuple[str, ...]
    rest: bool = True
    """Whether content that is no result stays too. If a message is split, only one of its pieces holds it."""


class SyntheticResult(Struct, frozen=True):
    """A result that must be synthesised, because its call has none."""

    call_id: str
    tool: str
    reason: MissingReason
    seq: int
    """The entry with the call."""


ArrangedPiece: TypeAlias = Keep | KeepSome | SyntheticResult


class Omitted(Struct, frozen=True):
    """A result that is in an entry and not in the prompt."""

    seq: int
    call_id: str
    reason: OmissionReason


class Arrangement(Struct, frozen=True):
    """The messages of a prompt in their final order, and the results that were omitted."""

    pieces: tuple[ArrangedPiece, ...]
    omitted: tuple[Omitted, ...]
    needs_opening: bool
    """Whether the provider requires a user message first and there is none."""


class ArrangedPart(NamedTuple):
    """A stretch of messages in their final order, and what later stretches need to know about its calls."""

    pieces: tuple[ArrangedPiece, ...]
    omitted: tuple[Omitted, ...]
    calls: frozenset[str]
    """Ids of its calls that a result may answer."""
    waiting: frozenset[str]
    """Those whose latest call has no result yet."""
    unchanged: bool = False
    """Whether the pieces are the messages, as they are."""

    @property
    def synthetic(self) -> list[SyntheticResult]:
        """The results that have to be synthesised."""
        if self.unchanged:
            return []
        return [piece for piece in self.pieces if isinstance(piece, SyntheticResult)]

    def closed(self) -> ArrangedPart:
        """The same stretch once other messages follow, so that missing results will not arrive any more."""
        if not self.waiting:
            return self
        pieces = [
            replace(piece, reason="interrupted") if isinstance(piece, SyntheticResult) else piece
            for piece in self.pieces
        ]
        return self._replace(pieces=tuple(pieces))


class _ResultLinks(NamedTuple):
    """Which result belongs to which call. Messages are identified by their position."""

    owners: Mapping[str, int]
    """For each call id: the latest message with it."""
    claims: Mapping[int, Mapping[str, int]]
    """For each message with results: the calls it answers, and the positions of their messages."""
    waiting: Mapping[int, Mapping[str, str]]
    """For each message with calls: those without a result, and their tools."""
    omitted: Sequence[Omitted]


def arrange(messages: Sequence[Orderable], adjacency: Adjacency) -> Arrangement:
    """Returns an order that the provider accepts. A list that it would accept stays as it is."""
    part = arrange_part(messages, adjacency)
    opener = messages[0] if messages else None
    return Arrangement(part.pieces, part.omitted, needs_opening(part.pieces, opener, adjacency))


def needs_opening(pieces: Sequence[ArrangedPiece], opener: Orderable | None, adjacency: Adjacency) -> bool:
    """Whether the provider requires a user message first and there is none. `opener` is the first message."""
    opens = opener is not None and opener.role == "user" and bool(pieces) and pieces[0] == Keep(opener.seq)
    return adjacency == "merging" and not opens


def arrange_part(messages: Sequence[Orderable], adjacency: Adjacency, *, earlier: Collection[str] = ()) -> ArrangedPart:
    """Arranges a stretch of messages by itself.

    Args:
        messages: The messages of the stretch. It begins where `begins_part` is true.
        adjacency: Where the provider looks for the results of calls.
        earlier: Calls before the stretch, all answered or given up.
    """
    ordered, calls = _steps_in_order(messages)
    kept: list[ArrangedPiece] = [Keep(message.seq) for message in messages[:ordered]]
    if ordered == len(messages):
        return ArrangedPart(tuple(kept), (), calls, frozenset(), unchanged=True)
    rest = _arrange_rest(messages[ordered:], adjacency, calls.union(earlier))
    return rest._replace(pieces=(*kept, *rest.pieces), calls=calls | rest.calls)


def _arrange_rest(messages: Sequence[Orderable], adjacency: Adjacency, earlier: Collection[str]) -> ArrangedPart:
    """Arranges messages of which not all are in order. Every call `earlier` than these is answered or given up."""
    links = _link_results(messages, earlier)
    homes = _homes(messages, adjacency)
    placed, attached = _place_results(messages, links, homes, stays=adjacency == "anywhere")
    for home, result in _synthetic_results(messages, links, homes):
        attached.setdefault(home, []).append(result)
    pieces: list[ArrangedPiece] = []
    for place, message in enumerate(messages):
        if place not in links.claims:
            pieces.append(Keep(message.seq))
        if place in placed:
            pieces += placed[place]
        if place in attached:
            pieces += attached[place]
    waiting = frozenset(call for call, place in links.owners.items() if call in links.waiting[place])
    # Mostly there is a difference, and near the beginning.
    unchanged = len(pieces) == len(messages) and all(
        type(piece) is Keep and piece.seq == message.seq for piece, message in zip(pieces, messages, strict=True)
    )
    return ArrangedPart(tuple(pieces), tuple(links.omitted), frozenset(links.owners), waiting, unchanged)


def _steps_in_order(messages: Sequence[Orderable]) -> tuple[int, frozenset[str]]:
    """Returns how many messages at the beginning are steps that every provider takes as they are, and their calls.

    Such a step is calls and then all their results, each once, or a message without calls. A later step may use ids
    again: the calls before are answered.
    """
    made: set[str] = set()
    waiting: set[str] = set()
    step: tuple[str, ...] = ()
    ordered = 0
    for place, message in enumerate(messages):
        if not waiting:
            ordered = place
            made.update(step)
            step = ()
        calls, answers = message.calls, message.answers
        if answers:
            is_result = not calls and message.role != "assistant" and waiting.issuperset(answers)
            if not is_result or len(set(answers)) < len(answers):
                break
            waiting.difference_update(answers)
        elif waiting:
            break
        elif calls:
            if message.role != "assistant" or "" in calls or len(set(calls)) < len(calls):
                break
            step = calls
            waiting.update(calls)
    else:
        if not waiting:
            return len(messages), frozenset(made.union(step))
    return ordered, frozenset(made)


def begins_part(message: Orderable, before: Orderable) -> bool:
    """Whether a message may begin a stretch that is arranged by itself.

    That is so where the speaker changes: an assistant message behind a question or a result, or a question behind an
    assistant message. Neither the run of assistant messages that results go behind, nor the turn of the user, crosses
    such a place. A late result for a call before it still does.
    """
    if message.role == "assistant":
        return before.role in ("user", "tool")
    return message.role == "user" and not message.answers and before.role == "assistant"


def missing_results(messages: Sequence[Orderable]) -> list[tuple[str, str]]:
    """Returns the calls without a result, and their tools: those for which `arrange` synthesises one."""
    ordered, _ = _steps_in_order(messages)
    if ordered == len(messages):
        return []
    return [missing for calls in _link_results(messages[ordered:]).waiting.values() for missing in calls.items()]


def _link_results(messages: Sequence[Orderable], earlier: Collection[str] = ()) -> _ResultLinks:
    """Links results to calls. Ids may be reused in a later turn: a result belongs to the latest call before it."""
    owners: dict[str, int] = {}
    waiting: dict[int, dict[str, str]] = {}
    claims: dict[int, dict[str, int]] = {}
    omitted: list[Omitted] = []
    for place, message in enumerate(messages):
        if message.role == "assistant":
            # results in an assistant message are from calls that the provider ran itself
            for call in message.answers:
                waiting.get(owners.get(call, -1), {}).pop(call, None)
            if message.calls:
                calls = dict(_calls(message))
                for call in message.answers:
                    calls.pop(call, None)
                waiting[place] = calls
                for call in calls:
                    owners[call] = place
        elif message.answers:
            claims[place] = {}
            for call in message.answers:
                owner = owners.get(call)
                if owner is None and call not in earlier:
                    omitted.append(Omitted(message.seq, call, "no such call before it"))
                elif owner is None or call not in waiting[owner]:
                    omitted.append(Omitted(message.seq, call, "the call has a result already"))
                else:
                    del waiting[owner][call]
                    claims[place][call] = owner
    return _ResultLinks(owners, claims, waiting, omitted)


def _calls(message: Orderable) -> Iterable[tuple[str, str]]:
    calls, tools = message.calls, message.tools
    if len(tools) != len(calls):
        tools = (tools[0] if len(tools) == 1 else "",) * len(calls)
    pairs = zip(calls, tools, strict=True)
    return pairs if all(calls) else [pair for pair in pairs if pair[0]]  # a call without an id cannot be answered


def _homes(messages: Sequence[Orderable], adjacency: Adjacency) -> list[int]:
    """Returns for each message the position behind which the results of its calls go."""
    homes = list(range(len(messages)))
    if adjacency == "strict":
        return homes
    start = 0
    seen: set[str] = set()
    for place, message in enumerate(messages):
        follows = place > 0 and messages[place - 1].role == message.role == "assistant"
        if not follows or not seen.isdisjoint(message.calls):  # a repeated id in one turn would be ambiguous
            start, seen = place, set()
        seen |= set(message.calls)
        homes[start : place + 1] = [place] * (place + 1 - start)
    return homes


def _place_results(
    messages: Sequence[Orderable], links: _ResultLinks, homes: Sequence[int], *, stays: bool
) -> tuple[dict[int, list[ArrangedPiece]], dict[int, list[ArrangedPiece]]]:
    """Returns results that stay in place and results that move behind another message, by position."""
    placed: dict[int, list[ArrangedPiece]] = {}
    attached: dict[int, list[ArrangedPiece]] = {}
    edges: dict[int, int] = {}
    turns = _user_turns(messages) if stays and links.claims else []
    for place, claims in links.claims.items():
        message = messages[place]
        by_home: dict[int, list[str]] = {}
        for call, owner in claims.items():
            by_home.setdefault(homes[owner], []).append(call)
        if not by_home:
            placed[place] = [KeepSome(message.seq, ())]
        last = max(by_home, default=place)
        for home, calls in by_home.items():
            complete = len(calls) == len(message.answers)
            piece = Keep(message.seq) if complete else KeepSome(message.seq, tuple(calls), rest=home == last)
            next_to = place == edges.get(home, home) + 1
            if next_to:
                edges[home] = place
            if stays and len(by_home) == 1 and not next_to and turns[place] == turns[home]:
                placed[place] = [piece]
            else:
                attached.setdefault(home, []).append(piece)
    return placed, attached


def _user_turns(messages: Sequence[Orderable]) -> list[int]:
    """Returns the number of user turns up to each message."""
    count = 0
    counts: list[int] = []
    for message in messages:
        count += message.role == "user" and not message.answers
        counts.append(count)
    return counts


def _synthetic_results(
    messages: Sequence[Orderable], links: _ResultLinks, homes: Sequence[int]
) -> Iterator[tuple[int, SyntheticResult]]:
    """Yields the missing results, each with the position behind which it goes."""
    last_other = next((place for place in reversed(range(len(messages))) if place not in links.claims), -1)
    for place, calls in links.waiting.items():
        reason: MissingReason = "not arrived yet" if homes[place] >= last_other else "interrupted"
        for call, tool in calls.items():
            yield homes[place], SyntheticResult(call, tool, reason, messages[place].seq)
