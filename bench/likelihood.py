"""Measures how well an open model predicts the recorded next action of an agent from each prompt.
At moments of recorded agent runs, the negative log-likelihood of the recorded next message is computed after each
prompt for that moment: the whole history, plain trimming, trimming at equal tokens, and Recto in each mode.

Scoring needs a GPU, so the section has three steps, and prints the scores that the last one stored:

    python -m bench.likelihood write FOLDER         writes the prompts of every moment
    python -m bench.likelihood_score MODEL FOLDER   scores them (needs torch and transformers, which Recto does not)
    python -m bench.likelihood keep FOLDER          stores the scores of every moment in bench/likelihood.json

The runs are the third that no setting was tuned on. Each has two moments, chosen at random among the steps whose
history has 14,000 to 28,000 tokens of the model.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import recto
from bench import provenance
from bench.action_support import DATA, MODES, TRIAL
from bench.measure import figures
from recto.lab.moments import COMMAND, REFERENT

KEPT = Path(__file__).with_suffix(".json")
WINDOWS = (16_000, 8_000)
TRIMMED_SHARE = 0.75
"""Share of the window that plain trimming fills, as in the reference measurement."""
WITHIN = 0.05
_MESSAGE_TOKENS = 4
_ONE_COMMAND = re.compile(r"\A(.*?)```bash\n(.*?)\n```\s*\Z", re.DOTALL)

Message = dict[str, Any]
CountText = Callable[[str], int]


def run(quick: bool) -> list[dict]:
    """The kept scores as a table."""
    del quick  # scores are kept, not measured
    return table([Score(*values) for values in json.loads(KEPT.read_text())["scores"]])


def table(scores: list[Score]) -> list[dict]:
    """What each prompt loses against the whole history, in nats a token, with the mean of moments."""
    whole = {score.moment: score for score in scores if score.arm == "whole history"}
    rows = []
    for arm in dict.fromkeys(score.arm for score in scores):
        if arm == "whole history":
            continue
        of_arm = [score for score in scores if score.arm == arm]
        losses = [score.mean - whole[score.moment].mean for score in of_arm]
        low, high = _interval(of_arm, losses)
        window = "8" if "8 K" in arm else "16"
        old = [(score.old[window], whole[score.moment].old[window]) for score in of_arm if score.old[window][1]]
        old_loss = sum(one[0] - two[0] for one, two in old) / max(sum(one[1] for one, _ in old), 1)
        rows.append(
            figures(
                arm,
                {
                    "loss": statistics.fmean(losses),
                    "low": low,
                    "high": high,
                    "within .05": sum(loss <= WITHIN for loss in losses) / len(losses),
                    "old names": old_loss,
                    "tokens": round(statistics.fmean(score.tokens for score in of_arm)),
                },
                f"{len(of_arm)} moments of {len({score.run for score in of_arm})} runs",
            )
        )
    return rows


class Score:
    """The score of one prompt."""

    def __init__(self, run: str, step: int, arm: str, mean: float, old: dict[str, list[float]], tokens: int) -> None:
        self.run, self.moment, self.arm, self.mean, self.old, self.tokens = run, (run, step), arm, mean, old, tokens


def _interval(scores: Sequence[Score], losses: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean loss, resampled by run."""
    by_run: dict[str, list[float]] = {}
    for score, loss in zip(scores, losses, strict=True):
        by_run.setdefault(score.run, []).append(loss)
    runs, chance = list(by_run.values()), random.Random(0)
    means = sorted(
        statistics.fmean(loss for losses in chance.choices(runs, k=len(runs)) for loss in losses) for _ in range(1_000)
    )
    return means[25], means[974]


