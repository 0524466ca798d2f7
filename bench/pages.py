"""Writes the figures into the documentation, so that none of them is ever typed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from bench.measure import TEXTS, tables

PAGE = Path("docs/benchmarks.md")
README = Path("README.md")
EXCERPT = re.compile(r"(<!-- figures: begin -->\n).*?(<!-- figures: end -->)", re.DOTALL)

IN_THE_README = (
    "append, one per commit",
    "group commit, 8 writers",
    "append in batches of 500 to 1,000,000 entries",
    "open at 1,000,000 entries, p50",
    "tail of 200 at 1,000,000 entries, p50",
    "tail of 200: largest over smallest session",
    "verify 1,000,000 entries",
    "o200k",
    "claude-4.7/formula",
    "import agent sessions",
    "turn at 1,000,000 messages, p50",
    "32 K, Recto sliding_window: unchanged prefix",
    "32 K, plain trimming: unchanged prefix",
    "32 K, Recto sliding_window: input at cache prices",
    "32 K, plain trimming: input at cache prices",
)


def write(report: dict) -> None:
    machine = report["machine"]
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench-docs`, which measures everything in one run; never edited by hand. Machines are noisy:",
        "compare rows of one run with each other, not with figures from elsewhere. `make bench` prints the same.",
        "",
        f"{machine['cores']} cores, Python {machine['python']}, {machine['system']}, {datetime.now(UTC):%Y-%m-%d}.",
    ]
    for name, section in report["sections"].items():
        lines += [
            "",
            f"## {name.replace('_', ' ').capitalize()}",
            "",
            f"Peak memory {section['peak_memory_mb']:.0f} MB.",
            "",
        ]
        lines += table(section["rows"])
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [row for section in report["sections"].values() for row in section["rows"]]
    chosen = sorted(
        (row for row in rows if row["what"] in IN_THE_README), key=lambda row: IN_THE_README.index(row["what"])
    )
    excerpt = "\n".join(table(chosen)) + "\n"
    readme = README.read_text(encoding="utf-8")
    README.write_text(EXCERPT.sub(lambda found: found[1] + excerpt + found[2], readme), encoding="utf-8")


def table(rows: list[dict]) -> list[str]:
    """Rows of other columns begin another table."""
    lines: list[str] = []
    for columns, cells in tables(rows):
        lines += [""] * bool(lines) + [_line(columns)]
        lines.append("|" + "|".join("---" if column in TEXTS else "--:" for column in columns) + "|")
        lines += [_line(one) for one in cells]
    return lines


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
