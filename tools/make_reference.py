"""Writes the reference below `docs/reference/`, made of the code: Python, settings, HTTP, events.

And `docs/requirements.md`, made of the marks in the tests.

python tools/make_reference.py            write it
python tools/make_reference.py --check    1 where a page is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from reference import events_page, http_page, python_page, requirements_page, settings_page

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "python.md": python_page.written,
    "settings.md": settings_page.written,
    "http.md": http_page.written,
    "events.md": events_page.written,
    "../requirements.md": requirements_page.written,
}


def main() -> int:
    """0 where every page is, or has been made, what it should be."""
    made = {FOLDER / name: written() for name, written in PAGES.items()}
    stale = [file for file, text in made.items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        for file in stale:
            print(f"{file.name} is not what the code says: python tools/make_reference.py", file=sys.stderr)  # noqa: T201
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for file in stale:
        file.write_text(made[file], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
