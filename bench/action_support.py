"""Measures how much of what an agent's next action refers to is in the prompt.
Recorded agent runs are replayed step by step in windows of 8 K, 16 K and 32 K tokens. Recto's prompts are compared with
the whole history, with plain trimming (system text, task and the newest messages that fit), and with plain trimming at
as many tokens as Recto's default mode uses.

The referents of an action are the paths, the identifiers with an underscore or an inner capital and the numbers of
three digits or more in its command or its arguments, as far as they occur earlier in the run. *All* is the share of
them that occur in the prompt; *old* counts only those that plain trimming has lost. A step is judged if its whole
history does not fit the input budget. A prompt is built at every step, so that windows are as full as in a live run;
refusals, fill, unchanged prefix and dollars come from the same prompts.

If a run has timestamps, the provider's cache is cold at a call that comes more than five minutes after the previous
one: nothing is read from the cache, and the call does not count for the unchanged prefix.

The default mode is measured on one run in eight, chosen by a hash of the name (`RECTO_BENCH_RUNS=1` measures all runs).
Two of these runs with tool calls and two with commands as text are the sample for the other modes and, at 16 K, for
each mode without recall, without a record and without both, and for other floors. A third of the runs is held out: no
rule or default was tuned on them. Of the runs with commands as text these are the runs of the likelihood trial; of the
others, those that another hash chooses.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from bench.measure import figures, percentile, row
from recto.config import Settings, load
from recto.config.factory import make_meter, model_card, open_session
from recto.context.window.budget import CACHE_LIFETIMES, call_price, stable_prefix
from recto.errors import WindowOverflow
from recto.formats import read
from recto.formats.session_files import read_file
from recto.lab.moments import COMMAND, newest_within, referents, strings_in
from recto.testing import FakeClock
from recto.tokens.model_card import ModelCard

DATA = Path(os.environ.get("RECTO_TEST_DATA", "../shared/data"))
WINDOWS = (8_000, 16_000, 32_000)
ONE_IN = int(os.environ.get("RECTO_BENCH_RUNS", "8"))
"""One in so many runs is measured."""
TRIAL = Path(__file__).with_name("likelihood_moments.json")
"""The moments of the likelihood trial, by run."""
MODES = ("sliding_window", "zones", "auto_compact")
PRICED_AS = "claude-sonnet-4-5"
SAMPLE = 2
"""Runs of each kind in the sample of the arms that do not run on all."""
TOLERANCE = 0.01
"""A session counts as worse than trimming where its share is lower by more than this."""

Piece = tuple[object, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to make prompts of a run."""

    mode: str
    recall: bool = True
    record: bool = True
    floor: int = 0
    """How far relief goes, in percent of the input budget; 0: the default."""
    new_window: int = 0
    """A new window is opened at every call whose number is a multiple of this; 0: never."""

    @property
    def label(self) -> str:
        """Its name in the table."""
        without = ("" if self.recall else ", no recall") + ("" if self.record else ", no record")
        deep = f", floor {self.floor} %" if self.floor else ""
        return f"{self.mode}{without}{deep}{f', new window each {self.new_window} calls' if self.new_window else ''}"


DEFAULT = Arm(mode="sliding_window")
ARMS = tuple(
    Arm(mode=mode, recall=recall, record=record)
    for mode, (recall, record) in product(MODES, product((True, False), repeat=2))
)
DEPTHS = tuple(Arm(mode="sliding_window", floor=floor) for floor in (50, 80))


def arms_at(window: int) -> tuple[Arm, ...]:
    """The arms of a run of the sample."""
    return (*ARMS, *DEPTHS) if window == WINDOWS[1] else tuple(arm for arm in ARMS if arm.recall and arm.record)


TRIMMED, EQUAL = "plain trimming", "plain trimming, tokens of the default mode"
WHOLE = "whole history"


@dataclass(slots=True)
class Tally:
    """What the prompts of one arm came to."""

    found: int = 0
    needed: int = 0
    old_found: int = 0
    old_needed: int = 0
    moments: int = 0
    """Steps that were judged: the whole history did not fit any more."""
    fill: float = 0.0
    steps: int = 0
    refused: int = 0
    tokens: int = 0
    unchanged: int = 0
    new: int = 0
    """Tokens of messages that no prompt before held: the least that is not an unchanged prefix."""
    picodollars: int = 0
    records: list[int] = field(default_factory=list)
    """Tokens of the working record at each judged step that has one."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    @property
    def all(self) -> float:
        """Share of the referents that are in the prompt."""
        return self.found / max(self.needed, 1)

    @property
    def old(self) -> float:
        """The same, of those that plain trimming has lost."""
        return self.old_found / max(self.old_needed, 1)


@dataclass(frozen=True, slots=True)
class Need:
    """What one recorded action uses from the history."""

    referents: frozenset[str]
    old: frozenset[str]


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded run: its messages as they were sent."""

    name: str
    model: str
    wire: str
    raws: tuple[bytes, ...]
    times: tuple[float, ...]
    """When each message was written, in seconds since 1970; empty if that is not known."""

    @property
    def kind(self) -> str:
        """How its agent calls tools."""
        return "tool calls" if self.wire == "anthropic.messages" else "commands as text"


