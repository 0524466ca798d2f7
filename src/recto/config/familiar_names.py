"""Familiar names: settings under the names that other documents and tools give them, and what they are called here.

`FAMILIAR` is the only table: a name, the setting it becomes, and how its value is converted. A layer of settings is
translated before it is validated, so everything behind this module knows only the names of `recto.config.settings`.
A name that cannot be honoured is refused or answered with a note; none is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct, field

from recto.config.settings import Settings
from recto.context.window import CASCADE
from recto.errors import SettingsError
from recto.text.lazy_re import lazy_re

_DEFAULTS = Settings()
_HUMP = lazy_re(r"(?<=[a-z0-9])(?=[A-Z])")
_SETTING = lazy_re(r"\b[a-z_]+(?:\.[a-z_]+)+")

Look: TypeAlias = Callable[[str], Any]
"""Returns the value that the same layer gives a name, familiar or our own; None if it gives none."""


class Given(NamedTuple):
    """Where a layer sets something."""

    name: str
    """The name that it uses."""
    line: int
    """The line of the file; 0 if there is none."""

    @property
    def place(self) -> str:
        """The name, and the line where there is one."""
        return f"'{self.name}' (line {self.line})" if self.line else f"'{self.name}'"


class Translated(NamedTuple):
    """What a familiar setting becomes."""

    settings: Mapping[str, Any] = {}
    """Our settings and their values."""
    needs: Mapping[str, Any] = {}
    """Settings without which it would have no effect. Another value in the same layer contradicts it."""
    suggests: Mapping[str, Any] = {}
    """Settings that it brings along unless the layer sets them."""
    note: str = ""
    """What the reader of the file should know."""


class Familiar(Struct, frozen=True, kw_only=True):
    """One line of the table."""

    setting: str
    """What it becomes here, for people."""
    translate: Callable[[Any, Look], Translated]
    """Converts its value. Raises `ValueError` with the reason and the cure."""


class Translation(Struct):
    """A layer in our own names."""

    tree: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Given] = field(default_factory=dict)
    """Where each setting is set, by its name here."""
    notes: list[str] = field(default_factory=list)

    def locate(self, error: SettingsError, source: str) -> SettingsError:
        """The error with the file, the line and the name that the file uses."""
        in_reason = _SETTING.findall(error.reason)
        named = [error.key, *in_reason] if error.key in self.given else [*in_reason, error.key]
        places = {name: given for name in named if (given := self.place_of(name)) is not None}
        if not places:
            return SettingsError(error.key, error.reason, error.nearest, where=source)
        (_, given), *others = places.items()
        also = {place.place: f"'{name}' is set by {place.place}" for name, place in reversed(others) if place != given}
        reason = "; ".join([error.reason, *reversed(also.values())])
        key = error.key if error.key.startswith(given.name) else given.name
        return SettingsError(key, reason, error.nearest, where=f"{source}, line {given.line}" if given.line else source)

    def place_of(self, name: str) -> Given | None:
        """Where a setting is set, or the group that it is part of, or the first part of it; None if it is not."""
        part = name
        while part:
            if part in self.given:
                return self.given[part]
            part = part.rpartition(".")[0]
        return next((given for other, given in self.given.items() if other.startswith(f"{name}.")), None)


def translate_layer(tree: Mapping[str, Any], lines: Mapping[tuple[str, ...], int], source: str) -> Translation:
    """Translate what a layer sets. Raises `SettingsError` with the line for what cannot be translated.

    `lines` are the lines of a file by the path of each key, and `source` is the name of the file.
    """
    translator = _Translator(tree, lines, source)
    translator.walk(tree, ())
    translator.finish()
    if translator.made.notes:
        import logging  # noqa: PLC0415  # start-up: most layers need no notes

        for note in translator.made.notes:
            logging.getLogger("recto.config").info("%s", note)
    return translator.made


def familiar_names(group: str) -> list[str]:
    """The familiar names in a group, as they are completed and suggested; `group` is empty or ends with a dot."""
    names = (name.removeprefix(group) for name in FAMILIAR if name.startswith(group))
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def _snake(key: object) -> str:
    """A key as the table spells it: `ceilingPercent` and `CEILING_PERCENT` are `ceiling_percent`."""
    return _HUMP.sub("_", str(key)).lower()


class _Translator:
    def __init__(self, tree: Mapping[str, Any], lines: Mapping[tuple[str, ...], int], source: str) -> None:
        self.made = Translation()
        self._groups_set: set[str] = set()
        """Groups in which something is set."""
        self._tree = tree
        self._lines = lines
        self._source = source
        self._later: list[tuple[Given, Translated]] = []

    def walk(self, tree: Mapping[Any, Any], path: tuple[str, ...]) -> None:
        for key, value in tree.items():
            at = (*path, str(key))
            given = Given(".".join(at), self._lines.get(at, 0))
            own, spelled = _own(at), tuple(map(_snake, at))
            name = ".".join(spelled)
            if own is None and name in FAMILIAR:
                self._translate(FAMILIAR[name], value, given)
            elif is_dataclass(own) and isinstance(value, Mapping):
                self.walk(value, at)
            elif own is None and (_own(path) is None or (f"{name}." in _GROUPS and _own(spelled) is None)):
                self._check_group(name, value, given)
                self.walk(value, at)
            else:  # ours, or unknown in a group of ours, which the loader reports
                self._put(at, value, given)

    def finish(self) -> None:
        """Adds what settings need or suggest, now that everything the layer sets is known."""
        for given, translated in self._later:
            for name, value in translated.needs.items():
                before = self.made.given.get(name)
                if before is not None and self._value(name) != value:
                    reason = (
                        f"needs '{name}: {value}', and {before.place} sets {self._value(name)}; keep one of the two"
                    )
                    raise self._error(given, reason)
                if before is None:
                    self._put(tuple(name.split(".")), value, given)
            for name, value in translated.suggests.items():
                if name not in self.made.given:
                    self._put(tuple(name.split(".")), value, given)

    def _translate(self, familiar: Familiar, value: object, given: Given) -> None:
        try:
            translated = familiar.translate(value, partial(_look_up, self._tree))
        except (ValueError, TypeError) as error:
            raise self._error(given, str(error)) from None
        except SettingsError as error:
            raise self._error(given, error.reason) from None
        for name, converted in translated.settings.items():
            self._put(tuple(name.split(".")), converted, given)
        self._later.append((given, translated))
        if translated.note:
            self.made.notes.append(": ".join(filter(None, [self._place(given), given.name, translated.note])))

    def _put(self, path: tuple[str, ...], value: object, given: Given) -> None:
        names = [".".join(path[:depth]) for depth in range(1, len(path) + 1)]
        taken = next((name for name in names if name in self.made.given), "")
        if not taken and names[-1] in self._groups_set:
            taken = next(name for name in self.made.given if name.startswith(f"{names[-1]}."))
        if taken:
            before = self.made.given[taken]
            raise self._error(given, f"'{taken}' is set by {before.place} already; keep one of the two")
        branch = self.made.tree
        for parent in path[:-1]:
            branch = branch.setdefault(parent, {})
        branch[path[-1]] = value
        self.made.given[names[-1]] = given
        self._groups_set.update(names[:-1])

    def _value(self, name: str) -> object:
        branch: Any = self.made.tree
        for part in name.split("."):
            branch = branch[part]
        return branch

    def _check_group(self, name: str, value: object, given: Given) -> None:
        """Raises the error of an unknown name, where it is no group of familiar names."""
        if f"{name}." in _GROUPS:
            if not isinstance(value, Mapping):
                raise self._error(given, "expects a group of settings")
            return
        import difflib  # noqa: PLC0415  # start-up: only for an error

        parent, _, last = name.rpartition(".")
        raw_parent = given.name.rpartition(".")[0]
        nearest = difflib.get_close_matches(last, familiar_names(f"{parent}."), n=1, cutoff=0.6)
        raise self._error(given, "there is no such setting", f"{raw_parent}.{nearest[0]}" if nearest else None)

    def _error(self, given: Given, reason: str, nearest: str | None = None) -> SettingsError:
        return SettingsError(given.name, reason, nearest, where=self._place(given))

    def _place(self, given: Given) -> str:
        return f"{self._source}, line {given.line}" if given.line else self._source


def _own(path: tuple[str, ...]) -> object:
    """The default of one of our settings or groups; None where a name is none of ours."""
    node: object = _DEFAULTS
    for name in path:
        if name not in getattr(node, "__dataclass_fields__", ()):
            return None
        node = getattr(node, name)
    return node


def _look_up(tree: Mapping[Any, Any], name: str) -> object:
    node: Any = tree
    for part in name.split("."):
        node = next((value for key, value in node.items() if _snake(key) == part), None) if node else None
        if not isinstance(node, Mapping) and part != name.rpartition(".")[2]:
            return None
    return node


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124  # nan
        raise ValueError(f"expects a number, got {value!r}")
    return value


def _count(value: object, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"expects a whole number of at least {least}, got {value!r}")
    return value


def _percent(value: object) -> float:
    """A percent that is written as a percent."""
    number = _number(value)
    if 0 < number < 1:
        raise ValueError(f"is a percent: write {number * 100:g} instead of {number:g}")
    return float(number)


def _share(value: object) -> float:
    """A percent that is written as a fraction or, above 1, as a percent."""
    number = _number(value)
    if not 0 <= number <= 100:
        raise ValueError(f"is a share from 0 to 1, or a percent up to 100, and not {number:g}")
    return round(number * 100 if number <= 1 else number, 6)


def _fraction(value: object) -> float:
    return _share(value) / 100


def _same(value: object) -> object:
    return value


def _as(setting: str, convert: Callable[[Any], Any] = _same, words: str = "") -> Familiar:
    """A setting that has another name here, and perhaps another unit."""
    return Familiar(
        setting=f"`{setting}`{f': {words}' if words else ''}",
        translate=lambda value, _: Translated(settings={setting: convert(value)}),
    )


def _named(names: Mapping[str, str], value: object, what: str) -> str:
    """The name here of a kind, a policy or a component."""
    found = names.get(_snake(value)) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"'{value}' is none of {', '.join(names)}" + (f" ({what})" if what else ""))
    return found


def _renamed(names: Mapping[str, str], value: object, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """A mapping with the names that are used here. Raises `ValueError` for two names of one thing."""
    if not isinstance(value, Mapping):
        raise ValueError(f"expects names and their values, got {value!r}")
    made: dict[str, Any] = {}
    for key, item in value.items():
        name = _named(names, key, "")
        if name in made:
            raise ValueError(f"'{key}' and another name both mean '{name}'; keep one of the two")
        try:
            made[name] = convert(item)
        except ValueError as error:
            raise ValueError(f"'{key}' {error}") from None
    return made


def _names_in(value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError("expects a list of names")
    return list(value)


def _ceiling(convert: Callable[[Any], float], value: object, look: Look) -> Translated:
    begins = {
        "auto_compact": "'window.compact_target_percent'",
        "zones": "the orange zone",
    }.get(str(look("window.mode") or look("context_management.mode")))
    note = f"not used in this mode, where relief begins at {begins}" if begins else ""
    return Translated(settings={"window.ceiling_percent": convert(value)}, note=note)


def _messages_of_turns(value: object, _: Look) -> Translated:
    note = "a turn counts as two messages, a question and its answer"
    return Translated(settings={"window.min_recent_messages": 2 * _count(value, least=0)}, note=note)


def _preserve(value: object, _: Look) -> Translated:
    if value is True:
        return Translated(note="always on: the transcript is append-only, whatever is evicted")
    raise ValueError("the transcript is always kept, and that cannot be switched off; remove the line")


def _index_first(value: object, _: Look) -> Translated:
    if value is True:
        return Translated(needs={"recall.enabled": True})
    raise ValueError("messages are always indexed before they are evicted; 'recall.enabled: false' switches recall off")


POLICIES = {
    "prune": "prune",
    "fifo": "fifo",
    "lru": "lru",
    "priority": "priority",
    "semantic_merge": "semantic_merge",
    "type_based": "type_ttl",
    "type_ttl": "type_ttl",
    "hybrid": "hybrid",
}
_HYBRID_WEIGHTS = {
    "recency": "fifo",
    "fifo": "fifo",
    "priority": "priority",
    "type_ttl": "type_ttl",
    "type": "type_ttl",
    "type_based": "type_ttl",
    "reference_freq": "lru",
    "lru": "lru",
    "semantic_duplication": "semantic_merge",
    "semantic_merge": "semantic_merge",
}
_PRIORITY_WEIGHTS = {
    "recency": "recency",
    "semantic": "relevance",
    "relevance": "relevance",
    "source": "source",
    "reuse": "reuse",
    "explicit": "mark",
    "mark": "mark",
}
_KINDS = {
    "tool_result": "tool",
    "tool": "tool",
    "assistant_response": "assistant",
    "assistant": "assistant",
    "user_message": "user",
    "user": "user",
    "error": "error",
    "decision": "decision",
}
_ALWAYS_PROTECTED = ("system_prompt", "system", "tool_definition", "tool_definitions")
_RECALLED = ("memory_injection", "memory")
_STRATEGIES = {
    "tool_result_summarization": "summarise_results",
    "summarise_results": "summarise_results",
    "progressive": "progressive",
    "progressive_summarization": "progressive",
    "conversation_compaction": "compact",
    "compaction": "compact",
    "compact": "compact",
    "sub_agent": "delegate",
    "sub_agent_delegation": "delegate",
    "delegate": "delegate",
    "trim": "trim",
    "evict": "evict",
}
_COMPONENTS = {
    "system_prompt": "system",
    "system": "system",
    "tool_definitions": "tools",
    "tools": "tools",
    "message_history": "history",
    "history": "history",
    "tool_results": "results",
    "results": "results",
    "memory_injection": "memory",
    "memory": "memory",
    "output_reserved": "reserve",
    "output_reserve": "reserve",
    "reserve": "reserve",
}
_METRICS = ("utilization", "eviction_rate", "compression_ratio", "burn_rate", "fidelity_score", "tool_result_bloat")


def _policy_in(look: Look) -> str:
    policy = look("eviction.policy") or look("window.policy") or "prune"
    return POLICIES.get(policy, "") if isinstance(policy, str) else ""


def _checked_scorer(policy: str, settings: Mapping[str, Any]) -> None:
    """Raises `SettingsError` where the settings of a policy are out of range."""
    from recto.context.policies.scorers import scorer_named  # noqa: PLC0415  # start-up: most files weigh nothing

    scorer_named(policy, **settings)


def _weights(value: object, look: Look) -> Translated:
    policy = _policy_in(look)
    if policy == "hybrid":
        weights = _renamed(_HYBRID_WEIGHTS, value, _number)
        _checked_scorer(policy, {"weights": weights})
        return Translated(settings={"window.scorer.weights": weights})
    if policy == "priority":
        weights = _renamed(_PRIORITY_WEIGHTS, value, _number)
        _checked_scorer(policy, weights)
        return Translated(settings={f"window.scorer.{name}": weight for name, weight in weights.items()})
    raise ValueError("weights are those of the policies hybrid and priority; add 'policy: hybrid'")


def _times_to_live(value: object, look: Look) -> Translated:
    if not isinstance(value, Mapping):
        raise ValueError(f"expects kinds and their turns, got {value!r}")
    kept = {kind: turns for kind, turns in value.items() if _snake(kind) not in _RECALLED}
    note = (
        "recalled memory is quoted for one turn and searched for again in the next, so that it has no time to live"
        if len(kept) < len(value)
        else ""
    )
    turns = _renamed({**_KINDS, "thinking": "thinking"}, kept, _count)
    settings: dict[str, Any] = {"window.thinking_turns": turns.pop("thinking")} if "thinking" in turns else {}
    if not turns:
        return Translated(settings=settings, note=note)
    policy = _policy_in(look)
    if policy == "hybrid":
        return Translated(settings={**settings, "window.scorer.settings": {"type_ttl": turns}}, note=note)
    if policy == "type_ttl":
        of_kinds = {f"window.scorer.{kind}": count for kind, count in turns.items()}
        return Translated(settings={**settings, **of_kinds}, note=note)
    raise ValueError("times to live are those of the policies type_based and hybrid; add 'policy: hybrid'")


def _protected(value: object, _: Look) -> Translated:
    names = [name for name in _names_in(value) if _snake(name) not in _ALWAYS_PROTECTED]
    recalled = [name for name in names if _snake(name) in _RECALLED]
    kinds = {kind: kind for kind in ("user", "assistant", "tool")}
    known = {name: kind for name, kind in _KINDS.items() if kind in kinds} | dict.fromkeys(_ALWAYS_PROTECTED, "")
    protected = [_named(known, name, "") for name in names if name not in recalled]
    note = "recalled memory is quoted for one turn, in which it is not evicted" if recalled else ""
    return Translated(settings={"window.protect": list(dict.fromkeys(protected))} if protected else {}, note=note)


def _cascade(value: object, _: Look) -> Translated:
    """Thresholds and the strategies that begin there, in either order of key and value."""
    if not isinstance(value, Mapping) or not value:
        raise ValueError("expects shares of the window and the strategies that begin there: {0.75: progressive}")
    starts: dict[str, float] = {}
    for key, item in value.items():
        strategy, start = (key, item) if isinstance(key, str) and _snake(key) in _STRATEGIES else (item, key)
        name = _named(_STRATEGIES, strategy, "")
        if name in starts:
            raise ValueError(f"'{strategy}' begins at two thresholds; keep one of the two")
        starts[name] = _share(start)
    if list(starts.values()) != sorted(starts.values()):
        raise ValueError("thresholds must ascend: the strategies are applied in this order")
    return Translated(
        settings={"window.cascade": list(_with_eviction(starts)), "window.cascade_percents": starts},
        needs={"window.mode": "zones"},
    )


def _strategies(value: object, look: Look) -> Translated:
    names = [_named(_STRATEGIES, name, "") for name in _names_in(value)]
    if look("compression.cascade"):
        raise ValueError("'compression.cascade' names the strategies and their order already; keep one of the two")
    return Translated(settings={"window.cascade": list(_with_eviction(names))}, needs={"window.mode": "zones"})


def _with_eviction(strategies: Mapping[str, float] | list[str]) -> Iterator[str]:
    """The strategies in their order, with trimming and eviction, which free tokens without a summary, before all but
    the summaries of tool results."""
    eviction = [name for name in ("trim", "evict") if name not in strategies]
    for name in strategies:
        if name != CASCADE[0]:
            yield from eviction
            eviction = []
        yield name
    yield from eviction


def _compaction_start(value: object, look: Look) -> Translated:
    start = _share(value)
    if (look("window.mode") or look("context_management.mode")) == "auto_compact":
        return Translated(settings={"window.compact_target_percent": start})
    cascade = look("compression.cascade")
    if cascade:
        begins = _cascade(cascade, look).settings["window.cascade_percents"].get("compact")
        if begins == start:
            return Translated()
        holds = f"begins compaction at {begins:g} %" if begins else "has no compaction"
        return Translated(note=f"not used: the cascade in the same file {holds}, and that holds")
    return Translated(settings={"window.cascade_percents": {"compact": start}}, needs={"window.mode": "zones"})


def _shares(value: object, _: Look) -> Translated:
    shares = _renamed(_COMPONENTS, value, _number)
    total = sum(shares.values())
    fractions = all(share <= 1 for share in shares.values())
    whole = 1 if fractions else 100
    if total > whole * (1 + 1e-6):
        raise ValueError(f"shares add up to {total * 100 / whole:g} percent, and must not be more than 100: lower some")
    if not fractions and any(0 < share < 1 for share in shares.values()):
        raise ValueError("some shares are fractions and some are percents; write all of them the same way")
    return Translated(
        settings={"window.shares": {name: round(share * 100 / whole, 6) for name, share in shares.items()}}
    )


def _floors(value: object, look: Look) -> Translated:
    floors = _renamed(_COMPONENTS, value, _share)
    enforced = look("budget.enforced") or look("window.enforced")
    if enforced != "per_component":
        raise ValueError("floors are those of limits that are enforced; add 'enforced: per_component'")
    return Translated(settings={"window.floors": floors})


def _hard_limit(value: object, _: Look) -> Translated:
    if _share(value) != 100:
        raise ValueError("the hard limit of a component is its share; change the share in 'budget.allocations'")
    return Translated()


def _session_file(setting: str, value: object, _: Look) -> Translated:
    if not isinstance(value, str) or not PurePath(value).name:
        raise ValueError(f"expects the name of a file, got {value!r}")
    path = PurePath(value)
    folder = {"continuity.folder": str(path.parent)}
    alone = str(path.parent) == "."
    below = "'continuity.folder', or else the working folder" if alone else f"'{path.parent}'"
    note = f"written to a folder of its own for each session, below {below}"
    return Translated(
        settings={setting: path.name},
        needs={} if alone else folder,
        suggests=folder if alone else {},
        note=note,
    )


def _save_at(value: object, _: Look) -> Translated:
    return Translated(
        settings={"window.checkpoint_warning_percent": _share(value)}, suggests={"continuity.milestones": "always"}
    )


def _metrics(value: object, _: Look) -> Translated:
    names = _names_in(value)
    for name in names:
        if name not in _METRICS:
            raise ValueError(f"'{name}' is none of {', '.join(_METRICS)}")
    missing = [name for name in _METRICS if name not in names]
    return Translated(note=f"the others are measured too: {', '.join(missing)}" if missing else "")


def _do(setting: str, translate: Callable[[Any, Look], Translated]) -> Familiar:
    return Familiar(setting=setting, translate=translate)


_MAX_TOKENS = _as("window.max_tokens", _count, "at most the model's own")
_TRANSCRIPT = _do("always on; `false` is refused", _preserve)
_SPIKE = _as("window.spike_factor", _number)
_TURNS = _as("window.velocity_turns")
_RESULT_TOKENS = _as("compress.result_tokens", _count)
_SOFT = _as("window.soft_percent", _share, "a fraction becomes a percent")
_SAVE = _do("`window.checkpoint_warning_percent`, with `continuity.milestones: always`", _save_at)
_ALLOCATIONS = _do("`window.shares`: fractions become percents", _shares)
_PROTECTED = _do("`window.protect`; system text and tool schemas always are", _protected)
_TTL = _do("`window.thinking_turns`, and `window.scorer`: kinds and turns, for `hybrid` and `type_ttl`", _times_to_live)
_ALERTS = {
    "utilization_critical": _as("health.alerts.utilization", _fraction),
    "eviction_rate_warning": _as("health.alerts.evictions", _number),
    "fidelity_warning": _as("health.alerts.fidelity", _fraction),
    "compression_ratio_min": _as("health.alerts.ratio", _number),
    "tool_bloat_warning": _as("health.alerts.bloat", _fraction),
}
_METRIC_NAMES = _do("always measured; unknown names are refused", _metrics)

FAMILIAR: Mapping[str, Familiar] = {
    "max_context_tokens": _MAX_TOKENS,
    "default_max_context_tokens": _MAX_TOKENS,
    "context_threshold": _do("`window.ceiling_percent`: a fraction becomes a percent", partial(_ceiling, _share)),
    "min_history_turns": _do("`window.min_recent_messages`: two messages a turn", _messages_of_turns),
    "preserve_transcript": _TRANSCRIPT,
    "context_management.mode": _as("window.mode"),
    "context_management.ceiling_percent": _do("`window.ceiling_percent`", partial(_ceiling, _percent)),
    "context_management.floor_percent": _as("window.floor_percent", _percent),
    "context_management.min_recent_messages": _as("window.min_recent_messages"),
    "context_management.preserve_transcript": _TRANSCRIPT,
    "context_management.vectorize_before_prune": _do("always on while recall is", _index_first),
    "context_management.max_context_tokens": _MAX_TOKENS,
    "context_management.checkpoint_warning_percent": _as("window.checkpoint_warning_percent", _percent),
    "context_management.compact_target_percent": _as("window.compact_target_percent", _percent),
    "context_management.keep_recent_tokens": _as("window.keep_recent_tokens"),
    "window.preserve_transcript": _TRANSCRIPT,
    "pressure.thresholds.yellow": _as("window.yellow_percent", _share, "a fraction becomes a percent"),
    "pressure.thresholds.orange": _as("window.orange_percent", _share, "a fraction becomes a percent"),
    "pressure.thresholds.red": _as("window.red_percent", _share, "a fraction becomes a percent"),
    "pressure.green_threshold": _as("window.yellow_percent", _share, "where green ends"),
    "pressure.yellow_threshold": _as("window.orange_percent", _share, "where yellow ends"),
    "pressure.orange_threshold": _as("window.red_percent", _share, "where orange ends"),
    "pressure.velocity_window": _TURNS,
    "pressure.velocity_window_turns": _TURNS,
    "pressure.spike_factor": _SPIKE,
    "pressure.spike_multiplier": _SPIKE,
    "pressure.max_context_tokens": _MAX_TOKENS,
    "eviction.policy": _as("window.policy", partial(_named, POLICIES, what=""), "`type_based` is `type_ttl`"),
    "eviction.weights": _do("`window.scorer`: the weights of `hybrid` or `priority`", _weights),
    "eviction.type_ttl": _TTL,
    "eviction.ttl": _TTL,
    "eviction.protected_types": _PROTECTED,
    "eviction.protected_kinds": _PROTECTED,
    "budget.allocations": _ALLOCATIONS,
    "budget.shares": _ALLOCATIONS,
    "budget.soft_limit_pct": _SOFT,
    "budget.soft_limit": _SOFT,
    "budget.hard_limit_pct": _do("the share itself; only 100 % is accepted", _hard_limit),
    "budget.hard_limit": _do("the share itself; only 100 % is accepted", _hard_limit),
    "budget.enforced": _as("window.enforced"),
    "budget.floors": _do("`window.floors`: shares of a component's own limit become percents", _floors),
    "budget.lazy_tools": _as("window.lazy_tools"),
    "budget.profile": _as("window.profile"),
    "budget.reserve_tokens": _as("window.reserve", _count),
    "compression.summarization_threshold_tokens": _RESULT_TOKENS,
    "compression.summarization_token_threshold": _RESULT_TOKENS,
    "compression.on_arrival": _as("compress.on_arrival_tokens", _count),
    "compression.progressive_age_threshold": _as("compress.key_points_turns"),
    "compression.compaction_utilization_threshold": _do(
        "`window.cascade_percents` of `compact`; in `auto_compact` `window.compact_target_percent`", _compaction_start
    ),
    "compression.cascade": _do("`window.cascade` and `window.cascade_percents`, with `window.mode: zones`", _cascade),
    "compression.notes_file": _do(
        "`continuity.notes_file`, `continuity.folder`", partial(_session_file, "continuity.notes_file")
    ),
    "compression.strategies": _do("`window.cascade`, with `window.mode: zones`", _strategies),
    "cross_window.state_file": _do(
        "`continuity.state_file`, `continuity.folder`", partial(_session_file, "continuity.state_file")
    ),
    "cross_window.progress_file": _do(
        "`continuity.progress_file`, `continuity.folder`", partial(_session_file, "continuity.progress_file")
    ),
    "cross_window.auto_save_threshold": _SAVE,
    "cross_window.warning_percent": _SAVE,
    "health_monitoring.enabled": _as("health.enabled"),
    "health_monitoring.metrics": _METRIC_NAMES,
    "health.metrics": _METRIC_NAMES,
    **{f"health_monitoring.alerts.{name}": familiar for name, familiar in _ALERTS.items()},
    **{f"health.alerts.{name}": familiar for name, familiar in _ALERTS.items()},
}
"""Every familiar name, in lower case with underscores, and what it becomes."""
_GROUPS = frozenset(f"{name.rsplit('.', levels)[0]}." for name in FAMILIAR for levels in range(1, name.count(".") + 1))
