"""Files the agent worked with, as a fold over messages, and their rendering as a list.

Relative and absolute forms of a path are one file. A path that was only named or listed is kept too, with little
weight. The file system is never consulted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from recto.context.facts.tool_use import MAX_PATH_CHARS, file_uses, find_paths
from recto.context.facts.types import MessageView, WorkedFile
from recto.text.lazy_re import lazy_re
from recto.text.secrets import mask_secrets
from recto.text.truncation import CountText

_FAILURE_SIGNS = ("tool_use_error", "does not exist", "No such file", "not been read")
"""Beginnings of results that show no file."""
_TOKENS_PER_FILE = 12
"""Typical tokens per file; start of the search for how many fit."""
_RECENCY_FILES = 20
"""Number of later files that halve a file's weight."""
_MAX_COUNTED = 3
"""Reads or edits beyond this number add no weight."""
_NAMED_WEIGHT = 0.3
"""Weight of a file that was only named; a read counts 1 and an edit 2."""
_GENERATED_NAME = lazy_re(r"[0-9a-f]{8}-[0-9a-f]{4}|(?<![a-z])(?=[a-f]*\d)[0-9a-f]{10}")
"""Names that no person chose."""
_ROOT_SHARE = 0.6
"""Share of all full paths below the root of a project; files that were read or edited count several times."""
_ROOT_SIGNS = frozenset(
    """
    .git .github .gitignore src lib cmd tests test docs go.mod package.json pyproject.toml Cargo.toml Makefile README.md
    CLAUDE.md AGENTS.md pom.xml setup.py
    """.split()  # noqa: SIM905  read as prose
)


def track_files(
    messages: Iterable[MessageView], before: Sequence[WorkedFile] = (), max_files: int = 500
) -> tuple[WorkedFile, ...]:
    """Add the files of these messages to the known ones, oldest first; the least useful beyond `max_files` are
    dropped."""
    files = _FileTracker(before)
    for message in messages:
        files.add(message)
        if len(files.known) > 2 * max(max_files, 1):
            files = _FileTracker(_most_useful(tuple(files.known.values()), max_files))
    tracked = tuple(files.known.values())
    return tuple(sorted(_most_useful(tracked, max_files), key=lambda file: (file.last, file.path)))


class _FileTracker:
    """The files so far, indexed by name so that lookups stay fast."""

    def __init__(self, before: Iterable[WorkedFile]) -> None:
        self.known: dict[str, WorkedFile] = {}
        self._by_name: dict[str, list[str]] = {}
        for file in before:
            self._put(file)

    def add(self, message: MessageView) -> None:
        if message.role == "tool":
            self._add_result(message)
            return
        for call in message.calls:
            for use in file_uses(call):
                self._touch(use.path, message.seq, use.action, shows=use.shows)
        for path in find_paths(message.text, bare=True):
            self._touch(path, message.seq, "name")

    def _add_result(self, message: MessageView) -> None:
        fails = any(sign in message.text[:300] for sign in _FAILURE_SIGNS)
        for call in message.calls:
            for use in file_uses(call):
                self._touch(use.path, message.seq, "shown" if use.action == "read" and not fails else "name")
        for path in find_paths(message.text):
            self._touch(path, message.seq, "listed")

    def _touch(self, path: str, seq: int, action: str, *, shows: bool = False) -> None:
        if not path:
            return
        file = self._file(path, seq, named=action in ("name", "listed"))
        if action == "listed" and (file.reads or file.edits):
            return
        is_shown = action == "shown" or shows
        self.known[file.path] = replace(
            file,
            reads=file.reads + (action == "read"),
            edits=file.edits + (action == "edit"),
            last=max(file.last, seq),
            last_read=max(file.last_read, seq) if is_shown else file.last_read,
        )

    def _file(self, path: str, seq: int, *, named: bool) -> WorkedFile:
        """The known file for a path, in the longest form it was written in."""
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
            file = _merge(file, self.known.pop(name))
            names.remove(name)
        return self._put(file)

    def _put(self, file: WorkedFile) -> WorkedFile:
        self.known[file.path] = file
        self._by_name.setdefault(file.path.rpartition("/")[2], []).append(file.path)
        return file


