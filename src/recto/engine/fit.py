"""`fit`: one stateless call that prunes a list of messages, for programs that keep their own history."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from recto.context.policies.planner import ReliefRules, plan_relief
from recto.context.policies.prune import Prune
from recto.context.window.state import Protection, WindowState
from recto.engine.prompt_builder import MessageCache, PromptBuilder, PromptExtras
from recto.errors import SettingsError
from recto.formats import detect
from recto.tokens.meter import Meter
from recto.transcript.events import to_json

M = TypeVar("M", bound=Mapping[str, Any] | bytes)
_STEP = 0.875
"""Pruning goes to this share of the threshold, so that the next few messages fit without pruning again."""


def fit_messages(
    messages: Sequence[M],
    *,
    max_tokens: int,
    meter: Meter,
    tools: Sequence[Any] = (),
    threshold: float = 0.8,
    keep_turns: int = 3,
    marker: str = "[{count} earlier messages are not shown here, to keep within the context window.]",
) -> list[M]:
    """Prunes the oldest messages, where all of them would fill more than `threshold` of `max_tokens`.

    Raises:
        WindowOverflow: The messages that must stay do not fit.
    """
    if max_tokens < 1 or not 0 < threshold <= 1 or keep_turns < 0:
        raise SettingsError("fit", "max_tokens is at least 1, threshold between 0 and 1, keep_turns not below zero")
    cache = MessageCache(meter=meter, pointer_of=lambda seq: f"message {seq}")
    schemas = meter.tools(to_json(tools).decode()) if tools else 0
    builder = PromptBuilder(
        messages=cache,
        marker_of=lambda state: marker.replace("{count}", f"{state.evicted_messages:,}"),
        extras=PromptExtras(frame=meter.frame.prompt, tools=schemas),
    )
    state = WindowState()
    originals: dict[bytes, M] = {}
    for seq, message in enumerate(messages, 1):
        raw = message if isinstance(message, bytes) else to_json(message)
        originals[raw] = message
        state.add(cache.take(seq, str(seq), raw, detect(raw)))
    rules = ReliefRules(
        input_budget=max_tokens,
        ceiling=threshold,
        floor=threshold * _STEP,
        protection=Protection(min_recent_messages=_recent(state, keep_turns)),
        policies=(Prune(),),
    )
    relief = plan_relief(state, rules, builder)
    if relief.after > max_tokens:
        raise builder.overflow(relief.state, max_tokens)
    as_bytes = bool(messages) and isinstance(messages[0], bytes)
    built = builder.build(relief.state)
    return [
        originals[raw] if raw in originals else cast("M", raw if as_bytes else json.loads(raw))
        for raw in (*built.system, *built.messages)
    ]


def _recent(state: WindowState, turns: int) -> int:
    """The number of messages in the last turns."""
    questions = [seq for seq, line in state.messages.items() if line.role == "user"]
    if not turns or not questions:
        return 0
    return len(state.messages) + 1 - questions[-min(turns, len(questions))]
