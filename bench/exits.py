"""Measures whether short programs exit cleanly while their texts are still being embedded on a busy core.
Each program opens a session, appends messages, builds a prompt and ends, half of the programs with `close()` and half
without. The table shows how many of them end with exit code 0.

Each half runs on a core of its own if there are two. The programs share the core with busy loops, so that the embedder
is still at work when the interpreter is torn down.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import cycle

from rich.progress import Progress

from bench.measure import progress, row
from recto.models import weights
from recto.models.embedders import ARCTIC

PROGRAMS, LOOPS, AT_ONCE = 200, 12, 24
ENDINGS = {"without close()": "", "with close()": "session.close()"}
PROGRAM = """
import threading, recto
from recto.models.embedders.onnx import OnnxEmbedder

embedding = threading.Event()
documents = OnnxEmbedder.documents
OnnxEmbedder.documents = lambda self, texts: (embedding.set(), documents(self, texts))[1]
small = {{"gpt-4o": {{"window": 4_000, "max_input": 4_000}}}}
session = recto.open({store!r}, model="gpt-4o", models=small, recall={{"embedder": {{"use": "arctic"}}}})
for number in range(2):
    session.append({{"role": "user", "content": f"Tell me about garden {{number}}. " + "It has roses. " * 20}})
    session.append({{"role": "assistant", "content": "The path leads to the old gate by the wall. " * 130}})
session.append({{"role": "user", "content": "Go on."}})
session.prompt()
embedding.wait()
{ending}
"""


def run(quick: bool) -> list[dict]:
    if weights.find(ARCTIC) is None:
        return [row("exits", 0, "", f"its weights are not here: recto models get {ARCTIC}")]
    count = (PROGRAMS // 10 if quick else PROGRAMS) // 2
    cores = cycle(sorted(os.sched_getaffinity(0)))
    with Progress(console=progress()) as bars, ThreadPoolExecutor(len(ENDINGS)) as pool:
        running = [
            pool.submit(exit_codes, ending, count, LOOPS, next(cores), partial(bars.track, description=name))
            for name, ending in ENDINGS.items()
        ]
        found = [one.result() for one in running]
    return [
        row(
            f"exit code 0, {name}",
            codes[0],
            f"of {count}",
            "; ".join(
                [f"{LOOPS} busy loops on the core", *(f"{code}: {codes[code]}" for code in sorted(codes) if code)]
            ),
        )
        for name, codes in zip(ENDINGS, found, strict=True)
    ]


def exit_codes(
    ending: str, count: int, loops: int, core: int, shown: Callable[[range], Iterable[int]] = iter
) -> Counter[int]:
    """Run programs beside busy loops on one core, a few at a time; counts their exit codes."""
    program = PROGRAM.format(store="memory:", ending=ending)
    with busy_core(core, loops), ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(_exit_code, program) for _ in range(count)]
        return Counter(running[number].result() for number in shown(range(count)))


@contextmanager
def busy_core(core: int, loops: int) -> Iterator[None]:
    """Pin this thread, and the threads and processes that it starts, to a core with busy loops on it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    others = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
        os.sched_setaffinity(0, before)


def _exit_code(program: str) -> int:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=3600).returncode
