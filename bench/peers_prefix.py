"""How much of each prompt stays as it was, Recto beside its peers: real agent sessions, the same steps for all.

Every peer runs in its own environment, under `bench.peer_prefix_child`, and tells its prompts part by part; here they
are compared and billed, all by one count. Thinking is left out, since most of the peers have no place for it. A peer
whose knob counts messages or items gets the budget divided by the true mean of these very sessions.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.prefix import DATA, MODEL
from recto.core.caching import bill, stable_prefix
from recto.core.cards import ModelCard
from recto.models.tokenizers import counter_named
from recto.settings import load
from recto.wire.files import read_file
from recto.wiring import card_for

BUDGETS = (128_000, 32_000)
EVERY = 6
"""Of the sessions, in the order of their names, one in so many is replayed."""
LONGEST = 240
"""Seconds after which a peer is given up."""
CHILD = Path(__file__).with_name("peer_prefix_child.py").resolve()
RECTO = Path(__file__).with_name("peer_recto.py").resolve()
WRONG = {
    "over": "over",
    "orphan_results": "result alone",
    "orphan_calls": "call alone",
    "no_user": "no user",
    "empty": "empty",
    "refused": "refused",
}
HEAD = ("variant", "unchanged prefix", "M tokens sent", "dollars", "dollars per M", "bad prompts")

Said = list
"""A message as the child takes it: role, text, calls, call id, tool name, own id."""
Step = list[Said]
"""What came since the last call of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One adapter of a peer's script, which turns a budget into its own knob."""

    env: str
    script: str
    adapter: str
    unit: int = 0
    """Tokens the script takes one of what it counts to have; 0 where its knob is tokens."""
    counts: str = ""


WAYS = (
    Way(env="recto", script=str(RECTO), adapter="Recto"),
    Way(env="recto", script=str(RECTO), adapter="RectoZones"),
    Way(env="naive", script=str(CHILD), adapter="Trimming"),
    Way(env="naive", script=str(CHILD), adapter="Everything"),
    Way(env="langchain", script="peer_langchain.py", adapter="TrimExactMemo"),
    Way(env="langchain", script="peer_langchain.py", adapter="Summarize"),
    Way(env="langchain", script="peer_langchain.py", adapter="Edit"),
    Way(env="pydanticai", script="peer_pydantic_ai.py", adapter="ViaAgent", unit=346, counts="messages"),
    Way(env="llamaindex", script="peer_llama_index.py", adapter="Mem"),
    Way(env="oai", script="peer_openai_agents.py", adapter="Limit", unit=238, counts="items"),
    Way(env="oai", script="peer_openai_agents.py", adapter="Compaction", unit=238, counts="items"),
    Way(env="strands", script="peer_strands.py", adapter="Sliding", unit=346, counts="messages"),
    Way(env="strands", script="peer_strands.py", adapter="Summ"),
    Way(env="agentfw", script="peer_agent_framework.py", adapter="Budget"),
    Way(env="agentfw", script="peer_agent_framework.py", adapter="Window"),
    Way(env="headroom", script="peer_headroom.py", adapter="Compress"),
)
LEFT_OUT = (
    "Not replayed: google-adk, letta, and some variants of the others. In one prompt a call has no result because the",
    "session itself has none yet; who does not mend that has one *call alone*.",
)


def measured(folder: Path, work: Path, pythons: Mapping[str, Path]) -> dict:
    """Replays the sample through every way whose environment is there. `work` is where the children's files go."""
    files = sorted(DATA.glob("agent_sessions/*/*.jsonl"))[::EVERY]
    sessions = [steps for steps in map(steps_of, files) if len(steps) > 1]
    if not sessions:
        return {"sessions": 0, "calls": 0, "rows": []}
    given = (work / "prefix-sessions.json").resolve()
    given.write_text(json.dumps(sessions), encoding="utf-8")
    means = mean_tokens(sessions)

    def row(way: Way) -> list[dict]:
        print(f"{way.env} {way.adapter}, unchanged prefix …", flush=True)
        try:
            return summed(told(way, folder, given, pythons[way.env], means))
        except subprocess.SubprocessError as error:
            return [{"variant": f"{way.env} {way.adapter}", "error": reason(error)}]

    ways = [way for way in WAYS if way.env in pythons]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(row, reversed(ways)))  # the slowest are last, and had better not begin last
    rows = [each for rows in reversed(found) for each in rows]
    return {"sessions": len(sessions), "calls": sum(len(steps) - 1 for steps in sessions), "rows": rows}


