"""A user talks with an assistant about people, presents, trips and doors, for months."""

from __future__ import annotations

from typing import Final

from recto.lab.simulation import tool_output
from recto.lab.simulation.agent import Agent, Scene, SimulatedDecision, Topic, correction, decision, exact
from recto.lab.simulation.messages import SimulatedCall, SimulatedExchange, SimulatedStep, assistant, user
from recto.lab.simulation.vocabulary import THINGS

_ASIDES: Final = (
    "It was a long day.",
    "By the way, thank you for yesterday.",
    "I am on the train and type slowly.",
    "No hurry with this.",
    "Before I forget it:",
    "Something else.",
)
_THANKS: Final = ("Noted.", "Good to know, I keep that in mind.", "Thank you, I will think of it.", "All right.")
_REQUESTS: Final = (
    "Can you explain to me why the {first} of a {second} matters?",
    "Write me a few lines about a {first} and its {second}.",
    "What would you say to somebody who mixes up {first} and {second}?",
    "Please make this friendlier: the {first} comes after the {second}.",
)
_TOPICS: Final = (
    Topic(
        statement="The locker of {about} at the pool has the number {value}.",
        correction_text="About the pool: {about} has another locker now, {value} and no longer {old}.",
        question_text="I am at the pool for {about}. Which locker is it?",
    ),
    Topic(
        statement="{about} is a member of the library, with the card {value}.",
        correction_text="I was wrong about the library: the card of {about} is {value}, not {old}.",
        question_text="The library wants to know the card of {about}. What was the number?",
    ),
    Topic(
        statement="{about} flies on Thursday; the booking is {value}.",
        correction_text="{about} was booked anew: instead of {old} it is {value} now.",
        question_text="I can check in for {about} now. Which booking do I type?",
    ),
    Topic(
        statement="{about} moved. The code of the new front door is {value}.",
        correction_text="The front door of {about} got another code: {value}; {old} does not open it any more.",
        question_text="I stand before the house of {about}. Which code opens the front door?",
    ),
    Topic(
        statement="{about} cannot stand sweet things and always orders the {value}.",
        correction_text="{about} has changed: no {old} any more, only the {value}.",
        question_text="Dinner with {about} tonight. What should I order?",
        kind="preference",
        phrase=True,
    ),
    Topic(
        statement="If you ever look for a present: {about} has wanted a {value} for years.",
        correction_text="{about} got the {old} from somebody else and would now like a {value}.",
        question_text="{about} has a birthday soon. Which present should I get?",
        kind="preference",
        phrase=True,
    ),
    Topic(
        statement="When you write to {about} for me, begin with '{value}' and never with the full name.",
        correction_text="{about} did not like '{old}'. From now on letters begin with '{value}'.",
        question_text="Write to {about} for me. How does the letter begin?",
        kind="preference",
        phrase=True,
    ),
)
_DECISIONS: Final = (
    SimulatedDecision(
        statement="We have decided about the trip with {about}: we go to the {chosen} inn, because room {reason} is "
        "free.",
        question_text="Where do we go with {about}, and why did we decide so?",
    ),
    SimulatedDecision(
        statement="For the party of {about} we take the {chosen} band; the reason is offer {reason}, the cheapest one.",
        question_text="Which band did we take for the party of {about}, and for what reason?",
    ),
)


def _opening(scene: Scene) -> SimulatedExchange:
    return SimulatedExchange(
        steps=(user("Hello! What is in my calendar today?"), *_work(scene), assistant("Nothing urgent."))
    )


def _idle(scene: Scene) -> SimulatedExchange:
    dice = scene.dice
    request = dice.pick(_REQUESTS).format(first=dice.pick(THINGS), second=dice.pick(THINGS))
    steps = _work(scene) if dice.happens(8) else ()
    return SimulatedExchange(steps=(user(request), *steps, assistant(tool_output.prose(dice, scene.size(500)))))


def _state_fact(scene: Scene, sentence: str, fact: int) -> SimulatedExchange:
    text = f"{scene.dice.pick(_ASIDES)} {sentence}"
    if scene.dice.happens(40):
        text += f" {tool_output.prose(scene.dice, scene.size(200))}"
    return SimulatedExchange(steps=(user(text, fact=fact), assistant(scene.dice.pick(_THANKS))))


def _work(scene: Scene) -> tuple[SimulatedStep, ...]:
    day = f"2026-{scene.dice.between(10, 12)}-{scene.dice.between(10, 28)}"
    output = tool_output.figures(scene.dice, scene.size(150))
    return (assistant("", SimulatedCall(tool="calendar", arguments=(("day", day),), output=output)),)


CHAT_AGENT: Final = Agent(
    system="You are a friend with a good memory. Answer briefly, and never invent what you were not told.",
    pause=900,
    busy=14,
    make_subject=Scene.person,
    opening=_opening,
    idle=_idle,
    state_fact=_state_fact,
    work=_work,
    topics=_TOPICS,
    decisions=_DECISIONS,
    scripts=(exact, exact, exact, exact, exact, correction, correction, decision, decision),
)