def write(folder: Path) -> None:
    """Write the prompts of all moments: `moments.jsonl`, with the texts of messages in `texts.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    runs, texts = recorded_runs(), dict[str, int]()
    count = recto.open("memory:", model="gpt-4o").meter.count
    moments = json.loads(TRIAL.read_text())
    prompts: dict[tuple[str, int], dict[str, list[Message]]] = {}
    for name, steps in moments.items():
        for form, messages in (("commands as text", runs[name]), ("tool calls", with_tool_calls(runs[name]))):
            for window in WINDOWS:
                for mode in MODES:
                    arm = f"{mode}, {window // 1000} K, {form}"
                    for step, prompt in recto_prompts(messages, steps, window, mode):
                        prompts.setdefault((name, step), {})[arm] = prompt
    with (folder / "moments.jsonl").open("w") as file:
        for (name, step), arms in prompts.items():
            history, target = runs[name][:step], runs[name][step]["content"]
            trimmed = {window: trim(history, window * TRIMMED_SHARE, count) for window in WINDOWS}
            plain = {f"plain trimming, {window // 1000} K": kept for window, kept in trimmed.items()}
            others = {arm: prompt for arm, prompt in arms.items() if not arm.startswith(MODES[0])}
            default = {arm: prompt for arm, prompt in arms.items() if arm not in others}
            equal = {
                arm.replace(MODES[0], "trimming at equal tokens"): trim(history, cost(prompt, count), count)
                for arm, prompt in default.items()
            }
            packed = {
                "run": name,
                "step": step,
                "target": target,
                "old": {str(window // 1000): lost_names(target, history, trimmed[window]) for window in WINDOWS},
                "arms": {
                    arm: {
                        "tokens": cost(prompt, count),
                        "messages": [[one["role"], texts.setdefault(one["content"], len(texts))] for one in prompt],
                    }
                    for arm, prompt in ({"whole history": history} | plain | default | equal | others).items()
                },
            }
            file.write(json.dumps(packed) + "\n")
    (folder / "texts.json").write_text(json.dumps(list(texts)))
    (folder / "about.json").write_text(json.dumps(provenance.state_of("likelihood")))


def keep(folder: Path) -> None:
    """Keep the scores, with the model, the commit of the prompts and what they were measured of."""
    kept = json.loads((folder / "about.json").read_text()) | json.loads((folder / "scores.json").read_text())
    lines = ",\n".join(json.dumps(score) for score in kept.pop("scores"))
    KEPT.write_text(json.dumps(kept, indent=1)[:-2] + f',\n "scores": [\n{lines}\n]\n}}\n')


def recorded_runs() -> dict[str, list[Message]]:
    """The runs by name, with the text of each message."""
    with gzip.open(DATA / "swebench_trajectories/trajectories.jsonl.gz", "rt") as lines:
        runs = [json.loads(line) for line in lines]
    return {
        one["instance_id"]: [{"role": said["role"], "content": _text(said)} for said in one["messages"]] for one in runs
    }


def recto_prompts(
    messages: list[Message], steps: list[int], window: int, mode: str
) -> Iterator[tuple[int, list[Message]]]:
    """Recto's prompts at some steps of a run, all of whose prompts are built; as text, with calls as written."""
    session = recto.open(
        "memory:",
        model="gpt-4o",
        models={"gpt-4o": {"window": window, "max_input": window}},
        window={"mode": mode},
        recall={"embedder": {"use": "none"}},
    )
    with session:
        for step, message in enumerate(messages[: max(steps) + 1]):
            if message["role"] == "assistant" and step > 2:
                prompt = session.prompt()
                if step in steps:
                    yield step, [_as_text(one) for one in prompt.messages]
            session.append(message)


def with_tool_calls(messages: list[Message]) -> list[Message]:
    """The same run with tool calls instead of commands as text."""
    made: list[Message] = []
    call = ""
    for number, message in enumerate(messages):
        found = _ONE_COMMAND.match(message["content"]) if message["role"] == "assistant" else None
        if found and message["content"].count("```") == 2:
            call = f"call_{number}"
            function = {"name": "bash", "arguments": json.dumps({"command": found[2]})}
            calls = [{"id": call, "type": "function", "function": function}]
            made.append({"role": "assistant", "content": found[1], "tool_calls": calls})
        elif message["role"] == "user" and call:
            made.append({"role": "tool", "tool_call_id": call, "content": message["content"]})
            call = ""
        else:
            made.append(message)
            call = ""
    return made


def trim(history: list[Message], tokens: float, count: CountText) -> list[Message]:
    """Plain trimming: the first two messages, and the newest that fit."""
    left = tokens - cost(history[:2], count)
    start = len(history)
    while start > 2 and (size := cost(history[start - 1 : start], count)) <= left:
        left -= size
        start -= 1
    return history[:2] + history[start:]


def cost(messages: list[Message], count: CountText) -> int:
    """The tokens of some messages."""
    return sum(count(message["content"]) + _MESSAGE_TOKENS for message in messages)


def lost_names(target: str, history: list[Message], trimmed: list[Message]) -> list[tuple[int, int]]:
    """Where the action uses names of the history that trimming has lost: ranges of characters."""
    earlier, newest = ("\n".join(one["content"] for one in some) for some in (history, trimmed))
    return [
        (command.start(1) + name.start(), command.start(1) + name.end())
        for command in COMMAND.finditer(target)
        for name in REFERENT.finditer(command[1])
        if len(name[0]) >= 4 and name[0] in earlier and name[0] not in newest
    ]


def _as_text(message: Message) -> Message:
    text = _text(message)
    for call in message.get("tool_calls") or ():
        text += f"```bash\n{json.loads(call['function']['arguments'])['command']}\n```"
    return {"role": "user" if message["role"] == "tool" else message["role"], "content": text}


def _text(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.likelihood", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("write", "keep"))
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    {"write": write, "keep": keep}[given.what](given.folder)
