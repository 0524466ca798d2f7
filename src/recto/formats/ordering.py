"""In which order messages stand in a prompt so that every call has its result, and every result its call.

A transcript is what happened: results come late, twice, or never. A prompt has to be what a provider accepts. What is
fine stays where it is; a late result moves behind its call, a missing one is made, one that belongs nowhere is left
out, and the arrangement says so.

Lines are all that is known here, not the text of a message and not a wire format. A message that Recto adds itself
(a marker, recalled text) is a line like any other, with a number of its own that its content is found under.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from recto.transcript.entries import Role

Adjacency = Literal["strict", "merging", "anywhere"]
"""Where a provider looks for the results of calls.

`strict`: directly behind the message that calls. `merging`: behind the run of assistant messages that calls, because
neighbours with one role are one turn. `anywhere`: behind the call, before the user speaks again.
"""

NotThere = Literal["interrupted", "not arrived yet"]
LeftOut = Literal["no such call before it", "the call has a result already"]


class Orderable(Protocol):
    """What ordering needs to know of a message: who wrote it, and which calls it makes or answers."""

    @property
    def seq(self) -> int:
        """The number of its entry."""
        ...

    @property
    def role(self) -> Role:
        """Who wrote it."""
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


@dataclass(frozen=True, slots=True)
class Keep:
    """A message stands here as it is."""

    seq: int


@dataclass(frozen=True, slots=True)
class KeepSome:
    """A message stands here with these results only. Nothing stands here where that leaves nothing of it."""

    seq: int
    answers: tuple[str, ...]
    rest: bool = True
    """Whether what is not a result stays too. Only one place of a message that is in several holds it."""


@dataclass(frozen=True, slots=True)
class SyntheticResult:
    """A result that has to be made, because the call has none."""

    call_id: str
    tool: str
    reason: NotThere
    seq: int
    """The entry that makes the call."""


Piece: TypeAlias = Keep | KeepSome | SyntheticResult


@dataclass(frozen=True, slots=True)
class Omitted:
    """A result that stands in an entry and not in the prompt."""

    seq: int
    call_id: str
    reason: LeftOut


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A prompt's messages in their final order, and what could not be among them."""

    pieces: tuple[Piece, ...]
    omitted: tuple[Omitted, ...]
    needs_opening: bool
    """Whether someone other than the user would speak first, where a provider wants the user to."""


class _Ties(NamedTuple):
    """Which result belongs to which call. Lines are named by their place."""

    claims: Mapping[int, Mapping[str, int]]
    """For each line with results: the calls it answers, and the lines that make them."""
    waiting: Mapping[int, Mapping[str, str]]
    """For each line with calls: those without a result, and their tools."""
    omitted: Sequence[Omitted]


def arrange(lines: Sequence[Orderable], adjacency: Adjacency) -> Arrangement:
    """The order in which a provider accepts these lines. What it would accept as it is stays as it is."""
    ties = _tied(lines)
    homes = _homes(lines, adjacency)
    placed, attached = _placed(lines, ties, homes, stays=adjacency == "anywhere")
    for answer in _made(lines, ties, homes):
        attached.setdefault(answer[0], []).append(answer[1])
    pieces: list[Piece] = []
    for place, line in enumerate(lines):
        if place not in ties.claims:
            pieces.append(Keep(line.seq))
        if place in placed:
            pieces += placed[place]
        if place in attached:
            pieces += attached[place]
    first = pieces[0] if pieces else None
    user_first = isinstance(first, Keep) and any(line.seq == first.seq and line.role == "user" for line in lines)
    return Arrangement(tuple(pieces), tuple(ties.omitted), adjacency == "merging" and not user_first)


