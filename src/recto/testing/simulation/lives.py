"""What an agent is made of, and what becomes of facts: said, corrected or decided, and asked for later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from recto.core.known_needs import NeedKind
from recto.testing.simulation.saying import Exchange, Life, Question, Said, assistant, user
from recto.testing.simulation.scene import Scene

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
class Decision:
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
    working: Callable[[Scene], tuple[Said, ...]]
    """Steps with tools."""
    topics: tuple[Topic, ...]
    decisions: tuple[Decision, ...]
    lives: tuple[Begin, ...]
    """What can become of a fact; one that stands twice comes twice as often."""

    def asking(self, scene: Scene, text: str, question: Question) -> Exchange:
        """The turn in which a fact is needed. The answer does not say it again."""
        steps = self.working(scene) if scene.dice.happens(25) else ()
        return Exchange(said=(user(text), *steps, assistant(scene.dice.pick(_REPLIES))), question=question)


def exact(agent: Agent, scene: Scene, fact: int) -> Life:
    """A value is said once, and needed later."""
    topic, about = scene.dice.pick(agent.topics), agent.about(scene)
    value = topic.value(scene)
    yield agent.telling(scene, topic.said.format(about=about, value=value), fact)
    yield scene.gap()
    yield agent.asking(scene, topic.asked.format(about=about), Question(kind=topic.kind, fact=fact, expect=(value,)))


def correction(agent: Agent, scene: Scene, fact: int) -> Life:
    """A value is said, later another one is right, and later still it is needed."""
    topic, about = scene.dice.pick(agent.topics), agent.about(scene)
    old, value = topic.value(scene), topic.value(scene)
    yield agent.telling(scene, topic.said.format(about=about, value=old), 0)
    yield scene.gap()
    yield agent.telling(scene, topic.corrected.format(about=about, value=value, old=old), fact)
    yield scene.gap()
    question = Question(kind="correction", fact=fact, expect=(value,), outdated=(old,))
    yield agent.asking(scene, topic.asked.format(about=about), question)


def decision(agent: Agent, scene: Scene, fact: int) -> Life:
    """Something is decided for a reason; later both are needed."""
    choice, about = scene.dice.pick(agent.decisions), agent.about(scene)
    chosen, reason = scene.phrase(), scene.code()
    yield agent.telling(scene, choice.said.format(about=about, chosen=chosen, reason=reason), fact)
    yield scene.gap()
    question = Question(kind="decision", fact=fact, expect=(chosen, reason))
    yield agent.asking(scene, choice.asked.format(about=about), question)
