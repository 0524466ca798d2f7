"""Measures how much of each prompt the provider has cached, and what that makes the input cost.
Real agent sessions are replayed call by call in windows of 32 K and 128 K tokens. Two of Recto's modes are compared
with plain trimming, which drops the oldest messages at every call, and with sending the whole history.

Plain trimming drops just as many messages as it must. It is rendered by the same code as Recto's prompts, missing
results included, so that the two differ only in what they drop and when.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

from bench.measure import row
from recto.config import Settings, load
from recto.config.factory import make_meter, model_card, open_session
from recto.context.window.budget import call_price, stable_prefix
from recto.context.window.units import WindowMessage
from recto.engine.prompt_builder import MessageCache
from recto.errors import WindowOverflow
from recto.formats import problems, read
from recto.formats.anthropic import ANTHROPIC
from recto.formats.arrangement import arrange
from recto.formats.prompt_layout import render_arrangement
from recto.formats.session_files import read_file
from recto.tokens.meter import Meter
from recto.tokens.model_card import ModelCard

DATA = Path(os.environ.get("RECTO_TEST_DATA", "../shared/data"))
MODEL = "claude-sonnet-4-5"
WINDOWS = (32_000, 128_000)
NAMES = {
    "sliding_window": "Recto sliding_window",
    "zones": "Recto zones",
    "trimming": "plain trimming",
    "everything": "no management",
}

Piece = tuple[bytes, int]


@dataclass(slots=True)
class Tally:
    """What a replay came to."""

    prompts: int = 0
    tokens: int = 0
    unchanged: int = 0
    picodollars: int = 0
    edits: int = 0
    over: int = 0
    invalid: int = 0
    refused: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})


class Keeper(Protocol):
    """Somebody who keeps a session and says what to send."""

    def take(self, raw: bytes) -> None: ...

    def prompt(self) -> tuple[list[Piece], bool]:
        """The messages with their tokens, and whether something was dropped or changed for it."""
        ...


class Recto:
    """The window of a session, in a mode."""

    def __init__(self, window: int, mode: str) -> None:
        self._session = open_session(_settings(window, mode))

    def take(self, raw: bytes) -> None:
        self._session.append(raw)

    def prompt(self) -> tuple[list[Piece], bool]:
        prompt = self._session.prompt()
        return list(zip(prompt.raw, prompt.built.costs, strict=True)), bool(prompt.decisions)


class Trimming:
    """Drops whole messages, oldest first, at every call, to just fit. A result whose call went is not rendered."""

    def __init__(self, room: int, meter: Meter) -> None:
        self._room = room
        self._lines: deque[WindowMessage] = deque()
        self._messages = MessageCache(meter=meter, pointer_of=str)
        self._known: dict[bytes, int] = {}
        self._seq = 0

    def take(self, raw: bytes) -> None:
        self._seq += 1
        self._lines.append(self._messages.take(self._seq, str(self._seq), raw, ANTHROPIC))
        self._known[raw] = self._lines[-1].tokens

    def prompt(self) -> tuple[list[Piece], bool]:
        before = len(self._lines)
        while True:
            pieces = self._rendered()
            over = sum(tokens for _, tokens in pieces) - self._room
            if over <= 0 or len(self._lines) == 1:
                return pieces, len(self._lines) < before
            self._drop(over)

    def _drop(self, over: int) -> None:
        while len(self._lines) > 1 and over > 0:
            line = self._lines.popleft()
            self._messages.forget([line.seq])
            over -= line.tokens

    def _rendered(self) -> list[Piece]:
        arrangement = arrange(list(self._lines), "merging")
        messages = render_arrangement(arrangement, self._messages.raws, ANTHROPIC)
        return [(raw, self._cost(raw)) for raw in messages]

    def _cost(self, raw: bytes) -> int:
        if raw not in self._known:
            self._known[raw] = self._messages.meter.message(read(raw, ANTHROPIC))
        return self._known[raw]


class Everything:
    """Sends the whole history, whether it fits or not."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._pieces: list[Piece] = []

    def take(self, raw: bytes) -> None:
        self._pieces.append((raw, self._meter.message(read(raw, ANTHROPIC))))

    def prompt(self) -> tuple[list[Piece], bool]:
        return list(self._pieces), False


