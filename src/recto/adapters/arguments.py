"""The arguments of a call by their names, whichever way they were given: one of them is replaced, the others stay."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a function is called with."""

    bound: inspect.BoundArguments
    named: Mapping[str, Any]
    """All of them by name, those among `**kwargs` too."""
    rest: str
    """What the function calls its `**kwargs`; empty where it has none."""

    @classmethod
    def of(cls, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Self:
        """Raises `TypeError` where the function cannot be called so."""
        bound = signature.bind_partial(*args, **kwargs)
        rest = next((one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD), "")
        return cls(bound, {**bound.arguments, **bound.arguments.get(rest, {})}, rest)

    def put(self, name: str, value: object) -> None:
        """Replaces one that was given."""
        place = self.bound.arguments if name in self.bound.arguments else self.bound.arguments[self.rest]
        place[name] = value

    def call(self, function: Callable[..., Any]) -> Any:  # noqa: ANN401  # whatever the function returns
        """Calls the function with them."""
        return function(*self.bound.args, **self.bound.kwargs)


def name_of_list(signature: inspect.Signature, usual: str) -> str:
    """The parameter that takes the messages: the one with the usual name, else the first."""
    open_ended = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
    return usual if usual in signature.parameters or open_ended else next(iter(signature.parameters), usual)
