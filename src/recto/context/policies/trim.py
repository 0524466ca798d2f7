"""Old tool results shrink; their calls, and everything that was said, stay as they are.

A result becomes a placeholder that says what it was and where it can be read, or keeps its head and tail. What is
written depends on the result alone, so that the same result always shrinks to the same text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from recto.context.window.plan import Plan, PolicyView, Shrink, ToolResult
from recto.context.window.units import Line, Unit
from recto.formats.recto_tools import is_own_tool
from recto.text.truncation import head_and_tail

Style: TypeAlias = Literal["placeholder", "head_tail"]

_LOOKED_AT = 4_000
"""Characters of an output in which its first finding is looked for."""
_TOOL = 64
_ARGUMENTS = 32
_FINDING = 28
"""Characters of the tool, its arguments and the finding that a placeholder quotes: a few tokens each."""

_SPACE = re.compile(r"\s+")
_NUMBERED = re.compile(r"^\s*\d+[→\t:|-]\s*")
_KEY = re.compile(r'"\w+"\s*:\s*')
_JSON_SIGNS = str.maketrans("", "", '{}"\\')


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimResults:
    """Tool results shrink, oldest first, until enough is free."""

    keep_newest: int = 3
    """So many results, the newest of the whole prompt, stay whole."""
    exclude_tools: tuple[str, ...] = ()
    """Tools whose results stay whole. Those of Recto's own always do: they were cut to measure when they were made."""
    clear_at_least: int = 0
    """Frees so many tokens or does nothing: an edit costs the provider's cache, whatever its size."""
    placeholder: str = ""
    """What a placeholder says; `{pointer}` in it, or behind it, is where the result can be read. Empty: what it was."""
    style: Style = "placeholder"
    """What is left of a result: a `placeholder`, or its `head_tail`."""
    head_tokens: int = 200
    """Tokens of the head, where head and tail are kept."""
    tail_tokens: int = 200
    """Tokens of the tail."""
    min_tokens: int = 100
    """A message that costs less than this stays whole: there is nothing to gain."""

    def __post_init__(self) -> None:
        for name in ("keep_newest", "clear_at_least", "head_tokens", "tail_tokens", "min_tokens"):
            if getattr(self, name) < 0:
                raise ValueError(f"trim.{name} must not be below zero")
        if self.style not in ("placeholder", "head_tail"):
            raise ValueError("trim.style must be placeholder or head_tail")
        if self.style == "head_tail" and self.head_tokens + self.tail_tokens == 0:
            raise ValueError("trim.head_tokens and trim.tail_tokens must not both be zero")

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        return "trim"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Frees `need` tokens, and at least `clear_at_least`, or as much as the old results hold."""
        if need <= 0:
            return Plan(policy=self.name)
        goal = max(need, self.clear_at_least)
        shrinks: list[Shrink] = []
        frees = 0
        for line in self.candidates(view):
            if frees >= goal:
                break
            text = self._text(view, line)
            tokens = view.cost_with(line.seq, text)
            if tokens < view.tokens[line.seq]:
                shrinks.append(Shrink(seq=line.seq, text=text, tokens=tokens))
                frees += view.tokens[line.seq] - tokens
        if not shrinks or frees < self.clear_at_least:
            return Plan(policy=self.name)
        reason = f"oldest tool results first: {len(shrinks)} of entries {shrinks[0].seq} to {shrinks[-1].seq}"
        return Plan(policy=self.name, shrinks=tuple(shrinks), frees=frees, reason=reason)

    def candidates(self, view: PolicyView) -> list[Line]:
        """Results that may shrink, oldest first."""
        results = [line.seq for unit in (*view.eligible, *view.protected) for line in unit.lines if _is_result(line)]
        newest = set(sorted(results)[max(0, len(results) - self.keep_newest) :])
        spared = newest | view.shrunk
        old = [
            line
            for unit in view.eligible
            for line in unit.lines
            if _is_result(line)
            and line.seq not in spared
            and not line.marked
            and view.tokens[line.seq] >= self.min_tokens
            and not self._stays_whole(unit, line)
        ]
        return sorted(old, key=lambda line: line.seq)

    def _stays_whole(self, unit: Unit, result: Line) -> bool:
        """Whether it stays as it is, by its tool: a result names its call, and the call, in the same unit, its tool."""
        called = {call: tool for line in unit.lines for call, tool in zip(line.calls, line.tools, strict=False)}
        tools = {*result.tools, *(called.get(call, "") for call in result.answers)}
        return not tools.isdisjoint(self.exclude_tools) or any(map(is_own_tool, tools))

    def _text(self, view: PolicyView, line: Line) -> str:
        result = view.result_of(line.seq)
        size, pointer = view.tokens[line.seq], view.pointer_of(line.seq)
        if self.style == "placeholder" and self.placeholder:
            named = "{pointer}" in self.placeholder
            return self.placeholder.replace("{pointer}", pointer) if named else f"{self.placeholder} {pointer}"
        if self.style == "placeholder":
            return placeholder(result, size, pointer)
        whole = view.count(result.output)
        return head_and_tail(result.output, self.head_tokens, self.tail_tokens, view.count, pointer, whole)


def placeholder(result: ToolResult, size: int, pointer: str) -> str:
    """One line that says what a result was: tool, arguments, first finding, size, turn, and where it is whole."""
    called = f"{_one_line(result.tool, _TOOL)} {_shortened(result.arguments)}".strip() or "tool"
    found = _first_finding(result.output)
    began = f'"{found}"' if found else "no text"
    when = f", turn {result.turn}" if result.turn else ""
    return f"[{called}: {began}, {size} tokens{when}: {pointer}]"


def _is_result(line: Line) -> bool:
    return line.role == "tool" and bool(line.answers)


def _shortened(arguments: str) -> str:
    """The values alone, and where they are long their ends: a path says most at its end, a command at both."""
    if len(arguments) > 1_000:
        arguments = f"{arguments[:500]}…{arguments[-500:]}"
    plain = _one_line(_KEY.sub("", arguments).translate(_JSON_SIGNS), len(arguments))
    if len(plain) <= _ARGUMENTS:
        return plain
    head = _ARGUMENTS // 3
    return f"{plain[:head]}…{plain[head + 1 - _ARGUMENTS :]}"


def _first_finding(output: str) -> str:
    """The first line with a word in it, without the number that some tools put before lines."""
    fallback = ""
    for line in output[:_LOOKED_AT].splitlines():
        plain = _NUMBERED.sub("", line).strip()
        fallback = fallback or plain
        if sum(map(str.isalnum, plain[:200])) >= 3 and not (plain.startswith("<") and plain.endswith(">")):
            return _one_line(plain, _FINDING)
    return _one_line(fallback, _FINDING)


def _one_line(text: str, most: int) -> str:
    plain = "".join(character for character in _SPACE.sub(" ", text[: 4 * most]) if character.isprintable()).strip()
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"
