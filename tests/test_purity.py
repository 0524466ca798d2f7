"""Folders of values and decisions do no I/O, read no clock and use no randomness."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "recto"
IMPURE_MODULES = {"os", "io", "time", "random", "socket", "subprocess", "threading", "asyncio", "pathlib"}
CLOCKS = {"now", "today", "utcnow"}
PURE = [
    file
    for folder in ("text", "formats", "context")
    for file in sorted((SOURCE / folder).rglob("*.py"))
    if file != SOURCE / "context" / "compaction" / "writer.py"  # asks a model, within a time limit
]


def imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("file", PURE, ids=lambda file: str(file.relative_to(SOURCE)))
def test_values_and_decisions_are_pure(file):
    tree = ast.parse(file.read_text())
    assert not imported(tree) & IMPURE_MODULES
    if "datetime" in imported(tree):  # calendar arithmetic is pure, the clock is not
        called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert not {func.attr for func in called if isinstance(func, ast.Attribute)} & CLOCKS
