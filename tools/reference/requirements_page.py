"""What is required of a manager of the context window, with the tests that show it: docs/requirements.md.

The rows are in `requirements.yaml`; the tests are those marked with `@pytest.mark.requirement("id")`. A row without a
test is an error, and so is a mark without a row.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from reference.markdown import cell, page, table

_ROOT = Path(__file__).parent.parent.parent
_ROWS = Path(__file__).with_name("requirements.yaml")
_ABOUT = """What is required of a tool that manages an agent's context window, and the tests that show that Recto does
it. The page is made of the marks in the tests (`@pytest.mark.requirement`): a row without a test fails `make check`."""
_OPEN = """Requirements that are not met yet, or not in full."""


def written() -> str:
    """The page. Raises `SystemExit` where a row has no test, or a mark no row."""
    rows: Mapping[str, Any] = yaml.safe_load(_ROWS.read_text(encoding="utf-8"))
    tests = _marked_tests()
    ids = [row["id"] for section in rows["sections"] for row in section["rows"]]
    wrong = [f"requirement '{name}' has no test" for name in ids if name not in tests]
    wrong += [
        f"'{name}', which {tests[name][0]} is marked with, is no requirement" for name in sorted(tests.keys() - ids)
    ]
    wrong += [f"requirement '{name}' is there twice" for name in sorted({name for name in ids if ids.count(name) > 1})]
    if wrong:
        raise SystemExit("\n".join(wrong))
    parts = [
        _ABOUT,
        f"{len(ids)} requirements are shown by {len({t for found in tests.values() for t in found})} tests.",
    ]
    for section in rows["sections"]:
        lines = [(_text(row), "<br>".join(tests[row["id"]])) for row in section["rows"]]
        parts += [f"## {section['title']}", table(("requirement", "shown by"), lines)]
    missing = [(cell(row["section"]), cell(row["text"])) for row in rows["open"]]
    if missing:
        parts += ["## Not met yet", _OPEN, table(("about", "requirement"), missing)]
    return page("Requirements", *parts)


def _text(row: Mapping[str, str]) -> str:
    differs = f" *Differs:* {cell(row['differs'])}" if "differs" in row else ""
    return cell(row["text"]) + differs


def _marked_tests() -> dict[str, list[str]]:
    """The tests that are marked, by requirement."""
    tests: dict[str, list[str]] = defaultdict(list)
    for file in sorted((_ROOT / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if "mark.requirement(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for name in _requirements(node):
                    tests[name].append(f"`{file.relative_to(_ROOT).as_posix()}::{node.name}`")
    return tests


def _requirements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.requirement":
            yield from (ast.literal_eval(argument) for argument in decorator.args)
