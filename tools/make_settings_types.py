"""Writes the types of the keyword arguments of `recto.open`: `src/recto/config/options.py`, made of the settings.

python tools/make_settings_types.py            write it
python tools/make_settings_types.py --check    1 where it is not up to date
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tools.reference.reading import attribute_texts

from recto.config.settings import Settings

FILE = Path(__file__).parent.parent / "src" / "recto" / "config" / "options.py"
_HEAD = '''"""Types of the keyword arguments of `recto.open`. Written by tools/make_settings_types.py; do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict
'''
_NAMED = ("store", "session", "model", "tenant")
"""Arguments of `recto.open` that have a parameter of their own."""
_WIDTH = 120


def written() -> str:
    """The whole file."""
    groups: dict[str, str] = {}
    _add(Settings, groups)
    return _HEAD + "".join(groups.values())


def _add(kind: type, groups: dict[str, str]) -> None:
    """Adds the type of a group of settings, after those of the groups in it."""
    hints, docs = get_type_hints(kind), attribute_texts(kind)
    lines: list[str] = []
    for one in fields(kind):
        if kind is Settings and one.name in _NAMED:
            continue
        hint = hints[one.name]
        if is_dataclass(hint) and isinstance(hint, type):
            _add(hint, groups)
        lines.append(f"    {one.name}: {_type(hint)}")
        if text := docs.get(one.name):
            lines += textwrap.wrap(
                f'"""{text}"""', _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
            )
    about = (kind.__doc__ or "").strip().splitlines()[0]
    groups[kind.__name__] = (
        f'\n\nclass {_name(kind)}(TypedDict, total=False):\n    """{about}"""\n\n' + "\n".join(lines) + "\n"
    )


def _name(kind: type) -> str:
    return kind.__name__.removesuffix("Settings") + "Options" if kind is not Settings else "SettingsOptions"


def _type(hint: Any) -> str:  # noqa: ANN401  # any type
    """The annotation of what may be passed: lists where tuples are stored."""
    if is_dataclass(hint) and isinstance(hint, type):
        return _name(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments)).replace(chr(39), chr(34))}]"
    if origin in (Union, UnionType):
        return " | ".join(_type(one) for one in arguments)
    if origin is tuple:
        return f"Sequence[{_type(arguments[0])}]"
    if origin in (Mapping, dict) or origin is Sequence:
        kind = "Sequence" if origin is Sequence else "Mapping"
        return f"{kind}[{', '.join(_type(one) for one in arguments)}]"
    if hint is NoneType:
        return "None"
    return "Any" if hint is Any else hint.__name__


def main() -> int:
    """Writes the file, or checks it."""
    text = written()
    if "--check" in sys.argv:
        if FILE.exists() and FILE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{FILE.name} is not what the settings say: python tools/make_settings_types.py")  # noqa: T201
        return 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
