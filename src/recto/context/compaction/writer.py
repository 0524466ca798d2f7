"""Who writes what stands in place of messages: a model where there is one, and it is checked; else extraction.

A model that fails, is late, or writes what cannot be used costs an attempt and nothing else: the extractive engine
needs no model and always has an answer. After some failures in a row the model is left alone for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from threading import Event
from typing import Any

from recto.context.compaction.extractive import extract
from recto.context.compaction.layout import CountText, bullet
from recto.context.compaction.output_checks import is_heading, why_unusable, without_commands
from recto.context.compaction.prompts import SECTIONS, compaction_request, result_request
from recto.context.compaction.protocols import ChatModel, ModelReply, ModelRequest
from recto.context.compaction.tool_output import digest
from recto.context.facts.grounding import Evidence, remove_ungrounded
from recto.context.facts.types import MessageView
from recto.context.window.plan import ToolResult
from recto.errors import ModelFailed, RectoError
from recto.text.secrets import mask_secrets

EXTRACTIVE = "extractive"
"""The engine that needs no model."""
_FAILURES = 3
_PAUSE = 600.0
"""After so many failures in a row the model is left alone for so many seconds."""
_RESULT_SHOWN = 400
"""Tokens of one tool result that a model is shown of a conversation."""
_LEAST_KEPT = 0.5
"""The share of what a model wrote that has to hold, or none of it is taken."""
_ANSWER_SHARE = 16
"""What part of its window a model may fill with one answer: a small one does not write long texts well."""
_SEQ = 99_999
"""An entry's number, for what it costs to name one."""
_FRAME = 700
"""Tokens of instructions around what a model is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try to have something written."""

    engine: str
    outcome: str
    """`used`, or why not."""
    seconds: float = 0.0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    picodollars: int = 0

    def to_json(self) -> dict[str, Any]:
        """As a decision records it."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSummary:
    """A text, and how it came about."""

    lines: tuple[str, ...]
    engine: str
    attempts: tuple[Attempt, ...]
    claims: int = 0
    invented: tuple[str, ...] = ()
    """What a model wrote that is not in its sources; it was taken out."""
    commands: int = 0
    """Lines that spoke to a model; they were taken out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingRules:
    """What writing may cost."""

    seconds: float = 60.0
    """How long a model may take for one text."""
    input_tokens: int = 24_000
    """What a model is shown at most; of more, the most telling sentences."""
    calls: int = 4
    """How many tool results a model shortens for one decision; the others are extracted."""


