"""Goes through a session whose needs are known, and asks for each where it is due: what is readable in the prompt then?

Prompts are made wherever the model would be asked, or for the needs alone. It is not known here who made the session
up, which settings the window has, nor in which store it is.
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
from recto.lab.replay import ask
from recto.transcript.entries import Draft

if TYPE_CHECKING:
    from recto.engine.prompt_builder import Prompt
    from recto.lab.readability import ProbeOutcome


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


@dataclass(slots=True, kw_only=True)
class Walked:
    """What it came to so far."""

    turns: int = 0
    entries: int = 0
    prompts: int = 0
    over: int = 0
    """Prompts over what they may have: there are none."""
    refused: int = 0
    """Prompts that there were none of, for what must not leave did not fit."""
    tokens: int = 0
    """Of all prompts."""
    largest: int = 0
    seconds: float = 0.0
    """Of the processor, to store what was said and to make prompts. Counting and making it up are not in it."""
    fared: dict[NeedKind, Fared] = field(default_factory=dict)
    by_distance: dict[int, Fared] = field(default_factory=dict)
    """By how many turns ago it was said: below 10, below 100, and so on."""

    def note(self, need: Need, outcome: ProbeOutcome) -> None:
        """One more need."""
        below = 10 ** len(str(need.distance))
        self.fared[need.kind] = self.fared.get(need.kind, Fared()).with_one(outcome.where)
        self.by_distance[below] = self.by_distance.get(below, Fared()).with_one(outcome.where)


_NO_PLACES: Mapping[int, int] = {}


def walk(
    session: Session,
    turns: Iterable[KnownTurn],
    *,
    needs_only: bool = False,
    asked: Callable[[Prompt | WindowOverflow], object] = lambda prompt: None,
    turned: Callable[[KnownTurn], object] = lambda turn: None,
) -> Walked:
    """Goes through the turns in a session that holds what came before them, and nothing else.

    `asked` is told of every prompt, `turned` of every turn. With `needs_only`, prompts are made where a need is due and
    nowhere else, for long sessions: things leave in fewer and larger steps then.
    """
    walked = Walked()
    for turn in turns:
        drafts = [counted(session, draft) for draft in turn.drafts]
        began = process_time()
        if turn.need is not None:  # the question is the first message, and is stored by asking it
            walked.note(turn.need, ask(session, turn.need.case, _NO_PLACES))
            drafts = drafts[1:]
        if needs_only:
            session.store.append(session.key, drafts)
        else:
            _feed(session, drafts, walked, asked, waiting=turn.need is not None)
        walked.seconds += process_time() - began
        walked.turns += 1
        walked.entries += len(turn.drafts)
        turned(turn)
    return walked


def _feed(
    session: Session,
    drafts: Iterable[Draft],
    walked: Walked,
    asked: Callable[[Prompt | WindowOverflow], object],
    *,
    waiting: bool,
) -> None:
    """Stores messages, with a prompt before each that the model answered."""
    for draft in drafts:
        if draft.role == "assistant" and waiting:
            prompt = _prompt(session)
            walked.prompts += 1
            if isinstance(prompt, WindowOverflow):
                walked.refused += 1
            else:
                walked.over += prompt.tokens > prompt.reading.room
                walked.tokens += prompt.tokens
                walked.largest = max(walked.largest, prompt.tokens)
            asked(prompt)
        waiting = draft.role != "assistant"
        session.store.append(session.key, [draft])


def _prompt(session: Session) -> Prompt | WindowOverflow:
    try:
        return session.prompt()
    except WindowOverflow as error:
        return error


def counted(session: Session, draft: Draft) -> Draft:
    """A message with its tokens, as the session counts them."""
    tokens = session.meter.message(read(draft.content, draft.wire))
    return replace(draft, tokens=tokens, counter=session.meter.name)
