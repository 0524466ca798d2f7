"""What an agent is made of, and what becomes of facts: said, corrected or decided, and asked for later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from recto.lab.probes import NeedKind
from recto.lab.simulation import vocabulary
from recto.lab.simulation.messages import Exchange, Life, SimulatedQuestion, SimulatedStep, assistant, user
from recto.lab.simulation.random import Dice

TURN_CHARACTERS: Final = 14_000
"""What the results of one turn have at most: they are in flight together, and small windows must hold them."""
RESULT_CHARACTERS: Final = 6_000
FURTHEST: Final = 8_192
"""Turns between a fact and its question, at most."""
_CODES: Final = 8_999_993  # a prime, so that every step goes through all of them
_PHRASES: Final = 64**3
_SUBJECTS: Final = 64**3


class Scene:
    """Goes from turn to turn."""

    __slots__ = ("_codes", "_phrases", "_room", "_subjects", "dice", "turn")

    def __init__(self, seed: int) -> None:
        self.dice = Dice(seed)
        self.turn = 0
        self._codes = self.dice.below(_CODES)
        self._phrases = self.dice.below(_PHRASES)
        self._subjects = self.dice.below(_SUBJECTS)
        self._room = TURN_CHARACTERS

    def next_turn(self) -> None:
        """Another turn begins."""
        self.turn += 1
        self._room = TURN_CHARACTERS

    def gap(self) -> int:
        """How many turns pass before a fact is needed: never more than have passed already, so far ones come late."""
        return self.dice.gap(min(max(self.turn, 8), FURTHEST))

    def size(self, median: int) -> int:
        """How long the next result is, in characters, as far as the turn has room for it."""
        return self.room_for(self.dice.length(median))

    def room_for(self, size: int) -> int:
        """So much of a size as the turn has room for."""
        size = max(min(size, RESULT_CHARACTERS, self._room), 0)
        self._room -= size
        return size

    def code(self) -> str:
        """A number of seven digits that was never there before."""
        self._codes = (self._codes + 3_627_913) % _CODES
        return str(1_000_000 + self._codes)

    def phrase(self) -> str:
        """Three words that never stood together before."""
        self._phrases = (self._phrases + 97_283) % _PHRASES
        first, rest = divmod(self._phrases, 64 * 64)
        second, third = divmod(rest, 64)
        return f"{vocabulary.ANSWER_FIRST[first]} {vocabulary.ANSWER_SECOND[second]} {vocabulary.ANSWER_THIRD[third]}"

    def part(self) -> str:
        """A part of a system: three words that come again only after a very long time."""
        first, second, third = self._subject()
        return f"{vocabulary.HUES[first]}-{vocabulary.PLACES[second]}-{vocabulary.PARTS[third]}"

    def matter(self) -> str:
        """Something to look into."""
        first, second, third = self._subject()
        return f"{vocabulary.MATTERS[first]} of {vocabulary.HUES[second]} {vocabulary.PLACES[third]}"

    def person(self) -> str:
        """Somebody. Names come again, so that it is said where they are from."""
        first, second, third = self._subject()
        return f"{vocabulary.FIRST_NAMES[first]} {vocabulary.SURNAMES[second]} from the {vocabulary.PLACES[third]}"

    def _subject(self) -> tuple[int, int, int]:
        self._subjects = (self._subjects + 151_067) % _SUBJECTS
        first, rest = divmod(self._subjects, 64 * 64)
        return first, rest // 64, rest % 64


_REPLIES: Final = (
    "I have it, and go on with it.",
    "Yes, that was said before; I use it as it was said.",
    "Done, with what we had agreed on.",
    "I looked it up in what we said, and entered it.",
)
Begin: TypeAlias = "Callable[[Agent, Scene, int], Life]"
"""Begins the life of a fact with a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Something with a value. `{about}` is what it is about, `{value}` the value, `{old}` the one before."""

    said: str
    corrected: str
    asked: str
    kind: NeedKind = "exact"
    phrase: bool = False
    """Whether its value is words and not a number."""

    def value(self, scene: Scene) -> str:
        """A value of its kind that was never there."""
        return scene.phrase() if self.phrase else scene.code()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDecision:
    """Something that is decided for a reason: `{chosen}`, `{reason}`."""

    said: str
    asked: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One kind of agent."""

    system: str
    pause: int
    """Seconds between two turns, half of the time."""
    busy: int
    """Of a hundred turns that nothing is due in, how many begin a new fact."""
    about: Callable[[Scene], str]
    """Something that facts can be about."""
    opening: Callable[[Scene], Exchange]
    idle: Callable[[Scene], Exchange]
    """A turn in which nothing is said that is needed later."""
    telling: Callable[[Scene, str, int], Exchange]
    """A turn in which a sentence is said that holds a fact."""
    working: Callable[[Scene], tuple[SimulatedStep, ...]]
    """Steps with tools."""
    topics: tuple[Topic, ...]
    decisions: tuple[SimulatedDecision, ...]
    lives: tuple[Begin, ...]
    """What can become of a fact; one that stands twice comes twice as often."""

    def asking(self, scene: Scene, text: str, question: SimulatedQuestion) -> Exchange:
        """The turn in which a fact is needed. The answer does not say it again."""
        steps = self.working(scene) if scene.dice.happens(25) else ()
        return Exchange(said=(user(text), *steps, assistant(scene.dice.pick(_REPLIES))), question=question)


def exact(agent: Agent, scene: Scene, fact: int) -> Life:
    """A value is said once, and needed later."""
    topic, about = scene.dice.pick(agent.topics), agent.about(scene)
    value = topic.value(scene)
    yield agent.telling(scene, topic.said.format(about=about, value=value), fact)
    yield scene.gap()
    yield agent.asking(
        scene, topic.asked.format(about=about), SimulatedQuestion(kind=topic.kind, fact=fact, expect=(value,))
    )


def correction(agent: Agent, scene: Scene, fact: int) -> Life:
    """A value is said, later another one is right, and later still it is needed."""
    topic, about = scene.dice.pick(agent.topics), agent.about(scene)
    old, value = topic.value(scene), topic.value(scene)
    yield agent.telling(scene, topic.said.format(about=about, value=old), 0)
    yield scene.gap()
    yield agent.telling(scene, topic.corrected.format(about=about, value=value, old=old), fact)
    yield scene.gap()
    question = SimulatedQuestion(kind="correction", fact=fact, expect=(value,), outdated=(old,))
    yield agent.asking(scene, topic.asked.format(about=about), question)


def decision(agent: Agent, scene: Scene, fact: int) -> Life:
    """Something is decided for a reason; later both are needed."""
    choice, about = scene.dice.pick(agent.decisions), agent.about(scene)
    chosen, reason = scene.phrase(), scene.code()
    yield agent.telling(scene, choice.said.format(about=about, chosen=chosen, reason=reason), fact)
    yield scene.gap()
    question = SimulatedQuestion(kind="decision", fact=fact, expect=(chosen, reason))
    yield agent.asking(scene, choice.asked.format(about=about), question)
