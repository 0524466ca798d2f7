"""Fails if a page shows figures whose code has changed since they were measured, and does not say so."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # `bench` is no installed package

from bench import pages, provenance


def main() -> int:
    """Compares the pages with what they have to be."""
    wrong = [str(file) for file, text in pages.marked_pages().items() if file.read_text(encoding="utf-8") != text]
    for name in wrong:
        print(f"{name} does not say which of its figures are older than the code they measure")  # noqa: T201
    if wrong:
        print("measure them again: make bench-docs; or mark them: .venv/bin/python -m bench --stale")  # noqa: T201
        return 1
    stale = provenance.stale_sections(pages.PAGE.read_text(encoding="utf-8"))
    print(f"{len(stale)} of {len(provenance.SOURCES)} sections are older than the code they measure, and say so")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
