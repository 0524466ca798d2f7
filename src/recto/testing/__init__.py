"""Stand-ins at the seams, for Recto's own tests and for yours.

A clock you set, a model that answers from a script, and a session made from a seed; agents whose needs are known are in
`recto.lab.simulation`.
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
    """A clock that goes only where it is told; each reading moves it on by `step` microseconds."""

    time: int = 1_750_000_000_000_000
    step: int = 1_000_000

    def now(self) -> int:
        """Microseconds since 1970."""
        self.time += self.step
        return self.time


_FILES = ("billing/invoice.py", "billing/tax.py", "api/routes.py", "api/auth.py", "store/ledger.py", "jobs/retry.py")
_NOUNS = ("rounding", "currency", "timeout", "refund", "session", "webhook", "retry", "ledger", "discount", "audit")
_WISHES = (
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
    """A coding agent at work, as OpenAI Chat messages: prose, parallel calls, long results. Same seed, same session."""
    rng = random.Random(seed)  # noqa: S311  # repeatable on purpose
    yield {"role": "system", "content": "You are a careful engineer. Amounts are in cents. Never touch migrations/."}
    for exchange in range(exchanges):
        words = {"file": rng.choice(_FILES), "noun": rng.choice(_NOUNS)}
        yield {"role": "user", "content": rng.choice(_WISHES).format(**words)}
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
            {"id": f"{call}_{place}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for place, (name, given) in enumerate(calls)
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
"""One answer of a script: its text, what is raised, or what makes it of the request."""


@dataclass(slots=True)
class ScriptedModel:
    """A model that answers in the order of its script, and remembers what it was asked."""

    script: Iterable[Scripted] = ()
    name: str = "scripted"
    window: int = 0
    requests: list[ModelRequest] = field(default_factory=list, init=False)
    _left: Iterator[Scripted] = field(init=False, repr=False)
    _asking: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        self._left = iter(self.script)

    def complete(self, request: ModelRequest, cancelled: Cancelled | None = None) -> ModelReply:
        """The next answer of the script. Raises `ModelFailed` at its end, and where no answer is wanted any more."""
        with self._asking:
            self.requests.append(request)
            if cancelled is not None and cancelled.is_set():
                raise ModelFailed(self.name, "the answer is no longer wanted")
            answer = next(self._left, None)
        if answer is None:
            raise ModelFailed(self.name, f"its script ends before request {len(self.requests)}")
        if isinstance(answer, Exception):
            raise answer
        made = answer if isinstance(answer, str) else answer(request)
        return made if isinstance(made, ModelReply) else ModelReply(text=made, ending="stop")

    def close(self) -> None:
        """There is nothing to let go of."""
