"""The pictures of the documentation match the current engine, are accessible, and are used on a page."""

from __future__ import annotations

import importlib
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("prune", "lineage", "cascade", "turn", "prefix")
LARGEST = 40_000


@pytest.fixture
def module(monkeypatch):
    """Imports the modules of the tool by name, as the tool itself does."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_matches_what_the_tool_draws_now(module, name):
    drawn = module(f"pictures.{name}").drawn()
    assert drawn.name == name
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == drawn.svg(), "python tools/make_pictures.py"


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_has_a_description_and_text_and_fetches_nothing(name):
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert len(text.encode()) <= LARGEST
    assert root.find(f"{SVG}title").text
    assert len(root.find(f"{SVG}desc").text) > 80
    assert len(root.findall(f"{SVG}text")) >= 10
    assert "prefers-color-scheme: dark" in text
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "desc", "style", "rect", "circle", "path", "polygon", "text"),
    }
    assert re.findall(r"https?://[^\"'<\s]+", text) == [SVG.strip("{}")]
    assert not re.search(r"\bon\w+=|href|url\(|@import", text)


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_on_a_page_with_alternative_text(name):
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    [words] = set(re.findall(rf"!\[([^\]]*)\]\(pictures/{name}\.svg\)", pages))
    assert len(words) > 20


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_animated_demo_matches_what_the_command_prints_now(module, theme):
    tool = module("make_demo")
    text = (FOLDER / f"demo-{theme}.svg").read_text(encoding="utf-8")
    assert text == tool.drawn(theme), "python tools/make_demo.py"
    root = ElementTree.fromstring(text)
    assert len(text.encode()) <= LARGEST
    assert root.find(f"{SVG}title").text
    assert len(root.find(f"{SVG}desc").text) > 80
    shown = {element.text for element in root.iter(f"{SVG}text")}
    printed = "\n".join(line.plain for line in tool.recorded())
    assert all(part in printed for part in shown - {f"$ {tool.COMMAND}"})
    assert len(shown) > 30
    assert "prefers-reduced-motion" in text
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "desc", "style", "rect", "circle", "path", "g", "text"),
    }
    assert re.findall(r"https?://[^\"'<\s]+", text) == [SVG.strip("{}")]
    assert not re.search(r"\bon\w+=|href|url\(|@import", text)


def test_the_readme_shows_the_demo_in_light_and_dark():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert '<source media="(prefers-color-scheme: dark)" srcset="docs/pictures/demo-dark.svg">' in readme
    assert re.search(r'<img src="docs/pictures/demo-light\.svg" width="\d+" alt="[^"]{80,}">', readme)


def test_drawn_text_is_escaped_and_never_markup(module):
    drawing = module("pictures.drawing")
    picture = drawing.Picture(name="x", title="<script>", description="a & b", width=10, height=10)
    picture.words(0, 0, "</text><script>alert(1)</script>")
    root = ElementTree.fromstring(picture.svg())
    assert root.find(f".//{SVG}script") is None
    assert root.find(f"{SVG}text").text == "</text><script>alert(1)</script>"


def test_text_is_truncated_to_its_width(module):
    drawing = module("pictures.drawing")
    assert drawing.shortened("a few\n words", 500, 12) == "a few words"
    cut = drawing.shortened("far too many words for so little room", 100, 12)
    assert cut.endswith("…")
    assert len(cut) * 12 * 0.53 <= 100


def test_a_stale_picture_is_named(module, tmp_path, monkeypatch, capsys):
    tool = module("make_pictures")
    monkeypatch.setattr(tool, "FOLDER", tmp_path)
    monkeypatch.setattr(tool, "_DRAWN", (module("pictures.turn").drawn,))
    monkeypatch.setattr("sys.argv", ["make_pictures.py"])
    assert tool.main() == 0
    monkeypatch.setattr("sys.argv", ["make_pictures.py", "--check"])
    assert tool.main() == 0
    (tmp_path / "turn.svg").write_text("another")
    assert tool.main() == 1
    assert "turn.svg" in capsys.readouterr().err


def test_the_picture_of_a_prune_shows_a_session_in_which_nothing_was_lost(module):
    run = module("pictures.prune").carried_out()
    assert run.before > 0.92 * run.room
    assert run.after < 0.7 * run.room
    assert run.recalled[0] in run.messages
    assert run.recalled[0] not in run.kept
    assert sum(run.tokens[seq] for seq in run.messages if seq not in run.kept) == run.freed
