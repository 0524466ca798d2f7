"""Searches lines for a text or a regular expression, in time that grows with the length of the line alone.

Patterns come from clients and models, and Python's `re` can take exponential time for a short one. So a pattern is
compiled to an automaton whose states are built as lines need them; each character is looked at once. Of the syntax of
`re` it knows what can be matched that way: no back-references and no look-around.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from recto.errors import InputError
from recto.text.lazy_re import lazy_re

MAX_PATTERN_CHARS: Final = 500
_MAX_NODES = 2_000
"""Nodes of an automaton; `(a{50}){50}` has too many."""
_MAX_DEPTH = 40
"""Groups within groups."""
_MAX_CACHED = 50_000
"""Transitions that are remembered."""
_ESCAPE_CLASSES = frozenset("dDwWsS")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_REPEAT = lazy_re(r"\{(\d{1,4})(?:(,)(\d{0,4}))?\}")
_PLAIN_BYTES = lazy_re(r"[a-z0-9_.,:;@+*=()\[\]{}!?#$%^~|-]{2,}")
"""Characters that every JSON text has as they are."""

_Assertion: TypeAlias = Literal["start", "end", "word", "inside"]


class _Char(Struct, frozen=True):
    """One character: a literal, or a class with the test for it."""

    source: str
    literal: str = ""


class _Assert(Struct, frozen=True):
    kind: _Assertion


class _Sequence(Struct, frozen=True):
    items: tuple[_Node, ...]


class _Choice(Struct, frozen=True):
    options: tuple[_Node, ...]


class _Repeat(Struct, frozen=True):
    item: _Node
    least: int
    most: int | None


_Node: TypeAlias = _Char | _Assert | _Sequence | _Choice | _Repeat


class _Parser:
    """Parses the syntax of a pattern."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._refusal("a ')' without its '('")
        return node

    def _refusal(self, problem: str) -> InputError:
        known = "known are . [] | () (?:) ^ $ * + ? {m,n} and the escapes \\d \\w \\s \\b and their opposites"
        return InputError(f"the pattern has {problem} at character {self._at + 1}; {known}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _choice(self) -> _Node:
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self) -> _Node:
        items: list[_Node] = []
        while (char := self._peek()) and char not in "|)":
            items.append(self._repeated(self._atom()))
        return items[0] if len(items) == 1 else _Sequence(tuple(items))

    def _repeated(self, item: _Node) -> _Node:
        char = self._peek()
        bounds = _REPEAT.match(self._text, self._at) if char == "{" else None
        if bounds:
            least = int(bounds[1])
            most = least if bounds[2] is None else int(bounds[3]) if bounds[3] else None
            self._at = bounds.end()
        elif char and char in "*+?":
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
            self._at += 1
        else:
            return item
        if most is not None and most < least:
            raise self._refusal("a repetition with its bounds the wrong way round")
        if self._peek() == "?":  # reluctant: whether a line matches is the same
            self._at += 1
        if self._peek() and self._peek() in "*+?":
            raise self._refusal("two repetitions in a row")
        return _Repeat(item, least, most)

    def _atom(self) -> _Node:
        char = self._peek()
        if char in "*+?":
            raise self._refusal("a repetition of nothing")
        self._at += 1
        match char:
            case "(":
                return self._group()
            case "[":
                return self._set()
            case "\\":
                return self._escape()
            case "^":
                return _Assert("start")
            case "$":
                return _Assert("end")
            case ".":
                return _Char(".")
            case _:
                return _Char(re.escape(char), char)

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._refusal(f"more than {_MAX_DEPTH} groups within each other")
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise self._refusal("a group of a kind that cannot be searched for")
        node = self._choice()
        if self._peek() != ")":
            raise self._refusal("a '(' without its ')'")
        self._at += 1
        self._depth -= 1
        return node

    def _escape(self) -> _Node:
        char = self._peek()
        self._at += 1
        if not char or (char.isalnum() and char not in "bBtnrfvdDwWsS"):
            raise self._refusal("an escape that is not known")
        if char in "bB":
            return _Assert("word" if char == "b" else "inside")
        if char in _ESCAPE_CLASSES:
            return _Char(f"\\{char}")
        literal = _CONTROLS.get(char, char)
        return _Char(re.escape(literal), literal)

    def _set(self) -> _Node:
        """A set of characters, with everything escaped that `re` could take for more than a character."""
        source = "["
        if self._peek() == "^":
            source, self._at = "[^", self._at + 1
        first = self._at
        while (char := self._peek()) != "]" or self._at == first:
            self._at += 1
            if not char:
                raise self._refusal("a '[' without its ']'")
            if char == "\\":
                escaped = self._peek()
                if not escaped or (escaped.isalnum() and escaped not in "tnrfvdDwWsS"):
                    raise self._refusal("an escape that is not known")
                source += f"\\{escaped}"
                self._at += 1
            else:
                source += char if char.isalnum() or (char == "-" and not source.endswith("-")) else re.escape(char)
        self._at += 1
        try:
            re.compile(f"{source}]")
        except re.error:
            raise self._refusal("a set of characters that cannot be read") from None
        return _Char(f"{source}]")


