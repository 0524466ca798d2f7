"""The inspection API's questions about prompts: the one that would be sent now, one of the past, two side by side."""

from __future__ import annotations

import json

from recto.engine.comparing import Comparison, compare, prompt_after
from recto.engine.inspect import preview
from recto.gateway.inspection.asked import Call
from recto.gateway.inspection.reads import Inspection
from recto.gateway.inspection.values import PromptNow


def prompt(on: Inspection, call: Call) -> PromptNow:
    """What would be sent now, or the prompt as it stood after an entry."""
    at: int | None = call.query["at"]
    with on.opened(call) as found:
        built = preview(found.window) if at is None else prompt_after(found.window, on.entry(found, at).seq)
        room = found.window.budget.room
    return PromptNow(
        wire=built.wire,
        tokens=built.tokens,
        room=room,
        fits=built.tokens <= room,
        system=tuple(json.loads(raw) for raw in built.system),
        messages=tuple(json.loads(raw) for raw in built.messages),
        costs=built.costs,
    )


def comparison(on: Inspection, call: Call) -> Comparison:
    """Two prompts of a session side by side, as they stood after two entries."""
    with on.opened(call) as found:
        first, second = (on.entry(found, call.query[name]).seq for name in ("first", "second"))
        return compare(found.window, first, second)
