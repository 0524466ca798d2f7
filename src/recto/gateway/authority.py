"""Which right each route of the gateway needs. A route that is not written down here is open to nobody.

The table is compiled as the router compiles its paths, and where two lines match the same request the key needs both
rights: the guard can never take a request for a harmless one that the router hands to another handler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from starlette.routing import BaseRoute, Mount, Route, compile_path

from recto.core.keys import Right

Need: TypeAlias = Literal["open"] | Right
"""What a request must bring: nothing, or a key with a right."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one route needs."""

    method: str
    path: str
    """As the router writes it: `/v1/conversations/{id}`."""
    need: Need


TABLE: tuple[Rule, ...] = (
    # The page is the same for everybody; what it shows it asks for with a key.
    Rule("GET", "/", "open"),
    Rule("GET", "/web/app.js", "open"),
    Rule("GET", "/web/style.css", "open"),
    Rule("GET", "/web/icon.svg", "open"),
    Rule("GET", "/healthz", "open"),
    # Says ready or not, which anybody sees who can connect; those who watch over services bring no key.
    Rule("GET", "/readyz", "open"),
    Rule("GET", "/metrics", "read"),
    Rule("GET", "/v1/models", "ask"),
    Rule("POST", "/v1/embeddings", "ask"),
    Rule("POST", "/v1/chat/completions", "ask"),
    Rule("POST", "/v1/messages", "ask"),
    Rule("POST", "/v1/messages/count_tokens", "ask"),
    Rule("POST", "/v1/responses", "ask"),
    Rule("POST", "/v1/responses/compact", "ask"),
    Rule("POST", "/v1/responses/input_tokens", "ask"),
    Rule("POST", "/v1/conversations", "ask"),
    Rule("GET", "/v1/conversations/{id}", "ask"),
    Rule("GET", "/v1/conversations/{id}/items", "ask"),
)
"""The routes of the protocols and of operations. Those of the inspection API stand beside their handlers."""


class Authority:
    """Answers what a request needs."""

    def __init__(self, *tables: Iterable[Rule]) -> None:
        self.rules = tuple(rule for table in tables or (TABLE,) for rule in table)
        self._compiled: list[tuple[re.Pattern[str], Rule]] = [(compile_path(rule.path)[0], rule) for rule in self.rules]

    def needs(self, method: str, path: str) -> frozenset[Need]:
        """All that a request must bring; empty where no such route is known."""
        asked = "GET" if method == "HEAD" else method
        return frozenset(rule.need for rule in self._matching(path) if rule.method == asked)

    def methods(self, path: str) -> frozenset[str]:
        """What may be done at a path."""
        return frozenset(rule.method for rule in self._matching(path))

    def missing(self, routes: Sequence[BaseRoute], at: str = "") -> list[str]:
        """The routes of an application that no line of the table is about: nobody can use them."""
        known = {(rule.method, rule.path) for rule in self.rules}
        found: list[str] = []
        for route in routes:
            match route:
                case Route():
                    asked = (route.methods or {"any method"}) - {"HEAD"}
                    found += [f"{method} {at}{route.path}" for method in sorted(asked)]
                case Mount() if route.routes:
                    found += self.missing(route.routes, at + route.path)
                case _:
                    found.append(f"{at}{getattr(route, 'path', route)}")
        return [name for name in found if tuple(name.split(" ", 1)) not in known]

    def _matching(self, path: str) -> list[Rule]:
        return [rule for pattern, rule in self._compiled if pattern.fullmatch(path)]
