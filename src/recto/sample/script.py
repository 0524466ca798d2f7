"""The script of the sample session, loaded from `script.toml` and `files/`, and generated support tickets."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

from recto.context.window.state import NoteKind
from recto.continuity.memory import MemoryKind

_SUFFIX: Final = ".txt"
"""Appended to the names of the files in `files/`, so that no tool takes them for modules of this package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedExchange:
    """A user message and its answer."""

    request: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A bug: the user's request, the files the agent reads, the failing test, the edit and the answer."""

    request: str
    reads: list[str]
    test: str
    failure: str
    path: str
    """The file that the edit changes."""
    old: str
    new: str
    diagnosis: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedNote:
    """A note that the agent takes."""

    kind: NoteKind
    text: str
    critical: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedProposal:
    """A memory that waits for a decision."""

    kind: MemoryKind
    text: str
    source: str
    """Words of the user message that it was learnt from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Everything that is written for the sample session; the engine produces the rest."""

    system: str
    task: ScriptedExchange
    instructions: list[ScriptedExchange]
    correction: ScriptedExchange
    bugs: Mapping[str, list[Bug]]
    """By weekday."""
    between: list[ScriptedExchange]
    """Short exchanges, one after each bug."""
    review: ScriptedExchange
    reviewed_files: list[str]
    later: list[ScriptedExchange]
    """Questions of the last day, which need recall."""
    compaction_focus: str
    early_compaction_focus: str
    """Of a compaction that the user undoes."""
    undo: ScriptedExchange
    checkpoint: Mapping[str, Any]
    """Arguments of `Session.checkpoint`."""
    notes: list[ScriptedNote]
    proposals: list[ScriptedProposal]
    tickets: TicketTexts
    files: Mapping[str, str]
    """Source files of the shop, by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A support ticket."""

    number: int
    request: str
    """The user's question about it."""
    text: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketTexts:
    """Texts that tickets are generated from."""

    shops: list[str]
    places: list[str]
    cases: list[dict[str, str]]
    """Title, message and answer, with placeholders."""

    def generate(self, rng: random.Random) -> Iterator[Ticket]:
        """Generates an endless series of tickets, the same for the same seed."""
        number = 2_200
        while True:
            number += rng.randint(1, 9)
            case = rng.choice(self.cases)
            values = {
                "order": f"A-{rng.randint(40_000, 49_999)}",
                "amount": f"{rng.randint(5, 190)}.{rng.randint(0, 99):02}",
                "place": rng.choice(self.places),
                "pieces": rng.choice((4, 6, 8, 12, 20)),
            }
            shop = rng.choice(self.shops)
            history = "\n".join(
                f"  {rng.randint(8, 18):02}:{rng.randint(0, 59):02} {step}"
                for step in ("opened", "seen by support", "given to us")
            )
            yield Ticket(
                number=number,
                request=f"Ticket {number} from {shop}: {case['title']}. What do we tell them?",
                text=f"ticket {number}\nfrom: {shop}\nsubject: {case['title']}\norder: {values['order']}\n\n"
                f"{case['message'].format(**values)}\n\nhistory:\n{history}\n"
                f"priority: {rng.choice(('low', 'normal', 'high'))}",
                answer=case["answer"].format(**values),
            )


@cache
def load_script() -> Script:
    """Reads the script from the package data."""
    package = resources.files(__package__)
    tables: dict[str, Any] = tomllib.loads((package / "script.toml").read_text("utf-8"))
    for name in ("task", "correction", "undo", "review"):
        tables[name] = ScriptedExchange(**tables[name])
    for name in ("instructions", "between", "later"):
        tables[name] = [ScriptedExchange(**exchange) for exchange in tables[name]]
    tables["bugs"] = {day: [Bug(**bug) for bug in bugs] for day, bugs in tables["bugs"].items()}
    tables["notes"] = [ScriptedNote(**note) for note in tables["notes"]]
    tables["proposals"] = [ScriptedProposal(**proposal) for proposal in tables["proposals"]]
    tables["tickets"] = TicketTexts(**tables["tickets"])
    return Script(files=dict(_read_files(package / "files")), **tables)


def _read_files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields path and text of every file below a folder."""
    for item in folder.iterdir():
        if item.is_dir():
            yield from _read_files(item, f"{prefix}{item.name}/")
        elif item.name.endswith(_SUFFIX):
            yield prefix + item.name.removesuffix(_SUFFIX), item.read_text("utf-8")
