"""Draws the pictures of the documentation into `docs/pictures`, from runs of the engine where they show numbers.

python tools/make_pictures.py            draw them
python tools/make_pictures.py --check    1 where one is not what would be drawn now, and which
"""

from __future__ import annotations

import sys
from pathlib import Path

from pictures import cascade, lineage, prefix, prune, turn

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
_DRAWN = (prune.drawn, lineage.drawn, cascade.drawn, turn.drawn, prefix.drawn)


def main() -> int:
    """0 where every picture is, or has been made, what it should be."""
    stale = 0
    for draw in _DRAWN:
        picture = draw()
        file, text = FOLDER / f"{picture.name}.svg", picture.svg()
        if "--check" not in sys.argv:
            FOLDER.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{file.name} is not up to date: python tools/make_pictures.py\n")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
