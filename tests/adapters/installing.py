"""An environment for each agent framework below build/adapters, from its pinned requirements in requirements/adapters.

Frameworks have conflicting dependencies, so each is installed alone. Recto itself is imported from the checkout. An
environment that cannot be installed is reported with its reason, and the exit code is 1.
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
    """The environments of these extras, or all of them. Raises `SystemExit` for a name without pins."""
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
    """The module name suffix of a framework, as in `test_…` and `run_…`."""
    return environment.name.replace("-", "_")


def install(environment: Environment) -> str:
    """Creates a missing environment and links it to this checkout, so code changes need no new installation."""
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
