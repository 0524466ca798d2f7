"""Parses checkpoints: every problem is named, and nothing is guessed.

Refused are texts that are not a JSON object, missing or unknown fields, wrong types, a newer schema, a checkpoint of
another session, and one older than what is known.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from recto.continuity.checkpoints.checkpoint import MAX_TEXT, SCHEMA, Checkpoint
from recto.errors import CheckpointRefused, MalformedJson
from recto.formats.json_spans import parse, text_of

LARGEST = 4_000_000
"""Maximum size of a checkpoint in bytes."""
_MAX_ITEMS, _MAX_NUMBER = 1_000, 2**53
_MAX_PROBLEMS = 12
"""Problems that are named; of more, only their number."""


def checkpoint_from(
    json: bytes | str, *, source: str = "the checkpoint", session: str = "", newest: tuple[int, int] | None = None
) -> Checkpoint:
    """Parse a checkpoint. Raises `CheckpointRefused`, which names every problem.

    With `session` it must belong to that session; with `newest`, a version and a window, it must not be older.
    """
    data = _object(json, source)
    schema = data.get("schema")
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA:
        raise CheckpointRefused(source, [f"it has schema {schema}, this Recto knows up to {SCHEMA}; use a newer Recto"])
    problems: list[str] = [] if "schema" in data else ["schema is missing"]
    current = data.pop("current", "")
    checkpoint = _value(Checkpoint, data, "", problems)
    if problems:
        named = problems[:_MAX_PROBLEMS] + (
            [f"and {len(problems) - _MAX_PROBLEMS} more"] if len(problems) > _MAX_PROBLEMS else []
        )
        raise CheckpointRefused(source, named)
    assert isinstance(checkpoint, Checkpoint)  # noqa: S101  # without problems it was built
    contradictions = _contradictions(checkpoint, current)
    if session and checkpoint.session != session:
        contradictions.append(f"it is of session '{checkpoint.session}', not of '{session}'")
    if newest is not None and (checkpoint.version < newest[0] or checkpoint.window < newest[1]):
        contradictions.append(
            f"it is stale: version {checkpoint.version} in window {checkpoint.window}, and version {newest[0]} "
            f"in window {newest[1]} is known"
        )
    if contradictions:
        raise CheckpointRefused(source, contradictions)
    return checkpoint


def _object(json: bytes | str, source: str) -> dict[str, Any]:
    raw = json.encode("utf-8", "replace") if isinstance(json, str) else json
    if len(raw) > LARGEST:
        raise CheckpointRefused(source, [f"it has {len(raw):,} bytes; a checkpoint has at most {LARGEST:,}"])
    try:
        parsed = parse(text_of(raw))
    except MalformedJson as error:
        raise CheckpointRefused(source, [str(error)]) from None
    if not isinstance(parsed, dict):
        raise CheckpointRefused(source, ["it is not a JSON object"])
    return dict(parsed)


def _contradictions(checkpoint: Checkpoint, current: object) -> list[str]:
    wrong: list[str] = []
    if checkpoint.schema < 1 or checkpoint.version < 1:
        wrong.append("schema and version count from 1")
    expected = checkpoint.current.text if checkpoint.current else ""
    if not isinstance(current, str) or current != expected:
        status = next((task.status for task in checkpoint.subtasks if task.text == current), "")
        by_list = f"by the subtasks it is {expected!r:.80}"
        why = f"that subtask is {status}" if status and status != "in_progress" else by_list
        wrong.append(f"current is {current!r:.80}, but {why}")
    return wrong


def _value(hint: Any, value: Any, where: str, problems: list[str]) -> Any:  # noqa: ANN401  # any value of the tree
    if is_dataclass(hint):
        return _build(hint, value, where, problems)
    if get_origin(hint) is tuple:
        return _build_list(get_args(hint)[0], value, where, problems)
    if get_origin(hint) is Literal:
        if value not in get_args(hint) or not isinstance(value, str):
            known = get_args(hint)
            problems.append(f"{where} is {_short(value)}; it is {', '.join(known[:-1])} or {known[-1]}")
        return value
    if not isinstance(value, hint) or isinstance(value, bool) is not (hint is bool):
        problems.append(f"{where} is {_short(value)}; it has to be {_TYPE_NAMES[hint]}")
    elif hint is str and len(value) > MAX_TEXT:
        problems.append(f"{where} has {len(value):,} characters; at most {MAX_TEXT:,} are taken")
    elif hint is int and not 0 <= value < _MAX_NUMBER:
        problems.append(f"{where} is {_short(value)}; it is a whole number from 0 on")
    return value


def _build(kind: Any, value: Any, where: str, problems: list[str]) -> Any:  # noqa: ANN401
    if not isinstance(value, dict):
        problems.append(f"{where} is {_short(value)}; it has to be an object")
        return None
    hints = get_type_hints(kind)
    before = len(problems)
    known = {item.name: item for item in fields(kind)}
    problems += [f"{_below(where, key)} is not known" for key in value if key not in known]
    values: dict[str, Any] = {}
    for name, item in known.items():
        if name in value:
            values[name] = _value(hints[name], value[name], _below(where, name), problems)
        elif item.default is MISSING and item.default_factory is MISSING:
            problems.append(f"{_below(where, name)} is missing")
    return kind(**values) if len(problems) == before else None


def _build_list(hint: Any, value: Any, where: str, problems: list[str]) -> tuple[Any, ...]:  # noqa: ANN401
    if not isinstance(value, list):
        problems.append(f"{where} is {_short(value)}; it has to be a list")
        return ()
    if len(value) > _MAX_ITEMS:
        problems.append(f"{where} has {len(value):,} items; at most {_MAX_ITEMS:,} are taken")
        return ()
    return tuple(_value(hint, item, f"{where}[{index}]", problems) for index, item in enumerate(value))


def _below(where: str, name: str) -> str:
    return f"{where}.{name[:60]}" if where else name[:60]


def _short(value: object) -> str:
    return "missing" if isinstance(value, NoneType) else f"{value!r:.60}"


_TYPE_NAMES = {str: "text", int: "a whole number", bool: "true or false"}
