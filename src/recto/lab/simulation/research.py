"""An agent researches questions with many sources: it searches, reads pages in parallel, and cites."""

from __future__ import annotations

from typing import Final

from recto.lab.simulation import tool_output
from recto.lab.simulation.agent import Agent, Scene, SimulatedDecision, Topic, correction, decision, exact
from recto.lab.simulation.messages import (
    FactScript,
    SimulatedCall,
    SimulatedExchange,
    SimulatedQuestion,
    SimulatedStep,
    assistant,
    user,
)
from recto.lab.simulation.vocabulary import MATTERS, PLACES, THINGS

_REQUESTS: Final = (
    "What is known about the {first} of {second}?",
    "Find three sources on the {first} of {second}.",
    "Who has measured the {first} of {second}, and how?",
    "Sum up what you have on the {first} of {second}.",
)
_TOPICS: Final = (
    Topic(
        statement="The survey on {about} counted {value} samples in all.",
        correction_text="The survey on {about} was revised: {value} samples and not {old}.",
        question_text="How large was the survey on {about}, in samples?",
    ),
    Topic(
        statement="The data on {about} is kept under the accession {value}.",
        correction_text="The data on {about} was deposited anew: accession {value} takes the place of {old}.",
        question_text="I want to download the data on {about}. Under which accession is it?",
    ),
    Topic(
        statement="The study of {about} was paid for by grant {value}.",
        correction_text="Not grant {old} paid for the study of {about}, it was {value}.",
        question_text="Who is to be thanked for the study of {about}: which grant was it?",
    ),
)
_DECISIONS: Final = (
    SimulatedDecision(
        statement="For {about} we settle on the {chosen} model, because it alone explains observation {reason}.",
        question_text="Which model did we settle on for {about}, and what did it explain?",
    ),
    SimulatedDecision(
        statement="We leave the {chosen} series out of the chapter on {about}, since its calibration {reason} failed.",
        question_text="A reviewer of the chapter on {about} asks which series we left out, and why.",
    ),
)


def _opening(scene: Scene) -> SimulatedExchange:
    return SimulatedExchange(
        steps=(user("Get an overview of the field."), *_work(scene), assistant("There is much of it."))
    )


def _idle(scene: Scene) -> SimulatedExchange:
    dice = scene.dice
    request = dice.pick(_REQUESTS).format(first=dice.pick(MATTERS), second=dice.pick(PLACES))
    report = tool_output.prose(dice, scene.size(700))
    return SimulatedExchange(steps=(user(request), *_work(scene), assistant(f"{report} [{dice.between(1, 90)}]")))


def _state_fact(scene: Scene, sentence: str, fact: int) -> SimulatedExchange:
    """Mostly it is in a page that is read, sometimes the user states it."""
    if scene.dice.happens(30):
        return SimulatedExchange(steps=(user(sentence, fact=fact), assistant("I take that over.")))
    step = assistant("", _page(scene, sentence, fact), *(_page(scene, "", 0) for _ in range(scene.dice.below(3))))
    request = scene.dice.pick(_REQUESTS).format(first=scene.dice.pick(MATTERS), second=scene.dice.pick(PLACES))
    return SimulatedExchange(steps=(user(request), step, assistant("I have read it and keep what matters.")))


def _work(scene: Scene) -> tuple[SimulatedStep, ...]:
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
    return SimulatedCall(tool="search", arguments=(("query", dice.pick(MATTERS)),), output="\n".join(titles))


def _page(scene: Scene, fact_line: str, fact: int) -> SimulatedCall:
    url = f"https://library.example/{scene.dice.pick(MATTERS)}/{scene.dice.below(99_999)}"
    output = tool_output.page(scene.dice, scene.size(1_100), fact_line=fact_line)
    return SimulatedCall(tool="fetch", arguments=(("url", url),), output=output, fact=fact)


def source(agent: Agent, scene: Scene, fact: int) -> FactScript:
    """A page makes a claim with a DOI; later it must be cited."""
    subject, doi, share = scene.matter(), scene.code(), scene.dice.between(11, 89)
    sentence = f"We find that {share} percent of the {subject} recover within a decade (doi 10.5555/{doi})."
    yield _state_fact(scene, sentence, fact)
    yield scene.gap()
    text = f"Which doi do I cite for the recovery of the {subject}?"
    yield agent.ask(scene, text, SimulatedQuestion(kind="source", fact=fact, expect=(doi,)))


RESEARCH: Final = Agent(
    system="You are a librarian and a scientist. Every claim has a source.",
    pause=600,
    busy=16,
    make_subject=Scene.matter,
    opening=_opening,
    idle=_idle,
    state_fact=_state_fact,
    work=_work,
    topics=_TOPICS,
    decisions=_DECISIONS,
    scripts=(source, source, source, source, exact, exact, correction, correction, decision),
)
