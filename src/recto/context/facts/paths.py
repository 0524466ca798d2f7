"""Paths of files in texts and in tool calls, and what a call does with each: reads it, edits it, or only names it.

All is told by the look of the words and by the names of tools and arguments. Nothing is known here of a file system:
whether a path exists, and where it begins, is not asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from recto.context.facts.types import ToolCall
from recto.formats.json_spans import Json
from recto.text.identifiers import clip_middle

Deed: TypeAlias = Literal["edit", "read", "name"]


class Use(NamedTuple):
    """A path, and what is done with it."""

    path: str
    deed: Deed
    shows: bool = False
    """Whether the call itself carries the file's content."""


LONGEST = 300
"""Characters of a path; what is longer is data."""
_MOST = 400_000
"""Characters of a text in which paths are looked for."""
_MOST_ARGUMENTS = 4_000_000
_COMMAND = 8_000
_VALUES = 200
"""Values of one call that are looked at."""

_PART = r"[\w.@+~-]"
_PATH = re.compile(
    rf"(?<![\w.@+~:/-])(?:{_PART}{{0,128}}+(?:/{_PART}{{1,128}}+){{1,32}}+|[A-Za-z]:\\[\w.@+~\\-]{{1,260}})"
)
"""Words with a slash in them; a URL's path follows a colon and is not one."""
_BARE = re.compile(r"(?<![\w.@+~:/\\-])[\w@+~-][\w.@+~-]{0,80}\.[a-z][a-z0-9]{0,9}(?![\w/(-])")
_FILE = re.compile(r"\.?[\w@+~-][\w.@+~-]*\.[A-Za-z][A-Za-z0-9]{0,9}")
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)*\.(?:com|org|io|net|dev|edu|gov|sh|ai|co|in)")
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.{1,300})$|^\*\*\* Move to: (.{1,300})$", re.MULTILINE)
_DIFFED = re.compile(r"^\+\+\+ b/(\S{1,300})", re.MULTILINE)
_SEPARATORS = re.compile(r"&&|\|\|?|;|\n")
_REDIRECTED = re.compile(r"(?<![<=-])>{1,2}\s{0,3}([\w./@+~-]{2,300})")

_ENDINGS = frozenset(
    """
    go py pyi js mjs cjs ts tsx jsx rs java kt kts c h cc cpp hpp m mm cs rb php swift scala sh bash zsh fish ps1 bat
    sql md mdx rst txt adoc json jsonl yaml yml toml ini cfg conf html htm css scss less vue svelte proto lock mod sum
    xml gradle lua ex exs erl hs ml mli r jl ipynb csv tsv tf hcl env dart zig nix graphql cmake mk pl diff patch log
    """.split()  # noqa: SIM905  read as prose
)
"""Endings by which a word without a slash is a file."""
_NO_FILES = frozenset(("node.js", "next.js", "vue.js", "react.js", "three.js", "d3.js", "package.path", "asp.net"))
_PLAIN = frozenset(("Makefile", "Dockerfile", "LICENSE", "Gemfile", "Rakefile", "Procfile", "Justfile", "CODEOWNERS"))

_KEYS = frozenset(
    """
    file_path filepath path file filename file_name notebook_path target_file source_file absolute_path abs_path
    relative_path relative_workspace_path old_path new_path files paths file_paths filenames target source destination
    src dst uri documents
    """.split()  # noqa: SIM905  read as prose
)
_SURE = frozenset(("file_path", "filepath", "notebook_path", "filename", "target_file", "absolute_path"))
"""Arguments that are files, whatever they look like."""
_COMMANDS = frozenset(("command", "cmd", "script", "commands", "shell"))
_CONTENTS = frozenset(("content", "file_text", "contents", "new_source"))
_PATCHES = frozenset(("patch", "diff", "input", "command", "cmd"))
_EDITS = re.compile(r"edit|write|patch|replace|insert|create|save|delete|remove|rename|move|append|update|modify")
_SEARCHES = re.compile(r"grep|glob|find|search|list|ls\b|tree|rg\b")
_VIEWS = frozenset(("view", "read", "open", "cat"))
_READERS = frozenset(
    "cat head tail less more sed awk nl bat grep rg egrep wc diff jq xxd hexdump view strings".split()  # noqa: SIM905
)
_BEFORE_VERBS = frozenset("sudo time env nohup command bash sh zsh -c -lc -l exec xargs (".split())  # noqa: SIM905
_WRITERS = frozenset("mv cp rm tee touch truncate patch install ln dd".split())  # noqa: SIM905


def uses_in(call: ToolCall) -> list[Use]:
    """What a call does with which files, each path once and with the strongest deed."""
    found: dict[str, Use] = {}
    strength = {"edit": 2, "read": 1, "name": 0}
    for use in _uses(call):
        known = found.get(use.path)
        if known is None or strength[use.deed] > strength[known.deed]:
            found[use.path] = use
    return list(found.values())