class _State(Struct):
    """A state of the automaton: the nodes that are reached, and what came before."""

    nodes: frozenset[int]
    before: str
    """The class of the character before: `start`, `word` or `other`."""
    following: dict[str, _State] = field(default_factory=dict)


_MATCHED = _State(frozenset(), "matched")
_END = ""
"""The end of a line, as a symbol."""


class LinePattern:
    """A text or a regular expression that lines are searched for."""

    def __init__(self, pattern: str, *, regex: bool = False, case: bool = False) -> None:
        """Without `regex` the pattern is a text as it is. Raises `InputError` for a pattern that is not known."""
        if not pattern or len(pattern) > MAX_PATTERN_CHARS:
            raise InputError(f"a pattern has 1 to {MAX_PATTERN_CHARS} characters")
        self.is_regex = regex
        self._case = case
        self._literal = "" if regex else self._folded(pattern)
        self.needle = self._literal
        """A text that every matching line contains, folded like the pattern; empty if there is none."""
        if regex:
            self._compile(_Parser(pattern).parse())

    def search(self, line: str) -> int | None:
        """Where the first match ends, nearly; None if the line does not match."""
        folded = self._folded(line) if self.needle else line
        if self.needle not in folded:
            return None
        if self._literal:
            return min(folded.find(self._literal) + len(self._literal), len(line))
        return self._run(line)

    def may_match(self, text: str) -> bool:
        """Whether one of the lines of a text may match; tells at once where most of them cannot."""
        if self.needle:
            return self.needle in self._folded(text)
        return self._opening is None or self._opening.search(text) is not None

    def _run(self, line: str) -> int | None:
        state, at = self._start, 0
        while True:
            if self._opening is not None:  # nothing is begun: go to the next character that can begin a match
                opening = self._opening.search(line, at)
                if opening is None:
                    return None
                if opening.start() > at:
                    at = opening.start()
                    state = self._state(frozenset(), "word" if _is_word(line[at - 1]) else "other")
            for place in range(at, len(line)):
                char = line[place]
                state = state.following.get(char) or self._step(state, char)
                if state is _MATCHED:
                    return place
                if self._opening is not None and not state.nodes:
                    at = place + 1
                    break
            else:
                end = state.following.get(_END) or self._step(state, _END)
                return len(line) if end is _MATCHED else None

    def _folded(self, text: str) -> str:
        return text if self._case else text.casefold()

    def _compile(self, root: _Node) -> None:
        self._tests: list[tuple[Callable[[str], object] | None, _Assertion | None, list[int]]] = []
        self._sources: dict[int, str] = {}
        self._flags = re.DOTALL if self._case else re.DOTALL | re.IGNORECASE
        self._states: dict[tuple[frozenset[int], str], _State] = {}
        accept = self._add(None, None, [])
        self._first = self._emit(root, accept)
        self._accept = accept
        self._start = _State(frozenset(), "start")
        self._cached = 0
        self.needle = self._folded(max(_required(root), key=len, default=""))
        self._opening = self._first_characters()

    def _first_characters(self) -> re.Pattern[str] | None:
        """The characters that a match can begin with; None if it can be empty."""
        reached, pending = set[int](), [self._first]
        while pending:
            node = pending.pop()
            if node not in reached:
                reached.add(node)
                pending += self._tests[node][2] if self._tests[node][0] is None else ()
        if self._accept in reached:
            return None
        sources = sorted({source for node in reached if (source := self._sources.get(node))})
        return re.compile("|".join(sources), self._flags)

    def _add(self, test: Callable[[str], object] | None, assertion: _Assertion | None, out: list[int]) -> int:
        if len(self._tests) >= _MAX_NODES:
            raise InputError("the pattern is too large: repeat less, or search for a part of it")
        self._tests.append((test, assertion, out))
        return len(self._tests) - 1

    def _emit(self, node: _Node, out: int) -> int:
        """Add the nodes of a part of the pattern that leads to `out`; returns where it begins."""
        match node:
            case _Char():
                added = self._add(re.compile(node.source, self._flags).fullmatch, None, [out])
                self._sources[added] = node.source
                return added
            case _Assert():
                return self._add(None, node.kind, [out])
            case _Sequence():
                for item in reversed(node.items):
                    out = self._emit(item, out)
                return out
            case _Choice():
                return self._add(None, None, [self._emit(option, out) for option in node.options])
            case _Repeat():
                return self._emit_repeat(node, out)

    def _emit_repeat(self, node: _Repeat, out: int) -> int:
        if node.most is None:
            loop: list[int] = [out]
            out = self._add(None, None, loop)
            loop.append(self._emit(node.item, out))
        else:
            end = out
            for _ in range(node.most - node.least):
                out = self._add(None, None, [end, self._emit(node.item, out)])
        for _ in range(node.least):
            out = self._emit(node.item, out)
        return out

    def _step(self, state: _State, char: str) -> _State:
        """The state after one more character, or after the end of the line."""
        kind = "end" if char == _END else "word" if _is_word(char) else "other"
        reached = self._closure(state, kind)
        if self._accept in reached:
            following = _MATCHED
        else:
            nodes: list[int] = []
            for node in reached:
                test, _, out = self._tests[node]
                if char != _END and test is not None and test(char):
                    nodes += out
            following = self._state(frozenset(nodes), kind)
        self._cached += 1
        if self._cached > _MAX_CACHED:  # hostile text has many characters: begin with no memory again
            self._cached = 0
            self._states.clear()
            self._start.following.clear()
            return _State(following.nodes, following.before) if following is not _MATCHED else following
        state.following[char] = following
        return following

    def _state(self, nodes: frozenset[int], before: str) -> _State:
        key = nodes, before
        return self._states.get(key) or self._states.setdefault(key, _State(nodes, before))

    def _closure(self, state: _State, following: str) -> set[int]:
        """The nodes that are reached without a character. A match may begin anywhere."""
        reached: set[int] = set()
        pending = [*state.nodes, self._first]
        while pending:
            node = pending.pop()
            if node in reached:
                continue
            reached.add(node)
            test, assertion, out = self._tests[node]
            if test is None and (assertion is None or _holds(assertion, state.before, following)):
                pending += out
        return reached


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _holds(assertion: _Assertion, before: str, following: str) -> bool:
    match assertion:
        case "start":
            return before == "start"
        case "end":
            return following == "end"
        case "word":
            return (before == "word") != (following == "word")
        case "inside":
            return (before == "word") == (following == "word")


def _required(node: _Node) -> list[str]:
    """Texts of ASCII letters that every match contains."""
    found: list[str] = []
    run = ""
    for item in node.items if isinstance(node, _Sequence) else (node,):
        if isinstance(item, _Char) and item.literal.isascii() and item.literal:
            run += item.literal
            continue
        found.append(run)
        run = ""
        if isinstance(item, _Repeat) and item.least:
            found += _required(item.item)
        elif isinstance(item, _Sequence):
            found += _required(item)
    return [*found, run]


def byte_filter(text: str) -> Callable[[bytes], bool]:
    """A test whether the JSON of a message may contain a text, whatever the case and however JSON escapes it."""
    words = [word.encode() for word in dict.fromkeys(_PLAIN_BYTES.findall(text.lower()))]

    def may_contain(content: bytes) -> bool:
        lowered = content.lower()
        return all(map(lowered.__contains__, words)) or b"\\u00" in lowered

    return may_contain
