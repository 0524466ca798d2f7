"""Checks prose for words that this project does not use: STYLE's list, with the term of the field to use instead.

    python tools/check_style.py

Reads the README, the documentation, and all text of the package and of the page: docstrings, comments, errors, help.
Where a word is data (a grammar, a generated conversation, a stored field), ALLOWED names the file and the reason.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
WORDS = {
    "told": "report, log, show, return",
    "stands": "is in, is stored in, replaces, represents",
    "anew": "again, rebuild, rewrite",
    "somebody": "the caller, the client, the user, the operator",
    "nobody": "no caller, no process; or name what is unknown",
    "what left": "what was evicted",
    "mend": "fix, repair",
    "mends": "fixes, repairs",
    "mended": "fixed, repaired",
    "mending": "fixing, repairing",
}
"""Each word, and what to write instead."""
ALLOWED = {
    "docs/benchmarks.md": "measured rows keep their names until they are measured again",
    "docs/benchmarks-peers.md": "measured rows keep their names until they are measured again",
    "docs/prompts.md": "real prompts of recorded sessions",
    "docs/requirements.md": "names of tests",
    "src/recto/context/compaction/loss_report.py": "a field of stored events",
    "src/recto/context/facts/grammars.py": "words of users that are recognized",
    "src/recto/context/facts/retraction.py": "words of users that are recognized",
    "src/recto/continuity/memory/consolidation.py": "a field of the operation log",
    "src/recto/health/alerts.py": "a field of stored state",
    "src/recto/lab/simulation": "generated conversations",
    "src/recto/sample": "a conversation",
    "docs/pictures": "pictures of conversations",
    "web/src": "names of variables; to be renamed",
}
"""Files and folders in which the words are allowed, and why."""
_PLACES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "src/recto", "src/recto_ai", "web/src")
_SUFFIXES = (".md", ".py", ".ts", ".tsx", ".css")
_PATTERN = re.compile(rf"\b(?:{'|'.join(map(re.escape, WORDS))})\b", re.IGNORECASE)


def findings(root: Path = ROOT) -> list[str]:
    """Returns a line for each word that should not be there."""
    found: list[str] = []
    for file in _files(root):
        name = file.relative_to(root).as_posix()
        if any(name == place or name.startswith(f"{place}/") for place in ALLOWED):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            found += [
                f"{name}:{number}: '{match[0]}': write {WORDS[match[0].lower()]}" for match in _PATTERN.finditer(line)
            ]
    return found


def _files(root: Path) -> list[Path]:
    files = [file for place in _PLACES for file in ([root / place] if "." in place else (root / place).rglob("*"))]
    return sorted(
        file for file in files if file.suffix in _SUFFIXES and file.is_file() and "recto/web" not in str(file)
    )


def main() -> int:
    """0 where no such word is left."""
    found = findings()
    for line in found:
        print(line)  # noqa: T201  # for people
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
