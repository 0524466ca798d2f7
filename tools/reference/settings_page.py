"""Every setting: its name, what it takes, what it is without you, and what it means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from recto.config import Settings
from recto.config.familiar_names import FAMILIAR
from reference.markdown import cell, code, code_cell, page, prose, table
from reference.reading import attribute_texts

_ABOUT = """Every setting there is. Where they come from, and which layer overrides which: [settings](../settings.md).
Each can be given in a file, in the environment under the name below it, or as an argument of `recto.open`."""
_FAMILIAR = """Names that other documents and tools use, and what they become. They are taken in a file, in the
environment and as arguments, also in capitals and with humps (`MAX_CONTEXT_TOKENS`, `contextManagement`). A layer that
sets one thing under two names is refused. More: [settings](../settings.md)."""
_TAKES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_SEE = {
    "window": "window.md",
    "recall": "recall.md",
    "compress": "compression.md",
    "memory": "memory.md",
    "continuity": "continuity.md",
    "health": "health.md",
    "gateway": "gateway.md",
    "replica": "postgres.md",
    "models": "tokens.md",
    "tokenizers": "tokens.md",
}


def written() -> str:
    """The whole page."""
    familiar = table(("name", "becomes"), ((code(name), known.setting) for name, known in FAMILIAR.items()))
    return page(
        "Settings reference",
        _ABOUT,
        *(part for part in _groups(Settings(), "")),
        "## Familiar names",
        prose(_FAMILIAR),
        familiar,
    )


def _groups(tree: Any, path: str) -> Iterator[str]:  # noqa: ANN401  # any dataclass of the tree
    """The settings of a group, and then the groups in it."""
    kind = type(tree)
    yield f"## {path.rstrip('.') or 'At the top'}"
    yield prose(kind.__doc__ or "") + _see(path)
    yield table(("setting", "takes", "default", "means"), _rows(tree, path))
    for one in fields(tree):
        value = getattr(tree, one.name)
        if is_dataclass(value):
            yield from _groups(value, f"{path}{one.name}.")


def _see(path: str) -> str:
    known = _SEE.get(path.partition(".")[0])
    return f" More: [{known.removesuffix('.md')}](../{known})." if known else ""


def _rows(tree: Any, path: str) -> Iterator[tuple[str, str, str, str]]:  # noqa: ANN401
    kind = type(tree)
    hints, texts = get_type_hints(kind), attribute_texts(kind)
    for one in fields(tree):
        value = getattr(tree, one.name)
        if is_dataclass(value):
            continue
        key = f"{path}{one.name}"
        if one.name not in texts:
            raise SystemExit(f"the setting '{key}' has no text below it in {kind.__module__}: say what it means")
        variable = f"RECTO_{key.upper().replace('.', '__')}"
        means = cell(texts[one.name]) + (_see(key) if not path else "")
        yield f"{code(key)}<br>{code(variable)}", _takes(hints[one.name]), _default(value), means


def _takes(hint: Any) -> str:  # noqa: ANN401  # any type
    if get_origin(hint) is Literal:
        return " or ".join(code(name) for name in get_args(hint))
    if get_origin(hint) is tuple:
        return "a list"
    return _TAKES.get(hint, "names and values")


def _default(value: object) -> str:
    match value:
        case bool():
            return code(str(value).lower())
        case "" | () | None:
            return "empty"
        case Mapping():
            return "none"
        case tuple():
            return ", ".join(code_cell(one) for one in value)
        case float():
            return code(f"{value:g}")
        case _:
            return code_cell(value)
