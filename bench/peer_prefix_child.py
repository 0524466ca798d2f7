"""Sessions replayed through one peer, inside that peer's environment: run by `bench.peers_prefix`, beside `common.py`.

It knows the peer's adapter from its script and says which parts each prompt was made of, what they weigh, and what was
wrong with it. What that is worth in money is not its business.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import common  # of the peers' folder

WRONG = ("over", "orphan_results", "orphan_calls", "empty", "no_user")


class Everything(common.Peer):
    """Sends the whole history, whether it fits or not."""

    name = "no management"

    def load(self, history: list[common.Msg], budget: int) -> None:
        self.kept, self.budget = list(history), budget

    def turn(self, new: list[common.Msg]) -> list[common.Msg]:
        self.kept += new
        return self.kept

    def parts(self, prompt: list[common.Msg]) -> list[tuple]:
        return [part for said in prompt for part in common.msg_parts(said)]


class Trimming(Everything):
    """Drops whole messages, oldest first, at every call, to just fit. A result whose call went is not sent."""

    name = "plain trimming"

    def turn(self, new: list[common.Msg]) -> list[common.Msg]:
        self.kept += new
        prompt = self.sent()
        while len(self.kept) > 1 and sum(weight(part) for part in self.parts(prompt)) > self.budget:
            self.kept.pop(0)
            prompt = self.sent()
        return prompt

    def sent(self) -> list[common.Msg]:
        calls = {call for said in self.kept for call, _, _ in said.calls}
        return [said for said in self.kept if said.role != "tool" or said.call_id in calls]


def weight(part: tuple) -> int:
    """Tokens of a part, as the check of the driver counts them: contents only."""
    texts = part[2:] if part[0] == "call" else part[2:3]
    return sum(common.count_memo(text) for text in texts)


def replay(adapter: type[common.Peer], steps: list[list[common.Msg]], budget: int, knob: int) -> dict:
    """One session: a prompt is asked for after each step but the first, which is the history that some peers need to
    begin with. `knob` is the budget the peer is told."""
    peer = adapter()
    peer.load(steps[0], knob)
    known: dict[tuple, int] = {}
    prompts: list[list[int]] = []
    wrong = Counter(dict.fromkeys((*WRONG, "bad", "refused"), 0))
    for step in steps[1:]:
        try:
            parts = peer.parts(peer.turn(peer.native(step)))
        except Exception as refusal:  # noqa: BLE001  whatever a peer raises, there is no prompt
            wrong["refused"] += 1
            wrong["bad"] += 1
            print(f"{adapter.name}: {type(refusal).__name__}: {refusal}", file=sys.stderr)
            continue
        prompts.append([known.setdefault(part, len(known)) for part in parts])
        found = {name for name, is_so in common.check(parts, budget).items() if name in WRONG and is_so}
        wrong.update(found)
        wrong["bad"] += bool(found)
    peer.close()
    return {"calls": len(steps) - 1, "prompts": prompts, "tokens": [weight(part) for part in known], "wrong": wrong}


def adapter_of(script: Path, name: str) -> type[common.Peer]:
    if script.resolve() == Path(__file__).resolve():
        return globals()[name]
    spec = importlib.util.spec_from_file_location(script.stem, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def main(script: str, name: str, sessions: str, out: str, *budgets: str) -> None:
    """Each of the budgets is given as `budget:knob`."""
    adapter = adapter_of(Path(script), name)
    given = json.loads(Path(sessions).read_text(encoding="utf-8"))
    told = []
    for budget, knob in (map(int, each.split(":")) for each in budgets):
        for session in given:
            steps = [[common.Msg(*said) for said in step] for step in session]
            told.append({"variant": adapter.name, "budget": budget, **replay(adapter, steps, budget, knob)})
    Path(out).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
