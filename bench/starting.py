"""Measures what it costs to start: importing Recto alone, opening a store, and running the command line.
Each program is a process of its own, and is compared with a Python process that does nothing.

The programs take turns, so that other work on the machine affects all alike. CPU time is that of the whole process.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

from rich.progress import track

from bench.measure import figures, percentile, progress

ROUNDS = 21
_HEAVY = "apsw numpy splintr yaml click rich httpx2 starlette psycopg textual mcp onnxruntime langchain agents pydantic"
_IN_A_FOLDER = "import recto, sys; folder = sys.argv[1]"
BEGINNINGS = {
    "Python alone": "pass",
    "import recto": "import recto",
    "recto.fit, not called": "import recto; recto.fit",
    "recto.open, in memory": "import recto; recto.open('memory:', model='gpt-4o').close()",
    "recto.open, a new file": f"{_IN_A_FOLDER}; recto.open(folder + '/a.db', model='gpt-4o').close()",
    "recto.open, first message and prompt": (
        f"{_IN_A_FOLDER}; session = recto.open(folder + '/a.db', model='gpt-4o'); "
        "session.append({'role': 'user', 'content': 'Hello'}); session.prompt(); session.close()"
    ),
    "recto.follow, in memory": "import recto; recto.follow('memory:', model='gpt-4o').close()",
    "recto --version": "import sys; sys.argv = ['recto', '--version']; from recto.cli.main import main; main()",
    "recto --help": "import sys; sys.argv = ['recto', '--help']; from recto.cli.main import main; main()",
}


def run(quick: bool) -> list[dict]:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in BEGINNINGS}
    for _ in track(range(3 if quick else ROUNDS), "beginning", console=progress()):
        for name, program in BEGINNINGS.items():
            times[name].append(_took(program))
    return [
        figures(
            name,
            {"p50 ms": percentile([one[0] for one in took], 0.5), "CPU ms": percentile([one[1] for one in took], 0.5)},
            loaded(BEGINNINGS[name]),
            digits=1,
        )
        for name, took in times.items()
    ]


def _took(program: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        before, started = _children(), time.perf_counter()
        subprocess.run([sys.executable, "-c", program, folder], env=_environ(), check=True, stdout=subprocess.DEVNULL)
        return (time.perf_counter() - started) * 1e3, (_children() - before) * 1e3


def _children() -> float:
    """The processor's seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _environ() -> dict[str, str]:
    """As a program has it that is started a second time: compiled, and with the default settings."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RECTO_")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ


def loaded(program: str) -> str:
    """Which of the heavy packages it has loaded at its end."""
    ask = f"import atexit, sys\natexit.register(lambda: print(*[m for m in '{_HEAVY}'.split() if m in sys.modules]))\n"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", ask + program, folder]
        said = subprocess.run(command, env=_environ(), check=True, capture_output=True, text=True)
    return f"loads {', '.join(said.stdout.splitlines()[-1].split()) or 'none of the packages it can use'}"
