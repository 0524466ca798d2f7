"""File paths in texts and tool calls, and what a call does with each: read, edit, or only name it.

Paths are recognized by their form and by the names of tools and arguments. The file system is never consulted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from recto.context.facts.types import ToolCall
from recto.formats.json_spans import Json
from recto.text.identifiers import clip_middle
from recto.text.lazy_re import lazy_re

FileAction: TypeAlias = Literal["edit", "read", "name"]
FileEffect: TypeAlias = Literal["", "read", "edit", "write", "create", "delete"]
"""What a use does to a file, where it is known more closely than the action; `write` replaces or creates it."""


class FileUse(NamedTuple):
    """A path, and what is done with it."""

    path: str
    action: FileAction
    shows: bool = False
    """Whether the call itself contains the file's content."""
    effect: FileEffect = ""


MAX_PATH_CHARS = 300
"""Characters of a path; anything longer is data."""
_MAX_TEXT_CHARS = 400_000
"""Characters of a text that are searched for paths."""
_MAX_ARGUMENT_CHARS = 4_000_000
_MAX_COMMAND_CHARS = 8_000
_MAX_VALUES = 200
"""Number of argument values of one call that are read."""

_PART = r"[\w.@+~-]"
_PATH = lazy_re(
    rf"(?<![\w.@+~:/-])(?:{_PART}{{0,128}}+(?:/{_PART}{{1,128}}+){{1,32}}+|[A-Za-z]:\\[\w.@+~\\-]{{1,260}})"
)
"""Words with a slash; a URL's path follows a colon and does not match."""
_BARE = lazy_re(r"(?<![\w.@+~:/\\-])[\w@+~-][\w.@+~-]{0,80}\.[a-z][a-z0-9]{0,9}(?![\w/(-])")
_FILE = lazy_re(r"\.?[\w@+~-][\w.@+~-]*\.[A-Za-z][A-Za-z0-9]{0,9}")
_HOST = lazy_re(r"[\w-]+(?:\.[\w-]+)*\.(?:com|org|io|net|dev|edu|gov|sh|ai|co|in)")
_PATCHED = lazy_re(r"^\*\*\* (Update|Add|Delete|Move) (?:File|to): (.{1,300})$", re.MULTILINE)
_DIFFED = lazy_re(r"^(?:--- (\S{1,300})[^\n]{0,80}\n)?\+\+\+ b/(\S{1,300})", re.MULTILINE)
_SEPARATORS = lazy_re(r"&&|\|\|?|;|\n")
_REDIRECTED = lazy_re(r"(?<![<=-])(>{1,2})\s{0,3}([\w./@+~-]{2,300})")

_EXTENSIONS = frozenset(
    """
    go py pyi js mjs cjs ts tsx jsx rs java kt kts c h cc cpp hpp m mm cs rb php swift scala sh bash zsh fish ps1 bat
    sql md mdx rst txt adoc json jsonl yaml yml toml ini cfg conf html htm css scss less vue svelte proto lock mod sum
    xml gradle lua ex exs erl hs ml mli r jl ipynb csv tsv tf hcl env dart zig nix graphql cmake mk pl diff patch log
    """.split()  # noqa: SIM905  read as prose
)
"""Extensions by which a word without a slash is a file."""
_NOT_FILES = frozenset(("node.js", "next.js", "vue.js", "react.js", "three.js", "d3.js", "package.path", "asp.net"))
_EXTENSIONLESS = frozenset(
    ("Makefile", "Dockerfile", "LICENSE", "Gemfile", "Rakefile", "Procfile", "Justfile", "CODEOWNERS")
)

