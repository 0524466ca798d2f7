"""Scores the prompts of `bench.likelihood` with a model: how likely each makes the recorded next message.

    python -m bench.likelihood_score MODEL FOLDER

MODEL is a folder or a name that transformers loads; torch and transformers must be installed in addition to Recto.
Scores are written every few seconds, and a second run continues where the first ended.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SAVE_SECONDS = 15.0
_Model = _Tokenizer = Any
"""Of transformers, which is not installed where this is checked."""


class Scorer:
    """A model and its tokenizer, with the tokens of the texts it has seen."""

    def __init__(self, model: _Model, tokenizer: _Tokenizer, texts: list[str]) -> None:
        self.model, self.tokenizer, self.texts = model, tokenizer, texts
        self.known: dict[str, list[int]] = {}

    def tokens(self, text: str) -> list[int]:
        if text not in self.known:
            self.known[text] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self.known[text]

    def prompt(self, messages: list[list]) -> list[int]:
        """The tokens of a prompt in the form ChatML, up to where the assistant begins to write."""
        made: list[int] = []
        for role, text in messages:
            made += [
                *self.tokens(f"<|im_start|>{role}\n"),
                *self.tokens(self.texts[text]),
                *self.tokens("<|im_end|>\n"),
            ]
        return made + self.tokens("<|im_start|>assistant\n")

    def losses(self, prompt: list[int], target: list[int]) -> list[float]:
        """The negative log-likelihood of each token of the target."""
        import torch  # noqa: PLC0415  # not needed by what imports this

        tokens = torch.tensor([prompt + target], device=self.model.device)
        with torch.no_grad():
            hidden = self.model.model(input_ids=tokens, use_cache=False).last_hidden_state[0]
            logits = self.model.lm_head(hidden[len(prompt) - 1 : -1]).float()
            likely = torch.log_softmax(logits, -1).gather(1, tokens[0, len(prompt) :, None])
        return (-likely[:, 0]).tolist()


def score(scorer: Scorer, moments: list[dict], done: set[tuple]) -> Iterator[list]:
    """The scores of all prompts that are not done: mean loss, and loss and number of the tokens of lost names."""
    for arm in dict.fromkeys(arm for moment in moments for arm in moment["arms"]):
        for moment in moments:
            if arm not in moment["arms"] or (moment["run"], moment["step"], arm) in done:
                continue
            coded = scorer.tokenizer(moment["target"], add_special_tokens=False, return_offsets_mapping=True)
            target = coded["input_ids"] + scorer.tokens("<|im_end|>")
            losses = scorer.losses(scorer.prompt(moment["arms"][arm]["messages"]), target)
            old = {}
            for window, ranges in moment["old"].items():
                named = [
                    loss
                    for loss, (start, end) in zip(losses, coded["offset_mapping"], strict=False)
                    if any(start < stop and end > begin for begin, stop in ranges)
                ]
                old[window] = [round(sum(named), 3), len(named)]
            mean = round(sum(losses) / len(losses), 5)
            yield [moment["run"], moment["step"], arm, mean, old, moment["arms"][arm]["tokens"]]


def score_folder(model: _Model, tokenizer: _Tokenizer, name: str, folder: Path, seconds: float) -> None:
    """Score what a folder holds, for at most some seconds."""
    moments = [json.loads(line) for line in (folder / "moments.jsonl").read_text().splitlines()]
    scorer = Scorer(model, tokenizer, json.loads((folder / "texts.json").read_text()))
    file = folder / "scores.json"
    scores = json.loads(file.read_text())["scores"] if file.exists() else []
    done = {tuple(one[:3]) for one in scores}
    start = saved = time.monotonic()
    for one in score(scorer, moments, done):
        scores.append(one)
        now = time.monotonic()
        if now - saved > SAVE_SECONDS:
            file.write_text(json.dumps({"model": name, "scores": scores}))
            saved = now
        if now - start > seconds:
            break
    file.write_text(json.dumps({"model": name, "scores": scores}))
    print(f"{len(scores)} scores")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.likelihood_score", description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a folder or a name that transformers loads")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after as many")
    given = parser.parse_args()
    import torch  # noqa: PLC0415  # not needed by what imports this
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.bfloat16).to(device).eval()
    score_folder(model, AutoTokenizer.from_pretrained(given.model), given.model, given.folder, given.seconds)


if __name__ == "__main__":
    main()
