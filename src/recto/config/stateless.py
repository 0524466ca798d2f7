"""One-call functions for programs that keep their own list of messages: nothing is stored, nothing has to be opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from recto.config import Settings, load
from recto.config.factory import make_meter, model_card
from recto.config.loader import load_for_model
from recto.context.window.budget import (
    Pressure,
    PressureReading,
    Source,
    Thresholds,
    VelocitySpike,
    ZoneChanged,
    compare_readings,
    measure_prompt,
    read_warning,
    source_of,
)
from recto.engine.arguments import check_count, check_listener, check_number, schemas_json
from recto.errors import InputError, SettingsError
from recto.formats import detect, read
from recto.formats.response_objects import MessageLike, message_bytes

if TYPE_CHECKING:
    from recto.context.policies.features import Scorer
    from recto.context.window.units import Policy
    from recto.engine.fit import FittedMessages, M
    from recto.formats.message import Message
    from recto.tokens.meter import Meter


def fit(
    messages: Sequence[M],
    max_tokens: int | None = None,
    *,
    model: str = "",
    tools: Sequence[Any] = (),
    threshold: float = 0.8,
    keep_turns: int = 3,
) -> FittedMessages[M]:
    """Return the messages without the oldest ones where they would not fit: one call, nothing stored.

    Takes dicts or exact JSON bytes of any wire format and returns the same objects, in a list that also knows what was
    pruned: `fitted.evicted`, `fitted.tokens`. Tool calls and their results stay or are evicted together, the task and
    the current request stay, and a marker states how many messages were evicted. Older images, documents and audio
    become lines of text where the provider accepts no more of them. Without `max_tokens`, the size is the input budget
    of the model. What was pruned is logged (`recto.fit`). What must stay and does not fit is cut to head and tail, and
    messages that a session would refuse are refused (`MalformedMessage`). Raises `WindowOverflow` if the current
    question does not fit.
    """
    from recto.engine.fit import fit_messages  # noqa: PLC0415

    settings = load_for_model(model)
    card = model_card(settings)
    return fit_messages(
        messages,
        max_tokens=_input_budget(settings) if max_tokens is None else max_tokens,
        meter=make_meter(settings, card),
        tools=tools,
        threshold=threshold,
        keep_turns=keep_turns,
        card=card,
    )


def evict(
    messages: Sequence[M],
    free: int,
    *,
    policy: str | Policy | Scorer = "hybrid",
    model: str = "",
    tools: Sequence[Any] = (),
    keep_turns: int = 1,
) -> FittedMessages[M]:
    """Return the messages without those that a policy evicts to free so many tokens: one call, nothing stored.

    The sibling of `fit` for programs that decide themselves when to evict. Nothing is evicted that must stay: system
    text, the task, the newest turns; so less may be freed than was asked for. `evicted`, `freed` and `scores` of the
    result say what was evicted and why. `policy` is a name as in the settings (prune, fifo, lru, priority,
    semantic_merge, type_ttl, hybrid), or a policy or scorer of your own.
    """
    from recto.config.modes import as_policy  # noqa: PLC0415
    from recto.engine.fit import evict_messages  # noqa: PLC0415

    settings = load(arguments={"model": model or None})
    card = model_card(settings)
    return evict_messages(
        messages,
        free=free,
        policy=as_policy(policy),
        meter=make_meter(settings, card),
        tools=tools,
        keep_turns=keep_turns,
        card=card,
    )


def count(
    what: str | MessageLike | Sequence[MessageLike],
    *,
    model: str = "",
    tools: Sequence[Any] = (),
) -> int:
    """Count the tokens of a text, of one message, or of a prompt with its tool schemas, for a model."""
    return _count(make_meter(load(arguments={"model": model or None})), what, tools)


class PressureMonitor:
    """Measures how full a prompt is and how fast it fills, for a loop of your own.

    Call `measure` whenever the prompt may have grown, and `turn` when a turn is over. A reading has the fill level
    (`utilization`), the `zone`, the `velocity` in tokens per turn, `turns_until_red`, the `urgency` (critical under 3
    turns, warning under 10) and its `source`.
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        *,
        model: str = "",
        thresholds: Thresholds | None = None,
        on_zone_change: Callable[[ZoneChanged], object] | None = None,
        on_velocity_spike: Callable[[VelocitySpike], object] | None = None,
    ) -> None:
        """Measure prompts of a window.

        Args:
            max_tokens: Tokens a prompt may have; without it, the input budget of the model.
            model: The model whose tokenizer counts messages.
            thresholds: Where the zones begin; without them, those for a window of that size.
            on_zone_change: Is called when the zone changes.
            on_velocity_spike: Is called when a turn adds far more than usual.
        """
        self._settings = load(arguments={"model": model or None})
        budget = _input_budget(self._settings) if max_tokens is None else max_tokens
        check_number("max_tokens", budget, "a number of at least 1", 1)
        for listener in (on_zone_change, on_velocity_spike):
            if listener is not None:
                check_listener(listener)
        self._meter: Meter | None = None
        self._on_zone_change = on_zone_change
        self._on_velocity_spike = on_velocity_spike
        self._initial = Pressure(input_budget=budget, thresholds=thresholds or Thresholds.for_window(budget))
        self.reset()

    def reset(self) -> None:
        """Forget what was measured, as for a new task."""
        self._pressure = self._initial
        self._last: PressureReading | None = None

    @property
    def last(self) -> PressureReading | None:
        """The last reading; None before the first."""
        return self._last

    def measure(
        self,
        prompt: int | Sequence[MessageLike] | None = None,
        *,
        reported: int | None = None,
        tools: Sequence[Any] = (),
    ) -> PressureReading:
        """Measure the prompt now, also inside a turn.

        `prompt` is a number of tokens or the messages, and `reported` what the provider counted. Without a report, a
        budget warning to the model in the messages is one (`<system_warning>Token usage: 35000/200000; …`). A plausible
        report is used; beside a count by the model's own tokenizer it never lowers it.
        """
        tokens, source = self._size(prompt, reported, tools)
        reading = self._pressure.read(tokens, source)
        for change in compare_readings(self._last, reading):
            listener = self._on_zone_change if isinstance(change, ZoneChanged) else self._on_velocity_spike
            if listener is not None:
                listener(change)  # type: ignore[arg-type]  # each gets its own kind
        self._last = reading
        return reading

    def turn(
        self,
        prompt: int | Sequence[MessageLike] | None = None,
        *,
        reported: int | None = None,
        tools: Sequence[Any] = (),
    ) -> PressureReading:
        """Measure the prompt at the end of a turn, from which the next turn's growth is measured."""
        reading = self.measure(prompt, reported=reported, tools=tools)
        self._pressure = self._pressure.turn(reading.tokens)
        return reading

    def relieved(self, prompt: int | Sequence[MessageLike]) -> PressureReading:
        """Measure a prompt from which something was evicted: that is no negative growth."""
        tokens, _ = self._size(prompt, None, ())
        self._pressure = self._pressure.relieved(tokens, self._last.tokens if self._last else None)
        return self.measure(tokens)

    def _size(
        self, prompt: int | Sequence[MessageLike] | None, reported: int | None, tools: Sequence[Any]
    ) -> tuple[int, Source]:
        if isinstance(prompt, bool) or (isinstance(prompt, int) and prompt < 0):
            raise InputError(f"a prompt has a number of tokens, not {prompt!r}")
        if reported is not None:
            check_count("'reported'", reported, 0)
        if prompt is None:
            if reported is None:
                raise InputError("nothing to measure: give the prompt, or what the provider reported")
            return reported, "reported"
        if isinstance(prompt, int):
            exact, counted = True, prompt
        else:
            self._meter = self._meter or make_meter(self._settings)
            exact, counted = self._meter.exact, _count(self._meter, prompt, tools)
            warned = None if reported else self._warned(prompt)
            if warned is not None:
                used, added = warned
                size = measure_prompt(counted, used, added=added, exact=exact)
                return size.tokens, source_of(size, counted, exact=exact, report="warning")
        size = measure_prompt(counted, reported, exact=exact)
        return size.tokens, source_of(size, counted, exact=exact)

    def _warned(self, prompt: Sequence[MessageLike]) -> tuple[int, int] | None:
        """The tokens that the last budget warning to the model names, and those of the messages behind it."""
        assert self._meter is not None  # noqa: S101  # made by the caller
        added = 0
        for message in reversed(prompt):
            parsed = _parsed(message)
            texts = "\n".join(part.text for part in parsed.parts if part.kind == "text")
            warning = None if parsed.role == "assistant" else read_warning(texts)
            if warning is not None and warning.used:
                return warning.used, added
            added += self._meter.message(parsed)
        return None


def _input_budget(settings: Settings) -> int:
    from recto.context.window.budget import Budget  # noqa: PLC0415

    if not settings.model:
        raise SettingsError("max_tokens", "give the size of the window, or a model whose window is known")
    return Budget.for_model(model_card(settings)).input_budget


def _count(meter: Meter, what: str | MessageLike | Sequence[MessageLike], tools: Sequence[Any]) -> int:
    if isinstance(what, str):
        return meter.text(what)
    if isinstance(what, Sequence) and not isinstance(what, bytes):
        prompt = [_parsed(message) for message in cast("Sequence[MessageLike]", what)]
        return meter.prompt(prompt, schemas_json(tools).decode() if tools else "")
    return meter.message(_parsed(what))


def _parsed(message: MessageLike) -> Message:
    raw = message_bytes(message)
    return read(raw, detect(raw))
