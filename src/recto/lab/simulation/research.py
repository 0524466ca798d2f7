"""An agent looks into questions with many sources: it searches, reads pages side by side, and cites."""

from __future__ import annotations

from typing import Final

from recto.lab.simulation import tool_output
from recto.lab.simulation.agent import Agent, Scene, SimulatedDecision, Topic, correction, decision, exact
from recto.lab.simulation.messages import (
    Exchange,
    Life,
    SimulatedCall,
    SimulatedQuestion,
    SimulatedStep,
    assistant,
    user,
)
from recto.lab.simulation.vocabulary import MATTERS, PLACES, THINGS

_WISHES: Final = (
    "What is known about the {first} of {second}?",
    "Find three sources on the {first} of {second}.",
    "Who has measured the {first} of {second}, and how?",
    "Sum up what you have on the {first} of {second}.",
)
_TOPICS: Final = (
    Topic(
        said="The survey on {about} counted {value} samples in all.",
        corrected="The survey on {about} was revised: {value} samples and not {old}.",
        asked="How large was the survey on {about}, in samples?",
    ),
    Topic(
        said="The data on {about} is kept under the accession {value}.",
        corrected="The data on {about} was deposited anew: accession {value} takes the place of {old}.",
        asked="I want to download the data on {about}. Under which accession is it?",
    ),
    Topic(
        said="The study of {about} was paid for by grant {value}.",
        corrected="Not grant {old} paid for the study of {about}, it was {value}.",
        asked="Who is to be thanked for the study of {about}: which grant was it?",
    ),
)
_DECISIONS: Final = (
    SimulatedDecision(
        said="For {about} we settle on the {chosen} model, because it alone explains observation {reason}.",
        asked="Which model did we settle on for {about}, and what did it explain?",
    ),
    SimulatedDecision(
        said="We leave the {chosen} series out of the chapter on {about}, since its calibration {reason} failed.",
        asked="A reviewer of the chapter on {about} asks which series we left out, and why.",
    ),
)


def _opening(scene: Scene) -> Exchange:
    return Exchange(said=(user("Get an overview of the field."), *_working(scene), assistant("There is much of it.")))


def _idle(scene: Scene) -> Exchange:
    dice = scene.dice
    wish = dice.pick(_WISHES).format(first=dice.pick(MATTERS), second=dice.pick(PLACES))
    report = tool_output.prose(dice, scene.size(700))
    return Exchange(said=(user(wish), *_working(scene), assistant(f"{report} [{dice.between(1, 90)}]")))


def _telling(scene: Scene, sentence: str, fact: int) -> Exchange:
    """Mostly it stands in a page that is read, sometimes the user says it."""
    if scene.dice.happens(30):
        return Exchange(said=(user(sentence, fact=fact), assistant("I take that over.")))
    step = assistant("", _page(scene, sentence, fact), *(_page(scene, "", 0) for _ in range(scene.dice.below(3))))
    wish = scene.dice.pick(_WISHES).format(first=scene.dice.pick(MATTERS), second=scene.dice.pick(PLACES))
    return Exchange(said=(user(wish), step, assistant("I have read it and keep what matters.")))


def _working(scene: Scene) -> tuple[SimulatedStep, ...]:
    steps = [assistant("", _search(scene))]
    steps += [
        assistant("", *(_page(scene, "", 0) for _ in range(scene.dice.steps(30, 4))))
        for _ in range(scene.dice.below(3))
    ]
    return tuple(steps)


def _search(scene: Scene) -> SimulatedCall:
    dice = scene.dice
    titles = [
        f"{place}. On {dice.pick(MATTERS)} and {dice.pick(THINGS)}: {tool_output.sentence(dice)}"
        for place in range(1, dice.between(4, 9))
    ]
    return SimulatedCall(tool="search", given=(("query", dice.pick(MATTERS)),), output="\n".join(titles))


def _page(scene: Scene, holding: str, fact: int) -> SimulatedCall:
    url = f"https://library.example/{scene.dice.pick(MATTERS)}/{scene.dice.below(99_999)}"
    output = tool_output.page(scene.dice, scene.size(1_100), holding=holding)
    return SimulatedCall(tool="fetch", given=(("url", url),), output=output, fact=fact)


def source(agent: Agent, scene: Scene, fact: int) -> Life:
    """A page says something under a number of its own; later it has to be cited."""
    about, doi, share = scene.matter(), scene.code(), scene.dice.between(11, 89)
    sentence = f"We find that {share} percent of the {about} recover within a decade (doi 10.5555/{doi})."
    yield _telling(scene, sentence, fact)
    yield scene.gap()
    text = f"Which doi do I cite for the recovery of the {about}?"
    yield agent.asking(scene, text, SimulatedQuestion(kind="source", fact=fact, expect=(doi,)))


RESEARCH: Final = Agent(
    system="You are a librarian and a scientist. Every claim has a source.",
    pause=600,
    busy=16,
    about=Scene.matter,
    opening=_opening,
    idle=_idle,
    telling=_telling,
    working=_working,
    topics=_TOPICS,
    decisions=_DECISIONS,
    lives=(source, source, source, source, exact, exact, correction, correction, decision),
)
