"""What a later turn needs of what was said before, in a session of which all of that is known.

A need is a question, when it is asked, what must be readable then, and where that was said. Who makes such sessions
up, and who asks, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from recto.core.entries import Draft
from recto.core.readable import Case, Where

NeedKind = Literal["exact", "preference", "correction", "decision", "file", "source", "cause"]
"""An exact value; what somebody likes; a value that was corrected later; a decision with its reason; what stands in a
file that was read; which source said it; what came first in a row of alarms."""
NEED_KINDS: tuple[NeedKind, ...] = get_args(NeedKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A question that is asked in a turn, and what it needs."""

    kind: NeedKind
    turn: int
    """The turn whose user message is the question."""
    ask: str
    expect: tuple[str, ...]
    """What must be readable: all of it. It stands nowhere but in the entries below."""
    said_turn: int
    """The last turn in which it was said."""
    entries: tuple[int, ...]
    """Where it stands, as the entries of the session are numbered: one of them will do."""
    outdated: tuple[str, ...] = ()
    """What was right before, and is not any more."""

    @property
    def distance(self) -> int:
        """Turns between the saying and the asking."""
        return self.turn - self.said_turn

    @property
    def case(self) -> Case:
        """The same as a question whose prompt is looked at."""
        return Case(ask=self.ask, expect=tuple((one,) for one in self.expect))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTurn:
    """One turn of such a session: a user message and all that follows it."""

    number: int
    """From 1 on."""
    first: int
    """The number of its first entry, in a session that holds nothing else."""
    drafts: tuple[Draft, ...]
    """As they are said; nobody has counted their tokens yet."""
    need: Need | None = None
    """What its user message asks for: then that message is its first draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fared:
    """How many needs were met, and where. Two of them can be added."""

    asked: int = 0
    prompt: int = 0
    summary: int = 0
    recalled: int = 0

    @property
    def met(self) -> int:
        """What could be read somewhere."""
        return self.prompt + self.summary + self.recalled

    @property
    def missed(self) -> int:
        """What could be read nowhere."""
        return self.asked - self.met

    @property
    def share(self) -> float:
        """The share that was met; all of it where nothing was asked."""
        return self.met / self.asked if self.asked else 1.0

    @property
    def share_of_gone(self) -> float:
        """The same of what was not in the messages any more: what recall and summaries are for."""
        gone = self.asked - self.prompt
        return (self.met - self.prompt) / gone if gone else 1.0

    def with_one(self, where: Where) -> Fared:
        """With one more."""
        one = Fared(asked=1, prompt=where == "prompt", summary=where == "summary", recalled=where == "recalled")
        return self + one

    def __add__(self, other: Fared) -> Fared:
        return Fared(
            asked=self.asked + other.asked,
            prompt=self.prompt + other.prompt,
            summary=self.summary + other.summary,
            recalled=self.recalled + other.recalled,
        )


def together(fared: Mapping[NeedKind, Fared]) -> Fared:
    """All kinds as one."""
    return sum(fared.values(), Fared())
