"""Records where the figures of the documentation come from: the commit, the day and the source that was measured.

Every section has a block that names the commit and, in a comment, a digest of each path it measures. If a path has
changed since, the page must say so: `python -m bench --stale` writes that, `tools/check_bench.py` fails without it, and
a new run of the section removes it. Digests are compared and not commits, so that this works without a history.
Docstrings, comments and empty lines do not count, so that better wording does not make a figure stale.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_ENGINE = tuple(
    f"src/recto/engine/{name}.py"
    for name in ("session", "window", "projection", "prompt_builder", "relief", "recall_injection")
)
_WINDOW = ("src/recto/context/policies", "src/recto/context/window")
SOURCES: dict[str, tuple[str, ...]] = {
    "starting": ("src/recto/__init__.py", "src/recto/cli/main.py", "src/recto/config", "src/recto/engine/session.py"),
    "storing": ("src/recto/stores/sqlite", "src/recto/transcript"),
    "fitting": ("src/recto/engine/fit.py", *_WINDOW),
    "tokens": ("src/recto/tokens",),
    "importing": ("src/recto/engine/importer.py", "src/recto/formats/session_files", "src/recto/stores/sqlite"),
    "turns": (*_ENGINE, *_WINDOW, "src/recto/recall", "src/recto/stores/sqlite"),
    "health": ("src/recto/health", "src/recto/engine/monitor.py"),
    "prefix": (*_ENGINE, *_WINDOW),
    "action_support": (*_ENGINE, *_WINDOW, "src/recto/context/record.py", "src/recto/context/facts"),
    "new_windows": (
        *_ENGINE,
        *_WINDOW,
        "src/recto/context/record.py",
        "src/recto/context/facts",
        "src/recto/engine/continuity.py",
        "src/recto/continuity/checkpoints",
        "bench/action_support.py",
    ),
    "trial": (
        *_ENGINE,
        *_WINDOW,
        "src/recto/context/record.py",
        "src/recto/context/facts",
        "src/recto/lab/moments.py",
        "src/recto/lab/moments.py",
    ),
    "replay": ("src/recto/lab/replay.py", "src/recto/lab/backtest.py"),
    "choosing": ("src/recto/lab/comparison.py", "src/recto/lab/backtest.py", *_WINDOW, "src/recto/context/record.py"),
    "embedding": ("src/recto/models/embedders",),
    "embedding_quality": ("src/recto/recall", "src/recto/models/embedders"),
    "exits": ("src/recto/concurrency.py", "src/recto/recall/indexer.py", "src/recto/models/embedders"),
    "recall": ("src/recto/recall", "src/recto/text/terms.py", "src/recto/recall/stemmer.py"),
    "recall_ablation": ("src/recto/recall", "src/recto/text/terms.py", "src/recto/recall/stemmer.py"),
    "languages": (
        "src/recto/recall",
        "src/recto/text/terms.py",
        "src/recto/recall/stemmer.py",
        "bench/languages.json",
    ),
    "evidence": ("src/recto/recall", "src/recto/engine/recall_injection.py", *_WINDOW),
    "recall_scale": ("src/recto/recall", "src/recto/stores/sqlite"),
    "compaction": ("src/recto/context/compaction", "src/recto/context/facts"),
    "statements": (
        "src/recto/context/facts",
        "src/recto/context/record.py",
        "src/recto/context/compaction",
        "src/recto/engine/compactor.py",
        "src/recto/engine/relief.py",
        "tests/context/facts/statements.json",
    ),
    "strategies": (*_WINDOW, "src/recto/context/compaction"),
    "simulate": ("src/recto/lab/simulation", "src/recto/recall", *_WINDOW),
    "tune": ("src/recto/lab/tune.py", "src/recto/lab/search_space.py"),
    "gateway": ("src/recto/gateway", "src/recto/engine/history_sync.py"),
    "gateway_memory": ("src/recto/gateway",),
    "gateway_hostile": ("src/recto/gateway",),
    "screens": ("src/recto/tui", "src/recto/gateway/inspection", "web/src"),
    "scrubbing": ("src/recto/engine/window_view.py", "src/recto/gateway/inspection", "web/src/window"),
    "postgres": ("src/recto/stores/postgres",),
    "likelihood": (*_ENGINE, *_WINDOW, "src/recto/context/record.py", "src/recto/context/facts"),
    "peers": (*_ENGINE, *_WINDOW, "src/recto/recall"),
}
"""What each section measures, beside its own script: files, or folders with everything below."""
_SCRIPTS = {"gateway_memory": "bench/gateway.py", "embedding_quality": "bench/embedding.py"}
_KEPT = {"likelihood": "bench/likelihood.json", "trial": "bench/trial.json"}
"""Sections whose figures are kept in a file, with the commit, the day and the digests that they were measured of."""
_UNKNOWN = "Older than the code it measures: it was measured before commits were noted here."
_BLOCK = re.compile(r"<!-- measured (\w+): begin -->\n(.*?)<!-- measured \1: end -->", re.DOTALL)
_DIGESTS = re.compile(r"<!-- of (.*?) -->")
_OLDER = re.compile(r"^Older than the code it measures: .*\n", re.MULTILINE)


def block(name: str) -> str:
    """The block of a section that was measured just now, or whose figures are kept."""
    about = json.loads((ROOT / _KEPT[name]).read_text(encoding="utf-8")) if name in _KEPT else state_of(name)
    digests = " ".join(f"{path}={digest}" for path, digest in about["digests"].items())
    under = f" under {about['model']}" if "model" in about else ""
    stated = f"Measured{under} at {about['commit']}, {about['day']}.\n<!-- of {digests} -->\n"
    return _wrapped(name, stated)


def state_of(name: str) -> dict[str, Any]:
    """What a section measures at this moment: the commit, the day and a digest of each path."""
    return {"commit": _commit(), "day": f"{datetime.now(UTC):%Y-%m-%d}", "digests": digests_of(name)}


def unknown_block(name: str) -> str:
    """The block of a section that was measured before there were such blocks."""
    return _wrapped(name, f"{_UNKNOWN}\n<!-- of -->\n")


def _wrapped(name: str, text: str) -> str:
    return f"<!-- measured {name}: begin -->\n{text}<!-- measured {name}: end -->"


def with_staleness(page: str) -> str:
    """The page with a line in each block that names what has changed since, and without it where nothing has."""
    return _BLOCK.sub(lambda found: _wrapped(found[1], _renewed(found[1], found[2])), page)


def blocks_in(page: str) -> set[str]:
    """The names of the sections that say what they were measured of."""
    return {found[1] for found in _BLOCK.finditer(page)}


def stale_sections(page: str) -> set[str]:
    """The names of the sections whose code has changed, whether the page says so or not."""
    renewed = with_staleness(page)
    return {found[1] for found in _BLOCK.finditer(renewed) if _OLDER.search(found[2])}


def _renewed(name: str, text: str) -> str:
    stated = _OLDER.sub("", text)
    found = _DIGESTS.search(text)
    if found is None or not found[1].strip():
        return f"{_UNKNOWN}\n{stated}"
    measured = dict(pair.split("=", 1) for pair in found[1].split())
    changed = [path for path, digest in digests_of(name).items() if measured.get(path) != digest]
    if not changed:
        return stated
    return f"Older than the code it measures: {', '.join(f'`{path}`' for path in changed)} changed since.\n{stated}"


def digests_of(name: str) -> dict[str, str]:
    """A digest of each path that a section measures, and of its script."""
    paths = (*SOURCES[name], _SCRIPTS.get(name, f"bench/{name}.py"))
    return {path: digest_of(ROOT / path) for path in paths}


def digest_of(path: Path) -> str:
    """A digest of a file, or of all files of a folder; of Python, only of the lines that run."""
    digest = sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(file.relative_to(path.parent).as_posix().encode() + b"\0")
            digest.update(_lines_that_run(file.read_bytes()) if file.suffix == ".py" else file.read_bytes())
    return digest.hexdigest()[:10]


@lru_cache(2048)
def _lines_that_run(source: bytes) -> bytes:
    """The lines of a module without docstrings, comments on lines of their own and empty lines."""
    prose = {
        number
        for node in ast.walk(ast.parse(source))
        for statement in _body_of(node)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement.value.value, str)
        for number in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    }
    lines = (
        line
        for number, line in enumerate(source.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith(b"#") and number not in prose
    )
    return b"\n".join(lines) + b"\0"


def _body_of(node: ast.AST) -> Sequence[ast.stmt]:
    body = getattr(node, "body", ())
    return body if isinstance(body, list) else ()


def _commit() -> str:
    head = _git("rev-parse", "--short", "HEAD")
    return f"{head}{' with changes' if _git('status', '--porcelain', 'src') else ''}" if head else "an unknown commit"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True).stdout.strip()
