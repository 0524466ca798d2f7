"""Goes through a session whose needs are known, and asks for each where it is due: what is readable in the prompt then?

Prompts are made wherever the model would be asked, or for the needs alone. It is not known here who made the session
up, which settings the window has, nor in which store it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import process_time
from typing import TYPE_CHECKING

from recto.core.entries import Draft
from recto.core.known_needs import Fared, KnownTurn, Need, NeedKind
from recto.engine.replaying import ask
from recto.engine.session import Session
from recto.errors import WindowOverflow
from recto.wire import read

if TYPE_CHECKING:
    from recto.core.readable import Outcome
    from recto.engine.prompts import Prompt


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

    def note(self, need: Need, outcome: Outcome) -> None:
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
