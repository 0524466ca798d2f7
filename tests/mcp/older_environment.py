"""An environment of its own with an older client, below build/mcp-1, from requirements/mcp-1.txt.

What cannot be installed here is no failure: why not is kept beside it, and its tests are skipped with that.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PINS = ROOT / "requirements" / "mcp-1.txt"
FOLDER = ROOT / "build" / "mcp-1"
PYTHON = FOLDER / "bin" / "python"
PROGRAM = Path(__file__).with_name("older_client.py")
_READY = FOLDER / ".ready"
_REASON = FOLDER.with_suffix(".missing")
_SECONDS = 600


def missing() -> str:
    """Why it is not there; empty where it is."""
    if _READY.exists() and _READY.read_text() == _stamp():
        return ""
    return _REASON.read_text() if _REASON.exists() else "not installed: make older-mcp"


def install() -> str:
    """Makes it where it is missing; says why it could not be, or nothing."""
    if not missing():
        return ""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    uv = [sys.executable, "-m", "uv"]
    try:
        _called(*uv, "venv", "--quiet", "--clear", "--python", sys.executable, FOLDER)
        _called(*uv, "pip", "install", "--quiet", "--python", PYTHON, "--require-hashes", "-r", PINS)
    except subprocess.TimeoutExpired:
        return f"it was not there after {_SECONDS} seconds"
    except subprocess.CalledProcessError as error:
        return f"it could not be installed: {' '.join(f'{error.stderr}'.split())[:300] or error}"
    _READY.write_text(_stamp())
    return ""


def _stamp() -> str:
    return hashlib.sha256(PINS.read_bytes()).hexdigest()


def _called(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, timeout=_SECONDS)


def main() -> int:
    reason = install()
    _REASON.unlink(missing_ok=True)
    if reason:
        _REASON.parent.mkdir(parents=True, exist_ok=True)
        _REASON.write_text(reason)
    print(f"the older MCP client: {reason or 'installed'}", flush=True)
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
