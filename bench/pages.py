"""Writes the figures into the documentation, so that none of them is typed by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
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


@dataclass(frozen=True)
class ReadmeFigure:
    """One line of the README's table: a column of two rows of the page, and the command that measures them."""

    title: str
    column: str
    ours: str
    other: str
    other_name: str
    command: str


README_FIGURES = (
    ReadmeFigure(
        "what the agent's next action refers to, in a 16 K prompt",
        "support",
        "all runs, 16 K: sliding_window",
        "all runs, 16 K: trimming at equal tokens",
        "truncation, equal tokens",
        "trial",
    ),
    ReadmeFigure(
        "evidence for a question, in a 32 K prompt after 131,000 tokens",
        "in part",
        "BEAM, 32 K: recall",
        "BEAM, 32 K: plain trimming",
        "truncation",
        "evidence",
    ),
    ReadmeFigure(
        "all sessions with the evidence, in the first 5 of 48",
        "all@5",
        "LME-48 session (n=419): Recto",
        "LME-48 session (n=419): porter",
        "BM25",
        "recall",
    ),
)


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
    """The README with its figures, and a note where the section of one is older than its code."""
    sections = {_name(heading): text for heading, text in _sections(page).items()}
    lines = ["| | Recto | without | measured by |", "|---|--:|--:|---|"]
    for figure in README_FIGURES:
        values = [_value_in(sections, what, figure.column) for what in (figure.ours, figure.other)]
        if None in values:
            return readme
        lines.append(
            f"| {figure.title} | {values[0]} | {values[1]} ({figure.other_name}) | `python -m bench {figure.command}` |"
        )
    if {figure.command for figure in README_FIGURES} & set(provenance.stale_sections(page)):
        lines += ["", _OLDER]
    between = re.compile(r"(<!-- figures: begin -->\n).*?(<!-- figures: end -->)", re.DOTALL)
    return between.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], readme)


def _value_in(sections: dict[str, str], what: str, column: str) -> str | None:
    """The cell of a row of the page."""
    found = _row_in(sections, what)
    if found is None:
        return None
    header, row, _ = found
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (header[0], row)]
    return cells[1][cells[0].index(column)]


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
