"""Checks prose for words that this project does not use: STYLE's list, with the term of the field to use instead.

    python tools/check_style.py                     fails where one is left
    python tools/check_style.py --since COMMIT      counts words before and now, and twenty changed paragraphs at random

Reads the README, the documentation, and all text of the package and of the page: docstrings, comments, errors, help.
Where a word is data (a grammar, a generated conversation, a stored field), ALLOWED names the file and the reason.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
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
    "src/recto/context/compaction/fidelity.py": "a field of stored events",
    "src/recto/context/facts/_grammars.py": "words of users that are recognized",
    "src/recto/context/facts/statements.py": "words of users that are recognized",
    "src/recto/continuity/memory/consolidation.py": "a field of the operation log",
    "src/recto/health/alerts.py": "a field of stored state",
    "src/recto/lab/simulation": "generated conversations",
    "src/recto/sample": "a conversation",
    "docs/pictures": "pictures of conversations",
}
"""Files and folders in which the words are allowed, and why."""
FIELD_WORDS = ("retrieve", "evict", "truncat", "inject", "recall", "summariz")
"""Beginnings of words that people search for."""
_PARAGRAPHS = 20
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


def compare(commit: str, root: Path = ROOT) -> Iterator[str]:
    """Yields the counts of words in the documentation at a commit and now, and changed paragraphs, chosen at random."""
    names = [file.relative_to(root).as_posix() for file in _files(root) if file.suffix == ".md"]
    now = {name: (root / name).read_text(encoding="utf-8") for name in names}
    before = {name: _text_at(root, commit, name) for name in names}
    counts = [_counts(" ".join(texts.values())) for texts in (before, now)]
    yield from (f"{word}: {counts[0][word]} before, {counts[1][word]} now" for word in (*WORDS, *FIELD_WORDS))
    changed: list[tuple[str, str, str]] = []
    for name in names:
        old, new = (text[name].split("\n\n") for text in (before, now))
        missing = [paragraph for paragraph in old if paragraph not in new]
        changed += [
            (name, near[0], paragraph)
            for paragraph in new
            if paragraph not in old
            and not paragraph.startswith(("```", "|", "<!--"))
            and (near := get_close_matches(paragraph, missing, n=1, cutoff=0.5))
        ]
    for name, old_text, new_text in random.Random(commit).sample(changed, min(_PARAGRAPHS, len(changed))):  # noqa: S311
        yield f"\n{name}\n- before: {old_text}\n- now: {new_text}"


def _counts(text: str) -> Counter[str]:
    words = Counter(re.findall(r"[a-z]+", text.lower()))
    found = Counter({word: len(re.findall(rf"\b{word}\b", text, re.IGNORECASE)) for word in WORDS})
    found.update({start: sum(n for word, n in words.items() if word.startswith(start)) for start in FIELD_WORDS})
    return found


def _text_at(root: Path, commit: str, name: str) -> str:
    """Returns a file as it was at a commit; empty where it was not there."""
    done = subprocess.run(  # noqa: S603  # a commit of this repository
        ["git", "show", f"{commit}:{name}"],  # noqa: S607
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode == 0 else ""


def main() -> int:
    """0 where no such word is left."""
    if "--since" in sys.argv:
        for line in compare(sys.argv[sys.argv.index("--since") + 1]):
            print(line)  # noqa: T201  # for people
        return 0
    found = findings()
    for line in found:
        print(line)  # noqa: T201  # for people
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
