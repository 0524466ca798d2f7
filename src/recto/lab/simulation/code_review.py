"""An agent reviews changes to a large program: it reads files, often the same ones again, runs tests and decides."""

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
from recto.lab.simulation.random import Dice
from recto.lab.simulation.vocabulary import HUES, PARTS, THINGS

_WISHES: Final = (
    "Please review the change to {file}.",
    "A test of {file} fails since this morning; find out why.",
    "Is {file} safe when two requests arrive at once?",
    "Before the release: look through {file} once more.",
)
_TOPICS: Final = (
    Topic(
        said="The limit of {about} is {value} requests; above that it turns them away.",
        corrected="The limit of {about} was raised: {value} requests and not {old}.",
        asked="How many requests may {about} take before it turns them away?",
    ),
    Topic(
        said="The change to {about} goes with ticket {value}; put it into the message of the commit.",
        corrected="{about} has another ticket: {old} was closed, it is {value}.",
        asked="I commit the change to {about} now. Which ticket goes into the message?",
    ),
    Topic(
        said="In production {about} listens on socket {value}.",
        corrected="They moved {about}: it listens on socket {value} in production, {old} is closed.",
        asked="What do I connect to when I look for {about} in production?",
    ),
    Topic(
        said="In every comment on {about}, call the old code 'the {value}', as the team does.",
        corrected="The team has renamed the old code of {about}: it is 'the {value}', no longer 'the {old}'.",
        asked="I write a comment on {about}. What does the team call the old code?",
        kind="preference",
        phrase=True,
    ),
)
_DECISIONS: Final = (
    SimulatedDecision(
        said="Decided: {about} uses the {chosen} algorithm, because incident {reason} must not happen again.",
        asked="Somebody wants to replace the algorithm of {about}. Which one did we decide on, and why?",
    ),
    SimulatedDecision(
        said="We keep {about} behind the {chosen} flag. Reason: customer {reason} still depends on the old way.",
        asked="Can the flag of {about} go? Which one is it, and what was the reason for it?",
    ),
)


def _path(part: str) -> str:
    return part.replace("-", "/") + ".py"


def _some_file(scene: Scene) -> str:
    """A file that no fact is about. There are few, so that they are read again and again."""
    return f"{scene.dice.pick(HUES[:6])}/{scene.dice.pick(PARTS)}.py"


def _opening(scene: Scene) -> Exchange:
    return Exchange(said=(user("What does this program do?"), *_working(scene), assistant("It keeps accounts.")))


def _idle(scene: Scene) -> Exchange:
    text = scene.dice.pick(_WISHES).format(file=_some_file(scene))
    found = tool_output.prose(scene.dice, scene.size(300))
    return Exchange(said=(user(text), *_working(scene), assistant(found)))


def _telling(scene: Scene, sentence: str, fact: int) -> Exchange:
    """Half of the time somebody says it, else the agent finds it out."""
    if scene.dice.happens(50):
        said = f"{sentence} {tool_output.sentence(scene.dice)}"
        return Exchange(said=(user(said, fact=fact), *_working(scene), assistant("I have looked, it is as you say.")))
    found = f"{tool_output.prose(scene.dice, scene.size(300))} {sentence}"
    return Exchange(said=(user(f"Look at {_some_file(scene)}."), *_working(scene), assistant(found, fact=fact)))


def _working(scene: Scene) -> tuple[SimulatedStep, ...]:
    """A loop of tools: mostly one call at a time, sometimes several at once."""
    return tuple(
        assistant("", *(_call(scene) for _ in range(scene.dice.steps(6, 4)))) for _ in range(scene.dice.steps(55, 6))
    )


def _call(scene: Scene) -> SimulatedCall:
    dice = scene.dice
    if dice.happens(30):
        return SimulatedCall(tool="run", given=(("command", "make test"),), output=tool_output.run_of_tests(dice))
    if dice.happens(20):
        lines = tool_output.log(dice, scene.size(300))
        return SimulatedCall(tool="search", given=(("pattern", dice.pick(THINGS)),), output=lines)
    path = _some_file(scene)
    own = Dice(int.from_bytes(path.encode()))  # the same file reads the same: what stands in it hangs on its name
    content = tool_output.source_code(own, scene.room_for(own.length(620)))
    return SimulatedCall(tool="read_file", given=(("path", path),), output=content)


def file(agent: Agent, scene: Scene, fact: int) -> Life:
    """A file is read, perhaps changed, perhaps read again as it was; later it is needed what stands in it."""
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
    yield agent.asking(scene, text, SimulatedQuestion(kind="file", fact=fact, expect=(value,), outdated=outdated))


def _read(scene: Scene, path: str, line: str, fact: int) -> Exchange:
    content = tool_output.source_code(scene.dice, scene.size(900), holding=line)
    call = SimulatedCall(tool="read_file", given=(("path", path),), output=content, fact=fact)
    wish = scene.dice.pick(_WISHES).format(file=path)
    return Exchange(said=(user(wish), assistant("", call), assistant(tool_output.prose(scene.dice, scene.size(200)))))


REVIEW: Final = Agent(
    system="You are a careful engineer. Read before you judge, and say what you are not sure of.",
    pause=240,
    busy=16,
    about=Scene.part,
    opening=_opening,
    idle=_idle,
    telling=_telling,
    working=_working,
    topics=_TOPICS,
    decisions=_DECISIONS,
    lives=(file, file, file, file, exact, exact, correction, correction, decision, decision),
)
