"""An environment for each agent framework below build/adapters, from its pinned requirements in requirements/adapters.

Frameworks contradict each other in what they need, so none of them is installed beside another. Recto itself is taken
from the checkout. What cannot be installed is told, and fails.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PINS = ROOT / "requirements" / "adapters"
FOLDER = ROOT / "build" / "adapters"
_SECONDS = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where one framework is installed, by the name of its extra."""

    name: str

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def pins(self) -> Path:
        return PINS / f"{self.name}.txt"

    @property
    def module(self) -> str:
        """The end of the names of what belongs to it: `test_…`, `run_…`."""
        return self.name.replace("-", "_")

    @property
    def stamp(self) -> str:
        """What the folder holds; another one is installed anew."""
        return hashlib.sha256(self.pins.read_bytes() + sys.version.encode()).hexdigest()

    @property
    def ready(self) -> bool:
        stamp = self.folder / ".ready"
        return stamp.exists() and stamp.read_text() == self.stamp


def environments(names: Sequence[str] = ()) -> list[Environment]:
    """Those of the given names, or all. Raises `SystemExit` for a name that has no pins."""
    known = sorted(file.stem for file in PINS.glob("*.txt"))
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"There is no adapter '{unknown[0]}'; these are: {' '.join(known)}")
    return [Environment(name=name) for name in known if not names or name in names]


def install(environment: Environment) -> str:
    """Makes it where it is missing or out of date; says why it could not be, or nothing."""
    if environment.ready:
        return ""
    shutil.rmtree(environment.folder, ignore_errors=True)
    environment.folder.parent.mkdir(parents=True, exist_ok=True)
    uv = [sys.executable, "-m", "uv"]
    exactly = ("--require-hashes", "--only-binary", ":all:", "-r", environment.pins)
    try:
        _called(*uv, "venv", "--quiet", "--python", sys.executable, environment.folder)
        _called(*uv, "pip", "install", "--quiet", "--python", environment.python, *exactly)
    except subprocess.TimeoutExpired:
        return f"it was not there after {_SECONDS} seconds"
    except subprocess.CalledProcessError as error:
        return f"it could not be installed: {' '.join(f'{error.stderr}'.split())[:600] or error}"
    _checkout_into(environment)
    (environment.folder / ".ready").write_text(environment.stamp)
    return ""


def _checkout_into(environment: Environment) -> None:
    """Recto as it stands here, without a build: a change needs no new installation."""
    paths = {"base": str(environment.folder), "platbase": str(environment.folder)}
    packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=paths))
    (packages / "recto.pth").write_text(f"{ROOT / 'src'}\n")


def _called(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, timeout=_SECONDS)


def main(names: Sequence[str]) -> int:
    failed = 0
    for environment in environments(names):
        reason = install(environment)
        failed += bool(reason)
        print(f"{environment.name}: {reason or 'installed'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