def _tied(lines: Sequence[Orderable]) -> _Ties:
    """Ids may come back in a later turn: a result belongs to the latest call of its id before it."""
    owners: dict[str, int] = {}
    waiting: dict[int, dict[str, str]] = {}
    claims: dict[int, dict[str, int]] = {}
    omitted: list[Omitted] = []
    for place, line in enumerate(lines):
        if line.role == "assistant":
            # results in an assistant's message are the provider's own, and so were the calls
            for call in line.answers:
                waiting.get(owners.get(call, -1), {}).pop(call, None)
            if line.calls:
                waiting[place] = {call: tool for call, tool in _calls(line) if call not in line.answers}
                owners |= dict.fromkeys(waiting[place], place)
        elif line.answers:
            claims[place] = {}
            for call in line.answers:
                owner = owners.get(call)
                if owner is None:
                    omitted.append(Omitted(line.seq, call, "no such call before it"))
                elif call not in waiting[owner]:
                    omitted.append(Omitted(line.seq, call, "the call has a result already"))
                else:
                    del waiting[owner][call]
                    claims[place][call] = owner
    return _Ties(claims, waiting, omitted)


def _calls(line: Orderable) -> Iterator[tuple[str, str]]:
    known = len(line.tools) == len(line.calls)
    only = line.tools[0] if len(line.tools) == 1 else ""
    for place, call in enumerate(line.calls):
        if call:  # without an id nobody can answer, and nobody is asked to
            yield call, line.tools[place] if known else only


def _homes(lines: Sequence[Orderable], adjacency: Adjacency) -> list[int]:
    """For each line, the line behind which the results of its calls go."""
    homes = list(range(len(lines)))
    if adjacency == "strict":
        return homes
    start = 0
    seen: set[str] = set()
    for place, line in enumerate(lines):
        follows = place > 0 and lines[place - 1].role == line.role == "assistant"
        if not follows or not seen.isdisjoint(line.calls):  # one id twice in a turn: nobody could tell them apart
            start, seen = place, set()
        seen |= set(line.calls)
        homes[start : place + 1] = [place] * (place + 1 - start)
    return homes


def _placed(
    lines: Sequence[Orderable], ties: _Ties, homes: Sequence[int], *, stays: bool
) -> tuple[dict[int, list[Piece]], dict[int, list[Piece]]]:
    """Results that stay where they are, and results that go behind a line, by place."""
    placed: dict[int, list[Piece]] = {}
    attached: dict[int, list[Piece]] = {}
    edges: dict[int, int] = {}
    spoken = _spoken(lines) if ties.claims else []
    for place, claims in ties.claims.items():
        line = lines[place]
        by_home: dict[int, list[str]] = {}
        for call, owner in claims.items():
            by_home.setdefault(homes[owner], []).append(call)
        if not by_home:
            placed[place] = [KeepSome(line.seq, ())]
        last = max(by_home, default=place)
        for home, calls in by_home.items():
            whole = len(calls) == len(line.answers)
            piece = Keep(line.seq) if whole else KeepSome(line.seq, tuple(calls), rest=home == last)
            next_to = place == edges.get(home, home) + 1
            if next_to:
                edges[home] = place
            if stays and len(by_home) == 1 and not next_to and spoken[place] == spoken[home]:
                placed[place] = [piece]
            else:
                attached.setdefault(home, []).append(piece)
    return placed, attached


def _spoken(lines: Sequence[Orderable]) -> list[int]:
    """How often the user has spoken, at each line."""
    count = 0
    counts: list[int] = []
    for line in lines:
        count += line.role == "user" and not line.answers
        counts.append(count)
    return counts


def _made(lines: Sequence[Orderable], ties: _Ties, homes: Sequence[int]) -> Iterator[tuple[int, SyntheticResult]]:
    """Results that have to be made, each with the line behind which it goes."""
    last_said = next((place for place in reversed(range(len(lines))) if place not in ties.claims), -1)
    for place, calls in ties.waiting.items():
        reason: NotThere = "not arrived yet" if homes[place] >= last_said else "interrupted"
        for call, tool in calls.items():
            yield homes[place], SyntheticResult(call, tool, reason, lines[place].seq)
