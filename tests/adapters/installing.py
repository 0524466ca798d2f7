"""An environment for each agent framework below build/adapters, from its pinned requirements in requirements/adapters.

Frameworks contradict each other in what they need, so none of them is installed beside another. Recto itself is taken
from the checkout. What cannot be installed is told, and fails.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tests.environments import ROOT, Environment

PINS = ROOT / "requirements" / "adapters"
FOLDER = ROOT / "build" / "adapters"


def environments(names: Sequence[str] = ()) -> list[Environment]:
    """Those of the given extras, or all. Raises `SystemExit` for a name that has no pins."""
    known = {file.stem: file for file in sorted(PINS.glob("*.txt"))}
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"There is no adapter '{unknown[0]}'; these are: {' '.join(known)}")
    return [
        Environment(name=name, folder=FOLDER / name, pins=pins)
        for name, pins in known.items()
        if not names or name in names
    ]


def module_of(environment: Environment) -> str:
    """The end of the names of what belongs to a framework: `test_…`, `run_…`."""
    return environment.name.replace("-", "_")


def install(environment: Environment) -> str:
    """Makes it where it is missing, with Recto as it stands here: a change needs no new installation."""
    if reason := environment.install():
        return reason
    paths = {"base": str(environment.folder), "platbase": str(environment.folder)}
    packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=paths))
    (packages / "recto.pth").write_text(f"{ROOT / 'src'}\n")
    return ""


def main(names: Sequence[str]) -> int:
    failed = 0
    for environment in environments(names):
        reason = install(environment)
        failed += bool(reason)
        print(f"{environment.name}: {reason or 'installed'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
