"""Drives an agent through the scenario: serves its model's responses, and continues after an oversized prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.adapters.scenario import MODEL, WINDOW, PromptTooLong, Scenario, Turn, judged

NAMES: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": WINDOW,
    "recall": {"embedder": {"use": "none"}},
}
"""What `recto.follow` is given, in every framework."""


@dataclass
class Led:
    """The scripted model of one run, in Chat messages."""

    scenario: Scenario = field(default_factory=Scenario)
    _turn: Turn = field(default_factory=lambda: Turn(""))
    _script: Iterator[dict[str, Any]] = field(default_factory=lambda: iter(()))

    def reply(self, prompt: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The next answer. Raises `PromptTooLong` as a provider would."""
        self.scenario.asked(self._turn, list(prompt))
        return next(self._script)

    def run(self, what: str, say: Callable[[str], object], note: str = "") -> dict[str, Any]:
        """Says every turn; returns the row of the table."""
        for turn in self.scenario.turns:
            self._turn, self._script = turn, self.scenario.script(turn)
            try:
                say(turn.says)
            except Exception as error:
                if not too_long(error):
                    raise
        return judged(what, self.scenario, note)


def too_long(error: BaseException | None) -> bool:
    """Whether it comes of a prompt that did not fit; frameworks wrap what a provider says."""
    while error is not None:
        if isinstance(error, PromptTooLong):
            return True
        error = error.__cause__ or error.__context__
    return False


def arguments_of(message: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """The calls of an answer: id, name and arguments."""
    return [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls", ())
    ]


def told(rows: list[dict[str, Any]]) -> None:
    print(json.dumps(rows, indent=1))
