"""A checkpoint read back: every problem of its form is named in plain words, and nothing is guessed.

What is refused: what is no JSON object, what lacks a field or has one that nobody knows, wrong kinds of values, a newer
form, another session's checkpoint, and one that is older than what is known already.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from recto.continuity.checkpoints.checkpoint import SCHEMA, Checkpoint
from recto.errors import CheckpointRefused, MalformedJson
from recto.formats.json_spans import parse, text_of

LARGEST = 4_000_000
"""Bytes of a checkpoint."""
_TEXT, _LIST, _NUMBER = 20_000, 1_000, 2**53
_NAMED = 12
"""Problems that are named; of more, how many there are."""


def checkpoint_from(
    json: bytes | str, *, source: str = "the checkpoint", session: str = "", newest: tuple[int, int] | None = None
) -> Checkpoint:
    """The checkpoint that a text is. Raises `CheckpointRefused`, which names everything that is wrong with it.

    With `session` it has to be of that session; with `newest`, a version and a window, not older than that.
    """
    found = _object(json, source)
    schema = found.get("schema")
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA:
        raise CheckpointRefused(source, [f"it has schema {schema}, this Recto knows up to {SCHEMA}; use a newer Recto"])
    problems: list[str] = [] if "schema" in found else ["schema is missing"]
    current = found.pop("current", "")
    made = _value(Checkpoint, found, "", problems)
    if problems:
        named = problems[:_NAMED] + ([f"and {len(problems) - _NAMED} more"] if len(problems) > _NAMED else [])
        raise CheckpointRefused(source, named)
    assert isinstance(made, Checkpoint)  # noqa: S101  # where there are no problems it was made
    wrong = _contradictions(made, current)
    if session and made.session != session:
        wrong.append(f"it is of session '{made.session}', not of '{session}'")
    if newest is not None and (made.version < newest[0] or made.window < newest[1]):
        wrong.append(
            f"it is stale: version {made.version} in window {made.window}, and version {newest[0]} in window "
            f"{newest[1]} is known"
        )
    if wrong:
        raise CheckpointRefused(source, wrong)
    return made


def _object(json: bytes | str, source: str) -> dict[str, Any]:
    raw = json.encode("utf-8", "replace") if isinstance(json, str) else json
    if len(raw) > LARGEST:
        raise CheckpointRefused(source, [f"it has {len(raw):,} bytes; a checkpoint has at most {LARGEST:,}"])
    try:
        found = parse(text_of(raw))
    except MalformedJson as error:
        raise CheckpointRefused(source, [str(error)]) from None
    if not isinstance(found, dict):
        raise CheckpointRefused(source, ["it is not a JSON object"])
    return dict(found)


def _contradictions(made: Checkpoint, current: object) -> list[str]:
    wrong: list[str] = []
    if made.schema < 1 or made.version < 1:
        wrong.append("schema and version count from 1")
    told = made.current.text if made.current else ""
    if not isinstance(current, str) or current != told:
        status = next((task.status for task in made.subtasks if task.text == current), "")
        by_list = f"by the subtasks it is {told!r:.80}"
        why = f"that subtask is {status}" if status and status != "in_progress" else by_list
        wrong.append(f"current is {current!r:.80}, but {why}")
    return wrong


def _value(hint: Any, value: Any, where: str, problems: list[str]) -> Any:  # noqa: ANN401  # any value of the tree
    if is_dataclass(hint):
        return _made(hint, value, where, problems)
    if get_origin(hint) is tuple:
        return _several(get_args(hint)[0], value, where, problems)
    if get_origin(hint) is Literal:
        if value not in get_args(hint) or not isinstance(value, str):
            known = get_args(hint)
            problems.append(f"{where} is {_short(value)}; it is {', '.join(known[:-1])} or {known[-1]}")
        return value
    if not isinstance(value, hint) or isinstance(value, bool) is not (hint is bool):
        problems.append(f"{where} is {_short(value)}; it has to be {_WORDS[hint]}")
    elif hint is str and len(value) > _TEXT:
        problems.append(f"{where} has {len(value):,} characters; at most {_TEXT:,} are taken")
    elif hint is int and not 0 <= value < _NUMBER:
        problems.append(f"{where} is {_short(value)}; it is a whole number from 0 on")
    return value


def _made(kind: Any, value: Any, where: str, problems: list[str]) -> Any:  # noqa: ANN401
    if not isinstance(value, dict):
        problems.append(f"{where} is {_short(value)}; it has to be an object")
        return None
    hints = get_type_hints(kind)
    before = len(problems)
    known = {one.name: one for one in fields(kind)}
    problems += [f"{_below(where, key)} is not known" for key in value if key not in known]
    given: dict[str, Any] = {}
    for name, one in known.items():
        if name in value:
            given[name] = _value(hints[name], value[name], _below(where, name), problems)
        elif one.default is MISSING and one.default_factory is MISSING:
            problems.append(f"{_below(where, name)} is missing")
    return kind(**given) if len(problems) == before else None


def _several(hint: Any, value: Any, where: str, problems: list[str]) -> tuple[Any, ...]:  # noqa: ANN401
    if not isinstance(value, list):
        problems.append(f"{where} is {_short(value)}; it has to be a list")
        return ()
    if len(value) > _LIST:
        problems.append(f"{where} has {len(value):,} items; at most {_LIST:,} are taken")
        return ()
    return tuple(_value(hint, one, f"{where}[{place}]", problems) for place, one in enumerate(value))


def _below(where: str, name: str) -> str:
    return f"{where}.{name[:60]}" if where else name[:60]


def _short(value: object) -> str:
    return "missing" if isinstance(value, NoneType) else f"{value!r:.60}"


_WORDS = {str: "text", int: "a whole number", bool: "true or false"}
