"""The parts of an agent, and the course of facts: stated, corrected or decided, and asked for later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from recto.lab.probes import NeedKind
from recto.lab.simulation import vocabulary
from recto.lab.simulation.messages import (
    FactScript,
    SimulatedExchange,
    SimulatedQuestion,
    SimulatedStep,
    assistant,
    user,
)
from recto.lab.simulation.random import Dice

TURN_CHARACTERS: Final = 14_000
"""Characters of all results of one turn: they are in the prompt together, and small windows must hold them."""
RESULT_CHARACTERS: Final = 6_000
MAX_GAP: Final = 8_192
"""Turns between a fact and its question, at most."""
_CODE_COUNT: Final = 8_999_993  # a prime, so that every step goes through all of them
_PHRASE_COUNT: Final = 64**3
_SUBJECT_COUNT: Final = 64**3


class Scene:
    """The state of a simulation, from turn to turn."""

    __slots__ = ("_available", "_codes", "_phrases", "_subjects", "dice", "turn")

    def __init__(self, seed: int) -> None:
        self.dice = Dice(seed)
        self.turn = 0
        self._codes = self.dice.below(_CODE_COUNT)
        self._phrases = self.dice.below(_PHRASE_COUNT)
        self._subjects = self.dice.below(_SUBJECT_COUNT)
        self._available = TURN_CHARACTERS

    def next_turn(self) -> None:
        """Starts another turn."""
        self.turn += 1
        self._available = TURN_CHARACTERS

    def gap(self) -> int:
        """Returns the turns until a fact is needed: never more than have passed already, so long gaps come late."""
        return self.dice.gap(min(max(self.turn, 8), MAX_GAP))

    def size(self, median: int) -> int:
        """Returns the size of the next result in characters, within what the turn can hold."""
        return self.fit(self.dice.length(median))

    def fit(self, size: int) -> int:
        """Limits a size to what the turn can still hold, and uses it up."""
        size = max(min(size, RESULT_CHARACTERS, self._available), 0)
        self._available -= size
        return size

    def code(self) -> str:
        """Returns a new number of seven digits."""
        self._codes = (self._codes + 3_627_913) % _CODE_COUNT
        return str(1_000_000 + self._codes)

    def phrase(self) -> str:
        """Returns a new combination of three words."""
        self._phrases = (self._phrases + 97_283) % _PHRASE_COUNT
        first, rest = divmod(self._phrases, 64 * 64)
        second, third = divmod(rest, 64)
        return f"{vocabulary.ANSWER_FIRST[first]} {vocabulary.ANSWER_SECOND[second]} {vocabulary.ANSWER_THIRD[third]}"

    def part(self) -> str:
        """Returns a part of a system: three words that repeat only after a very long time."""
        first, second, third = self._subject()
        return f"{vocabulary.HUES[first]}-{vocabulary.PLACES[second]}-{vocabulary.PARTS[third]}"

    def matter(self) -> str:
        """Returns a research subject."""
        first, second, third = self._subject()
        return f"{vocabulary.MATTERS[first]} of {vocabulary.HUES[second]} {vocabulary.PLACES[third]}"

    def person(self) -> str:
        """Returns a person. Names repeat, so the place is added."""
        first, second, third = self._subject()
        return f"{vocabulary.FIRST_NAMES[first]} {vocabulary.SURNAMES[second]} from the {vocabulary.PLACES[third]}"

    def _subject(self) -> tuple[int, int, int]:
        self._subjects = (self._subjects + 151_067) % _SUBJECT_COUNT
        first, rest = divmod(self._subjects, 64 * 64)
        return first, rest // 64, rest % 64


_REPLIES: Final = (
    "I have it, and go on with it.",
    "Yes, that was said before; I use it as it was said.",
    "Done, with what we had agreed on.",
    "I looked it up in what we said, and entered it.",
)
StartFact: TypeAlias = "Callable[[Agent, Scene, int], FactScript]"
"""Starts the script of a fact with a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A subject with a value. `{about}` is the subject, `{value}` the value, `{old}` the previous one."""

    statement: str
    correction_text: str
    question_text: str
    kind: NeedKind = "exact"
    phrase: bool = False
    """Whether its value is words and not a number."""

    def value(self, scene: Scene) -> str:
        """Returns a new value."""
        return scene.phrase() if self.phrase else scene.code()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDecision:
    """A decision for a reason: `{chosen}`, `{reason}`."""

    statement: str
    question_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A kind of agent."""

    system: str
    pause: int
    """Median seconds between two turns."""
    busy: int
    """Probability in percent that a turn with nothing due starts a new fact."""
    make_subject: Callable[[Scene], str]
    """Returns a subject for a fact."""
    opening: Callable[[Scene], SimulatedExchange]
    idle: Callable[[Scene], SimulatedExchange]
    """A turn without a fact."""
    state_fact: Callable[[Scene, str, int], SimulatedExchange]
    """A turn with a sentence that states a fact."""
    work: Callable[[Scene], tuple[SimulatedStep, ...]]
    """Steps with tool calls."""
    topics: tuple[Topic, ...]
    decisions: tuple[SimulatedDecision, ...]
    scripts: tuple[StartFact, ...]
    """Possible scripts of a fact; one that is listed twice is twice as likely."""

    def ask(self, scene: Scene, text: str, question: SimulatedQuestion) -> SimulatedExchange:
        """Returns the turn in which a fact is needed. The answer does not repeat it."""
        steps = self.work(scene) if scene.dice.happens(25) else ()
        return SimulatedExchange(steps=(user(text), *steps, assistant(scene.dice.pick(_REPLIES))), question=question)


def exact(agent: Agent, scene: Scene, fact: int) -> FactScript:
    """A value is stated once, and needed later."""
    topic, subject = scene.dice.pick(agent.topics), agent.make_subject(scene)
    value = topic.value(scene)
    yield agent.state_fact(scene, topic.statement.format(about=subject, value=value), fact)
    yield scene.gap()
    yield agent.ask(
        scene, topic.question_text.format(about=subject), SimulatedQuestion(kind=topic.kind, fact=fact, expect=(value,))
    )


def correction(agent: Agent, scene: Scene, fact: int) -> FactScript:
    """A value is stated, corrected later, and needed later still."""
    topic, subject = scene.dice.pick(agent.topics), agent.make_subject(scene)
    old, value = topic.value(scene), topic.value(scene)
    yield agent.state_fact(scene, topic.statement.format(about=subject, value=old), 0)
    yield scene.gap()
    yield agent.state_fact(scene, topic.correction_text.format(about=subject, value=value, old=old), fact)
    yield scene.gap()
    question = SimulatedQuestion(kind="correction", fact=fact, expect=(value,), outdated=(old,))
    yield agent.ask(scene, topic.question_text.format(about=subject), question)


def decision(agent: Agent, scene: Scene, fact: int) -> FactScript:
    """Something is decided for a reason; both are needed later."""
    choice, subject = scene.dice.pick(agent.decisions), agent.make_subject(scene)
    chosen, reason = scene.phrase(), scene.code()
    yield agent.state_fact(scene, choice.statement.format(about=subject, chosen=chosen, reason=reason), fact)
    yield scene.gap()
    question = SimulatedQuestion(kind="decision", fact=fact, expect=(chosen, reason))
    yield agent.ask(scene, choice.question_text.format(about=subject), question)
