"""An agent watches over machines: a look every ten minutes, long silence, now and then alarms that come in rows."""

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
from recto.lab.simulation.vocabulary import HUES, PARTS

_SYMPTOMS: Final = (
    "answers slowly",
    "refuses connections",
    "has a queue that grows",
    "writes errors",
    "restarts by itself",
    "uses all of its memory",
)
_TOPICS: Final = (
    Topic(
        said="The alarm of {about} is set to {value} requests in a minute.",
        corrected="The alarm of {about} was set anew: {value} requests in a minute instead of {old}.",
        asked="At how many requests in a minute does the alarm of {about} go off?",
    ),
    Topic(
        said="Who is on duty for {about} has the pager {value}.",
        corrected="Other people are on duty for {about}: pager {value}, not {old} any more.",
        asked="Call whoever is on duty for {about}. Which pager is it?",
    ),
    Topic(
        said="The spare disk for {about} lies in the cupboard with the label {value}.",
        corrected="The spare disk for {about} was moved from cupboard {old}; it has the label {value} now.",
        asked="A disk of {about} has to be changed. Where is the spare one, what does the label say?",
    ),
)
_DECISIONS: Final = (
    SimulatedDecision(
        said="From now on {about} runs on the {chosen} machines, because contract {reason} says so.",
        asked="On which machines does {about} run since we decided it, and why?",
    ),
    SimulatedDecision(
        said="We do not restart {about} at night. The {chosen} job would be lost, as in incident {reason}.",
        asked="May {about} be restarted at night? What would be lost, and when did that happen?",
    ),
)


def _look(scene: Scene, output: str, *, fact: int = 0) -> SimulatedStep:
    target = f"{scene.dice.pick(HUES)}-{scene.dice.pick(PARTS)}"
    return assistant("", SimulatedCall(tool="check", given=(("target", target),), output=output, fact=fact))


def _time(scene: Scene) -> str:
    minutes = scene.turn * 10
    return f"day {minutes // 1440}, {minutes // 60 % 24:02}:{minutes % 60:02}"


def _opening(scene: Scene) -> Exchange:
    return Exchange(said=(user("Begin to watch."), _look(scene, "ok: 212 of 212"), assistant("I watch.")))


def _idle(scene: Scene) -> Exchange:
    """Nine of ten times nothing happens."""
    dice = scene.dice
    if not dice.happens(10):
        output = f"ok: {dice.between(205, 212)} of 212, load {dice.below(90)} %"
        return Exchange(said=(user(f"Look of {_time(scene)}."), _look(scene, output), assistant("Nothing to report.")))
    alarm = f"ALARM of {_time(scene)}: {dice.pick(HUES)}-{dice.pick(PARTS)} {dice.pick(_SYMPTOMS)}."
    return Exchange(said=(user(alarm), *_working(scene), assistant(tool_output.prose(dice, scene.size(150)))))


def _telling(scene: Scene, sentence: str, fact: int) -> Exchange:
    """It stands in the book of the shift, or somebody says it."""
    if scene.dice.happens(50):
        return Exchange(said=(user(sentence, fact=fact), assistant("Understood.")))
    book = tool_output.log(scene.dice, scene.size(500), holding=sentence)
    step = assistant("", SimulatedCall(tool="shift_book", given=(("time", _time(scene)),), output=book, fact=fact))
    return Exchange(said=(user(f"Look of {_time(scene)}, with the shift book."), step, assistant("Read.")))


def _working(scene: Scene) -> tuple[SimulatedStep, ...]:
    dice = scene.dice
    return tuple(
        _look(
            scene,
            tool_output.log(dice, scene.size(700)) if dice.happens(60) else tool_output.figures(dice, scene.size(300)),
        )
        for _ in range(dice.steps(50, 4))
    )


def cause(agent: Agent, scene: Scene, fact: int) -> Life:
    """A first alarm has a cause in its log; others of the same part follow without it; later somebody asks."""
    about, fault = scene.part(), scene.code()
    line = f"ERROR {about} first fault {fault}: a disk went away, everything after this follows from it"
    first = _look(scene, tool_output.log(scene.dice, scene.size(700), holding=line), fact=fact)
    alarm = f"ALARM of {_time(scene)}: {about} {scene.dice.pick(_SYMPTOMS)}."
    yield Exchange(said=(user(alarm), first, assistant("I follow this up.")))
    for _ in range(scene.dice.between(2, 5)):
        yield scene.dice.between(1, 6)
        again = f"ALARM of {_time(scene)}: {about} {scene.dice.pick(_SYMPTOMS)}."
        yield Exchange(said=(user(again), *_working(scene), assistant("It still follows from what came first.")))
    yield scene.gap()
    text = f"For the report on {about}: which fault set off the row of alarms, the very first one?"
    yield agent.asking(scene, text, SimulatedQuestion(kind="cause", fact=fact, expect=(fault,)))


MONITORING: Final = Agent(
    system="You watch over machines. Say nothing where there is nothing to say, and find first causes.",
    pause=600,
    busy=5,
    about=Scene.part,
    opening=_opening,
    idle=_idle,
    telling=_telling,
    working=_working,
    topics=_TOPICS,
    decisions=_DECISIONS,
    lives=(cause, cause, cause, exact, exact, correction, correction, decision),
)