def _merge(file: WorkedFile, other: WorkedFile) -> WorkedFile:
    return replace(
        file,
        reads=file.reads + other.reads,
        edits=file.edits + other.edits,
        last=max(file.last, other.last),
        last_read=max(file.last_read, other.last_read),
    )


def _most_useful(files: Sequence[WorkedFile], max_files: int) -> Sequence[WorkedFile]:
    return files if len(files) <= max_files else rank_files(files)[: max(max_files, 0)]


def rank_files(files: Sequence[WorkedFile]) -> list[WorkedFile]:
    """The most useful files first: edited before read before named, recent before old, frequent before rare."""
    newest_first = sorted(files, key=lambda file: (-file.last, file.path))
    weights = {file.path: _weight(file) / (1 + index / _RECENCY_FILES) for index, file in enumerate(newest_first)}
    return sorted(newest_first, key=lambda file: -weights[file.path])


def _weight(file: WorkedFile) -> float:
    if file.edits or file.reads:
        return 2.0 * min(file.edits, _MAX_COUNTED) + min(file.reads, _MAX_COUNTED) + _NAMED_WEIGHT
    return _NAMED_WEIGHT / 3 if _GENERATED_NAME.search(file.path) else _NAMED_WEIGHT


def render_files(files_used: Sequence[WorkedFile], tokens: int, count: CountText) -> list[str]:
    """As many files as fit, most useful first, one line per folder; the number is the entry to read."""
    root = _root(files_used)
    files = [_folder_and_label(file, root) for file in rank_files(files_used)]
    fitting: list[str] = []
    low, high = 0, len(files)
    number = min(high, tokens // _TOKENS_PER_FILE)
    while low < high:
        number = min(max(number, low + 1), high)
        lines = _group_by_folder(files[:number])
        if count("\n".join(lines)) <= tokens:
            fitting, low = lines, number
        else:
            high = number - 1
        number = (low + high + 1) // 2
    return fitting


def _folder_and_label(file: WorkedFile, root: str) -> tuple[str, str]:
    """The folder of a file, relative to the root if possible, and the file's label in its line."""
    path = mask_secrets(file.path[:MAX_PATH_CHARS])
    folder, _, name = path.removeprefix(f"{root}/" if root else "").rpartition("/")
    return folder or ".", _label(file, name)


def _group_by_folder(files: Sequence[tuple[str, str]]) -> list[str]:
    folders: dict[str, list[str]] = {}
    for folder, label in files:
        folders.setdefault(folder, []).append(label)
    return [f"{folder}: {', '.join(names)}" for folder, names in folders.items()]


def _label(file: WorkedFile, name: str) -> str:
    if file.edits:
        return f"{name} (edited, {file.last_read or file.last})"
    return f"{name} ({file.last_read or file.last})" if file.reads else name


def _root(files: Sequence[WorkedFile]) -> str:
    """The project root: the base of relative paths, else the common folder of most full paths."""
    full = [file for file in files if file.path.startswith("/")]
    folders = Counter(folder for file in full if (folder := file.path.rpartition("/")[0]))
    votes: Counter[str] = Counter()
    for folder in {file.path.rpartition("/")[0] for file in files if not file.path.startswith("/")}:
        for known, weight in folders.items() if "/" in folder else ():
            if known.endswith(f"/{folder}"):
                votes[known[: -len(folder) - 1]] += weight
    if votes:
        return max(votes, key=lambda root: (votes[root], root))
    return _common_root(full)


def _common_root(full: Sequence[WorkedFile]) -> str:
    """The deepest folder that most full paths share, or the first one above it that looks like a project."""
    below: Counter[str] = Counter()
    for file in full:
        weight = _MAX_COUNTED if file.reads or file.edits else 1
        below.update(dict.fromkeys(_folders(file.path), weight))
    min_weight = _ROOT_SHARE * sum(_MAX_COUNTED if file.reads or file.edits else 1 for file in full)
    common = max((folder for folder, weight in below.items() if weight >= min_weight), key=len, default="")
    children = {folder: set[str]() for folder in _folders(f"{common}/") if folder.count("/") > 1}
    for file in full:
        for folder, names in children.items():
            if file.path.startswith(f"{folder}/"):
                names.add(file.path[len(folder) + 1 :].partition("/")[0])
    return next((folder for folder, names in children.items() if names & _ROOT_SIGNS), common)


def _folders(path: str) -> list[str]:
    """The parent folders of a full path, deepest first."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
