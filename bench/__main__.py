"""Runs benchmark sections, each in a process of its own so that peak memory is per section.
Prints tables and writes JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import (
    action_support,
    choosing,
    cluster,
    compaction,
    embedding,
    evidence,
    exits,
    fitting,
    gateway,
    gateway_hostile,
    health,
    importing,
    languages,
    likelihood,
    new_windows,
    pages,
    postgres,
    prefix,
    recall,
    recall_ablation,
    recall_scale,
    replay,
    screens,
    scrubbing,
    simulate,
    starting,
    statements,
    storing,
    strategies,
    tokens,
    trial,
    tune,
    turns,
)
from bench.measure import TEXTS, machine, peak_memory_mb, tables

SECTIONS = {
    "starting": starting.run,
    "storing": storing.run,
    "fitting": fitting.run,
    "tokens": tokens.run,
    "importing": importing.run,
    "turns": turns.run,
    "health": health.run,
    "prefix": prefix.run,
    "likelihood": likelihood.run,
    "action_support": action_support.run,
    "new_windows": new_windows.run,
    "trial": trial.run,
    "replay": replay.run,
    "choosing": choosing.run,
    "embedding": embedding.run,
    "embedding_quality": embedding.quality,
    "exits": exits.run,
    "recall": recall.run,
    "recall_ablation": recall_ablation.run,
    "languages": languages.run,
    "evidence": evidence.run,
    "recall_scale": recall_scale.run,
    "compaction": compaction.run,
    "statements": statements.run,
    "strategies": strategies.run,
    "simulate": simulate.run,
    "tune": tune.run,
    "gateway": gateway.run,
    "gateway_memory": gateway.memory,
    "gateway_hostile": gateway_hostile.run,
    "screens": screens.run,
    "scrubbing": scrubbing.run,
    "postgres": postgres.run,
}
SIZED = {"storing": storing.run, "turns": turns.run, "recall_scale": recall_scale.run}
"""Sections with sessions of several lengths."""
LARGEST = 1_000_000
OUTPUT = Path("build/bench.json")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="only these (default: all)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, to see that it runs")
    parser.add_argument(
        "--largest", type=int, default=LARGEST, metavar="N", help=f"no session longer than this in {', '.join(SIZED)}"
    )
    parser.add_argument("--docs", action="store_true", help="write the figures into the documentation too")
    parser.add_argument("--stale", action="store_true", help="mark sections whose code has changed since")
    parser.add_argument("--one", choices=SECTIONS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stale:
        pages.mark_stale()
        return
    if given.one:
        sized = SIZED.get(given.one)
        rows = sized(given.quick, given.largest) if sized else SECTIONS[given.one](given.quick)
        print(json.dumps({"rows": rows, "peak_memory_mb": peak_memory_mb()}))
        return
    report = {"machine": machine(), "quick": given.quick, "sections": {}}
    for name in given.sections or SECTIONS:
        report["sections"][name] = in_a_process(name, given.quick, given.largest)
        draw(name, report["sections"][name])
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {OUTPUT}")
    if given.docs:
        pages.write(report)
        if not cluster.SECTIONS.isdisjoint(report["sections"]):
            subprocess.run([sys.executable, "-m", "bench.scale", "--docs"], stdout=subprocess.DEVNULL, check=True)


def in_a_process(name: str, quick: bool, largest: int) -> dict:
    command = [sys.executable, "-m", "bench", "--one", name, *(["--quick"] if quick else []), "--largest", str(largest)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def draw(name: str, section: dict) -> None:
    title = f"{name} (peak memory {section['peak_memory_mb']:.0f} MB)"
    for columns, rows in tables(section["rows"]):
        table = Table(title=title, title_justify="left")
        for column in columns:
            table.add_column(column, justify="left" if column in TEXTS else "right")
        for cells in rows:
            table.add_row(*cells)
        Console().print(table)


if __name__ == "__main__":
    main()
