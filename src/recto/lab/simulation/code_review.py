"""An agent reviews changes to a large program: it reads files, often repeatedly, runs tests and decides."""

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
from recto.lab.simulation.random import Dice
from recto.lab.simulation.vocabulary import HUES, PARTS, THINGS

_REQUESTS: Final = (
    "Please review the change to {file}.",
    "A test of {file} fails since this morning; find out why.",
    "Is {file} safe when two requests arrive at once?",
    "Before the release: look through {file} once more.",
)
_TOPICS: Final = (
    Topic(
        statement="The limit of {about} is {value} requests; above that it turns them away.",
        correction_text="The limit of {about} was raised: {value} requests and not {old}.",
        question_text="How many requests may {about} take before it turns them away?",
    ),
    Topic(
        statement="The change to {about} goes with ticket {value}; put it into the message of the commit.",
        correction_text="{about} has another ticket: {old} was closed, it is {value}.",
        question_text="I commit the change to {about} now. Which ticket goes into the message?",
    ),
    Topic(
        statement="In production {about} listens on socket {value}.",
        correction_text="They moved {about}: it listens on socket {value} in production, {old} is closed.",
        question_text="What do I connect to when I look for {about} in production?",
    ),
    Topic(
        statement="In every comment on {about}, call the old code 'the {value}', as the team does.",
        correction_text="The team has renamed the old code of {about}: it is 'the {value}', no longer 'the {old}'.",
        question_text="I write a comment on {about}. What does the team call the old code?",
        kind="preference",
        phrase=True,
    ),
)
_DECISIONS: Final = (
    SimulatedDecision(
        statement="Decided: {about} uses the {chosen} algorithm, because incident {reason} must not happen again.",
        question_text="Somebody wants to replace the algorithm of {about}. Which one did we decide on, and why?",
    ),
    SimulatedDecision(
        statement="We keep {about} behind the {chosen} flag. Reason: customer {reason} still depends on the old way.",
        question_text="Can the flag of {about} go? Which one is it, and what was the reason for it?",
    ),
)


def _path(part: str) -> str:
    return part.replace("-", "/") + ".py"


def _some_file(scene: Scene) -> str:
    """Returns a file without a fact. There are few, so that they are read again and again."""
    return f"{scene.dice.pick(HUES[:6])}/{scene.dice.pick(PARTS)}.py"


def _opening(scene: Scene) -> SimulatedExchange:
    return SimulatedExchange(steps=(user("What does this program do?"), *_work(scene), assistant("It keeps accounts.")))


def _idle(scene: Scene) -> SimulatedExchange:
    text = scene.dice.pick(_REQUESTS).format(file=_some_file(scene))
    answer = tool_output.prose(scene.dice, scene.size(300))
    return SimulatedExchange(steps=(user(text), *_work(scene), assistant(answer)))


def _state_fact(scene: Scene, sentence: str, fact: int) -> SimulatedExchange:
    """In half of the cases the user states it, else the agent finds it out."""
    if scene.dice.happens(50):
        text = f"{sentence} {tool_output.sentence(scene.dice)}"
        return SimulatedExchange(
            steps=(user(text, fact=fact), *_work(scene), assistant("I have looked, it is as you say."))
        )
    answer = f"{tool_output.prose(scene.dice, scene.size(300))} {sentence}"
    return SimulatedExchange(steps=(user(f"Look at {_some_file(scene)}."), *_work(scene), assistant(answer, fact=fact)))


def _work(scene: Scene) -> tuple[SimulatedStep, ...]:
    """A loop of tools: mostly one call at a time, sometimes several in parallel."""
    return tuple(
        assistant("", *(_call(scene) for _ in range(scene.dice.steps(6, 4)))) for _ in range(scene.dice.steps(55, 6))
    )


def _call(scene: Scene) -> SimulatedCall:
    dice = scene.dice
    if dice.happens(30):
        return SimulatedCall(tool="run", arguments=(("command", "make test"),), output=tool_output.test_run(dice))
    if dice.happens(20):
        lines = tool_output.log(dice, scene.size(300))
        return SimulatedCall(tool="search", arguments=(("pattern", dice.pick(THINGS)),), output=lines)
    path = _some_file(scene)
    file_dice = Dice(
        int.from_bytes(path.encode())
    )  # the content is a function of the name, so that a file always reads the same
    content = tool_output.source_code(file_dice, scene.fit(file_dice.length(620)))
    return SimulatedCall(tool="read_file", arguments=(("path", path),), output=content)


def file(agent: Agent, scene: Scene, fact: int) -> FactScript:
    """A file is read, perhaps changed, perhaps read again unchanged; later its content is needed."""
    part = scene.part()
    path, name = _path(part), scene.dice.pick(THINGS).upper()
    value, old = scene.code(), ""
    if scene.dice.happens(40):
        old = scene.code()
        yield _read(scene, path, f"{name}_LIMIT = {old}", 0)
        yield scene.gap()
    for _ in range(scene.dice.steps(35, 3)):
        yield _read(scene, path, f"{name}_LIMIT = {value}", fact)
        yield scene.gap()
    text = f"Without reading it again: what is {name}_LIMIT in {path}?"
    outdated = (old,) if old else ()
    yield agent.ask(scene, text, SimulatedQuestion(kind="file", fact=fact, expect=(value,), outdated=outdated))


def _read(scene: Scene, path: str, line: str, fact: int) -> SimulatedExchange:
    content = tool_output.source_code(scene.dice, scene.size(900), fact_line=line)
    call = SimulatedCall(tool="read_file", arguments=(("path", path),), output=content, fact=fact)
    request = scene.dice.pick(_REQUESTS).format(file=path)
    return SimulatedExchange(
        steps=(user(request), assistant("", call), assistant(tool_output.prose(scene.dice, scene.size(200))))
    )


REVIEW: Final = Agent(
    system="You are a careful engineer. Read before you judge, and say what you are not sure of.",
    pause=240,
    busy=16,
    make_subject=Scene.part,
    opening=_opening,
    idle=_idle,
    state_fact=_state_fact,
    work=_work,
    topics=_TOPICS,
    decisions=_DECISIONS,
    scripts=(file, file, file, file, exact, exact, correction, correction, decision, decision),
)
