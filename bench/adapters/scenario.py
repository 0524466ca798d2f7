"""One scenario for every framework: a scripted model, a tool that answers, and questions about earlier facts.

A run is 300 messages: tasks in which the model calls tools, and questions about what was found on the way. The model
reads nothing: its response depends only on how often it was called, so that every framework is driven the same way,
whatever it sends. The prompts are recorded as Chat messages and judged afterwards: whether each fits, whether calls and
results are paired, whether the fact that is asked for is in the prompt, and how much a provider's cache holds.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from recto.config import Settings
from recto.config.factory import make_meter
from recto.formats import problems, read
from recto.formats.message import Message
from recto.formats.openai_chat import CHAT
from recto.tokens.meter import Meter

MODEL = "gpt-4o"
WINDOW = 16_000
"""What the scripted model takes; more is refused as a provider refuses it."""
SYSTEM = "You look after a warehouse. Use the tools; answer in one sentence."
TASKS = 22
ROUNDS = 5
QUESTIONS = 20
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Looks up everything that is known about a shelf.",
            "parameters": {
                "type": "object",
                "properties": {"shelf": {"type": "string", "description": "The shelf, such as A-17."}},
                "required": ["shelf"],
            },
        },
    }
]
_GOODS = ("copper wire", "oak veneer", "brass hinges", "glass beads", "linen thread", "slate tiles", "cork sheets")
_NOTES = (
    "The last count was made by the night shift and agrees with the list.",
    "A pallet stands in front of it and has to be moved before anything is taken out.",
    "The label is worn; the number can be read from the left side only.",
    "It was moved here from the old hall in spring, with everything that lay on it.",
    "The scale beside it was set anew after the last inspection.",
)


class PromptTooLong(Exception):
    """What the scripted provider says where a prompt does not fit; its words are those of the real ones."""

    def __init__(self, tokens: int) -> None:
        super().__init__(
            f"This model's maximum context length is {WINDOW} tokens. "
            f"However, your messages resulted in {tokens} tokens."
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """Something the user says, and the shelves that are looked up for it."""

    says: str
    shelves: tuple[str, ...] = ()
    asks_for: str = ""
    """The fact without which it cannot be answered."""
    answer: str = ""


@dataclass
class Scenario:
    """A run, its model and its tools."""

    seed: int = 11
    prompts: list[list[dict[str, Any]]] = field(default_factory=list)
    """What the model was sent."""
    refused: int = 0
    """Prompts that did not fit."""
    lost: list[str] = field(default_factory=list)
    """Facts that did not stand in the prompt when they were asked for."""
    found: list[str] = field(default_factory=list)

    @cached_property
    def turns(self) -> list[Turn]:
        """What the user says, in order: the tasks, then the questions."""
        rng = random.Random(self.seed)
        shelves = [f"{rng.choice('ABCDEFGH')}-{number}" for number in rng.sample(range(100, 999), TASKS * ROUNDS)]
        tasks = [
            Turn(
                f"Task {task + 1}: check these shelves one by one, then say that you are done.",
                tuple(group),
                "",
                "Done.",
            )
            for task in range(TASKS)
            if (group := shelves[task * ROUNDS : (task + 1) * ROUNDS])
        ]
        asked = rng.sample(shelves, QUESTIONS)
        return tasks + [
            Turn(f"Which batch number does shelf {shelf} have?", (), batch_of(shelf), f"It is {batch_of(shelf)}.")
            for shelf in asked
        ]

    def script(self, turn: Turn) -> Iterator[dict[str, Any]]:
        """What the model says in a turn, as Chat messages."""
        for shelf in turn.shelves:
            function = {"name": "look_up", "arguments": json.dumps({"shelf": shelf})}
            call = {"id": f"call_{shelf.replace('-', '_')}", "type": "function", "function": function}
            yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "assistant", "content": turn.answer}

    def asked(self, turn: Turn, prompt: Sequence[dict[str, Any]]) -> None:
        """Takes in what the model is sent. Raises `PromptTooLong` as a provider would."""
        tokens = count(prompt)
        if tokens > WINDOW:
            self.refused += 1
            if turn.asks_for:
                self.lost.append(turn.asks_for)
            raise PromptTooLong(tokens)
        self.prompts.append(list(prompt))
        if turn.asks_for:
            (self.found if turn.asks_for in json.dumps(prompt, ensure_ascii=False) else self.lost).append(turn.asks_for)


def batch_of(shelf: str) -> str:
    """The fact of a shelf."""
    return f"BX{random.Random(shelf).randrange(10**7, 10**8)}"


def look_up(shelf: str) -> str:
    """The tool: some 250 tokens about a shelf, its batch number among them."""
    rng = random.Random(f"about {shelf}")
    lines = [f"Shelf {shelf}: {rng.choice(_GOODS)}, batch number {batch_of(shelf)}."]
    lines += [f"Row {row}: {rng.randrange(400)} pieces. {rng.choice(_NOTES)}" for row in range(1, 10)]
    return "\n".join(lines)


def count(prompt: Sequence[dict[str, Any]]) -> int:
    """The tokens of a prompt with the tools, as the model counts them."""
    return _meter().prompt([_read(message) for message in prompt], json.dumps(TOOLS))


def judged(name: str, scenario: Scenario, note: str = "") -> dict[str, Any]:
    """A run as a row of the table."""
    raws = [[json.dumps(message).encode() for message in prompt] for prompt in scenario.prompts]
    tokens = sum(count(prompt) for prompt in scenario.prompts)
    cached = sum(_shared(before, after) for before, after in zip(scenario.prompts, scenario.prompts[1:], strict=False))
    return {
        "what": name,
        "overflow errors": scenario.refused,
        "broken prompts": sum(bool(problems(raw, CHAT)) for raw in raws),
        "facts in the prompt when asked": f"{len(scenario.found)} of {len(scenario.found) + len(scenario.lost)}",
        "prompts": len(scenario.prompts),
        "largest prompt": max((count(prompt) for prompt in scenario.prompts), default=0),
        "tokens": tokens,
        "cached share": round(cached / tokens, 3) if tokens else 0.0,
        "note": note,
    }


def _shared(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> int:
    """Tokens at the beginning of a prompt that stood so in the one before."""
    same = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        same += 1
    return count(after[:same]) if same else 0


def _read(message: dict[str, Any]) -> Message:
    return read(json.dumps(message).encode(), CHAT)


_METERS: dict[str, Meter] = {}


def _meter() -> Meter:
    if MODEL not in _METERS:
        _METERS[MODEL] = make_meter(Settings(model=MODEL))
    return _METERS[MODEL]
