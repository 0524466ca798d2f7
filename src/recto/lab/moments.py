"""Moments of recorded runs, and what each arm would have sent at them: the same history in several prompts.

A moment is a model call whose history does not fit the window. Recto's arms build a prompt before every call of the
run, so that their windows are as full as in a live run. The other arms are pure functions of the history:

- whole history: every message.
- trimming at equal tokens: system text, task and the newest messages, in as many tokens as Recto's first mode takes;
  of the first message that does not fit, the end.
- search over files: the same with half of the tokens, and in the other half the passages of older messages that a
  word search (BM25) for the newest two messages finds. It is what an agent gets that keeps its history in files.

Action support is computed by rule: does a prompt hold what the recorded next action uses from the history?
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import accumulate
from math import log
from typing import TYPE_CHECKING, NamedTuple

from recto.config import Settings
from recto.config.factory import make_indexer, make_meter, model_card, open_session
from recto.config.modes import make_budget
from recto.errors import WindowOverflow
from recto.formats import read
from recto.lab.recordings import RecordingClock
from recto.lab.replay import replay, replay_steps
from recto.lab.variants import Variant, variants
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE, Entry

if TYPE_CHECKING:
    from recto.engine.prompt_builder import Prompt
import json

from recto.formats.json_spans import Json
from recto.formats.message import Message

REFERENT = re.compile(
    r"[A-Za-z_][\w]*(?:[./][\w.-]+)+|[A-Za-z]+_[A-Za-z0-9_]+|[a-z]+[A-Z][A-Za-z0-9]+|[A-Z][a-z]+[A-Z]\w+|\b\d{3,}\b"
)
COMMAND = re.compile(r"```(?:bash|sh)?\n(.*?)```", re.DOTALL)
_MIN_CHARACTERS = 4
_LAYOUT = ("type", "cache_control")
"""Members of blocks that say how a value is packed."""


def referents(text: str) -> set[str]:
    """Returns the names, paths and numbers in a text."""
    return {name for name in REFERENT.findall(text) if len(name) >= _MIN_CHARACTERS or name.isdigit()}


def action_text(response: Iterable[Message]) -> str:
    """Returns what a response does: the arguments of its calls, or the commands that it writes as text, or its text."""
    messages = list(response)
    calls = [part.text for message in messages for part in message.calls]
    if calls:
        return "\n".join(map(_arguments, calls))
    text = "\n".join(part.text for message in messages for part in message.parts if part.kind == "text")
    return "\n".join(COMMAND.findall(text)) or text


def used_referents(action: str, history: Sequence[str]) -> frozenset[str]:
    """Returns the referents of an action that occur in the texts before it."""
    return frozenset(name for name in referents(action) if any(name in text for text in history))


def strings_in(value: Json) -> str:
    """Returns all values of a JSON value as text, line by line."""
    return "\n".join(_strings(value))


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        for key, member in value.items():
            if key not in _LAYOUT:
                yield strings_in(member)
    elif isinstance(value, list):
        yield from map(strings_in, value)
    else:
        yield str(value)


def _arguments(text: str) -> str:
    """Returns arguments without JSON's escapes, so that `\\nname_a` is not read as the name `nname_a`."""
    try:
        return strings_in(json.loads(text))
    except (ValueError, RecursionError):
        return text


WHOLE, EQUAL, SEARCH = "whole history", "trimming at equal tokens", "search over files"
_PASSAGE_LINES = 12
_K1, _B = 1.5, 0.75
"""Constants of BM25."""
_FOUND = "[Found by a search of earlier messages]\n"
_WORD = re.compile(r"\w{3,}")


