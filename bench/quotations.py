"""Measures where in a prompt a quotation of recall serves the agent's next action.

At questions of users in recorded sessions of coding agents, where recall quotes something, the negative log-likelihood
of the recorded next message is computed after prompts that differ only in the quotation: without it, directly before
the question, a number of steps above it, and behind the first two messages.

Scoring needs a GPU, so there are three steps, as in `bench.likelihood`:

    python -m bench.quotations write FOLDER         writes the prompts of every moment
    python -m bench.likelihood_score MODEL FOLDER   scores them
    python -m bench.quotations keep FOLDER          stores the scores in bench/quotations.json
    python -m bench.quotations show                 prints them, and writes them into docs/recall.md
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import provenance
from bench.action_support import DEFAULT, Run, load_run, prompt_steps, run_names, settings_of
from recto.config.factory import open_session
from recto.errors import WindowOverflow
from recto.recall.types import HEADER

KEPT = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "recall.md"
WINDOW = 16_000
STEPS = (1, 3, 6)
"""Steps above the question."""
MOST = 14
"""Moments of one session."""
_TARGET_CHARACTERS = range(40, 6_000)
_PROMPT_CHARACTERS = 75_000
_WITHOUT = "none"
_TABLE = re.compile(r"(<!-- quotations: begin -->\n).*?(<!-- quotations: end -->)", re.DOTALL)

Said = tuple[str, str]
"""The role and the text of a message."""


def write(folder: Path) -> None:
    """Write the prompts of all moments: `moments.jsonl`, with the texts of messages in `texts.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    texts: dict[str, int] = {}
    with (folder / "moments.jsonl").open("w") as file:
        for name in sorted(name for name, kind in run_names() if kind == "agent_sessions"):
            for step, target, arms in moments(load_run(name, "agent_sessions")):
                packed = {
                    arm: {"tokens": 0, "messages": [[role, texts.setdefault(text, len(texts))] for role, text in said]}
                    for arm, said in arms.items()
                }
                file.write(json.dumps({"run": name, "step": step, "target": target, "old": {}, "arms": packed}) + "\n")
    (folder / "texts.json").write_text(json.dumps(list(texts)))
    (folder / "about.json").write_text(json.dumps(provenance.state_of("likelihood")))


def moments(recorded: Run) -> Iterator[tuple[int, str, dict[str, list[Said]]]]:
    """The questions of a session at which something is quoted: the step, the recorded message, and the prompts."""
    asked: set[int] = set()
    fed = 0
    with open_session(settings_of(recorded, WINDOW, DEFAULT)) as session:
        for step in prompt_steps(recorded):
            for raw in recorded.raws[fed:step]:
                session.append(raw)
            fed = step
            try:
                prompt = session.prompt()
            except WindowOverflow:
                continue
            question = session.window.state.question
            if not prompt.recalled or question in asked or len(asked) == MOST:
                continue
            said = [(json.loads(raw)["role"], text_of(json.loads(raw))) for raw in prompt.raw]
            target = text_of(json.loads(recorded.raws[step]))
            long = sum(len(text) for _, text in said) > _PROMPT_CHARACTERS
            if (arms := arms_of(said)) and len(target) in _TARGET_CHARACTERS and not long:
                asked.add(question)
                yield step, target, arms


def arms_of(said: Sequence[Said]) -> dict[str, list[Said]]:
    """A prompt with its quotation at several places, by their names; empty if it has no quotation or no step."""
    quoted = [message for message in said if message[1].startswith(HEADER)]
    rest = [message for message in said if message not in quoted]
    steps = [at for at in range(len(rest) - 1, 1, -1) if rest[at][0] == "assistant"]
    if len(quoted) != 1 or not steps:
        return {}
    places = {"directly before the question": len(rest) - 1}
    places |= {f"{count} step{'s' * (count > 1)} above it": steps[min(count, len(steps)) - 1] for count in STEPS}
    places["behind the first two messages"] = 2
    return {_WITHOUT: rest} | {name: [*rest[:at], *quoted, *rest[at:]] for name, at in places.items()}


def text_of(message: dict[str, Any]) -> str:
    """The text of a message in Anthropic's format, with calls as fenced JSON."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    found = []
    for block in content or ():
        match block.get("type"):
            case "text":
                found.append(block["text"])
            case "tool_use":
                found.append(f"```{block['name']}\n{json.dumps(block['input'], ensure_ascii=False)}\n```")
            case "tool_result":
                inner = block.get("content")
                parts = [inner] if isinstance(inner, str) else [part.get("text", "") for part in inner or ()]
                found.append("\n".join(parts))
    return "\n".join(text for text in found if text)


def keep(folder: Path) -> None:
    """Keep the scores, with the model and the commit of the prompts."""
    about = json.loads((folder / "about.json").read_text())
    scored = json.loads((folder / "scores.json").read_text())
    scores = [[run, step, arm, mean] for run, step, arm, mean, *_ in scored["scores"]]
    kept = {"commit": about["commit"], "day": about["day"], "model": scored["model"]}
    lines = ",\n".join(json.dumps(score) for score in scores)
    KEPT.write_text(json.dumps(kept, indent=1)[:-2] + f',\n "scores": [\n{lines}\n]\n}}\n')


def table() -> str:
    """What each place changes against the prompt without the quotation, with the 95 % interval by session."""
    kept = json.loads(KEPT.read_text())
    means = {(run, step, arm): mean for run, step, arm, mean in kept["scores"]}
    lines = ["| the quotation is | loss | 95 % interval | median |", "|---|--:|--:|--:|"]
    for arm in dict.fromkeys(arm for _, _, arm in means):
        if arm == _WITHOUT:
            continue
        by_run: dict[str, list[float]] = {}
        for (run, step, one), mean in means.items():
            if one == arm:
                by_run.setdefault(run, []).append(mean - means[run, step, _WITHOUT])
        losses = [loss for several in by_run.values() for loss in several]
        chance, runs = random.Random(0), list(by_run.values())
        drawn = sorted(
            statistics.fmean(loss for several in chance.choices(runs, k=len(runs)) for loss in several)
            for _ in range(1_000)
        )
        low, high, middle = drawn[25], drawn[974], statistics.median(losses)
        lines.append(f"| {arm} | {statistics.fmean(losses):+.3f} | {low:+.3f} to {high:+.3f} | {middle:+.3f} |")
    moments_kept = {(run, step) for run, step, _ in means}
    sessions = len({run for run, _ in moments_kept})
    about = f"{len(moments_kept)} moments of {sessions} sessions, {kept['model']}, {kept['commit']}, {kept['day']}."
    return "\n".join([*lines, "", about])


def show() -> None:
    """Print the table, and write it into the page."""
    print(table())
    PAGE.write_text(_TABLE.sub(lambda found: f"{found[1]}{table()}\n{found[2]}", PAGE.read_text()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.quotations", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("write", "keep", "show"))
    parser.add_argument("folder", type=Path, nargs="?")
    given = parser.parse_args()
    if given.what == "show":
        show()
    else:
        {"write": write, "keep": keep}[given.what](given.folder)
