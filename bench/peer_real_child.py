"""Replays real sessions through one peer, inside that peer's environment; run by `bench.peers_real`.

It loads the peer's adapter from its script, times its turns, and reports which parts each prompt consists of, what is
wrong with it, and which of the needed messages are in it or can be retrieved. Prices and rankings are computed
elsewhere.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import common  # of the peers' folder

from bench.peer_judging import WRONG, Part, Shown, faults, texts_of, tokens_of
from bench.peer_means import MEANS, Means


class Everything(common.Peer):
    """Sends the whole history, whether it fits or not."""

    name = "no management"

    def load(self, history: list[common.Msg], budget: int) -> None:
        self.kept, self.budget = list(history), budget

    def turn(self, new: list[common.Msg]) -> list[common.Msg]:
        self.kept += new
        return list(self.kept)

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


def weight(part: Part) -> int:
    return tokens_of(part, common.count_memo)


class Replay:
    """One session through one peer at one budget. `knob` is the budget that the peer is told."""

    def __init__(self, adapter: type[common.Peer], means: Means | None, budget: int, knob: int) -> None:
        self.peer, self.means, self.budget, self.knob = adapter(), means, budget, knob
        self.known: dict[Part, int] = {}
        self.prompts: list[list[int]] = []
        self.times: list[tuple[float, float]] = []
        self.wrong = Counter(dict.fromkeys((*WRONG, "bad", "unsound"), 0))

    def through(self, session: dict) -> dict:
        """A prompt is asked for after each step but the first, the history that some peers need to begin with."""
        steps = [[common.Msg(*said) for said in step] for step in session["steps"]]
        needs: dict[int, list[dict]] = {}
        for kind in ("files", "questions"):
            for need in session[kind]:
                needs.setdefault(need["step"], []).append(need | {"kind": kind})
        self.peer.whole_budget = self.budget
        self.peer.load(steps[0], self.knob)
        looked = []
        for place, step in enumerate(steps[1:], start=1):
            bad = self.wrong["bad"]
            shown = Shown(texts_of(self.prompted(step)))
            sound = self.wrong["bad"] == bad
            looked += [self.looked(need, shown) | {"sound": sound} for need in needs.get(place, ())]
        told = self.told([said for step in steps for said in step], looked)
        self.peer.close()
        return {"session": session["name"], "calls": len(steps) - 1, **told}

    def prompted(self, step: list[common.Msg]) -> list[Part]:
        """The prompt after a step, timed and judged; none where the peer refuses."""
        new = self.peer.native(step)
        started, used = time.perf_counter(), time.process_time()
        try:
            out = self.peer.turn(new)
        except Exception as refusal:  # noqa: BLE001  whatever a peer raises, there is no prompt
            self.wrong.update(("refused", "bad", "unsound"))
            print(f"{self.peer.name}: {type(refusal).__name__}: {refusal}", file=sys.stderr)
            return []
        self.times.append(((time.perf_counter() - started) * 1e3, (time.process_time() - used) * 1e3))
        self.peer.last_prompt = out
        parts = [tuple(part) for part in self.peer.parts(out)]
        self.prompts.append([self.known.setdefault(part, len(self.known)) for part in parts])
        found = faults(parts, self.budget, common.count_memo)
        self.wrong.update(found)
        self.wrong["bad"] += bool(found)
        self.wrong["unsound"] += bool(found - {"over"})
        return parts

    def looked(self, need: dict, shown: Shown) -> dict:
        """For each of the messages that were needed: does it stand in the prompt, does the peer's search find it."""
        back = Shown(self.means.found(self.peer, need["query"]) if self.means and self.means.found else ())
        further = Shown(self.means.read_on(self.peer, need["query"])) if self.means and self.means.read_on else back
        return {
            "kind": need["kind"],
            "whole": [shown.whole(text) for text in need["texts"]],
            "lines": [shown.lines(text) for text in need["texts"]],
            "found": [back.whole(text) for text in need["texts"]],
            "read_on": [further.whole(text) for text in need["texts"]],
        }

    def told(self, said: list[common.Msg], looked: list[dict]) -> dict:
        texts = [each.text for each in said if each.text]
        held = Counter(texts_of(self.means.held(self.peer))) if self.means else Counter()
        return {
            "ms": common.estimate(self.times, self.peer.durable != "no"),
            "prompts": self.prompts,
            "tokens": [weight(part) for part in self.known],
            "wrong": self.wrong,
            "looked": looked,
            "said": len(texts),
            "held": sum((Counter(texts) & held).values()),
        }


def adapter_of(script: Path, name: str) -> type[common.Peer]:
    if script.resolve() == Path(__file__).resolve():
        return globals()[name]
    spec = importlib.util.spec_from_file_location(script.stem, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return SET_BY_TWO[name](module) if name in SET_BY_TWO else getattr(module, name)


def adk_compaction(module: Any) -> type[common.Peer]:  # noqa: ANN401  a script of a peer
    """google-adk has two knobs, and only one of them counts events."""

    class Compact(module.Contents):
        name = "adk-compaction(token_threshold)"

        def load(self, history: list[common.Msg], knob: int) -> None:
            keep = max(1, knob // 346 // 2)
            self.conf = module.EventsCompactionConfig(
                summarizer=module.Stub(), token_threshold=self.whole_budget, event_retention_size=keep
            )
            super().load(history, knob)

    return Compact


SET_BY_TWO = {"Compact": adk_compaction}


def main(script: str, name: str, sessions: str, out: str, *budgets: str) -> None:
    """Each of the budgets is given as `budget:knob`."""
    adapter, means = adapter_of(Path(script), name), MEANS.get((script, name)) or MEANS.get(name)
    told = []
    for budget, knob in (map(int, each.split(":")) for each in budgets):
        for session in json.loads(Path(sessions).read_text(encoding="utf-8")):
            about = {"variant": adapter.name, "durable": adapter.durable, "budget": budget}
            about |= {"by": means.by, "search": means.search} if means else {"by": "", "search": ""}
            told.append(about | Replay(adapter, means, budget, knob).through(session))
    Path(out).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