def told(way: Way, folder: Path, given: Path, python: Path, means: Mapping[str, float]) -> list[dict]:
    """What the child says of every session at every budget."""
    out = given.with_name(f"prefix-{way.env}-{way.adapter}.json")
    out.unlink(missing_ok=True)
    scale = way.unit / means[way.counts] if way.unit else 1
    budgets = [f"{budget}:{round(budget * scale)}" for budget in BUDGETS]
    command = [str(python), "-P", "-W", "ignore", str(CHILD), way.script, way.adapter, str(given), str(out), *budgets]
    paths = [str(folder.resolve()), *([str(Path("src").resolve())] if way.env == "recto" else [])]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("RECTO_", "PYTHONPATH"))}
    surroundings = plain | {"PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=True, timeout=LONGEST)
    return json.loads(out.read_text(encoding="utf-8"))


def reason(error: subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"took over {LONGEST} s"
    said = [line for line in str(getattr(error, "stderr", "")).splitlines() if line.strip()]
    return f"failed: {said[-1]}" if said else "failed"


def summed(replays: Iterable[dict]) -> list[dict]:
    """One row for each budget, over all sessions."""
    card = card_for(load(environ={}, arguments={"model": MODEL}))
    rows: dict[int, dict] = {}
    for each in replays:
        row = rows.setdefault(
            each["budget"],
            {"variant": each["variant"], "budget": each["budget"], "calls": 0, "wrong": {}}
            | dict.fromkeys(("tokens", "unchanged", "picodollars"), 0),
        )
        row["calls"] += each["calls"]
        for name, amount in worth(each, card).items():
            row[name] += amount
        for name, times in each["wrong"].items():
            row["wrong"][name] = row["wrong"].get(name, 0) + times
    return list(rows.values())


def worth(replay: dict, card: ModelCard) -> dict[str, int]:
    """What the prompts of one session came to, each billed against the one before."""
    total = {"tokens": 0, "unchanged": 0, "picodollars": 0}
    before: list[tuple[int, int]] = []
    for prompt in replay["prompts"]:
        pieces = [(part, replay["tokens"][part]) for part in prompt]
        tokens, unchanged = sum(cost for _, cost in pieces), stable_prefix(before, pieces)
        total["tokens"] += tokens
        total["unchanged"] += unchanged
        total["picodollars"] += bill(card, unchanged, tokens - unchanged)
        before = pieces
    return total


def steps_of(file: Path) -> list[Step]:
    """A session cut at the calls of the model: wherever an assistant answers a user."""
    steps: list[Step] = []
    now: Step = []
    names: dict[str, str] = {}
    role = "user"
    for message in messages(file):
        if message["role"] == "assistant" and role == "user" and now:
            steps.append(now)
            now = []
        role = message["role"]
        add(now, message, names)
    for number, said in enumerate(said for step in steps for said in step):
        said[-1] = f"m{number:06}"
    return steps


def messages(file: Path) -> Iterator[dict]:
    with file.open("rb") as stream:
        for entry in read_file(iter(lambda: stream.read(65_536), b""), file.name):
            if entry.kind == "message":
                yield json.loads(entry.content)


def add(step: Step, message: dict, names: dict[str, str]) -> None:
    """Appends a message; what one assistant said in several goes into one, as the model had sent it."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if message["role"] == "user":
        step += [result(block, names) for block in blocks if block["type"] == "tool_result"]
        step += [["user", block["text"], [], None, None, ""] for block in blocks if block["type"] == "text"]
        return
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [[use["id"], use["name"], json.dumps(use["input"])] for use in blocks if use["type"] == "tool_use"]
    names |= {call: name for call, name, _ in calls}
    if step and step[-1][0] == "assistant":
        step[-1][1] = "\n".join(filter(None, (step[-1][1], text)))
        step[-1][2] += calls
    elif text or calls:
        step.append(["assistant", text, calls, None, None, ""])


def result(block: dict, names: Mapping[str, str]) -> Said:
    content = block.get("content") or ""
    text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
    call = block["tool_use_id"]
    return ["tool", text, [], call, names.get(call, "tool"), ""]


def mean_tokens(sessions: Iterable[list[Step]]) -> dict[str, float]:
    """Tokens of a message, the results of one round being one, and of an item, each call being one."""
    counter = counter_named("o200k")
    tokens = units = items = 0
    for step in (step for session in sessions for step in session):
        last = ""
        for role, text, calls, *_ in step:
            texts = [text, *(part for call in calls for part in call[1:])]
            tokens += sum(counter.count(part) for part in texts)
            units += not role == last == "tool"
            items += bool(text or role == "tool") + len(calls)
            last = role
    return {"messages": tokens / units, "items": tokens / items}


def lines(report: dict, budget: int) -> list[tuple[str, ...]]:
    return [line(row) for row in report["rows"] if row.get("budget") == budget]


def line(row: dict) -> tuple[str, ...]:
    tokens, dollars = row["tokens"] / 1e6, row["picodollars"] / 1e12
    return (
        row["variant"],
        f"{100 * row['unchanged'] / max(row['tokens'], 1):.1f} %",
        f"{tokens:.1f}",
        f"{dollars:.2f}",
        f"{dollars / tokens:.2f}" if tokens else "",
        wrongs(row),
    )


def wrongs(row: dict) -> str:
    """How many prompts are bad, and in which ways; one may be bad in several."""
    kinds = ", ".join(f"{row['wrong'][name]} {word}" for name, word in WRONG.items() if row["wrong"].get(name))
    bad = row["wrong"].get("bad", 0)
    return f"{bad} of {row['calls']}: {kinds}" if bad else f"none of {row['calls']}"


def failures(report: dict) -> list[str]:
    return [f"{row['variant']}, unchanged prefix: {row['error']}" for row in report["rows"] if "error" in row]


def draw(report: dict, console: Console) -> None:
    for budget in BUDGETS:
        title = f"budget {budget:,} tokens: unchanged prefix over {report['sessions']} real sessions"
        table = Table(title=title, title_justify="left")
        for place, name in enumerate(HEAD):
            table.add_column(name, justify="right" if 0 < place < len(HEAD) - 1 else "left")
        for each in lines(report, budget):
            table.add_row(*each)
        console.print(table)


def page(report: dict) -> list[str]:
    """The section of the page, or nothing where there were no sessions."""
    if not report["sessions"]:
        return []
    text = [
        "",
        "## What stays as it was",
        "",
        f"{report['sessions']} real agent sessions (every {EVERY}th of those there are), {report['calls']:,} calls of",
        "the model, the same for all. *unchanged prefix* is the share of the tokens sent that stood unchanged at the",
        f"beginning of the previous prompt, *dollars* what all of them cost as input at the cache prices of {MODEL};",
        "*dollars per M* is that for a million tokens sent. Tokens are o200k, contents only. Who sends little pays",
        "little: read the dollars beside the tokens and the bad prompts. Thinking is left out for all. Where a knob",
        "counts messages or items it is the budget divided by their true mean here. Summaries are a short fixed",
        "text, and what it costs to have them written is not in the figures.",
        "",
        *LEFT_OUT,
    ]
    for budget in BUDGETS:
        text += ["", f"### Prefix at a budget of {budget:,} tokens", "", f"| {' | '.join(HEAD)} |"]
        text += [f"|---|{'--:|' * (len(HEAD) - 2)}---|"]
        text += [f"| {' | '.join(each)} |" for each in lines(report, budget)]
    return text
