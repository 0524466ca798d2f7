"""Separate environments for packages that conflict with the others: each from a file of pinned versions with hashes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_SECONDS = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One environment: its folder, and the file of its pinned packages."""

    name: str
    folder: Path
    pins: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> str:
        """A hash of the content; an environment with another stamp is reinstalled."""
        return hashlib.sha256(self.pins.read_bytes() + sys.version.encode()).hexdigest()

    @property
    def ready(self) -> bool:
        stamp = self.folder / ".ready"
        return stamp.exists() and stamp.read_text() == self.stamp

    @property
    def reason(self) -> str:
        """Why the last installation failed; empty if it succeeded or none was tried."""
        return self._reason.read_text() if self._reason.exists() else ""

    @property
    def _reason(self) -> Path:
        return self.folder.with_suffix(".missing")

    def install(self) -> str:
        """Installs it if it is missing or out of date. Returns why that failed, or an empty string."""
        if self.ready:
            return ""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        reason = self._made()
        if reason:
            self._reason.write_text(reason)
            return reason
        self._reason.unlink(missing_ok=True)
        (self.folder / ".ready").write_text(self.stamp)
        return ""

    def _made(self) -> str:
        uv = [sys.executable, "-m", "uv"]
        exactly = ("--require-hashes", "--only-binary", ":all:", "-r", self.pins)
        try:
            _called(*uv, "venv", "--quiet", "--python", sys.executable, self.folder)
            _called(*uv, "pip", "install", "--quiet", "--python", self.python, *exactly)
        except subprocess.TimeoutExpired:
            return f"it was not there after {_SECONDS} seconds"
        except subprocess.CalledProcessError as error:
            return f"it could not be installed: {' '.join(f'{error.stderr}'.split())[:600] or error}"
        return ""


def _called(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, timeout=_SECONDS)