def held_out(name: str, kind: str) -> bool:
    """Whether a run was kept aside while defaults were chosen."""
    return _bucket("held out", name) % 3 == 0 if kind == "agent_sessions" else name in _of_the_trial()


@lru_cache(1)
def _of_the_trial() -> frozenset[str]:
    return frozenset(json.loads(TRIAL.read_text()))


def run(quick: bool) -> list[dict]:
    one_in = 30 if quick else ONE_IN
    names = [(name, kind) for name, kind in run_names() if _bucket("chosen", name) % one_in == 0]
    if not names:
        return [row("recorded runs", 0, "runs", "none found: name the folder in RECTO_TEST_DATA")]
    sample = [
        name
        for chosen in ("agent_sessions", "swebench_trajectories")
        for name in sorted((name for name, kind in names if kind == chosen), key=lambda name: _bucket("sample", name))[
            : 1 if quick else SAMPLE
        ]
    ]
    jobs = [
        (name, kind, window, arms_at(window) if name in sample else (DEFAULT,))
        for name, kind in names
        for window in WINDOWS
    ]
    jobs.sort(key=lambda job: -len(job[3]))  # the longest first
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        results = pool.starmap(judge, jobs, chunksize=1)
    by_run = {(name, window): found for (name, _, window, _), found in zip(jobs, results, strict=True)}
    return _shown(dict(names), sample, by_run)


def judge(name: str, kind: str, window: int, arms: Sequence[Arm] = (DEFAULT,)) -> dict[str, Tally]:
    """One run in one window, by these arms and by plain trimming."""
    recorded = load_run(name, kind)
    settings = settings_of(recorded, window, DEFAULT)
    meter = make_meter(settings)
    costs = [meter.message(read(raw, recorded.wire)) for raw in recorded.raws]
    with open_session(settings) as session:
        budget = session.window.budget.input_budget
    texts = [text_of(raw) for raw in recorded.raws]
    needs = _needs(recorded, texts, costs, budget)
    tallies = {arm.label: Tally() for arm in arms}
    sizes: dict[int, int] = {}
    for arm in arms:
        measured = _feed(recorded, settings_of(recorded, window, arm), costs, needs, tallies[arm.label], arm.new_window)
        sizes = measured if arm == DEFAULT else sizes
    tallies[TRIMMED] = _trim(recorded, texts, costs, needs, lambda _: budget)
    tallies[EQUAL] = _trim(recorded, texts, costs, needs, lambda at: sizes.get(at, budget))
    tallies[WHOLE] = _trim(recorded, texts, costs, needs, lambda _: sum(costs))
    for tally, tokens in ((tallies[TRIMMED], budget), (tallies[EQUAL], budget), (tallies[WHOLE], budget)):
        tally.fill /= tokens
    return tallies


def _needs(recorded: Run, texts: list[str], costs: list[int], budget: int) -> dict[int, Need]:
    """By step: what its action needs. Steps whose whole history fits are left out."""
    needs: dict[int, Need] = {}
    known: set[str] = set()
    for at in prompt_steps(recorded):
        if sum(costs[:at]) <= budget:
            continue
        used = frozenset(
            name
            for name in referents(action_of(recorded.raws[at]))
            if name in known or any(name in text for text in texts[:at])
        )
        known |= used
        newest = "\n".join(texts[i] for i in _newest(recorded, costs, at, budget))
        needs[at] = Need(used, frozenset(name for name in used if name not in newest))
    return needs


def prompt_steps(recorded: Run) -> Iterator[int]:
    """Where the model was called: an assistant message behind a message of somebody else."""
    before = ""
    for at, raw in enumerate(recorded.raws):
        role = json.loads(raw)["role"]
        if role == "assistant" and before not in ("", "assistant"):
            yield at
        before = role


def _cold_steps(recorded: Run) -> set[int]:
    """Calls that came so late that nothing was in the provider's cache any more."""
    called, cold = 0.0, set()
    for at in prompt_steps(recorded) if recorded.times else ():
        if recorded.times[at - 1] - called > CACHE_LIFETIMES["anthropic"]:
            cold.add(at)
        called = recorded.times[at - 1]
    return cold


