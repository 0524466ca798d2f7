"""The plain trimming that Recto is compared with is as good as trimming can be, and bills are added up right."""

from __future__ import annotations

import json

from bench.prefix import Tally, Trimming, replay

from recto.config import load
from recto.config.factory import make_meter
from recto.formats import problems

METER = make_meter(load(environ={}, arguments={"model": "claude-sonnet-4-5"}))


def exchange(number: int) -> list[bytes]:
    use = {"type": "tool_use", "id": f"call_{number}", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": "word " * 200}
    said = [
        ("user", f"question {number}"),
        ("assistant", [use]),
        ("user", [result]),
        ("assistant", "ans"),
        ("assistant", "wer"),
    ]
    return [json.dumps({"role": role, "content": content}).encode() for role, content in said]


def test_plain_trimming_keeps_as_much_as_fits_and_no_result_without_its_call():
    keeper = Trimming(1_000, METER)
    for number in range(20):
        for raw in exchange(number):
            keeper.take(raw)
            pieces, _ = keeper.prompt()
            messages = [raw for raw, _ in pieces]
            assert problems(messages, "anthropic.messages") == []
            assert sum(tokens for _, tokens in pieces) <= 1_000
            assert messages[-1] == raw or b"No result" in messages[-1]
    assert sum(tokens for _, tokens in pieces) > 600


def test_a_replay_counts_every_call_and_what_stayed_unchanged(tmp_path):
    file = tmp_path / "session.jsonl"
    lines = [{"type": "meta", "session_id": "s"}]
    lines += [{"type": "message", **json.loads(raw)} for number in range(3) for raw in exchange(number)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    whole = replay(file, 128_000, "everything")
    ours = replay(file, 128_000, "sliding_window")
    assert (ours.prompts, ours.over, ours.invalid, ours.refused, ours.edits) == (6, 0, 0, 0, 0)
    assert 0 < ours.unchanged == whole.unchanged < ours.tokens == whole.tokens
    assert (ours + Tally(prompts=1)).prompts == 7