class PromptMessage(NamedTuple):
    """One message of a prompt, as text."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPrompt:
    """What one arm sends at a moment."""

    arm: str
    tokens: int
    messages: tuple[PromptMessage, ...] = field(default=(), repr=False)
    refused: bool = False
    """Whether the protected content did not fit, so that there was no prompt."""

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(message.text for message in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A model call of a recorded run, with the prompts of all arms."""

    run: str
    call: int
    """Which model call of the run, counted from 1."""
    window: int
    target: str = field(repr=False)
    """The recorded response."""
    referents: frozenset[str] = field(repr=False)
    """What its action uses from the history."""
    old: frozenset[str] = field(repr=False)
    """Of these, what plain trimming to the window has lost."""
    arms: tuple[ArmPrompt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which moments are taken, and in which windows and modes."""

    windows: tuple[int, ...]
    modes: tuple[str, ...]
    count: int
    """Moments of a run and window, evenly spaced over the calls that qualify."""
    longest: int | None = None
    """Most tokens of a history; None for any."""


class RecordedRun:
    """The messages of a recorded run, read once."""

    def __init__(self, name: str, entries: Iterable[Entry]) -> None:
        self.name = name
        self.entries = [entry for entry in entries if entry.kind == MESSAGE]
        self.messages = [read(entry.content, entry.wire) for entry in self.entries]
        self.texts = [message.text for message in self.messages]
        places = {entry.seq: place for place, entry in enumerate(self.entries)}
        self.calls = [
            (places[step.answers[0].seq], len(step.answers)) for step in replay_steps(self.entries) if step.answers
        ]
        """Where each response begins, and how many messages it has."""
        is_system = bool(self.messages) and self.messages[0].role == "system"
        self.head = min(2 if is_system else 1, len(self.entries))
        """Messages at the beginning that trimming keeps: system text and task."""

    def said(self, places: Iterable[int]) -> tuple[PromptMessage, ...]:
        """Returns some of its messages as text."""
        return tuple(PromptMessage(self.messages[place].role, self.texts[place]) for place in places)


def moments_of(
    run: RecordedRun,
    settings: Settings,
    choice: Choice,
    *,
    model: str | None = None,
    advance: Callable[[int], object] = lambda by: None,
) -> Iterator[Moment]:
    """Yields the chosen moments of a run in each window, with the prompts of all arms.

    `advance` is called with 1 for each entry, window and mode.
    """
    for window in choice.windows:
        ways = variants(settings, model=model, window=window, modes=choice.modes)
        meter = make_meter(ways[0].settings)
        costs = [meter.message(message) for message in run.messages]
        before = [0, *accumulate(costs)]
        budget = make_budget(ways[0].settings.window, model_card(ways[0].settings)).input_budget
        fitting = [
            number
            for number, (place, _) in enumerate(run.calls)
            if budget < before[place] <= (choice.longest or before[place])
        ]
        chosen = evenly(fitting, choice.count)
        prompts = [_recto_prompts(run, way, chosen) for way in ways]
        advance(len(ways) * len(run.entries))
        for number in chosen:
            place, answers = run.calls[number]
            response = run.messages[place : place + answers]
            used = used_referents(action_text(response), run.texts[:place])
            newest = _trimmed(run, costs, place, budget).text
            recto = [built[number] for built in prompts]
            tokens = budget if recto[0].refused else recto[0].tokens
            yield Moment(
                run=run.name,
                call=number + 1,
                window=window,
                target="\n".join(message.text for message in response),
                referents=used,
                old=frozenset(name for name in used if name not in newest),
                arms=(
                    ArmPrompt(arm=WHOLE, tokens=before[place], messages=run.said(range(place))),
                    *recto,
                    _trimmed(run, costs, place, tokens),
                    _searched(run, costs, place, tokens, meter.count),
                ),
            )


def evenly(numbers: Sequence[int], count: int) -> list[int]:
    """Returns at most `count` of the numbers, evenly spaced, the last one included."""
    taken = min(count, len(numbers))
    return [numbers[-(-(step + 1) * len(numbers) // taken) - 1] for step in range(taken)]


def newest_within(costs: Sequence[int], head: int, end: int, budget: int) -> list[int]:
    """Returns what plain trimming keeps of the messages before `end`: the head, and the newest that fit."""
    left = budget - sum(costs[:head])
    first = end
    while first > head and costs[first - 1] <= left:
        first -= 1
        left -= costs[first]
    return [*range(min(head, end)), *range(first, end)]


def _recto_prompts(run: RecordedRun, way: Variant, chosen: Sequence[int]) -> dict[int, ArmPrompt]:
    """Replays a run up to the last chosen call; returns the prompts of the chosen ones."""
    prompts: dict[int, ArmPrompt] = {}
    if not chosen:
        return prompts
    wanted, calls = frozenset(chosen), 0

    def take(prompt: Prompt | WindowOverflow, _: Sequence[Entry]) -> None:
        nonlocal calls
        if calls in wanted:
            prompts[calls] = _taken(way.way.name, prompt)
        calls += 1

    last, answers = run.calls[chosen[-1]]
    clock = RecordingClock()
    with (
        closing(MemoryStore()) as store,
        closing(make_indexer(way.settings, store)) as indexer,
        closing(open_session(way.settings, store, indexer, clock=clock)) as session,
    ):
        replay(session, _timed(run.entries[: last + answers], clock), on_prompt=take)
    return prompts


def _timed(entries: Iterable[Entry], clock: RecordingClock) -> Iterator[Entry]:
    for entry in entries:
        clock.reach(entry.ts)
        yield entry


def _taken(arm: str, prompt: Prompt | WindowOverflow) -> ArmPrompt:
    if isinstance(prompt, WindowOverflow):
        return ArmPrompt(arm=arm, tokens=0, refused=True)
    built = prompt.built
    messages = (read(raw, built.wire) for raw in (*built.system, *built.messages))
    return ArmPrompt(
        arm=arm,
        tokens=prompt.tokens,
        messages=tuple(PromptMessage(message.role, message.text) for message in messages),
    )


def _trimmed(run: RecordedRun, costs: Sequence[int], place: int, tokens: int) -> ArmPrompt:
    kept = newest_within(costs, run.head, place, tokens)
    used, messages = sum(costs[i] for i in kept), run.said(kept)
    cut = place - 1 - (len(kept) - run.head)
    if cut >= run.head and tokens > used:
        (last,) = run.said([cut])
        end = last.text[-int(len(last.text) * (tokens - used) / costs[cut]) :]
        messages = (*messages[: run.head], last._replace(text=end), *messages[run.head :])
        used = tokens
    return ArmPrompt(arm=EQUAL, tokens=used, messages=messages)


def _searched(
    run: RecordedRun, costs: Sequence[int], place: int, tokens: int, count: Callable[[str], int]
) -> ArmPrompt:
    head = sum(costs[: run.head])
    trimmed = _trimmed(run, costs, place, head + max(tokens - head, 0) // 2)
    older = run.texts[run.head : place - len(trimmed.messages) + run.head]
    used, messages = trimmed.tokens + count(_FOUND), trimmed.messages
    found: list[str] = []
    for passage in search(older, " ".join(run.texts[max(place - 2, 0) : place])):
        size = count(passage) + 1
        if used + size > tokens:
            continue
        found.append(passage)
        used += size
    quoted = (PromptMessage("user", _FOUND + "\n".join(found)),) if found else ()
    return ArmPrompt(arm=SEARCH, tokens=used, messages=(*messages[: run.head], *quoted, *messages[run.head :]))


def search(texts: Iterable[str], query: str) -> list[str]:
    """Returns the passages of some texts that share words with a query, best first, by BM25."""
    passages = [
        "\n".join(lines[start : start + _PASSAGE_LINES])
        for lines in (text.splitlines() for text in texts)
        for start in range(0, len(lines), _PASSAGE_LINES)
    ]
    counts = [Counter(_WORD.findall(passage.lower())) for passage in passages]
    often = Counter(word for words in counts for word in words)
    asked = {
        word: log(1 + (len(passages) - often[word] + 0.5) / (often[word] + 0.5))
        for word in sorted(set(_WORD.findall(query.lower())))
        if word in often
    }
    average = sum(words.total() for words in counts) / max(len(counts), 1)
    scores = [_bm25(words, asked, average) for words in counts]
    ranked = sorted(range(len(passages)), key=lambda place: -scores[place])
    return [passages[place] for place in ranked if scores[place] > 0]


def _bm25(words: Counter[str], asked: dict[str, float], average: float) -> float:
    norm = _K1 * (1 - _B + _B * words.total() / max(average, 1))
    return sum(worth * words[word] * (_K1 + 1) / (words[word] + norm) for word, worth in asked.items() if word in words)
