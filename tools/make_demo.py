"""Records `recto demo` as an animated picture for the README, in light and in dark.

python tools/make_demo.py            record it into docs/pictures
python tools/make_demo.py --check    1 where a picture is not what would be recorded now, and which

The texts are the output of the command. A picture has no scripts and loads nothing: lines appear by CSS animation, and
all of them are there where motion is not wanted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.text import Text

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
NOW = 1_794_700_000_000_000
"""The sample week ends the day before, in µs since 1970; times in quotations follow from it."""
COMMAND = "recto demo"
_CONSOLE = Console(width=200)
_SHADES = {2: "green", 3: "yellow", 5: "magenta", 6: "cyan"}
"""Colours of a terminal by number."""
_COLUMNS = 96
_CELL, _LINE, _PAD, _BAR = 7.8, 19, 18, 34
"""Width and height of a character cell, the margin, and the height of the title bar, in pixels."""
_STEP, _HEADING, _HOLD = 0.55, 1.6, 9.0
"""Seconds before a line, before a heading, and at the end."""
_PROGRAM = f"from recto.cli.demo import play_week; play_week({NOW})"
THEMES: Mapping[str, Mapping[str, str]] = {
    "light": {
        "paper": "#ffffff", "bar": "#eceef2", "edge": "#c9ced8", "ink": "#1f2430", "muted": "#5b6270",
        "cyan": "#0b6a8f", "green": "#17703a", "yellow": "#8a5200", "magenta": "#8a2f8f",
    },
    "dark": {
        "paper": "#14171d", "bar": "#20252e", "edge": "#343b47", "ink": "#e6e9ef", "muted": "#9aa3b2",
        "cyan": "#6cc7ea", "green": "#6fd08c", "yellow": "#e8b35a", "magenta": "#d79be0",
    },
}  # fmt: skip


def main() -> int:
    """0 where both pictures are, or have been made, what they should be."""
    stale = 0
    for theme in THEMES:
        file, text = FOLDER / f"demo-{theme}.svg", drawn(theme)
        if "--check" not in sys.argv:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{file.name} is not up to date: python tools/make_demo.py\n")
            stale = 1
    return stale


@cache
def recorded() -> tuple[Text, ...]:
    """The lines that the command prints in a terminal with colours."""
    around = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(_COLUMNS)}
    around.pop("NO_COLOR", None)
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", _PROGRAM], check=True, capture_output=True, encoding="utf-8", env=around
    )
    lines = [Text.from_ansi(line) for line in done.stdout.splitlines()]
    for line in lines:
        line.rstrip()
    return tuple(lines[1:])  # the first one is empty


def drawn(theme: str) -> str:
    """The picture in a theme."""
    lines = (Text(f"$ {COMMAND}"), *recorded())
    width, height = round(_COLUMNS * _CELL + 2 * _PAD), _BAR + 2 * _PAD + len(lines) * _LINE
    begins = _begins(lines)
    total = begins[-1] + _HOLD
    body = "\n".join(_row(place, line) for place, line in enumerate(lines) if line.plain.strip())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img">\n<title>recto demo</title>\n<desc>{escape(_DESCRIPTION)}</desc>\n'
        f"<style>{_style(THEMES[theme], lines, begins, total)}</style>\n"
        f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="9"/>\n'
        f'<path class="bar" d="M1 {_BAR}V10Q1 1 10 1H{width - 10}Q{width - 1} 1 {width - 1} 10V{_BAR}Z"/>\n'
        + "".join(f'<circle class="dot" cx="{20 + 18 * place}" cy="17" r="5.5"/>' for place in range(3))
        + f"\n{body}\n</svg>\n"
    )


_DESCRIPTION = (
    "The output of recto demo: a constraint is in the prompt after its message was evicted, a wrong statement is "
    "recalled together with its correction, and a compaction is undone."
)


def _begins(lines: tuple[Text, ...]) -> list[float]:
    """When each line appears, in seconds: headings after a pause, the rest of a wrapped line with its beginning."""
    times, now = [0.0], 0.8
    for line in lines[1:]:
        text = line.plain
        if text[:1].strip():
            now += _HEADING
        elif text[:15].strip():
            now += _STEP
        times.append(now)
    return times


def _style(colours: Mapping[str, str], lines: tuple[Text, ...], begins: list[float], total: float) -> str:
    rules = [
        "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}",
        f"text,.i{{fill:{colours['ink']}}}",
        f".paper{{fill:{colours['paper']};stroke:{colours['edge']}}}",
        f".bar{{fill:{colours['bar']}}}.dot{{fill:{colours['edge']}}}",
        *(f".{name}{{fill:{colours[name]}}}" for name in ("cyan", "green", "yellow", "magenta", "muted")),
        ".b{font-weight:700}",
    ]
    moving = []
    for place, begin in enumerate(begins):
        if place and lines[place].plain.strip():
            share = 100 * begin / total
            rules.append(f"@keyframes k{place}{{0%{{opacity:0}}{share:.2f}%{{opacity:1}}}}")
            moving.append(f"#l{place}{{animation:k{place} {total:.1f}s step-end infinite}}")
    return "".join([*rules, "@media (prefers-reduced-motion:no-preference){", *moving, "}"])


def _row(place: int, line: Text) -> str:
    y = _BAR + _PAD + (place + 0.7) * _LINE
    runs = "".join(
        f'<text class="{_classes(style)}" x="{_PAD + start * _CELL:.1f}" y="{y:.1f}" '
        f'textLength="{len(text) * _CELL:.1f}" lengthAdjust="spacingAndGlyphs">{escape(text, quote=False)}</text>'
        for start, text, style in _runs(line)
    )
    return f'<g id="l{place}">{runs}</g>'


def _runs(line: Text) -> list[tuple[int, str, Style]]:
    """The words of a line by style: column, text, style. Spaces around a run are left out."""
    found, column = [], 0
    for segment in line.render(_CONSOLE):
        text = segment.text.rstrip("\n")
        if text.strip():
            found.append((column + len(text) - len(text.lstrip()), text.strip(), segment.style or Style()))
        column += len(text)
    return found


def _classes(style: Style) -> str:
    shade = _SHADES.get(style.color.number or 0) if style.color else None
    name = shade or ("muted" if style.italic else "i")
    return f"{name} b" if style.bold else name


if __name__ == "__main__":
    sys.exit(main())
