"""Regular expressions that are compiled when they are first used.

Compiling the patterns of a module takes longer than importing it, and most programs use few of them: a command that
prints its help reads no dates. A pattern that is used once is as fast as a compiled one from then on, because its
methods replace those that are missing here.
"""

from __future__ import annotations

import re
from typing import AnyStr, Generic, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn", "groups", "groupindex")


def lazy_re(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """`re.compile` on first use. It has the methods of a pattern, but `re`'s own functions do not take it."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern(Generic[AnyStr]):
    """Compiles its pattern when a method is missing, that is at the first call, and keeps the compiled methods."""

    def __init__(self, pattern: AnyStr, flags: int) -> None:
        self.pattern: AnyStr = pattern
        self.flags = flags

    def __getattr__(self, name: str) -> object:
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self.flags)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return getattr(compiled, name)
