"""Policies that shorten messages and leave them in the prompt: old tool results, and the thinking of older turns.

A result becomes a placeholder that says what it was and where it can be read, is cut to head and tail, or is replaced
by a summary. The text of a trimmed result depends on the result alone, so the same result is always trimmed to the same
text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Literal, TypeAlias

from msgspec import Struct, field

from recto.context.compaction.tool_output import digest_result
from recto.context.facts.tool_use import parse_arguments, result_line
from recto.context.facts.types import MessageView, ToolCall, shortened_output
from recto.context.window.units import (
    ClearedThinking,
    Plan,
    PolicyView,
    ShortenedResult,
    TextRequest,
    ToolResult,
    Unit,
    WindowMessage,
)
from recto.formats.tools import is_own_tool
from recto.text.lazy_re import lazy_re
from recto.text.truncation import head_and_tail

TrimStyle: TypeAlias = Literal["placeholder", "head_tail"]

_FINDING_SEARCH_CHARS = 4_000
"""Characters of an output searched for its first finding."""
_MAX_TOOL_CHARS = 64
_MAX_ARGUMENT_CHARS = 32
_MAX_FINDING_CHARS = 28
"""Characters of tool, arguments and finding quoted in a placeholder: a few tokens each."""
_MAX_RESULT_CHARS = 48
"""The same for a line that says how the call ended: what was wrong is often at its end."""

_SPACE = lazy_re(r"\s+")
_LINE_NUMBER = lazy_re(r"^\s*\d+[→\t:|-]\s*")
_RULE = lazy_re(r"^[=*#~_-]{2,}\s+|\s{1,8}[=*#~_-]{2,}$")
"""The ends of a line that is drawn as a rule, such as the titles and totals of a test runner."""
_NOTICE = lazy_re(r"\A\s*(?:<returncode>[^<]{0,20}</returncode>\s*)?<warning>.{0,2000}?</warning>", re.DOTALL)
"""What a harness says about an output that it cut."""
_JSON_SIGNS = str.maketrans("", "", '{}"\\')


class TrimResults(Struct, frozen=True, kw_only=True):
    """Trim tool results, oldest first, until enough is free."""

    keep_newest: int = 3
    """Number of newest results in the prompt that are not trimmed."""
    exclude_tools: tuple[str, ...] = ()
    """Tools whose results are not trimmed. Recto's own never are: they were sized when they were created."""
    clear_at_least: int = 0
    """Free at least this many tokens or do nothing: any edit invalidates the provider's cache."""
    placeholder: str = ""
    """Placeholder text; the pointer replaces `{pointer}` in it or is appended. Empty: a description of the result."""
    style: TrimStyle = "placeholder"
    """What a result becomes: a `placeholder`, or its `head_tail`."""
    head_tokens: int = 200
    """Tokens of the head, for `head_tail`."""
    tail_tokens: int = 200
    """Tokens of the tail."""
    min_tokens: int = 100
    """A message that costs less than this is not trimmed: there is nothing to gain."""
    keep_share: float = 0.0
    """Share of the input budget that the newest messages may fill before their results are trimmed. Results among
    recent messages that are older than that are trimmed too, though the messages stay in the prompt. 0: results of
    recent messages are never trimmed."""

    def __post_init__(self) -> None:
        for name in ("keep_newest", "clear_at_least", "head_tokens", "tail_tokens", "min_tokens"):
            if getattr(self, name) < 0:
                raise ValueError(f"trim.{name} must not be below zero")
        if not 0 <= self.keep_share < 1:
            raise ValueError("trim.keep_share is a share between 0 and 1")
        if self.style not in ("placeholder", "head_tail"):
            raise ValueError("trim.style must be placeholder or head_tail")
        if self.style == "head_tail" and self.head_tokens + self.tail_tokens == 0:
            raise ValueError("trim.head_tokens and trim.tail_tokens must not both be zero")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "trim"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Free `need` tokens, and at least `clear_at_least`, or as many as the old results contain."""
        if need <= 0:
            return Plan(policy=self.name)
        goal = max(need, self.clear_at_least)
        trimmed: list[ShortenedResult] = []
        frees = 0
        for message in self.candidates(view):
            if frees >= goal:
                break
            text = self._text(view, message)
            tokens = view.cost_with(message.seq, text)
            if tokens < view.tokens[message.seq]:
                trimmed.append(ShortenedResult(seq=message.seq, text=text, tokens=tokens))
                frees += view.tokens[message.seq] - tokens
        if not trimmed or frees < self.clear_at_least:
            return Plan(policy=self.name)
        reason = f"oldest tool results first: {len(trimmed)} of entries {trimmed[0].seq} to {trimmed[-1].seq}"
        return Plan(policy=self.name, shortens=tuple(trimmed), frees=frees, reason=reason)

    def candidates(self, view: PolicyView) -> list[WindowMessage]:
        """Results that may be trimmed, oldest first."""
        results = [
            message.seq for unit in (*view.eligible, *view.protected) for message in unit.messages if message.has_result
        ]
        newest = set(sorted(results)[max(0, len(results) - self.keep_newest) :]) | self._kept_whole(view)
        excluded = newest | view.shortened
        old = [
            message
            for unit in (*view.eligible, *(view.recent if self.keep_share else ()))
            for message in unit.messages
            if message.has_result
            and message.seq not in excluded
            and not message.marked
            and view.tokens[message.seq] >= self.min_tokens
            and not self.is_excluded(unit, message)
        ]
        return sorted(old, key=lambda message: message.seq)

    def _kept_whole(self, view: PolicyView) -> set[int]:
        """The newest messages that together fill the share of the input budget that stays whole."""
        left = int(self.keep_share * view.input_budget)
        kept: set[int] = set()
        for seq in sorted(view.tokens, reverse=True) if left else ():
            left -= view.tokens[seq]
            if left < 0:
                break
            kept.add(seq)
        return kept

    def is_excluded(self, unit: Unit, result: WindowMessage) -> bool:
        """Whether a result is excluded by its tool: the result names its call, and the call in the same unit its
        tool."""
        tool_of_call = {
            call: tool for message in unit.messages for call, tool in zip(message.calls, message.tools, strict=False)
        }
        tools = {*result.tools, *(tool_of_call.get(call, "") for call in result.answers)}
        return not tools.isdisjoint(self.exclude_tools) or any(map(is_own_tool, tools))

    def _text(self, view: PolicyView, message: WindowMessage) -> str:
        result = view.result_of(message.seq)
        size, pointer = view.tokens[message.seq], view.pointer_of(message.seq)
        if self.style == "placeholder" and self.placeholder:
            has_pointer = "{pointer}" in self.placeholder
            return self.placeholder.replace("{pointer}", pointer) if has_pointer else f"{self.placeholder} {pointer}"
        if self.style == "placeholder":
            return shortened_output(result.output, placeholder(result, size, pointer))
        total = view.count(result.output)
        return head_and_tail(result.output, self.head_tokens, self.tail_tokens, view.count, pointer, total)


def placeholder(result: ToolResult, size: int, pointer: str) -> str:
    """One line that describes a result: tool, arguments, main finding, size, turn and pointer."""
    called = f"{_one_line(result.tool, _MAX_TOOL_CHARS)} {_shorten_arguments(result.arguments)}".strip() or "tool"
    finding = _finding(result)
    quoted = f'"{finding}"' if finding else "no text"
    when = f", turn {result.turn}" if result.turn else ""
    return f"[{called}: {quoted}, {size} tokens{when}: {pointer}]"


def _shorten_arguments(arguments: str) -> str:
    """The values alone, shortened in the middle: a path says most at its end, a command at both."""
    values = _argument_values(arguments)
    if len(values) > 1_000:
        values = f"{values[:500]}…{values[-500:]}"
    plain = _one_line(values, len(values))
    if len(plain) <= _MAX_ARGUMENT_CHARS:
        return plain
    head = _MAX_ARGUMENT_CHARS // 3
    return f"{plain[:head]}…{plain[head + 1 - _MAX_ARGUMENT_CHARS :]}"


def _argument_values(arguments: str) -> str:
    """The values without flags, and without texts of several lines if others say what the call is about."""
    values = [
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False).translate(_JSON_SIGNS)
        for value in parse_arguments(ToolCall("", arguments)).values()
        if not isinstance(value, bool) and value not in (None, "")
    ]
    short = [value for value in values if "\n" not in value.strip()]
    return ", ".join(short or values) if values else arguments.replace("\\n", " ").translate(_JSON_SIGNS)


def _finding(result: ToolResult) -> str:
    """How the call ended, if a line of its output says so; else the first line of the output with a word in it."""
    called = ToolCall(result.tool, result.arguments)
    failed = (True,) if result.failed else ()
    line = result_line(MessageView(seq=0, role="tool", text=result.output, calls=(called,), failed=failed))
    return _one_line(_RULE.sub("", line.strip()), _MAX_RESULT_CHARS) if line else _first_finding(result.output)


def _first_finding(output: str) -> str:
    """The first line with a word in it, without the line number that some tools prepend."""
    fallback = ""
    for line in _NOTICE.sub("", output[:_FINDING_SEARCH_CHARS]).splitlines():
        plain = _RULE.sub("", _LINE_NUMBER.sub("", line).strip())
        fallback = fallback or plain
        if sum(map(str.isalnum, plain[:200])) >= 3 and not (plain.startswith("<") and plain.endswith(">")):
            return _one_line(plain, _MAX_FINDING_CHARS)
    return _one_line(fallback, _MAX_FINDING_CHARS)


def _one_line(text: str, max_chars: int) -> str:
    plain = "".join(
        character for character in _SPACE.sub(" ", text[: 4 * max_chars]) if character.isprintable()
    ).strip()
    return plain if len(plain) <= max_chars else f"{plain[: max_chars - 1]}…"


ON_ARRIVAL = "on_arrival"
"""The policy's name in decisions about results that have just arrived."""


