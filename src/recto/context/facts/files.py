"""Files that were worked with, as a fold over messages, and the list of them that a reader can go on with.

Relative and absolute forms of one file are one. A path that was only named or listed is kept too, but counts for
little. It is not known here whether a file exists, nor what was done to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from recto.context.facts.paths import LONGEST, paths_in, uses_in
from recto.context.facts.types import MessageView, WorkedFile
from recto.text.secrets import mask_secrets
from recto.text.truncation import CountText

_FAILED = ("tool_use_error", "does not exist", "No such file", "not been read")
"""What the beginning of a result says where it shows no file."""
_USUAL = 12
"""Tokens that a file usually takes; where the search for how many fit begins."""
_RECENT = 20
"""So many files that were touched later make a file count half."""
_OFTEN = 3
"""More reads or edits than this say nothing more."""
_NAMED = 0.3
"""What a file counts that was only named, where a read counts 1 and an edit 2."""
_MADE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}|(?<![a-z])(?=[a-f]*\d)[0-9a-f]{10}")
"""In names that no person gave."""
_ROOT_SHARE = 0.6
"""The share of all full paths that lie below the root of a project; files that were worked with count several times."""
_ROOT_SIGNS = frozenset(
    """
    .git .github .gitignore src lib cmd tests test docs go.mod package.json pyproject.toml Cargo.toml Makefile README.md
    CLAUDE.md AGENTS.md pom.xml setup.py
    """.split()  # noqa: SIM905  read as prose
)


def touched_in(
    told: Iterable[MessageView], before: Sequence[WorkedFile] = (), most: int = 500
) -> tuple[WorkedFile, ...]:
    """The files of these messages, added to those that are known, oldest first; the least useful beyond `most` go."""
    files = _Files(before)
    for one in told:
        files.hear(one)
        if len(files.known) > 2 * max(most, 1):
            files = _Files(_best(tuple(files.known.values()), most))
    found = tuple(files.known.values())
    return tuple(sorted(_best(found, most), key=lambda file: (file.last, file.path)))


class _Files:
    """What is known so far. A path is looked up by its name, so that a hundred files cost no more than one."""

    def __init__(self, before: Iterable[WorkedFile]) -> None:
        self.known: dict[str, WorkedFile] = {}
        self._by_name: dict[str, list[str]] = {}
        for file in before:
            self._put(file)

    def hear(self, one: MessageView) -> None:
        if one.role == "tool":
            self._hear_result(one)
            return
        for call in one.calls:
            for use in uses_in(call):
                self._touch(use.path, one.seq, use.deed, shows=use.shows)
        for path in paths_in(one.text, bare=True):
            self._touch(path, one.seq, "name")

    def _hear_result(self, one: MessageView) -> None:
        fails = any(sign in one.text[:300] for sign in _FAILED)
        for call in one.calls:
            for use in uses_in(call):
                self._touch(use.path, one.seq, "shown" if use.deed == "read" and not fails else "name")
        for path in paths_in(one.text):
            self._touch(path, one.seq, "listed")

    def _touch(self, path: str, seq: int, deed: str, *, shows: bool = False) -> None:
        if not path:
            return
        file = self._file(path, seq, named=deed in ("name", "listed"))
        if deed == "listed" and (file.reads or file.edits):
            return
        shown = deed == "shown" or shows
        self.known[file.path] = replace(
            file,
            reads=file.reads + (deed == "read"),
            edits=file.edits + (deed == "edit"),
            last=max(file.last, seq),
            last_read=max(file.last_read, seq) if shown else file.last_read,
        )

    def _file(self, path: str, seq: int, *, named: bool) -> WorkedFile:
        """The file of a path as it is known, in the longest form it was written in."""
        if path in self.known:
            return self.known[path]
        names = self._by_name.get(path.rpartition("/")[2], [])
        if not path.startswith("/"):
            longer = [self.known[name] for name in names if name.endswith("/" + path)]
            if longer:
                return max(longer, key=lambda file: (file.last, file.path))
        if named and "/" not in path:
            return self._put(WorkedFile(path=path, reads=0, edits=0, last=seq))
        file = WorkedFile(path=path, reads=0, edits=0, last=seq)
        for name in [name for name in names if not name.startswith("/") and path.endswith("/" + name)]:
            file = _merged(file, self.known.pop(name))
            names.remove(name)
        return self._put(file)

    def _put(self, file: WorkedFile) -> WorkedFile:
        self.known[file.path] = file
        self._by_name.setdefault(file.path.rpartition("/")[2], []).append(file.path)
        return file


def _merged(one: WorkedFile, other: WorkedFile) -> WorkedFile:
    return replace(
        one,
        reads=one.reads + other.reads,
        edits=one.edits + other.edits,
        last=max(one.last, other.last),
        last_read=max(one.last_read, other.last_read),
    )


def _best(files: Sequence[WorkedFile], most: int) -> Sequence[WorkedFile]:
    return files if len(files) <= most else ranked(files)[: max(most, 0)]


def ranked(files: Sequence[WorkedFile]) -> list[WorkedFile]:
    """The most useful first: edited before read before named, new before old, often before once."""
    newest_first = sorted(files, key=lambda file: (-file.last, file.path))
    weights = {file.path: _worked(file) / (1 + place / _RECENT) for place, file in enumerate(newest_first)}
    return sorted(newest_first, key=lambda file: -weights[file.path])


def _worked(file: WorkedFile) -> float:
    if file.edits or file.reads:
        return 2.0 * min(file.edits, _OFTEN) + min(file.reads, _OFTEN) + _NAMED
    return _NAMED / 3 if _MADE.search(file.path) else _NAMED


def file_lines(touched: Sequence[WorkedFile], tokens: int, count: CountText) -> list[str]:
    """As many files as fit, the most useful first, a line for each folder; the number is the entry to look at."""
    root = _root(touched)
    files = [_placed(file, root) for file in ranked(touched)]
    fits: list[str] = []
    least, most = 0, len(files)
    number = min(most, tokens // _USUAL)
    while least < most:
        number = min(max(number, least + 1), most)
        lines = _grouped(files[:number])
        if count("\n".join(lines)) <= tokens:
            fits, least = lines, number
        else:
            most = number - 1
        number = (least + most + 1) // 2
    return fits


def _placed(file: WorkedFile, root: str) -> tuple[str, str]:
    """The folder of a file, below the root where it is, and how the file is written in its line."""
    path = mask_secrets(file.path[:LONGEST])
    folder, _, name = path.removeprefix(f"{root}/" if root else "").rpartition("/")
    return folder or ".", _written(file, name)


def _grouped(files: Sequence[tuple[str, str]]) -> list[str]:
    folders: dict[str, list[str]] = {}
    for folder, written in files:
        folders.setdefault(folder, []).append(written)
    return [f"{folder}: {', '.join(names)}" for folder, names in folders.items()]


def _written(file: WorkedFile, name: str) -> str:
    if file.edits:
        return f"{name} (edited, {file.last_read or file.last})"
    return f"{name} ({file.last_read or file.last})" if file.reads else name


def _root(files: Sequence[WorkedFile]) -> str:
    """The folder of the project: where relative paths were written from, else what most full paths have in common."""
    full = [file for file in files if file.path.startswith("/")]
    within = Counter(folder for file in full if (folder := file.path.rpartition("/")[0]))
    votes: Counter[str] = Counter()
    for folder in {file.path.rpartition("/")[0] for file in files if not file.path.startswith("/")}:
        for known, weight in within.items() if "/" in folder else ():
            if known.endswith(f"/{folder}"):
                votes[known[: -len(folder) - 1]] += weight
    if votes:
        return max(votes, key=lambda root: (votes[root], root))
    return _common(full)


def _common(full: Sequence[WorkedFile]) -> str:
    """As deep as most full paths allow, and up to where it looks like a project."""
    below: Counter[str] = Counter()
    for file in full:
        weight = _OFTEN if file.reads or file.edits else 1
        below.update(dict.fromkeys(_folders(file.path), weight))
    least = _ROOT_SHARE * sum(_OFTEN if file.reads or file.edits else 1 for file in full)
    common = max((folder for folder, weight in below.items() if weight >= least), key=len, default="")
    children = {folder: set[str]() for folder in _folders(f"{common}/") if folder.count("/") > 1}
    for file in full:
        for folder, names in children.items():
            if file.path.startswith(f"{folder}/"):
                names.add(file.path[len(folder) + 1 :].partition("/")[0])
    return next((folder for folder, names in children.items() if names & _ROOT_SIGNS), common)


def _folders(path: str) -> list[str]:
    """The folders a full path lies in, deepest first."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
