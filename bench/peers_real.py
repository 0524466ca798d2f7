"""Runs Recto and its peers on the same real sessions; each peer's own context management builds the prompts.

Every peer runs in its own environment, under `bench.peer_real_child`, and reports its prompts part by part; here they
are priced and added up, with one token count for all. A peer whose setting counts messages or items gets the budget
divided by the true mean size in these sessions. `bench.peers_page` explains the figures and ranks the peers.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import peers_sessions as sessions
from bench.measure import percentile
from bench.prefix import MODEL
from recto.config import load
from recto.config.factory import model_card
from recto.context.window.budget import call_price, stable_prefix
from recto.tokens.model_card import ModelCard

BUDGETS = (32_000, 16_000)
LONGEST = 900
"""Seconds after which a peer is given up."""
FEWEST = 30
"""Turns a session must have after it outgrew the window for its growth to say something."""
SLOW = ("headroom", "recto")
"""Those that had better not begin last."""
CHILD = Path(__file__).with_name("peer_real_child.py").resolve()
RECTO = Path(__file__).with_name("peer_recto.py").resolve()


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
    Way(env="recto", script=str(RECTO), adapter="RectoWithoutRecall"),
    Way(env="recto", script=str(RECTO), adapter="RectoZones"),
    Way(env="naive", script=str(CHILD), adapter="Trimming"),
    Way(env="naive", script=str(CHILD), adapter="Everything"),
    Way(env="langchain", script="peer_langchain.py", adapter="TrimApprox"),
    Way(env="langchain", script="peer_langchain.py", adapter="TrimExactMemo"),
    Way(env="langchain", script="peer_langchain.py", adapter="Summarize"),
    Way(env="langchain", script="peer_langchain.py", adapter="Edit"),
    Way(env="pydanticai", script="peer_pydantic_ai.py", adapter="ViaAgent", unit=346, counts="messages"),
    Way(env="llamaindex", script="peer_llama_index.py", adapter="MemFile"),
    Way(env="oai", script="peer_openai_agents.py", adapter="Limit", unit=238, counts="items"),
    Way(env="oai", script="peer_openai_agents.py", adapter="Compaction", unit=238, counts="items"),
    Way(env="strands", script="peer_strands.py", adapter="Sliding", unit=346, counts="messages"),
    Way(env="strands", script="peer_strands.py", adapter="Summ"),
    Way(env="agentfw", script="peer_agent_framework.py", adapter="Budget"),
    Way(env="agentfw", script="peer_agent_framework.py", adapter="Window"),
    Way(env="agentfw", script="peer_agent_framework.py", adapter="Summ", unit=600, counts="messages"),
    Way(env="adk", script="peer_google_adk.py", adapter="Compact", unit=346, counts="messages"),
    Way(env="headroom", script="peer_headroom.py", adapter="Compress"),
    Way(env="lettaold", script="peer_letta.py", adapter="Sliding"),
)


def measured(folder: Path, work: Path, pythons: Mapping[str, Path]) -> dict:
    """Replays the selection through every way whose environment is there. `work` is where the children's files go."""
    chosen = sessions.selection()
    if not chosen:
        return {"sessions": [], "rows": []}
    given = (work / "real-sessions.json").resolve()
    sessions.write(chosen, given)
    means, outgrown = sessions.mean_tokens(chosen), {each.name: sessions.lengths(each) for each in chosen}

    def rows_of(way: Way) -> list[dict]:
        print(f"{way.env} {way.adapter}, real sessions …", flush=True)
        try:
            return summed(told(way, folder, given, pythons[way.env], means), outgrown)
        except subprocess.SubprocessError as error:
            return [{"variant": f"{way.env} {way.adapter}", "error": reason(error)}]

    ways = sorted((way for way in WAYS if way.env in pythons), key=lambda way: way.env not in SLOW)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(ways, pool.map(rows_of, ways), strict=True))
    return {
        "sessions": [about(each, outgrown[each.name][-1]) for each in chosen],
        "rows": [row for way in WAYS for row in found.get(way, ())],
    }


def about(session: sessions.Told, tokens: int) -> dict:
    needed = sum(len(need.texts) for need in session.questions)
    return {
        "name": session.name,
        "kind": session.kind,
        "messages": sum(len(step) for step in session.steps),
        "calls": len(session.steps) - 1,
        "tokens": tokens,
        "files": len(session.files),
        "questions": len(session.questions),
        "evidence": needed,
    }