class SummarizeResults(Struct, frozen=True, kw_only=True):
    """Shorten results above a size to a share of it, oldest first, until enough is free."""

    above: int = 500
    """Tokens above which a result is summarized."""
    share: float = 0.2
    """Share of the result's tokens that a summary may have."""
    most: int = 400
    """Maximum tokens of one summary."""
    chosen: TrimResults = field(default_factory=TrimResults)
    """Selects the results that may be shortened."""

    def __post_init__(self) -> None:
        if self.above < 1 or not 0 < self.share < 1 or self.most < 1:
            raise ValueError("compress: result_tokens must be at least 1, result_share between 0 and 1")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "summarise_results"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Free `need` tokens, or as many as the old results contain."""
        shortened: list[ShortenedResult] = []
        frees = 0
        for message in self.chosen.candidates(view):
            if frees >= max(need, self.chosen.clear_at_least):
                break
            size = view.tokens[message.seq]
            if size <= self.above:
                continue
            text = self.text(view, message.seq)
            tokens = view.cost_with(message.seq, text)
            if tokens < size / 2:
                shortened.append(ShortenedResult(seq=message.seq, text=text, tokens=tokens))
                frees += size - tokens
        if need <= 0 or not shortened or frees < self.chosen.clear_at_least:
            return Plan(policy=self.name)
        reason = (
            f"long tool results, oldest first: {len(shortened)} of entries {shortened[0].seq} to {shortened[-1].seq}"
        )
        request = TextRequest(style="results", max_tokens=self.most)
        return Plan(policy=self.name, shortens=tuple(shortened), frees=frees, reason=reason, writes=request)

    def plan_arrivals(self, view: PolicyView, arrived: Collection[int]) -> Plan:
        """Shorten results that the model has not seen yet, if they are above the size.

        By rule alone, so that no turn waits for a model. Pinned and marked results and those of excluded tools stay
        whole, as do pictures and whatever else a text cannot replace.
        """
        results = [
            (unit, message)
            for unit in (*view.eligible, *view.recent, *view.protected)
            for message in unit.messages
            if message.seq in arrived and message.has_result and view.tokens[message.seq] > self.above
        ]
        shortened: list[ShortenedResult] = []
        for unit, message in results:
            if message.marked or message.seq in view.shortened or self.chosen.is_excluded(unit, message):
                continue
            text = self.text(view, message.seq)
            tokens = view.cost_with(message.seq, text)
            if tokens < view.tokens[message.seq] / 2:
                shortened.append(ShortenedResult(seq=message.seq, text=text, tokens=tokens))
        frees = sum(view.tokens[result.seq] - result.tokens for result in shortened)
        reason = f"tool results above {self.above:,} tokens are summarised on arrival"
        return Plan(policy=ON_ARRIVAL, shortens=tuple(shortened), frees=frees, reason=reason)

    def text(self, view: PolicyView, seq: int) -> str:
        """The text shown in place of a result: its most informative lines and its pointer."""
        result, size, pointer = view.result_of(seq), view.tokens[seq], view.pointer_of(seq)
        available = int(size * self.share) - view.count(frame_summary("", size, pointer)) - _ENVELOPE_TOKENS
        return frame_summary(
            digest_result(result, max(min(available, self.most), _MIN_SUMMARY_TOKENS), view.count), size, pointer
        )


_MIN_SUMMARY_TOKENS = 24
"""Tokens of the shortest useful summary."""
_ENVELOPE_TOKENS = 12
"""Tokens of a message around its text."""


def frame_summary(text: str, size: int, pointer: str) -> str:
    """Append the line that marks a text as a shortened result."""
    return f"{text}\n[Shortened from {size} tokens; the whole is {pointer}]"


class ClearThinking(Struct, frozen=True, kw_only=True):
    """Clear thinking that is older than some user turns, all of it at once.

    It runs first in a relief and never by itself: clearing turn by turn would rewrite the provider's cache at every
    turn, while a relief rewrites it anyway. Between two reliefs thinking stays, and costs what cached tokens cost.
    """

    turns: int = 2
    """User turns whose thinking stays, the current one included."""

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise ValueError("window.thinking_turns must be at least 1 to clear any thinking")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "clear_thinking"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Clear all thinking that may be cleared, whatever `need` is, unless nothing is needed."""
        found = view.thinking(self.turns) if need > 0 else {}
        clears = tuple(
            ClearedThinking(seq=seq, tokens=tokens)
            for seq, tokens in sorted(found.items())
            if tokens < view.tokens.get(seq, 0)
        )
        if not clears:
            return Plan(policy=self.name)
        frees = sum(view.tokens[cleared.seq] - cleared.tokens for cleared in clears)
        reason = (
            f"thinking older than {self.turns} turns: {len(clears)} messages of entries {clears[0].seq} "
            f"to {clears[-1].seq}"
        )
        return Plan(policy=self.name, clears=clears, frees=frees, reason=reason)
