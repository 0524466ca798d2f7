"""Installs the agents of versions.txt below build/agents, each into a folder of its own.

What cannot be installed here is no failure: why not is kept beside its folder, and its tests are skipped with that.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parent.parent / "build" / "agents"
_SECONDS = 900


@dataclass(frozen=True)
class Package:
    """One line of versions.txt."""

    name: str
    registry: str
    what: str

    @property
    def version(self) -> str:
        return self.what.replace("==", "@").rpartition("@")[2]

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def reason(self) -> Path:
        """Why it could not be installed."""
        return FOLDER / f"{self.name}.missing"

    @property
    def pins(self) -> Path:
        return HERE / f"{self.name}.txt"

    @property
    def program(self) -> Path:
        if self.registry == "pypi":
            return self.folder / "bin" / "mini"
        return self.folder / "node_modules" / ".bin" / {"claude-code": "claude"}.get(self.name, self.name)

    @property
    def stamp(self) -> str:
        """What the folder holds; another one is installed anew."""
        pins = self.pins.read_bytes() if self.pins.exists() else b""
        return f"{self.what} {hashlib.sha256(pins).hexdigest()[:16]}"

    @property
    def ready(self) -> bool:
        stamp = self.folder / ".ready"
        return stamp.exists() and stamp.read_text() == self.stamp


def packages() -> dict[str, Package]:
    lines = (HERE / "versions.txt").read_text(encoding="utf-8").splitlines()
    found = [Package(*line.split()) for line in lines if line and not line.startswith("#")]
    return {package.name: package for package in found}


def install(package: Package) -> str:
    """Installs one where it is missing; says why it could not be, or nothing."""
    if package.ready:
        return ""
    shutil.rmtree(package.folder, ignore_errors=True)
    package.folder.mkdir(parents=True)
    try:
        if package.registry == "pypi":
            uv = [sys.executable, "-m", "uv"]
            python = package.folder / "bin" / "python"
            _called(*uv, "venv", "--quiet", "--clear", "--python", sys.executable, package.folder)
            _called(*uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", package.pins)
        else:
            npm = shutil.which("npm")
            if npm is None:
                return "npm is not installed"
            _called(
                npm, "install", "--loglevel=error", "--no-audit", "--no-fund", "--prefix", package.folder, package.what
            )
            _called(package.program, "--version")
    except subprocess.TimeoutExpired:
        return f"{package.what} was not there after {_SECONDS} seconds"
    except subprocess.CalledProcessError as error:
        lines = [line.strip() for line in f"{error.stderr}\n{error.stdout}".splitlines() if line.strip()]
        return f"{package.what} could not be installed: {' '.join(lines[:3])[:300] or error}"
    (package.folder / ".ready").write_text(package.stamp)
    return ""


def _called(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, timeout=_SECONDS)


def main() -> None:
    for package in packages().values():
        reason = install(package)
        package.reason.unlink(missing_ok=True)
        if reason:
            package.reason.write_text(reason)
        print(f"{package.what}: {reason or 'installed'}", flush=True)


if __name__ == "__main__":
    main()