def told(way: Way, folder: Path, given: Path, python: Path, means: Mapping[str, float]) -> list[dict]:
    """What the child says of every session at every budget."""
    out = given.with_name(f"real-{way.env}-{way.adapter}.json")
    out.unlink(missing_ok=True)
    scale = way.unit / means[way.counts] if way.unit else 1
    budgets = [f"{budget}:{round(budget * scale)}" for budget in BUDGETS]
    command = [str(python), "-P", "-W", "ignore", str(CHILD), way.script, way.adapter, str(given), str(out), *budgets]
    paths = [str(folder.resolve()), *([str(Path("src").resolve())] if way.env == "recto" else []), str(Path.cwd())]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("RECTO_", "PYTHONPATH"))}
    surroundings = plain | {"PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=True, timeout=LONGEST)
    return json.loads(out.read_text(encoding="utf-8"))


def reason(error: subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"took over {LONGEST} s"
    said = [line for line in str(getattr(error, "stderr", "")).splitlines() if line.strip()]
    return f"failed: {said[-1]}" if said else "failed"


def summed(replays: Iterable[dict], outgrown: Mapping[str, Sequence[int]]) -> list[dict]:
    """One row for each budget, over all sessions."""
    by_budget: dict[int, list[dict]] = {}
    for each in replays:
        by_budget.setdefault(each["budget"], []).append(each)
    return [row_of(budget, some, outgrown) for budget, some in by_budget.items()]


def row_of(budget: int, replays: Sequence[dict], outgrown: Mapping[str, Sequence[int]]) -> dict:
    first = replays[0]
    card = model_card(load(environ={}, arguments={"model": MODEL}))
    worths = [worth(each, card) for each in replays]
    times = [each["ms"] for each in replays]
    full = [each["ms"][full_from(outgrown[each["session"]], budget) :] for each in replays]
    every = [time for some in times for time in some]
    return {
        **{name: first[name] for name in ("variant", "durable", "by", "search")},
        "budget": budget,
        "calls": sum(each["calls"] for each in replays),
        "p50": percentile(every, 0.5),
        "p99": percentile(every, 0.99),
        "growth": growth(times),
        "growth_when_full": growth([some for some in full if len(some) >= FEWEST]),
        **{name: sum(one[name] for one in worths) for name in ("tokens", "unchanged", "picodollars")},
        "wrong": dict(sum((Counter(each["wrong"]) for each in replays), Counter())),
        "files": needed(replays, "files"),
        "questions": needed(replays, "questions"),
        "said": sum(each["said"] for each in replays),
        "held": sum(each["held"] for each in replays),
    }


def full_from(lengths: Sequence[int], budget: int) -> int:
    """The turn from which on all that was said is more than the window holds; turns begin with the second step."""
    return next((place - 1 for place, length in enumerate(lengths) if length > budget and place), len(lengths))


def growth(sessions_times: Sequence[Sequence[float]]) -> float | None:
    """How much slower the last tenth of the turns is than the first: medians, added up over the sessions."""
    begun = ended = 0.0
    for times in sessions_times:
        if times:
            tenth = max(1, len(times) // 10)
            begun += median(times[:tenth])
            ended += median(times[-tenth:])
    return ended / begun if begun else None


def needed(replays: Iterable[dict], kind: str) -> dict:
    """Of the messages that were needed: how many stood in the prompt, and how many would reach a model.

    That is in a prompt that can be sent, or by the peer's own search, or by reading on from what that finds. What is
    in a bad prompt reaches nobody.
    """
    looked = [each for replay in replays for each in replay["looked"] if each["kind"] == kind]
    whole = [is_so for each in looked for is_so in each["whole"]]
    found = [is_so for each in looked for is_so in each["found"]]
    read_on = [is_so for each in looked for is_so in each["read_on"]]
    sent = [is_so and each["sound"] for each in looked for is_so in each["whole"]]
    return {
        "messages": len(whole),
        "whole": sum(whole),
        "lines": sum(share for each in looked for share in each["lines"]),
        "found": sum(found),
        "reached": sum(here or there for here, there in zip(sent, found, strict=True)),
        "read_on": sum(here or there for here, there in zip(sent, read_on, strict=True)),
    }


def worth(replay: dict, card: ModelCard) -> dict[str, int]:
    """What the prompts of one session came to, each billed against the one before."""
    total = {"tokens": 0, "unchanged": 0, "picodollars": 0}
    before: list[tuple[int, int]] = []
    for prompt in replay["prompts"]:
        pieces = [(part, replay["tokens"][part]) for part in prompt]
        tokens, unchanged = sum(cost for _, cost in pieces), stable_prefix(before, pieces)
        total["tokens"] += tokens
        total["unchanged"] += unchanged
        total["picodollars"] += call_price(card, unchanged, tokens - unchanged)
        before = pieces
    return total
