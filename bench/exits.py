"""Exit codes of short programs that end while their texts are still being embedded, on a core that is busy.

Each program opens a session, talks and ends, with and without `close()`. All of them share one core with busy loops,
so that the embedder is still working when the interpreter is torn down.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from rich.progress import track

from bench.measure import progress, row
from recto.models import weights
from recto.models.embedders import ARCTIC

PROGRAMS, LOOPS, AT_ONCE = 200, 12, 12
ENDINGS = {
    "without close()": "",
    "with close()": "session.close()",
    "by sys.exit()": "import sys; sys.exit(0)",
}
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
    count = PROGRAMS // 10 if quick else PROGRAMS
    rows = []
    for name, ending in list(ENDINGS.items())[:2]:
        codes = exit_codes(ending, count, LOOPS, lambda numbers, name=name: track(numbers, name, console=progress()))
        others = ", ".join(f"{code}: {number}" for code, number in sorted(codes.items()) if code)
        rows.append(row(f"exit code 0, {name}", codes[0], f"of {count}", f"{LOOPS} busy loops on the core; {others}"))
    return rows


def exit_codes(ending: str, count: int, loops: int, shown: Callable[[range], Iterator[int]] = iter) -> Counter[int]:
    """Run programs beside busy loops, a few at a time; counts their exit codes."""
    program = PROGRAM.format(store="memory:", ending=ending)
    with busy_core(loops), ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(_exit_code, program) for _ in range(count)]
        return Counter(running[number].result() for number in shown(range(count)))


@contextmanager
def busy_core(loops: int) -> Iterator[None]:
    """Pin this process and its children to one core, with busy loops on it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
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
