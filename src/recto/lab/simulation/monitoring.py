"""An agent monitors machines: a check every ten minutes, long silence, now and then series of alarms."""

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
        statement="The alarm of {about} is set to {value} requests in a minute.",
        correction_text="The alarm of {about} was set anew: {value} requests in a minute instead of {old}.",
        question_text="At how many requests in a minute does the alarm of {about} go off?",
    ),
    Topic(
        statement="Who is on duty for {about} has the pager {value}.",
        correction_text="Other people are on duty for {about}: pager {value}, not {old} any more.",
        question_text="Call whoever is on duty for {about}. Which pager is it?",
    ),
    Topic(
        statement="The spare disk for {about} lies in the cupboard with the label {value}.",
        correction_text="The spare disk for {about} was moved from cupboard {old}; it has the label {value} now.",
        question_text="A disk of {about} has to be changed. Where is the spare one, what does the label say?",
    ),
)
_DECISIONS: Final = (
    SimulatedDecision(
        statement="From now on {about} runs on the {chosen} machines, because contract {reason} says so.",
        question_text="On which machines does {about} run since we decided it, and why?",
    ),
    SimulatedDecision(
        statement="We do not restart {about} at night. The {chosen} job would be lost, as in incident {reason}.",
        question_text="May {about} be restarted at night? What would be lost, and when did that happen?",
    ),
)


def _check(scene: Scene, output: str, *, fact: int = 0) -> SimulatedStep:
    target = f"{scene.dice.pick(HUES)}-{scene.dice.pick(PARTS)}"
    return assistant("", SimulatedCall(tool="check", arguments=(("target", target),), output=output, fact=fact))


def _time(scene: Scene) -> str:
    minutes = scene.turn * 10
    return f"day {minutes // 1440}, {minutes // 60 % 24:02}:{minutes % 60:02}"


def _opening(scene: Scene) -> SimulatedExchange:
    return SimulatedExchange(steps=(user("Begin to watch."), _check(scene, "ok: 212 of 212"), assistant("I watch.")))


def _idle(scene: Scene) -> SimulatedExchange:
    """In nine of ten cases nothing happens."""
    dice = scene.dice
    if not dice.happens(10):
        output = f"ok: {dice.between(205, 212)} of 212, load {dice.below(90)} %"
        return SimulatedExchange(
            steps=(user(f"Look of {_time(scene)}."), _check(scene, output), assistant("Nothing to report."))
        )
    alarm = f"ALARM of {_time(scene)}: {dice.pick(HUES)}-{dice.pick(PARTS)} {dice.pick(_SYMPTOMS)}."
    return SimulatedExchange(steps=(user(alarm), *_work(scene), assistant(tool_output.prose(dice, scene.size(150)))))


def _state_fact(scene: Scene, sentence: str, fact: int) -> SimulatedExchange:
    """It is in the shift book, or the user states it."""
    if scene.dice.happens(50):
        return SimulatedExchange(steps=(user(sentence, fact=fact), assistant("Understood.")))
    book = tool_output.log(scene.dice, scene.size(500), fact_line=sentence)
    step = assistant("", SimulatedCall(tool="shift_book", arguments=(("time", _time(scene)),), output=book, fact=fact))
    return SimulatedExchange(steps=(user(f"Look of {_time(scene)}, with the shift book."), step, assistant("Read.")))


def _work(scene: Scene) -> tuple[SimulatedStep, ...]:
    dice = scene.dice
    return tuple(
        _check(
            scene,
            tool_output.log(dice, scene.size(700)) if dice.happens(60) else tool_output.figures(dice, scene.size(300)),
        )
        for _ in range(dice.steps(50, 4))
    )


def cause(agent: Agent, scene: Scene, fact: int) -> FactScript:
    """The log of a first alarm has the cause; later alarms of the part do not; then it is asked for."""
    part, fault = scene.part(), scene.code()
    line = f"ERROR {part} first fault {fault}: a disk went away, everything after this follows from it"
    first = _check(scene, tool_output.log(scene.dice, scene.size(700), fact_line=line), fact=fact)
    alarm = f"ALARM of {_time(scene)}: {part} {scene.dice.pick(_SYMPTOMS)}."
    yield SimulatedExchange(steps=(user(alarm), first, assistant("I follow this up.")))
    for _ in range(scene.dice.between(2, 5)):
        yield scene.dice.between(1, 6)
        again = f"ALARM of {_time(scene)}: {part} {scene.dice.pick(_SYMPTOMS)}."
        yield SimulatedExchange(steps=(user(again), *_work(scene), assistant("It still follows from what came first.")))
    yield scene.gap()
    text = f"For the report on {part}: which fault set off the row of alarms, the very first one?"
    yield agent.ask(scene, text, SimulatedQuestion(kind="cause", fact=fact, expect=(fault,)))


MONITORING: Final = Agent(
    system="You watch over machines. Say nothing where there is nothing to say, and find first causes.",
    pause=600,
    busy=5,
    make_subject=Scene.part,
    opening=_opening,
    idle=_idle,
    state_fact=_state_fact,
    work=_work,
    topics=_TOPICS,
    decisions=_DECISIONS,
    scripts=(cause, cause, cause, exact, exact, correction, correction, decision),
)
