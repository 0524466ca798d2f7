"""Fakes at the seams, for Recto's own tests and for yours.

A clock you set, a model that answers from a script, and a session generated from a seed. Simulated agents with known
needs are in `recto.lab.simulation`.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from recto.context.compaction.protocols import Cancelled, ModelReply, ModelRequest
from recto.errors import ModelFailed


@dataclass(slots=True)
class FakeClock:
    """A clock that moves only when it is read, by `step` microseconds, or set."""

    time: int = 1_750_000_000_000_000
    step: int = 1_000_000

    def now(self) -> int:
        """Returns microseconds since 1970."""
        self.time += self.step
        return self.time


_FILES = ("billing/invoice.py", "billing/tax.py", "api/routes.py", "api/auth.py", "store/ledger.py", "jobs/retry.py")
_NOUNS = ("rounding", "currency", "timeout", "refund", "session", "webhook", "retry", "ledger", "discount", "audit")
_REQUESTS = (
    "The {noun} test in {file} fails since this morning, please find out why.",
    "Before we release: make {noun} handling in {file} safe when two requests arrive at once.",
    "A customer reports a wrong {noun}. Start with {file} and tell me what you see.",
    "Rename the {noun} helper in {file}, and keep the old name working until 2.0.",
)
_FINDINGS = (
    "{file} reads the {noun} once and keeps it; a second call sees the old value.",
    "The {noun} in {file} is compared as text, so '10' sorts before '9'.",
    "The error comes from {file}: the {noun} is None when the queue is empty.",
)


def scripted_session(seed: int = 7, exchanges: int = 40) -> Iterator[dict[str, Any]]:
    """Generates a coding agent's session as OpenAI Chat messages: prose, parallel calls, long results. Same seed, same
    session.
    """
    rng = random.Random(seed)  # noqa: S311  # reproducible on purpose
    yield {"role": "system", "content": "You are a careful engineer. Amounts are in cents. Never touch migrations/."}
    for exchange in range(exchanges):
        words = {"file": rng.choice(_FILES), "noun": rng.choice(_NOUNS)}
        yield {"role": "user", "content": rng.choice(_REQUESTS).format(**words)}
        for step in range(rng.randint(1, 4)):
            yield from _tool_step(rng, f"call_{exchange}_{step}", words)
        yield {"role": "assistant", "content": rng.choice(_FINDINGS).format(**words)}


def _tool_step(rng: random.Random, call: str, words: dict[str, str]) -> Iterator[dict[str, Any]]:
    calls = [("read_file", {"path": words["file"]})]
    if rng.random() < 0.4:
        calls.append(("run", {"command": f"pytest -k {words['noun']}"}))
    yield {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"{call}_{place}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for place, (name, arguments) in enumerate(calls)
        ],
    }
    for place, (name, _) in enumerate(calls):
        output = _source(rng, words) if name == "read_file" else _test_run(rng, words)
        yield {"role": "tool", "tool_call_id": f"{call}_{place}", "content": output}


def _source(rng: random.Random, words: dict[str, str]) -> str:
    lines = [f'"""{words["noun"].title()} as the business knows it."""', ""]
    for number in range(rng.randint(5, 40)):
        lines += [
            f"def {words['noun']}_{number}(amount: int, rate: int = {rng.randint(1, 99)}) -> int:",
            f"    total = amount * rate // {rng.randint(2, 100)}",
            f"    return max(total, {rng.randint(0, 500)})",
            "",
        ]
    return "\n".join(lines)


def _test_run(rng: random.Random, words: dict[str, str]) -> str:
    passed, seconds = rng.randint(3, 200), rng.random() * 9
    failed = f"FAILED tests/test_{words['noun']}.py::test_{rng.randint(1, 40)} - AssertionError: {rng.randint(0, 9999)}"
    return f"{failed}\n1 failed, {passed} passed in {seconds:.2f}s"


Scripted: TypeAlias = str | Exception | Callable[[ModelRequest], "str | ModelReply"]
"""One answer of a script: its text, an exception to raise, or a function of the request."""


@dataclass(slots=True)
class ScriptedModel:
    """A model that answers in the order of its script, and records the requests."""

    script: Iterable[Scripted] = ()
    name: str = "scripted"
    window: int = 0
    requests: list[ModelRequest] = field(default_factory=list, init=False)
    _remaining: Iterator[Scripted] = field(init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        self._remaining = iter(self.script)

    def complete(self, request: ModelRequest, cancelled: Cancelled | None = None) -> ModelReply:
        """Returns the next answer of the script.

        Raises:
            ModelFailed: The script has ended, or the request was cancelled.
        """
        with self._lock:
            self.requests.append(request)
            if cancelled is not None and cancelled.is_set():
                raise ModelFailed(self.name, "the answer is no longer wanted")
            answer = next(self._remaining, None)
        if answer is None:
            raise ModelFailed(self.name, f"its script ends before request {len(self.requests)}")
        if isinstance(answer, Exception):
            raise answer
        reply = answer if isinstance(answer, str) else answer(request)
        return reply if isinstance(reply, ModelReply) else ModelReply(text=reply, ending="stop")

    def close(self) -> None:
        """Does nothing; a real model releases its connections here."""
