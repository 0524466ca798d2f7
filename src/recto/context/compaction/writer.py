"""Writes summaries: with a model if there is one, whose text is checked; otherwise by extraction.

A model that fails, is late, or writes an unusable text costs one attempt: the extractive engine needs no model and
always succeeds. After several failures in a row the model is not used for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from threading import Event
from typing import Any

from recto.context.compaction._output_checks import is_heading, rejection_reason, strip_instructions
from recto.context.compaction.extractive import extract_sentences
from recto.context.compaction.layout import CountText, bullet
from recto.context.compaction.prompts import SECTIONS, compaction_request, result_request
from recto.context.compaction.protocols import ChatModel, ModelReply, ModelRequest
from recto.context.compaction.tool_output import digest_result
from recto.context.facts.claims import Evidence, remove_ungrounded
from recto.context.facts.types import MessageView
from recto.context.window.plan import ToolResult
from recto.errors import ModelFailed, RectoError
from recto.text.secrets import mask_secrets

EXTRACTIVE = "extractive"
"""The engine that needs no model."""
_MAX_FAILURES = 3
_PAUSE_SECONDS = 600.0
"""After this many failures in a row the model is not used for this many seconds."""
_MAX_RESULT_TOKENS = 400
"""Tokens of each tool result shown to a model."""
_MIN_GROUNDED_SHARE = 0.5
"""Share of a model's text that must be grounded, or all of it is rejected."""
_ANSWER_DIVISOR = 16
"""An answer may use the window divided by this: small models do not write long texts well."""
_TYPICAL_SEQ = 99_999
"""A typical entry number, to estimate the cost of citing one."""
_FRAME_TOKENS = 700
"""Tokens of instructions around the text shown to a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterAttempt:
    """One attempt to write a text."""

    engine: str
    outcome: str
    """`used`, or why not."""
    seconds: float = 0.0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    picodollars: int = 0

    def to_json(self) -> dict[str, Any]:
        """The attempt as recorded in a decision."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSummary:
    """A text, and how it was written."""

    lines: tuple[str, ...]
    engine: str
    attempts: tuple[WriterAttempt, ...]
    claims: int = 0
    invented: tuple[str, ...] = ()
    """Claims of the model that are not in its sources; they were removed."""
    commands: int = 0
    """Number of lines with instructions to a model; they were removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingRules:
    """Limits for writing."""

    seconds: float = 60.0
    """Time limit of a model for one text."""
    input_tokens: int = 24_000
    """Maximum tokens shown to a model; of longer texts, the most informative sentences."""
    calls: int = 4
    """Tool results per decision that a model shortens; the others are extracted."""


class SummaryWriter:
    """Writes shorter texts."""

    def __init__(
        self,
        model: Callable[[], ChatModel | None],
        rules: WritingRules,
        count: CountText,
        price: Callable[[int, int], int] = lambda _prompt, _answer: 0,
    ) -> None:
        self.rules = rules
        self._open_model = model
        self._model: ChatModel | None = None
        self._is_open = False
        self._count = count
        self._price = price
        self._failures = 0
        self._paused_until = 0.0
        self._cancelled = Event()

    def close(self) -> None:
        """Cancel running requests and close the model."""
        self._cancelled.set()
        if self._model is not None:
            self._model.close()

    @property
    def has_model(self) -> bool:
        """Whether a model is available now."""
        return self._chat_model() is not None and time.monotonic() >= self._paused_until

    def write_narrative(self, messages: Sequence[MessageView], *, goal: str, focus: str, tokens: int) -> WrittenSummary:
        """Describe what happened in these messages, as lines, in about `tokens` tokens."""
        attempts: list[WriterAttempt] = []
        if self.has_model and tokens >= _MIN_MODEL_TOKENS:
            written = self._write_with_model(messages, goal, focus, tokens, attempts)
            if written is not None:
                return written
        # Each sentence costs as much as its line, which includes the entry number.
        picked = extract_sentences(
            messages, goal=goal, focus=focus, tokens=tokens, count=lambda text: self._count(bullet(text, _TYPICAL_SEQ))
        )
        lines = tuple(bullet(sentence.text, sentence.seq) for sentence in picked)
        attempts.append(WriterAttempt(engine=EXTRACTIVE, outcome="used"))
        return WrittenSummary(lines=lines, engine=EXTRACTIVE, attempts=tuple(attempts))

    def shorten_result(self, result: ToolResult, *, goal: str, max_tokens: int) -> WrittenSummary | None:
        """A shorter version of one tool result, written by the model; None if it is unusable."""
        if not self.has_model:
            return None
        shown = digest_result(result, self._max_shown_tokens(max_tokens), self._count)
        request = result_request(shown, tool=result.tool, goal=goal, max_tokens=max_tokens, seconds=self.rules.seconds)
        attempts: list[WriterAttempt] = []
        sources = [result.output, result.arguments, goal]
        written = self._request(request, sources, self._count(result.output), attempts)
        return None if written is None else replace(written, attempts=tuple(attempts))

    def _write_with_model(
        self, messages: Sequence[MessageView], goal: str, focus: str, tokens: int, attempts: list[WriterAttempt]
    ) -> WrittenSummary | None:
        model = self._chat_model()
        tokens = min(tokens, model.window // _ANSWER_DIVISOR) if model and model.window else tokens
        shown = self._select_messages(messages, goal, focus, self._max_shown_tokens(tokens))
        request = compaction_request(shown, goal=goal, focus=focus, max_tokens=tokens, seconds=self.rules.seconds)
        written = self._request(request, source_texts(messages, goal), self._count(request.text), attempts)
        return None if written is None else replace(written, attempts=tuple(attempts))

    def _request(
        self, request: ModelRequest, sources: Sequence[str], source_tokens: int, attempts: list[WriterAttempt]
    ) -> WrittenSummary | None:
        """Request a text and check it; None if it is unusable, with the reason in the attempt."""
        model = self._chat_model()
        assert model is not None  # noqa: S101  # called only if there is one
        started = time.monotonic()
        reply, problem = ModelReply(text="", ending="unknown"), ""
        try:
            reply = model.complete(request, self._cancelled)
        except ModelFailed as error:
            problem = f"failed: {error.detail}"
        except RectoError as error:
            problem = f"failed: {error}"
        except Exception as error:  # noqa: BLE001  # a model is third-party code and may raise anything
            problem = f"failed: it broke ({type(error).__name__})"
        written: WrittenSummary | None = None
        if not problem:
            written, problem = self._check(reply.text, request, sources, source_tokens)
        self._failures = 0 if written is not None else self._failures + 1
        if self._failures >= _MAX_FAILURES:
            self._failures, self._paused_until = 0, time.monotonic() + _PAUSE_SECONDS
        attempts.append(
            WriterAttempt(
                engine=model.name,
                outcome=mask_secrets(problem)[:300] or "used",
                seconds=time.monotonic() - started,
                prompt_tokens=reply.prompt_tokens,
                answer_tokens=reply.answer_tokens,
                picodollars=self._price(reply.prompt_tokens, reply.answer_tokens),
            )
        )
        return None if written is None else replace(written, engine=model.name)

    def _check(
        self, text: str, request: ModelRequest, sources: Sequence[str], source_tokens: int
    ) -> tuple[WrittenSummary | None, str]:
        problem = rejection_reason(
            text,
            request=f"{request.system}\n{request.text}",
            source=sources,
            max_tokens=request.max_tokens,
            tokens=self._count(text),
            source_tokens=source_tokens,
        )
        if problem:
            return None, f"rejected: {problem}"
        written = keep_grounded(text, sources)
        if len(written.lines) < _MIN_GROUNDED_SHARE * len(_bullet_lines(text)) or not written.lines:
            return None, f"rejected: {len(written.invented)} of its {written.claims} claims are not in its sources"
        return written, ""

    def _select_messages(
        self, messages: Sequence[MessageView], goal: str, focus: str, available: int
    ) -> list[MessageView]:
        """The messages shown to the model: all of them if they fit, else their most informative sentences."""
        shortened = [
            replace(message, text=digest_result(_tool_result(message), _MAX_RESULT_TOKENS, self._count))
            if message.role == "tool"
            else message
            for message in messages
        ]
        if sum(self._count(message.text) + 8 for message in shortened) <= available:
            return shortened
        texts: dict[int, list[str]] = {}
        for picked in extract_sentences(messages, goal=goal, focus=focus, tokens=available * 3 // 4, count=self._count):
            texts.setdefault(picked.seq, []).append(picked.text)
        return [replace(message, text="\n".join(texts[message.seq])) for message in messages if message.seq in texts]

    def _max_shown_tokens(self, answer: int) -> int:
        model = self._chat_model()
        window = model.window if model is not None else 0
        available = window - answer - _FRAME_TOKENS if window else self.rules.input_tokens
        return max(min(available, self.rules.input_tokens), 200)

    def _chat_model(self) -> ChatModel | None:
        """The model, opened on first use."""
        if not self._is_open:
            self._model, self._is_open = self._open_model(), True
        return self._model


_MIN_MODEL_TOKENS = 80
"""Below this many tokens no model is used: a few words are extracted as well."""


def _tool_result(message: MessageView) -> ToolResult:
    call = message.calls[0] if message.calls else None
    return ToolResult(tool=call.tool if call else "", arguments=call.arguments if call else "", output=message.text)


def source_texts(messages: Sequence[MessageView], goal: str) -> list[str]:
    """All texts that a summary of these messages may take its claims from."""
    return [
        goal,
        *(message.text for message in messages),
        *(call.arguments for message in messages for call in message.calls),
    ]


def keep_grounded(text: str, sources: Sequence[str]) -> WrittenSummary:
    """The grounded part of a text written elsewhere: without instructions to a model and unsupported claims."""
    stripped, commands = strip_instructions(text)
    grounded = remove_ungrounded(stripped, Evidence(sources))
    return WrittenSummary(
        lines=_bullet_lines(grounded.text),
        engine="",
        attempts=(),
        claims=grounded.claims,
        invented=tuple(claim.text[:80] for claim in grounded.invented),
        commands=commands,
    )


def _bullet_lines(text: str) -> tuple[str, ...]:
    """The lines of a text, each prefixed with the heading it was under."""
    lines: list[str] = []
    prefix = ""
    for line in text.splitlines():
        if is_heading(line):
            name = line.strip("#*: \t")
            prefix = f"{name}: " if name in SECTIONS else ""
        elif line.strip():
            lines.append(bullet(prefix + line.strip().lstrip("-*• \t")))
    return tuple(lines)
