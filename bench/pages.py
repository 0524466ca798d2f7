"""Writes the figures into the documentation, so that none of them is ever typed."""

from __future__ import annotations

import re
from pathlib import Path

from bench import provenance
from bench.measure import TEXTS, tables

PAGE = Path("docs/benchmarks.md")
PEERS_PAGE = Path("docs/benchmarks-peers.md")
README = Path("README.md")
CHOOSING = Path("docs/choosing.md")
TRIAL = Path("docs/trial.md")
"""Show the sections `choosing` and `trial` of the page."""
INTRODUCTION = (
    "# Benchmarks",
    "",
    "Written by `make bench-docs`, section by section, never edited by hand. Machines are noisy: compare rows of one",
    "section with each other, not with figures from elsewhere. `make bench` prints the same. A section whose code has",
    "changed since it was measured says so.",
)
_OF_PEERS = "Beside the peers"
"""A section that `make bench-peers-docs` writes."""
_OLDER = "Some of these figures are older than the code that they measure; docs/benchmarks.md says which."
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
    where = f"{machine['cores']} cores, Python {machine['python']}, {machine['system']}"
    sections = _sections(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    for name, section in report["sections"].items():
        about = f"{where}. Peak memory {section['peak_memory_mb']:.0f} MB."
        sections[_heading(name)] = "\n".join([about, provenance.block(name), "", *table(section["rows"])])
    PAGE.write_text(_page(sections), encoding="utf-8")
    mark_stale()


def mark_stale() -> None:
    """Writes into every section whether the code that it measures has changed since, and the README's figures anew."""
    for file, text in marked_pages().items():
        file.write_text(text, encoding="utf-8")


def marked_pages() -> dict[Path, str]:
    """The pages with figures as they have to be."""
    sections = _sections(PAGE.read_text(encoding="utf-8"))
    for heading, text in sections.items():
        name = "peers" if heading == _OF_PEERS else _name(heading)
        if name in provenance.SOURCES and name not in provenance.blocks_in(text):
            sections[heading] = f"{provenance.unknown_block(name)}\n\n{text}"
    pages = {PAGE: provenance.with_staleness(_page(sections))}
    of_peers = PEERS_PAGE.read_text(encoding="utf-8")
    if "peers" not in provenance.blocks_in(of_peers):
        title, _, rest = of_peers.partition("\n\n")
        of_peers = f"{title}\n\n{provenance.unknown_block('peers')}\n\n{rest}"
    pages[PEERS_PAGE] = provenance.with_staleness(of_peers)
    for file, name in ((CHOOSING, "choosing"), (TRIAL, "trial")):
        shown = _sections(pages[PAGE]).get(_heading(name))
        pages[file] = _excerpted(file.read_text(encoding="utf-8"), name, shown)
    pages[README] = _readme(README.read_text(encoding="utf-8"), pages[PAGE])
    return pages


def _page(sections: dict[str, str]) -> str:
    lines = [*INTRODUCTION]
    for heading, text in sections.items():
        lines += ["", f"## {heading}", "", text]
    return "\n".join(lines) + "\n"


def _readme(readme: str, page: str) -> str:
    """The README with the rows of the page, and a note where the section of one is older than its code."""
    sections = {_name(heading): text for heading, text in _sections(page).items()}
    stale = provenance.stale_sections(page)
    for mark, chosen in IN_THE_README.items():
        found = [_row_in(sections, what) for what in chosen]
        rows = [row for row in found if row is not None]
        if len(rows) < len(chosen):
            continue
        lines: list[str] = []
        current: list[str] = []
        for header, row, _ in rows:
            if header != current:
                lines += [*([""] if lines else []), *header]
                current = header
            lines.append(row)
        if any(name in stale for *_, name in rows):
            lines += ["", _OLDER]
        excerpt = "\n".join(lines) + "\n"
        between = re.compile(rf"(<!-- {mark}: begin -->\n).*?(<!-- {mark}: end -->)", re.DOTALL)
        readme = between.sub(lambda found, text=excerpt: found[1] + text + found[2], readme)
    return readme


def _excerpted(page: str, mark: str, text: str | None) -> str:
    """A page with what a section says between its marks."""
    between = re.compile(rf"(<!-- {mark} figures: begin -->\n).*?(<!-- {mark} figures: end -->)", re.DOTALL)
    return page if text is None else between.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page)


def _row_in(sections: dict[str, str], what: str) -> tuple[list[str], str, str] | None:
    """The head of the table that holds a row, the row, and the name of its section."""
    for name, text in sections.items():
        header: list[str] = []
        lines = text.splitlines()
        for place, line in enumerate(lines):
            if line.startswith("|---"):
                header = [lines[place - 1], line]
            elif header and line.startswith(f"| {what} |"):
                return header, line, name
    return None


def _heading(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _name(heading: str) -> str:
    return heading.replace(" ", "_").lower()


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
