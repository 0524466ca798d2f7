"""The floor plan holds: every import points down, and rooms do not reach into their neighbours."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "recto"

FLOORS: dict[str, int] = {
    "errors": 0,
    "core": 0,
    "ports": 1,
    "wire": 1,
    "engine": 2,
    "stores": 2,
    "models": 2,
    "testing": 2,
    "telemetry": 2,
    "settings": 3,
    "modes": 3,
    "sinks": 3,
    "storing": 3,
    "wiring": 3,
    "familiar": 3,
    "conversations": 3,
    "client_files": 3,
    "sample": 3,
    "gateway": 4,
    "tui": 4,
    "mcp": 4,
    "cli": 4,
    "adapters": 4,
}
WITHIN_A_FLOOR = {
    ("core", "errors"),
    ("storing", "settings"),
    ("wiring", "settings"),
    ("wiring", "storing"),
    ("wiring", "modes"),
    ("wiring", "sinks"),
    ("sinks", "settings"),
    ("modes", "settings"),
    ("conversations", "familiar"),
    ("conversations", "settings"),
    ("conversations", "storing"),
    ("conversations", "wiring"),
    ("sample", "settings"),
    ("sample", "wiring"),
    ("tui", "gateway"),
    ("gateway", "mcp"),
    ("cli", "mcp"),
    ("cli", "adapters"),
    ("cli", "gateway"),
    ("cli", "tui"),
}
"""The only arrows between rooms of one floor."""

PURE = {"errors", "core", "wire"}
IMPURE_MODULES = {"os", "io", "time", "random", "socket", "subprocess", "threading", "asyncio", "pathlib", "datetime"}

MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


def imports_of(file: Path) -> set[str]:
    """Every module a file imports, wherever in the file, except for type checking only."""
    tree = ast.parse(file.read_text())
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} uses a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def name_of(file: Path) -> str:
    return ".".join(("recto", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


NAMES = {name_of(file) for file in MODULES}


def module_of(imported: str) -> str:
    """The module that is imported, whether it or a name in it was asked for."""
    return imported if imported in NAMES else imported.rpartition(".")[0]


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_every_import_points_down(file):
    room = room_of(file)
    if room == "__init__":
        return
    assert room in FLOORS, f"{room} has no place on the floor plan"
    for imported in imports_of(file):
        module = module_of(imported)
        target = module.split(".")[1] if module.startswith("recto.") else None
        if target is None or target == room:
            continue
        down = FLOORS[target] < FLOORS[room]
        assert down or (room, target) in WITHIN_A_FLOOR, f"{room} may not import {target}"


@pytest.mark.parametrize("file", [file for file in MODULES if room_of(file) in PURE], ids=lambda file: file.stem)
def test_pure_rooms_have_no_clock_no_randomness_and_no_io(file):
    assert not {module.split(".")[0] for module in imports_of(file)} & IMPURE_MODULES


def test_no_module_is_part_of_a_cycle():
    arrows = {
        name_of(file): {module_of(target) for target in imports_of(file)} & NAMES - {name_of(file), "recto"}
        for file in MODULES
    }
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


def test_no_file_is_too_long_to_read_in_a_sitting():
    assert {str(file.relative_to(SOURCE)) for file in MODULES if len(file.read_text().splitlines()) > 450} == set()


def test_importing_recto_loads_nothing_heavy():
    heavy = "apsw,splintr,rich,click,yaml,asyncio,recto.stores,recto.models,recto.engine"
    check = f"import recto,sys; print([m for m in '{heavy}'.split(',') if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"


def test_the_public_names_are_these():
    import recto

    assert sorted(recto.__all__) == sorted(PUBLIC)
    for name in recto.__all__:
        assert getattr(recto, name) is not None


PUBLIC = [
    "AsyncSession",
    "Conversations",
    "Entry",
    "Following",
    "Head",
    "Prompt",
    "RectoError",
    "Session",
    "Settings",
    "TranscriptStore",
    "Verification",
    "__version__",
    "bounded",
    "errors",
    "fit",
    "follow",
    "open",
    "open_async",
    "verify",
]