def _new_tokens(recorded: Run, costs: list[int]) -> dict[int, int]:
    """By call: the tokens of the messages since the call before."""
    news, before = {}, 0
    for at in prompt_steps(recorded):
        news[at] = sum(costs[before:at])
        before = at
    return news


def _feed(
    recorded: Run, settings: Settings, costs: list[int], needs: dict[int, Need], tally: Tally, new_window: int = 0
) -> dict[int, int]:
    """Feeds a session step by step and judges its prompts; returns the tokens of each.

    A new window is opened before every call whose number is a multiple of `new_window`.
    """
    card = model_card(_priced())
    cold, news = _cold_steps(recorded), _new_tokens(recorded, costs)
    before: list[Piece] = []
    sizes: dict[int, int] = {}
    clock = FakeClock(step=1)
    with open_session(settings, clock=clock) as session:
        budget = session.window.budget.input_budget
        for at, raw in enumerate(recorded.raws):
            if at in news:
                tally.steps += 1
                clock.time = int(recorded.times[at - 1] * 1e6) if recorded.times else clock.time
                if new_window and tally.steps % new_window == 0:
                    session.resume()
                try:
                    prompt = session.prompt()
                except WindowOverflow:
                    tally.refused += 1
                    session.append(raw)
                    continue
                pieces: list[Piece] = list(zip(prompt.raw, prompt.built.costs, strict=True))
                sizes[at] = prompt.tokens
                _price(tally, card, [] if at in cold else before, pieces, new=news[at], warm=at not in cold)
                before = pieces
                if at in needs:
                    _count(tally, needs[at], "\n".join(map(text_of, prompt.raw)))
                    tally.fill += prompt.tokens / budget
                    kept = session.window.state.record
                    if kept is not None and kept.text:
                        tally.records.append(session.window.messages.meter.count(kept.text))
            session.append(raw)
    return sizes


def _trim(
    recorded: Run, texts: list[str], costs: list[int], needs: dict[int, Need], budget_at: Callable[[int], int]
) -> Tally:
    """Plain trimming: system text, task and the newest messages that fit. Its fill is in tokens."""
    tally, card = Tally(), model_card(_priced())
    cold, news = _cold_steps(recorded), _new_tokens(recorded, costs)
    before: list[Piece] = []
    for at in prompt_steps(recorded):
        kept = _newest(recorded, costs, at, budget_at(at))
        pieces: list[Piece] = [(i, costs[i]) for i in kept]
        tally.steps += 1
        _price(tally, card, [] if at in cold else before, pieces, new=news[at], warm=at not in cold)
        before = pieces
        if at in needs:
            _count(tally, needs[at], "\n".join(texts[i] for i in kept))
            tally.fill += sum(costs[i] for i in kept)
    return tally


def _newest(recorded: Run, costs: list[int], at: int, budget: int) -> list[int]:
    """What plain trimming keeps before a step."""
    head = 2 if json.loads(recorded.raws[0])["role"] == "system" else 1
    return newest_within(costs, head, at, budget)


def _count(tally: Tally, need: Need, prompt: str) -> None:
    tally.moments += 1
    tally.needed += len(need.referents)
    tally.found += sum(name in prompt for name in need.referents)
    tally.old_needed += len(need.old)
    tally.old_found += sum(name in prompt for name in need.old)


def _price(tally: Tally, card: ModelCard, before: list[Piece], pieces: list[Piece], *, new: int, warm: bool) -> None:
    total, unchanged = sum(tokens for _, tokens in pieces), stable_prefix(before, pieces)
    tally.tokens += total if warm else 0
    tally.unchanged += unchanged
    tally.new += new if warm else 0
    tally.picodollars += call_price(card, unchanged, total - unchanged)


def action_of(raw: bytes) -> str:
    """What an assistant message does: the arguments of its calls, or the command it writes as text."""
    content = json.loads(raw)["content"]
    if isinstance(content, str):
        return "\n".join(COMMAND.findall(content)) or content
    return "\n".join(strings_in(block["input"]) for block in content if block["type"] == "tool_use")


@lru_cache(maxsize=2048)
def text_of(raw: bytes) -> str:
    """What a message says, with the arguments of its calls and the output of its results."""
    content = json.loads(raw)["content"]
    if isinstance(content, str):
        return content
    return "\n".join(strings_in(block.get("text", block.get("input", block.get("content", "")))) for block in content)


def run_names() -> Iterator[tuple[str, str]]:
    """The recorded runs with the folder of each."""
    for file in sorted(DATA.glob("agent_sessions/*/*.jsonl")):
        yield str(file.relative_to(DATA)), "agent_sessions"
    for line in _trajectories():
        yield json.loads(line)["instance_id"], "swebench_trajectories"


