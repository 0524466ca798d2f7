"""What the source says about a class beside its own docstring: the text below each of its attributes."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import pairwise

from msgspec import Struct


def members_of(kind: type) -> tuple[str, ...]:
    """The names of the members of a class of values; none for any other class."""
    if issubclass(kind, Struct):
        return tuple(kind.__struct_fields__)
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else ()


@cache
def attribute_texts(kind: type) -> Mapping[str, str]:
    """The text below each attribute of a class and of those it is made of, by name; those without text are left out."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.startswith("recto"):
            found |= _texts_in(one)
    return found


def _texts_in(kind: type) -> dict[str, str]:
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)  # noqa: S101  # the source of a class is one
    found = {}
    for before, after in pairwise(tree.body):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            found[before.target.id] = after.value.value
    return found
