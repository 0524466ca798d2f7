"""The floor plan: one ordered list of folders. A folder imports only folders that come after it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "recto"

ORDER = [
    *("lab", "cli", "sample", "testing", "tui", "gateway", "adapters", "mcp", "config", "stores", "models"),
    *("engine", "continuity", "health", "recall", "context", "tokens", "formats", "transcript", "text"),
    *("concurrency", "version", "errors"),
]
"""Every folder and top-level module of the package, from the doors down to the ground."""

MODULES = sorted(SOURCE.rglob("*.py"))


def name_of(file: Path) -> str:
    return ".".join(("recto", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


NAMES = {name_of(file) for file in MODULES}


def imports_of(file: Path) -> set[str]:
    """Every module of the package that a file imports, wherever in the file, for type checking too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} uses a relative import"
            targets = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {target if target in NAMES else target.rpartition(".")[0] for target in targets}
    return found & NAMES - {name_of(file)}


def folder_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_folder_imports_only_folders_after_it(file):
    folder = folder_of(name_of(file))
    if not folder:  # the package itself, which hands out the public names
        return
    for module in imports_of(file):
        target = folder_of(module)
        assert target == folder or ORDER.index(folder) < ORDER.index(target), f"{folder} may not import {target}"


def test_no_module_is_part_of_a_cycle():
    arrows = {name_of(file): imports_of(file) - {"recto"} for file in MODULES}
    finished: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"cycle: {' -> '.join((*path, name))}"
        if name not in finished:
            for target in arrows[name]:
                visit(target, (*path, name))
            finished.add(name)

    for name in sorted(arrows):
        if name != "recto":
            visit(name, ())
