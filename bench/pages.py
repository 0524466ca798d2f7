"""Writes the figures into the documentation, so that none of them is ever typed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from bench.measure import TEXTS, tables

PAGE = Path("docs/benchmarks.md")
README = Path("README.md")
INTRODUCTION = (
    "# Benchmarks",
    "",
    "Written by `make bench-docs`, section by section, never edited by hand. Machines are noisy: compare rows of one",
    "section with each other, not with figures from elsewhere. `make bench` prints the same.",
)
_WINDOW = (
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
_RECALL = (
    "LME-48 session (n=419): porter",
    "LME-48 session (n=419): Recto",
    "LME-48 turn (n=419): porter",
    "LME-48 turn (n=419): Recto",
    "BEAM exchange (n=355): porter",
    "BEAM exchange (n=355): Recto",
)
_EVIDENCE = (
    "BEAM, 8 K: plain trimming",
    "BEAM, 8 K: sliding window, no recall",
    "BEAM, 8 K: recall",
    "BEAM, 32 K: plain trimming",
    "BEAM, 32 K: sliding window, no recall",
    "BEAM, 32 K: recall",
    "BEAM: the whole history",
)
_COMPACTION = ("recorded summary", "Recto, extractive", "newest messages, and recall")
_GATEWAY = tuple(
    f"{load}: {whom}"
    for load in ("1 session of 10 messages", "16 sessions of 10 messages, streamed", "16 sessions of 1,000 messages")
    for whom in ("direct", "Recto", "LiteLLM")
)
IN_THE_README = {
    "figures": _WINDOW,
    "recall figures": _RECALL,
    "evidence figures": _EVIDENCE,
    "compaction figures": _COMPACTION,
    "gateway figures": _GATEWAY,
}
"""By the mark in the README they stand under; a mark is renewed where all of its rows were measured in one run."""


def write(report: dict) -> None:
    """Sections that were measured take the place of what the page said of them; the others stay as they are."""
    machine = report["machine"]
    where = f"{machine['cores']} cores, Python {machine['python']}, {machine['system']}, {datetime.now(UTC):%Y-%m-%d}"
    sections = _sections(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    for name, section in report["sections"].items():
        about = f"{where}. Peak memory {section['peak_memory_mb']:.0f} MB."
        sections[_heading(name)] = "\n".join([about, "", *table(section["rows"])])
    lines = [*INTRODUCTION]
    for heading, text in sections.items():
        lines += ["", f"## {heading}", "", text]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    readme = README.read_text(encoding="utf-8")
    rows = {row["what"]: row for section in report["sections"].values() for row in section["rows"]}
    for mark, chosen in IN_THE_README.items():
        if all(what in rows for what in chosen):
            excerpt = "\n".join(table([rows[what] for what in chosen])) + "\n"
            between = re.compile(rf"(<!-- {mark}: begin -->\n).*?(<!-- {mark}: end -->)", re.DOTALL)
            readme = between.sub(lambda found, text=excerpt: found[1] + text + found[2], readme)
    README.write_text(readme, encoding="utf-8")


def _heading(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _sections(page: str) -> dict[str, str]:
    """What the page says now, by heading."""
    parts = page.split("\n## ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2].strip("\n") for part in parts}


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