_PATH_KEYS = frozenset(
    """
    file_path filepath path file filename file_name notebook_path target_file source_file absolute_path abs_path
    relative_path relative_workspace_path old_path new_path files paths file_paths filenames target source destination
    src dst uri documents
    """.split()  # noqa: SIM905  read as prose
)
_CERTAIN_PATH_KEYS = frozenset(("file_path", "filepath", "notebook_path", "filename", "target_file", "absolute_path"))
"""Arguments that are always files."""
_COMMAND_KEYS = frozenset(("command", "cmd", "script", "commands", "shell"))
_CONTENT_KEYS = frozenset(("content", "file_text", "contents", "new_source"))
_REPLACED_KEYS = frozenset(("old_string", "old_str", "old_text", "search", "insert_line", "cell_id"))
"""Arguments of calls that change a part of a file."""
_PATCH_KEYS = frozenset(("patch", "diff", "input", "command", "cmd"))
_EDIT_TOOL = lazy_re(r"edit|write|patch|replace|insert|create|save|delete|remove|rename|move|append|update|modify")
_DELETE_TOOL = lazy_re(r"delete|remove")
_CREATE_TOOL = lazy_re(r"create|add_file|new_file")
_SEARCH_TOOL = lazy_re(r"grep|glob|find|search|list|ls\b|tree|rg\b")
_VIEW_COMMANDS = frozenset(("view", "read", "open", "cat"))
_READ_COMMANDS = frozenset(
    "cat head tail less more sed awk nl bat grep rg egrep wc diff jq xxd hexdump view strings".split()  # noqa: SIM905
)
_COMMAND_PREFIXES = frozenset("sudo time env nohup command bash sh zsh -c -lc -l exec xargs (".split())  # noqa: SIM905
_WRITE_COMMANDS = frozenset("mv cp rm tee touch truncate patch install ln dd".split())  # noqa: SIM905
_PATCH_EFFECTS: dict[str, FileEffect] = {"Update": "edit", "Add": "create", "Delete": "delete", "Move": "create"}
_COMMAND_EFFECTS: dict[str, FileEffect] = {
    "rm": "delete", "unlink": "delete", "git rm": "delete", "tee": "write", "touch": "write", "git checkout": "edit",
    "git restore": "edit", "git apply": "edit", "git stash": "edit",
}  # fmt: skip
_COPY_EFFECTS: dict[str, FileEffect] = {"mv": "delete", "git mv": "delete", "cp": "read"}
"""What a command does to its sources; its last path is written."""


_MAX_LINE_CHARS = 400
_MAX_REMEMBERED_CHARS = 10_000
"""Characters of texts whose paths are remembered: many short ones, some longer ones."""


def file_uses(call: ToolCall) -> Sequence[FileUse]:
    """What a call does with which files, each path once with its strongest action."""
    return _short_uses(call) if len(call.arguments) <= _MAX_REMEMBERED_CHARS else _strongest_uses(call)


def _strongest_uses(call: ToolCall) -> tuple[FileUse, ...]:
    strongest: dict[str, FileUse] = {}
    strength = {"edit": 2, "read": 1, "name": 0}
    for use in _all_uses(call):
        known = strongest.get(use.path)
        if known is None or strength[use.action] > strength[known.action]:
            strongest[use.path] = use
    return tuple(strongest.values())


_short_uses = lru_cache(2048)(_strongest_uses)
"""A call is read again with every relief until it is evicted, and when the text about it becomes shorter."""


def find_paths(text: str, *, bare: bool = False) -> Sequence[str]:
    """The file paths in a text, each once, in order; with `bare`, also names without a folder."""
    if len(text) <= _MAX_LINE_CHARS:
        return _paths_of_line(text, bare)
    return _paths_of_message(text, bare) if len(text) <= _MAX_REMEMBERED_CHARS else _find_paths(text, bare)


def _find_paths(text: str, bare: bool) -> tuple[str, ...]:
    clipped = clip_middle(text, _MAX_TEXT_CHARS).replace("\\n/", "\n/")  # an escaped line break
    paths: dict[str, None] = {}
    if "/" in clipped or ":\\" in clipped:
        is_diff = "\n+++ " in clipped or "diff --git " in clipped
        for match in dict.fromkeys(_PATH.findall(clipped)):
            path = normalize_path(match)
            if is_diff and path.startswith(("a/", "b/")):
                path = path[2:]
            if looks_like_file(path):
                paths[path] = None
    if bare:
        for name in dict.fromkeys(_BARE.findall(clipped)):
            if name.rpartition(".")[2] in _EXTENSIONS and name.lower() not in _NOT_FILES:
                paths[name] = None
    return tuple(paths)


_paths_of_line = lru_cache(8192)(_find_paths)
_paths_of_message = lru_cache(512)(_find_paths)


def normalize_path(text: str) -> str:
    """A path with forward slashes, without `.` and `..`; empty if the text is not a path."""
    path = text.strip().strip("\"'`").replace("\\", "/")
    if len(path) > MAX_PATH_CHARS or "\n" in path or "://" in path:
        return ""
    path = path.removeprefix("~/").rstrip(".,;:")  # the home directory is unknown: treat the path as relative
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part.strip("."):
            parts.append(part)
    return ("/" if path.startswith("/") else "") + "/".join(parts)


def looks_like_file(path: str) -> bool:
    """Whether a path looks like that of a file rather than a folder, a host or a package."""
    folder, _, name = path.rpartition("/")
    if not (name in _EXTENSIONLESS or _FILE.fullmatch(name)) or ".." in name:
        return False
    return not _HOST.fullmatch(folder.partition("/")[0]) and not name.endswith((".io", ".com", ".org", ".net"))