def load_run(name: str, kind: str) -> Run:
    """A recorded run with its messages."""
    if kind == "agent_sessions":
        with (DATA / name).open("rb") as stream:
            chunks = iter(lambda: stream.read(65_536), b"")
            entries = [entry for entry in read_file(chunks, name) if entry.kind == "message"]
        times = tuple((entry.ts or 0) / 1e6 for entry in entries)
        return Run(name, "claude-sonnet-4-5", "anthropic.messages", tuple(entry.content for entry in entries), times)
    found = next(line for line in _trajectories() if f'"{name}"' in line[:200])
    raws = tuple(
        json.dumps({"role": message["role"], "content": message["content"]}, ensure_ascii=False).encode()
        for message in json.loads(found)["messages"]
    )
    return Run(name, "gpt-4o", "openai.chat", raws, ())


def _trajectories() -> Iterator[str]:
    file = DATA / "swebench_trajectories" / "trajectories.jsonl.gz"
    if file.exists():
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            yield from lines


def settings_of(recorded: Run, window: int, arm: Arm) -> Settings:
    limits = {"window": window, "max_input": window, "max_output": window}
    chosen: dict[str, Any] = {"mode": arm.mode}
    chosen |= {} if arm.record else {"record_percent": 0}
    chosen |= {"floor_percent": arm.floor} if arm.floor else {}
    given = {
        "store": "memory:",
        "model": recorded.model,
        "models": {recorded.model: limits},
        "window": chosen,
        "recall": {"inject": arm.recall, "embedder": {"use": "none"}},
    }
    return load(environ={}, arguments=given)


def _priced() -> Settings:
    return load(environ={}, arguments={"store": "memory:", "model": PRICED_AS})


def _bucket(purpose: str, name: str) -> int:
    return int.from_bytes(sha256(f"{purpose}: {name}".encode()).digest()[:4])


def _shown(
    kinds: dict[str, str], sample: Sequence[str], results: dict[tuple[str, int], dict[str, Tally]]
) -> list[dict]:
    names = list(kinds)
    tool_runs = [name for name in names if kinds[name] == "agent_sessions"]
    text_runs = [name for name in names if kinds[name] != "agent_sessions"]
    steps = sum(results[name, WINDOWS[1]][DEFAULT.label].steps for name in names)
    rows = [
        row("recorded runs", len(names), "runs", f"{len(tool_runs)} with tool calls, {len(text_runs)} with text"),
        row("model calls", steps, "calls", "a prompt is built before each"),
        row("sample of other modes and arms", len(sample), "runs", "of both kinds"),
    ]
    groups = [("all runs", names, (WHOLE, TRIMMED, EQUAL, DEFAULT.label))]
    groups += [
        (label, chosen, (TRIMMED, DEFAULT.label))
        for label, chosen in (("tool calls", tool_runs), ("commands as text", text_runs))
    ]
    rows += [
        _figures(f"{window // 1000} K, {label}: {arm}", arm, {name: kinds[name] for name in chosen}, window, results)
        for label, chosen, arms in groups
        for window in WINDOWS
        for arm in arms
        if chosen
    ]
    rows += [
        _figures(f"{window // 1000} K, sample: {arm}", arm, {name: kinds[name] for name in sample}, window, results)
        for window in WINDOWS
        for arm in (WHOLE, TRIMMED, EQUAL, *(arm.label for arm in arms_at(window)))
        if sample
    ]
    return rows


def _figures(
    what: str, arm: str, names: dict[str, str], window: int, results: dict[tuple[str, int], dict[str, Tally]]
) -> dict:
    total = sum((results[name, window][arm] for name in names), Tally())
    held = sum((results[name, window][arm] for name, kind in names.items() if held_out(name, kind)), Tally())
    plain = sum((results[name, window][TRIMMED] for name in names), Tally())
    worse = sum(results[name, window][arm].all < results[name, window][TRIMMED].all - TOLERANCE for name in names)
    records = [float(size) for size in total.records]
    values: dict[str, float] = {
        "all": total.all,
        "old": total.old,
        "all, held out": held.all,
        "old, held out": held.old,
        "runs below trimming": worse,
        "refused": total.refused,
        "fill": total.fill / max(total.moments, 1),
        "unchanged prefix": total.unchanged / max(total.tokens, 1),
        "new": total.new / max(total.tokens, 1),
        "dollars": total.picodollars / max(plain.picodollars, 1),
        "record p50": int(percentile(records, 0.5)) if records else 0,
        "record p95": int(percentile(records, 0.95)) if records else 0,
    }
    note = f"{len(names)} runs, {total.needed:,} referents, {total.old_needed:,} old"
    return figures(what, values, note)
