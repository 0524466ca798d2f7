"""Runs the same agent scenario in every framework, with its own means and with Recto. `make bench-adapters`.

Each framework runs in its own environment, which `tests.adapters.installing` creates. A framework that fails is listed
with its error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.adapters.installing import environments, install, module_of
from tests.environments import Environment

from bench.measure import machine

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
OUTPUT = ROOT / "build" / "bench-adapters.json"
PAGE = ROOT / "docs" / "adapters.md"
MARKS = ("<!-- adapters: begin -->\n", "<!-- adapters: end -->")
TEXTS = ("framework", "what", "note")
_SECONDS = 900


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-adapters", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these frameworks (default: all that have a script)")
    parser.add_argument("--docs", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)} too")
    given = parser.parse_args()
    chosen = [one for one in environments(given.names) if script(one).is_file()]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as threads:
        results = list(threads.map(measured, chosen))
    report = {"machine": machine(), "frameworks": results}
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    draw(results)
    print(f"written to {OUTPUT.relative_to(ROOT)}")
    failed = [result for result in results if result["error"]]
    for result in failed:
        print(f"{result['framework']}: {result['error']}", file=sys.stderr)
    if given.docs and not failed:
        into_the_page(report)
    return 1 if failed else 0


def script(environment: Environment) -> Path:
    return HERE / f"run_{module_of(environment)}.py"


def measured(environment: Environment) -> dict:
    """The rows of one framework, or what went wrong."""
    found = {"framework": environment.name, "version": "", "rows": [], "error": install(environment)}
    if found["error"]:
        return found
    # Nothing of the one who measures: neither settings nor keys of a provider.
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    command = [str(environment.python), "-W", "ignore", "-m", f"bench.adapters.run_{module_of(environment)}"]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=plain | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return found | {"error": f"it had not ended after {_SECONDS} seconds"}
    if done.returncode:
        return found | {"error": f"it failed: {' '.join(done.stderr.split())[-400:]}"}
    return found | {"version": version(environment), "rows": rows_in(done.stdout)}


def rows_in(printed: str) -> list[dict]:
    """The JSON at the end of what a script printed; a framework may have said something before it."""
    starts = [found.start() for found in re.finditer(r"^\[", printed, re.MULTILINE)]
    for start in starts:
        try:
            return json.loads(printed[start:])
        except json.JSONDecodeError:
            continue
    raise ValueError(f"no rows in: {printed[-400:]}")


def version(environment: Environment) -> str:
    """The framework's own, from its pins: the first package that the extra names."""
    extra = re.search(rf'^{environment.name} = \["([\w-]+)', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    pinned = re.search(rf"^{extra[1]}==(\S+)", environment.pins.read_text(), re.MULTILINE) if extra else None
    return pinned[1] if pinned else ""


def table(results: list[dict]) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the cells of each row."""
    rows = [{"framework": f"{one['framework']} {one['version']}"} | row for one in results for row in one["rows"]]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return columns, [[said(row.get(column, "")) for column in columns] for row in rows]


def said(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def draw(results: list[dict]) -> None:
    columns, rows = table(results)
    drawn = Table()
    for column in columns:
        drawn.add_column(column, justify="left" if column in TEXTS else "right")
    for cells in rows:
        drawn.add_row(*cells)
    Console(width=None if sys.stdout.isatty() else 200).print(drawn)


def into_the_page(report: dict) -> None:
    """The table takes the place of the one between the marks."""
    columns, rows = table(report["frameworks"])
    where = (
        f"Written by `make bench-adapters-docs`, {datetime.now(UTC):%Y-%m-%d}; Python {report['machine']['python']}."
    )
    rule = "|" + "|".join("---" if column in TEXTS else "--:" for column in columns) + "|"
    lines = [where, "", line(columns), rule, *map(line, rows)]
    begin, end = MARKS
    between = re.compile(f"({re.escape(begin)}).*?({re.escape(end)})", re.DOTALL)
    page = PAGE.read_text(encoding="utf-8")
    text = "\n".join(lines) + "\n"
    PAGE.write_text(between.sub(lambda found: found[1] + text + found[2], page), encoding="utf-8")


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
