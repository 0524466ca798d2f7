"""Installs an older MCP client in an environment of its own: build/mcp-1, from requirements/mcp-1.txt.

A failed installation is not an error: its reason is stored next to the environment, and the tests are skipped with it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.environments import ROOT, Environment

OLDER = Environment(name="mcp-1", folder=ROOT / "build" / "mcp-1", pins=ROOT / "requirements" / "mcp-1.txt")
PROGRAM = Path(__file__).with_name("older_client.py")


def missing() -> str:
    """Returns why the environment is not installed, or an empty string if it is."""
    return "" if OLDER.ready else OLDER.reason or "not installed: make older-mcp"


def main() -> int:
    reason = OLDER.install()
    print(f"the older MCP client: {reason or 'installed'}", flush=True)
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
