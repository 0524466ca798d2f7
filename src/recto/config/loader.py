"""Settings loader: merges defaults, file, environment and arguments, and validates each value."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_origin, get_type_hints

from msgspec import Struct

from recto.config.familiar_names import Translation, familiar_names, translate_layer
from recto.config.settings import Settings
from recto.config.trust import SETTINGS_FILE, check_folder_file
from recto.errors import SettingsError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from yaml.nodes import Node

_Node = TypeVar("_Node", bound="DataclassInstance")
Origin = Literal["default", "file", "environment", "argument"]
"""The layer a value comes from."""
_PREFIX = "RECTO_"
_NOT_SETTINGS = ("RECTO_CONFIG", "RECTO_KEY", "RECTO_TEST_", "RECTO_URL")
"""Variables with the prefix that are not settings: the settings file, a client's gateway key, tests."""
FILES = (f"~/.recto/{SETTINGS_FILE}", SETTINGS_FILE)
"""Default locations of settings files: the user's own, and the working folder's, which overrides it and may set only
what `recto.config.trust` allows."""


def load(
    *,
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Settings:
    """Load the settings from the file, the environment and the arguments. Arguments that are None are ignored."""
    settings = Settings()
    for layer in read_layers(path=path, environ=environ, arguments=arguments):
        try:
            settings = _merge(settings, layer.tree, "") if layer.tree else settings
        except SettingsError as error:
            raise layer.translation.locate(error, layer.name) from None
    return settings


def load_for_model(model: str) -> Settings:
    """Load the settings with a model, which may be empty; those of an earlier call if no variable has changed.

    With settings files they are always loaded: what a file contains, and whether it is trusted, can change.
    """
    if settings_files():
        return load(arguments={"model": model or None})
    return _without_files(model, tuple([(name, os.environ[name]) for name in os.environ if name.startswith(_PREFIX)]))


@lru_cache(maxsize=16)
def _without_files(model: str, variables: tuple[tuple[str, str], ...]) -> Settings:
    return load(environ=dict(variables), arguments={"model": model or None})


def override(settings: Settings, tree: Mapping[str, Any]) -> Settings:
    """Return the settings with some values replaced. Raises `SettingsError` for unknown keys and invalid values."""
    return _merge(settings, tree, "")


class Layer(Struct, frozen=True, kw_only=True):
    """The values that one source sets."""

    origin: Origin
    name: str
    """The file's path; empty for the other layers."""
    translation: Translation
    """Its values under our own names, and where each is set."""

    @property
    def tree(self) -> Mapping[str, Any]:
        """The values."""
        return self.translation.tree


def read_layers(
    *,
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> tuple[Layer, ...]:
    """Read every layer above the defaults; each overrides the one before."""
    environ = os.environ if environ is None else environ
    set_arguments = {key: value for key, value in (arguments or {}).items() if value is not None}
    return (
        *(_read_file(file, own=own) for file, own in _files(path, environ)),
        Layer(origin="environment", name="", translation=translate_layer(_from_environment(environ), {}, "")),
        Layer(origin="argument", name="", translation=translate_layer(set_arguments, {}, "")),
    )


def settings_files(path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return the settings files that are read, in their order. Raises `SettingsError` if the named one does not
    exist."""
    return [file for file, _ in _files(path, os.environ if environ is None else environ)]


def _files(path: str | Path | None, environ: Mapping[str, str]) -> list[tuple[Path, bool]]:
    """Return the settings files, and whether each is the user's own choice."""
    if named := path or environ.get("RECTO_CONFIG"):
        file = Path(named).expanduser()
        if not file.is_file():
            raise SettingsError("config", f"there is no file '{named}'")
        return [(file, True)]
    own, folder = (Path(name).expanduser() for name in FILES)
    found = [(own, True)] if own.is_file() else []
    if folder.is_file() and not (found and folder.samefile(own)):
        found.append((folder, False))
    return found


def _read_file(file: Path, *, own: bool) -> Layer:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise SettingsError("config", f"'{file}' cannot be read ({error.strerror})") from None
    translation = parse_settings(file, content)
    if not own:
        check_folder_file(file, content, translation.tree)
    return Layer(origin="file", name=str(file), translation=translation)


def parse_settings(file: Path, content: bytes) -> Translation:
    """Parse the content of a settings file. Raises `SettingsError` if it is not a mapping of settings."""
    import yaml  # noqa: PLC0415  # start-up: most programs have no settings file

    lines: dict[tuple[str, ...], int] = {}
    try:
        loader = yaml.SafeLoader(content.decode("utf-8"))
        node = loader.get_single_node()
        if node is not None:
            _find_lines(file, node, (), lines, set())
        tree = None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise SettingsError("config", f"'{file}' is not YAML{line}") from None
    if tree is None:
        tree = {}
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise SettingsError("config", f"'{file}' must be a mapping of setting names to values")
    return translate_layer(tree, lines, str(file))


def _find_lines(
    file: Path, node: Node, path: tuple[str, ...], lines: dict[tuple[str, ...], int], seen: set[int]
) -> None:
    """Note the line of each key. Raises `SettingsError` for a key that is there twice: YAML would drop the first."""
    import yaml  # noqa: PLC0415  # start-up

    pairs = node.value if isinstance(node, yaml.MappingNode) and id(node) not in seen else []  # an alias is seen again
    seen.add(id(node))
    own: dict[str, int] = {}
    for key, value in pairs:
        if not isinstance(key.value, str) or key.value == "<<":
            continue
        at, line = (*path, key.value), key.start_mark.line + 1
        if key.value in own:
            reason = f"is set in line {own[key.value]} already; keep one of the two"
            raise SettingsError(".".join(at), reason, where=f"{file}, line {line}")
        own[key.value] = lines[at] = line
        _find_lines(file, value, at, lines, seen)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name in [name for name in environ if name.startswith(_PREFIX) and not name.startswith(_NOT_SETTINGS)]:
        *parents, last = name.removeprefix(_PREFIX).lower().split("__")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
            if not isinstance(branch, dict):
                raise SettingsError(name, f"'{parent}' is given both as a value and as a group")
        branch[last] = _from_text(environ[name])
    return tree


def _from_text(text: str) -> Any:  # noqa: ANN401  any YAML value
    import yaml  # noqa: PLC0415  # start-up: most programs set nothing by the environment

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


@cache
def _hints_of(kind: type) -> Mapping[str, Any]:
    """The types of a group's settings; resolving them takes longer than everything else here."""
    return get_type_hints(kind)


def _merge(node: _Node, tree: Mapping[str, Any], path: str) -> _Node:
    hints = _hints_of(type(node))
    known = {entry.name for entry in fields(node)}
    changes = {}
    for key, value in tree.items():
        where = f"{path}{key}"
        if key not in known:
            raise SettingsError(where, "there is no such setting", _nearest(str(key), known, path))
        changes[key] = _convert(getattr(node, key), hints[key], value, where)
    try:
        return replace(node, **changes)
    except ValueError as error:
        raise SettingsError(path.rstrip(".") or "settings", str(error)) from None


def _nearest(key: str, known: Collection[str], path: str) -> str | None:
    """The setting that is most likely meant: of a similar name in the same group, or of the same name elsewhere."""
    import difflib  # noqa: PLC0415  # start-up: only for an error

    near = difflib.get_close_matches(key, [*known, *familiar_names(path)], n=1, cutoff=0.6)
    return f"{path}{near[0]}" if near else next(_named(Settings(), key, ""), None)


def _named(node: DataclassInstance, name: str, path: str) -> Iterator[str]:
    """The settings of this name, anywhere in the tree."""
    for entry in fields(node):
        if entry.name == name:
            yield f"{path}{name}"
        if is_dataclass(value := getattr(node, entry.name)):
            yield from _named(value, name, f"{path}{entry.name}.")  # type: ignore[arg-type]  # groups are no classes


def _convert(current: Any, hint: Any, value: Any, where: str) -> Any:  # noqa: ANN401  # any value of the tree
    if is_dataclass(current) and not isinstance(current, type):
        if not isinstance(value, Mapping):
            raise SettingsError(where, "expects a group of settings")
        return _merge(current, value, f"{where}.")
    if get_origin(hint) is Literal:
        hint = str
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise SettingsError(where, "expects a list of names")
        return tuple(value)
    if get_origin(hint) is not None:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise SettingsError(where, "expects names and their values")
        return dict(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is str and isinstance(value, os.PathLike):
        return os.fspath(value)
    if not isinstance(value, hint) or isinstance(value, bool) is not (hint is bool):
        raise SettingsError(where, f"expects {_TYPE_NAMES[hint]}, got {value!r}")
    return value


_TYPE_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