def paths_in(text: str, *, bare: bool = False) -> list[str]:
    """The paths of files that a text names, each once, in their order; on request also names without a folder."""
    looked = clip_middle(text, _MOST).replace("\\n/", "\n/")  # a line's end that is written as an escape
    found: dict[str, None] = {}
    if "/" in looked or ":\\" in looked:
        is_diff = "\n+++ " in looked or "diff --git " in looked
        for written in dict.fromkeys(_PATH.findall(looked)):
            path = normal(written)
            if is_diff and path.startswith(("a/", "b/")):
                path = path[2:]
            if is_file(path):
                found[path] = None
    if bare:
        for name in dict.fromkeys(_BARE.findall(looked)):
            if name.rpartition(".")[2] in _ENDINGS and name.lower() not in _NO_FILES:
                found[name] = None
    return list(found)


def normal(written: str) -> str:
    """A path with forward slashes and without detours; empty where it is none."""
    path = written.strip().strip("\"'`").replace("\\", "/")
    if len(path) > LONGEST or "\n" in path or "://" in path:
        return ""
    path = path.removeprefix("~/").rstrip(".,;:")  # where home is, is not known: such a path is relative
    kept: list[str] = []
    for part in path.split("/"):
        if part == "..":
            kept = kept[:-1]
        elif part.strip("."):
            kept.append(part)
    return ("/" if path.startswith("/") else "") + "/".join(kept)


def is_file(path: str) -> bool:
    """Whether a path looks like that of a file and not of a folder, an address or a package."""
    folder, _, name = path.rpartition("/")
    if not (name in _PLAIN or _FILE.fullmatch(name)) or ".." in name:
        return False
    return not _HOST.fullmatch(folder.partition("/")[0]) and not name.endswith((".io", ".com", ".org", ".net"))


def arguments_of(call: ToolCall) -> dict[str, Json]:
    """The arguments of a call by name; none where they are not an object."""
    if len(call.arguments) > _MOST_ARGUMENTS or not call.arguments.lstrip().startswith("{"):
        return {}
    try:
        read = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def _uses(call: ToolCall) -> Iterator[Use]:
    arguments = arguments_of(call)
    tool = call.tool.lower()
    if not arguments:
        yield from _patched(call.arguments)
        return
    searches = _SEARCHES.search(tool) is not None
    edits = _EDITS.search(tool) is not None and arguments.get("command") not in _VIEWS
    deed: Deed = "edit" if edits else "read"
    shows = edits and not _CONTENTS.isdisjoint(arguments)
    for key, value in _values(arguments):
        if key in _COMMANDS and " " in value:
            yield from _commanded(value)
        if key in _PATCHES:
            yield from _patched(value)
        if key in _KEYS:
            path = normal(value)
            if path and (is_file(path) or (key in _SURE and not value.endswith("/"))):
                yield Use(path, "read" if searches else deed, shows)


def _values(arguments: dict[str, Json]) -> Iterator[tuple[str, str]]:
    """Every text among the arguments with the name it goes by; lists and objects are opened twice."""
    left = _VALUES
    level: list[tuple[str, Json]] = list(arguments.items())
    for _ in range(3):
        deeper: list[tuple[str, Json]] = []
        for key, value in level[:left]:
            if isinstance(value, str):
                yield _plain(key), value
            elif isinstance(value, list):
                if _plain(key) in _COMMANDS:
                    yield _plain(key), " ".join(part for part in value if isinstance(part, str))
                else:
                    deeper += [(key, one) for one in value[:left]]
            elif isinstance(value, dict):
                deeper += value.items()
        left, level = left - len(level[:left]), deeper


def _plain(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key[:60]).lower().replace("-", "_")


def _patched(text: str) -> Iterator[Use]:
    """The files of a patch."""
    if "*** " in text:
        text = text if "\n" in text else text.replace("\\n", "\n")
        for first, second in dict.fromkeys(_PATCHED.findall(text)):
            yield Use(normal(first or second), "edit")
    elif "\n+++ b/" in text:
        yield from (Use(normal(path), "edit") for path in dict.fromkeys(_DIFFED.findall(text)))


def _commanded(command: str) -> Iterator[Use]:
    """The files of a shell command. What a here-document holds is content and not looked at."""
    command, here, _ = command[:_COMMAND].partition("<<")
    if here:
        command = command.rpartition("\n")[2] + " " + command
    for written in _REDIRECTED.findall(command):
        path = normal(written)
        if is_file(path) and not path.startswith("/dev/"):
            yield Use(path, "edit", bool(here))
    for part in _SEPARATORS.split(command):
        words = (word.rpartition("/")[2] for word in part.split()[:8])
        verb = next((word for word in words if word not in _BEFORE_VERBS and "=" not in word), "")
        in_place = verb in ("sed", "perl", "gofmt", "prettier", "black") and re.search(r"\s-(?:[pn]?i|w)\b", part)
        deed: Deed = "edit" if verb in _WRITERS or in_place else "read" if verb in _READERS else "name"
        for path in paths_in(part, bare=True):
            yield Use(path, deed)
