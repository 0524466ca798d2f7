"""The public names of the package, and what importing it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from ast import literal_eval

_HELP = "import sys; sys.argv = ['recto', '--help']; from recto.cli.main import main; main()"
_OPEN = "import recto; recto.open(sys.argv[1], model='gpt-4o').close()"
LIBRARIES = "numpy rich yaml onnxruntime tokenizers tiktoken starlette httpx2 uvicorn psycopg pydantic textual"
OF_A_TURN = (
    "recto.engine.window recto.context.facts recto.context.policies recto.recall recto.models recto.formats.convert"
)


def loaded(program: str, candidates: str, *args: object) -> list[str]:
    """Returns the candidates that a separate process has loaded when it ends."""
    check = f"import atexit, sys; atexit.register(lambda: print([m for m in {candidates.split()} if m in sys.modules]))"
    return literal_eval(output_of(f"{check}\n{program}", *args).splitlines()[-1])


def output_of(program: str, *args: object) -> str:
    """Returns the output of a program with default settings."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RECTO_")}
    command = [sys.executable, "-c", program, *map(str, args)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


def test_importing_recto_loads_nothing_heavy():
    assert (
        loaded("import recto", f"{LIBRARIES} {OF_A_TURN} msgspec apsw splintr click asyncio recto.stores recto.engine")
        == []
    )


def test_the_help_of_the_command_line_loads_no_command():
    assert (
        loaded(_HELP, f"{LIBRARIES} {OF_A_TURN} msgspec apsw splintr asyncio recto.config recto.stores recto.engine")
        == []
    )


def test_opening_a_session_loads_no_module_of_a_turn(tmp_path):
    assert (
        loaded(_OPEN, f"{LIBRARIES} {OF_A_TURN} click asyncio recto.health recto.formats.convert", tmp_path / "a.db")
        == []
    )
    assert loaded(_OPEN, "apsw recto.stores.sqlite recto.engine.session", tmp_path / "a.db") != []


def test_opening_a_session_unpacks_no_vocabulary(tmp_path):
    ask = "from recto.tokens.meter import _loaded; print([e.count_text._tokenizer for e in _loaded.values()])"
    assert output_of(f"import sys; {_OPEN}; {ask}", tmp_path / "a.db").strip() == "[None]"


def test_the_public_names_are_the_listed_ones():
    import recto

    assert sorted(recto.__all__) == sorted(PUBLIC)
    for name in recto.__all__:
        assert getattr(recto, name) is not None


PUBLIC = [
    "AsyncContextWindowManager",
    "AsyncSession",
    "ContextWindowManager",
    "Conversations",
    "Entry",
    "Following",
    "Head",
    "PressureMonitor",
    "Prompt",
    "RectoError",
    "Session",
    "Settings",
    "TranscriptStore",
    "Verification",
    "__version__",
    "bounded",
    "count",
    "errors",
    "evict",
    "fit",
    "follow",
    "manager",
    "manager_async",
    "open",
    "open_async",
    "verify",
]