def parse_arguments(call: ToolCall) -> dict[str, Json]:
    """The arguments of a call by name; empty if they are not an object."""
    if len(call.arguments) > _MAX_ARGUMENT_CHARS or not call.arguments.lstrip().startswith("{"):
        return {}
    try:
        parsed = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _all_uses(call: ToolCall) -> Iterator[FileUse]:
    arguments = parse_arguments(call)
    tool = call.tool.lower()
    if not arguments:
        yield from _patch_uses(call.arguments)
        return
    searches = _SEARCH_TOOL.search(tool) is not None
    edits = _EDIT_TOOL.search(tool) is not None and arguments.get("command") not in _VIEW_COMMANDS
    action: FileAction = "edit" if edits else "read"
    shows = edits and not _CONTENT_KEYS.isdisjoint(arguments)
    effect = _tool_effect(tool, arguments, shows) if edits else ""
    for key, value in _string_values(arguments):
        if key in _COMMAND_KEYS and " " in value:
            yield from _command_uses(value)
        if key in _PATCH_KEYS:
            yield from _patch_uses(value)
        if key in _PATH_KEYS:
            path = normalize_path(value)
            if path and (looks_like_file(path) or (key in _CERTAIN_PATH_KEYS and not value.endswith("/"))):
                yield FileUse(path, "read", shows) if searches else FileUse(path, action, shows, effect)


def _tool_effect(tool: str, arguments: dict[str, Json], shows: bool) -> FileEffect:
    if arguments.get("command") == "create" or _CREATE_TOOL.search(tool):
        return "create"
    if _DELETE_TOOL.search(tool):
        return "delete"
    return "write" if shows and not _REPLACED_KEYS & arguments.keys() else "edit"


def _string_values(arguments: dict[str, Json]) -> Iterator[tuple[str, str]]:
    """All strings among the arguments with their keys; lists and objects are opened two levels deep."""
    remaining = _MAX_VALUES
    level: list[tuple[str, Json]] = list(arguments.items())
    for _ in range(3):
        deeper: list[tuple[str, Json]] = []
        for key, value in level[:remaining]:
            if isinstance(value, str):
                yield _snake_case(key), value
            elif isinstance(value, list):
                if _snake_case(key) in _COMMAND_KEYS:
                    yield _snake_case(key), " ".join(part for part in value if isinstance(part, str))
                else:
                    deeper += [(key, item) for item in value[:remaining]]
            elif isinstance(value, dict):
                deeper += value.items()
        remaining, level = remaining - len(level[:remaining]), deeper


def _snake_case(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key[:60]).lower().replace("-", "_")


def _patch_uses(text: str) -> Iterator[FileUse]:
    """The files of a patch."""
    if "*** " in text:
        text = text if "\n" in text else text.replace("\\n", "\n")
        for change, path in dict.fromkeys(_PATCHED.findall(text)):
            yield FileUse(normalize_path(path), "edit", effect=_PATCH_EFFECTS[change])
    elif "\n+++ b/" in text:
        for before, path in dict.fromkeys(_DIFFED.findall(text)):
            yield FileUse(normalize_path(path), "edit", effect="create" if before == "/dev/null" else "edit")


def _command_uses(command: str) -> Iterator[FileUse]:
    """The files of a shell command. The body of a here-document is content and is skipped."""
    command, here, _ = command[:_MAX_COMMAND_CHARS].partition("<<")
    if here:
        command = command.rpartition("\n")[2] + " " + command
    for sign, target in _REDIRECTED.findall(command):
        path = normalize_path(target)
        if looks_like_file(path) and not path.startswith("/dev/"):
            yield FileUse(path, "edit", bool(here), "write" if sign == ">" else "edit")
    for part in _SEPARATORS.split(command):
        words = [word.rpartition("/")[2] for word in part.split()[:8]]
        words = [word for word in words if word not in _COMMAND_PREFIXES and "=" not in word]
        verb = words[0] if words else ""
        in_place = verb in ("sed", "perl", "gofmt", "prettier", "black") and re.search(r"\s-(?:[pn]?i|w)\b", part)
        action: FileAction = (
            "edit" if verb in _WRITE_COMMANDS or in_place else "read" if verb in _READ_COMMANDS else "name"
        )
        name = f"git {words[1]}" if verb == "git" and len(words) > 1 else verb
        paths = find_paths(part, bare=True)
        for place, path in enumerate(paths, 1):
            effect = _COMMAND_EFFECTS.get(name, "")
            if name in _COPY_EFFECTS and len(paths) > 1:
                effect = "write" if place == len(paths) else _COPY_EFFECTS[name]
            yield FileUse(path, action, effect=effect)