class SummaryWriter:
    """Writes shorter texts."""

    def __init__(
        self,
        model: Callable[[], ChatModel | None],
        rules: WritingRules,
        count: CountText,
        bill: Callable[[int, int], int] = lambda _prompt, _answer: 0,
    ) -> None:
        self.rules = rules
        self._opened = model
        self._model: ChatModel | None = None
        self._is_open = False
        self._count = count
        self._bill = bill
        self._failures = 0
        self._paused_until = 0.0
        self._cancelled = Event()

    def close(self) -> None:
        """Ends what is under way and lets go of the model."""
        self._cancelled.set()
        if self._model is not None:
            self._model.close()

    @property
    def has_model(self) -> bool:
        """Whether there is a model to ask now."""
        return self._chat() is not None and time.monotonic() >= self._paused_until

    def narrative(self, told: Sequence[MessageView], *, goal: str, focus: str, tokens: int) -> WrittenSummary:
        """What happened in these messages, as lines, in about so many tokens."""
        attempts: list[Attempt] = []
        if self.has_model and tokens >= _LEAST_ASKED:
            found = self._by_model(told, goal, focus, tokens, attempts)
            if found is not None:
                return found
        # Each sentence costs what its line will: the number of its entry comes with it.
        picked = extract(
            told, goal=goal, focus=focus, tokens=tokens, count=lambda text: self._count(bullet(text, _SEQ))
        )
        lines = tuple(bullet(one.text, one.seq) for one in picked)
        attempts.append(Attempt(engine=EXTRACTIVE, outcome="used"))
        return WrittenSummary(lines=lines, engine=EXTRACTIVE, attempts=tuple(attempts))

    def result(self, result: ToolResult, *, goal: str, most: int) -> WrittenSummary | None:
        """A shorter version of one tool result, by the model; None where it gave none that can be used."""
        if not self.has_model:
            return None
        shown = digest(result, self._shown_at_most(most), self._count)
        request = result_request(shown, tool=result.tool, goal=goal, max_tokens=most, seconds=self.rules.seconds)
        attempts: list[Attempt] = []
        sources = [result.output, result.arguments, goal]
        found = self._ask(request, sources, self._count(result.output), attempts)
        return None if found is None else replace(found, attempts=tuple(attempts))

    def _by_model(
        self, told: Sequence[MessageView], goal: str, focus: str, tokens: int, attempts: list[Attempt]
    ) -> WrittenSummary | None:
        model = self._chat()
        tokens = min(tokens, model.window // _ANSWER_SHARE) if model and model.window else tokens
        shown = self._shown(told, goal, focus, self._shown_at_most(tokens))
        request = compaction_request(shown, goal=goal, focus=focus, max_tokens=tokens, seconds=self.rules.seconds)
        found = self._ask(request, sources_of(told, goal), self._count(request.text), attempts)
        return None if found is None else replace(found, attempts=tuple(attempts))

    def _ask(
        self, request: ModelRequest, sources: Sequence[str], given: int, attempts: list[Attempt]
    ) -> WrittenSummary | None:
        """What the model wrote, checked; None where it cannot be used, and the attempt says why."""
        model = self._chat()
        assert model is not None  # noqa: S101  # asked only where there is one
        began = time.monotonic()
        reply, why = ModelReply(text="", ending="unknown"), ""
        try:
            reply = model.complete(request, self._cancelled)
        except ModelFailed as error:
            why = f"failed: {error.detail}"
        except RectoError as error:
            why = f"failed: {error}"
        except Exception as error:  # noqa: BLE001  # a model is not ours: it may raise what it likes
            why = f"failed: it broke ({type(error).__name__})"
        found: WrittenSummary | None = None
        if not why:
            found, why = self._taken(reply.text, request, sources, given)
        self._failures = 0 if found is not None else self._failures + 1
        if self._failures >= _FAILURES:
            self._failures, self._paused_until = 0, time.monotonic() + _PAUSE
        attempts.append(
            Attempt(
                engine=model.name,
                outcome=mask_secrets(why)[:300] or "used",
                seconds=time.monotonic() - began,
                prompt_tokens=reply.prompt_tokens,
                answer_tokens=reply.answer_tokens,
                picodollars=self._bill(reply.prompt_tokens, reply.answer_tokens),
            )
        )
        return None if found is None else replace(found, engine=model.name)

    def _taken(
        self, text: str, request: ModelRequest, sources: Sequence[str], given: int
    ) -> tuple[WrittenSummary | None, str]:
        why = why_unusable(
            text,
            asked=f"{request.system}\n{request.text}",
            source=sources,
            most=request.max_tokens,
            tokens=self._count(text),
            given=given,
        )
        if why:
            return None, f"rejected: {why}"
        found = held(text, sources)
        if len(found.lines) < _LEAST_KEPT * len(_lines(text)) or not found.lines:
            return None, f"rejected: {len(found.invented)} of its {found.claims} claims are not in its sources"
        return found, ""

    def _shown(self, told: Sequence[MessageView], goal: str, focus: str, room: int) -> list[MessageView]:
        """What the model is shown: all of it where there is room, else the sentences that tell most."""
        short = [
            replace(one, text=digest(_result(one), _RESULT_SHOWN, self._count)) if one.role == "tool" else one
            for one in told
        ]
        if sum(self._count(one.text) + 8 for one in short) <= room:
            return short
        texts: dict[int, list[str]] = {}
        for picked in extract(told, goal=goal, focus=focus, tokens=room * 3 // 4, count=self._count):
            texts.setdefault(picked.seq, []).append(picked.text)
        return [replace(one, text="\n".join(texts[one.seq])) for one in told if one.seq in texts]

    def _shown_at_most(self, answer: int) -> int:
        model = self._chat()
        window = model.window if model is not None else 0
        room = window - answer - _FRAME if window else self.rules.input_tokens
        return max(min(room, self.rules.input_tokens), 200)

    def _chat(self) -> ChatModel | None:
        """The model, opened when it is first needed."""
        if not self._is_open:
            self._model, self._is_open = self._opened(), True
        return self._model


_LEAST_ASKED = 80
"""Tokens below which a model is not asked: a few words are as well extracted."""


def _result(told: MessageView) -> ToolResult:
    call = told.calls[0] if told.calls else None
    return ToolResult(tool=call.tool if call else "", arguments=call.arguments if call else "", output=told.text)


def sources_of(told: Sequence[MessageView], goal: str) -> list[str]:
    """Everything that a text about these messages may take its claims from."""
    return [goal, *(one.text for one in told), *(call.arguments for one in told for call in one.calls)]


def held(text: str, sources: Sequence[str]) -> WrittenSummary:
    """What holds of a text that somebody else wrote: no line that speaks to a model, no claim that its sources lack."""
    plain, commands = without_commands(text)
    kept = remove_ungrounded(plain, Evidence(sources))
    return WrittenSummary(
        lines=_lines(kept.text),
        engine="",
        attempts=(),
        claims=kept.claims,
        invented=tuple(claim.text[:80] for claim in kept.invented),
        commands=commands,
    )


def _lines(text: str) -> tuple[str, ...]:
    """What was written under headings, as single lines that say which heading they stood under."""
    lines: list[str] = []
    under = ""
    for line in text.splitlines():
        if is_heading(line):
            name = line.strip("#*: \t")
            under = f"{name}: " if name in SECTIONS else ""
        elif line.strip():
            lines.append(bullet(under + line.strip().lstrip("-*• \t")))
    return tuple(lines)