def run(quick: bool) -> list[dict]:
    files = sorted(DATA.glob("agent_sessions/*/*.jsonl"))[:: 14 if quick else 1]
    if not files:
        return [row("real agent sessions", 0, "sessions", "none found: name the folder in RECTO_TEST_DATA")]
    jobs = [(file, window, way) for file in files for window in WINDOWS for way in NAMES]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        tallies = pool.starmap(replay, jobs, chunksize=1)
    sums: dict[tuple[int, str], Tally] = {}
    for (_, window, way), tally in zip(jobs, tallies, strict=True):
        sums[window, way] = sums.get((window, way), Tally()) + tally
    prompts = next(iter(sums.values())).prompts
    rows = [row("real agent sessions", len(files), "sessions", f"{prompts:,} calls each way, counted for {MODEL}")]
    for window in WINDOWS:
        rows += _shown(window, {way: sums[window, way] for way in NAMES})
    return rows


def replay(file: Path, window: int, way: str) -> Tally:
    """One session, one window, one way to keep it inside."""
    settings = _settings(window, way)
    card, room = model_card(settings), _room(settings)
    keeper = _keeper(way, window, room, settings)
    tally = Tally()
    before: list[Piece] = []
    role = ""
    for raw in _messages(file):
        speaker = json.loads(raw)["role"]
        if speaker == "assistant" and role == "user":
            before = _judged(keeper, tally, before, card, room)
        role = speaker
        keeper.take(raw)
    return tally


def _judged(keeper: Keeper, tally: Tally, before: list[Piece], card: ModelCard, room: int) -> list[Piece]:
    """Asks for a prompt and adds up what it is worth; returns it for the next to be compared with."""
    tally.prompts += 1
    try:
        pieces, edited = keeper.prompt()
    except WindowOverflow:
        tally.refused += 1
        return before
    total = sum(tokens for _, tokens in pieces)
    unchanged = stable_prefix(before, pieces)
    tally.tokens += total
    tally.unchanged += unchanged
    tally.picodollars += call_price(card, unchanged, total - unchanged)
    tally.edits += edited
    tally.over += total > room
    if not isinstance(keeper, Everything):
        tally.invalid += bool(problems([raw for raw, _ in pieces], ANTHROPIC))
    return pieces


def _messages(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        for entry in read_file(iter(lambda: stream.read(65_536), b""), file.name):
            if entry.kind == "message":
                yield entry.content


def _keeper(way: str, window: int, room: int, settings: Settings) -> Keeper:
    if way == "trimming":
        return Trimming(room, make_meter(settings))
    if way == "everything":
        return Everything(make_meter(settings))
    return Recto(window, way)


def _settings(window: int, way: str) -> Settings:
    mode = way if way in ("sliding_window", "zones") else "sliding_window"
    limits = {"window": window, "max_input": window, "max_output": window}
    given = {"store": "memory:", "model": MODEL, "models": {MODEL: limits}, "window": {"mode": mode}}
    return load(environ={}, arguments=given)


def _room(settings: Settings) -> int:
    with open_session(settings) as session:
        return session.window.budget.input_budget


def _shown(window: int, tallies: dict[str, Tally]) -> list[dict]:
    rows = []
    plain = tallies["trimming"].picodollars
    for way, tally in tallies.items():
        label = f"{window // 1000} K, {NAMES[way]}"
        fits = f"{tally.over:,} of {tally.prompts:,} prompts do not fit" if way == "everything" else ""
        dollars = tally.picodollars / 1e12
        sent = f"{tally.tokens / 1e6:,.1f} M prompt tokens; {tally.picodollars / plain:.2f} of plain trimming"
        wrong = f"{tally.over} over budget, {tally.invalid} invalid, {tally.refused} refused of {tally.prompts:,}"
        rows += [
            row(f"{label}: unchanged prefix", 100 * tally.unchanged / max(tally.tokens, 1), "%", fits, 1),
            row(f"{label}: input at cache prices", dollars, "dollars", sent, 2),
        ]
        if way != "everything":
            rows += [
                row(f"{label}: edits", 100 * tally.edits / tally.prompts, "per 100 prompts", "", 1),
                row(f"{label}: bad prompts", tally.over + tally.invalid + tally.refused, "prompts", wrong),
            ]
    return rows
