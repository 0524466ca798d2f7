"""The state of a task as values: what a checkpoint holds, and what may be set in it by hand.

Statements are quoted verbatim, with their entry. What was set by hand is marked as such and never passes for the user's
words. Nothing is decided here.

Parsing names every problem and guesses nothing. Refused are texts that are not a JSON object, missing or unknown
fields, wrong types, a newer schema, a checkpoint of another session, and one older than what is known.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from msgspec import Struct, field, structs, to_builtins

from recto.context.window.state import Note
from recto.errors import CheckpointRefused, InputError, MalformedJson
from recto.formats.json_spans import parse, text_of
from recto.text.secrets import mask_secrets

BEGUN, CONTINUED, COMPLETED = "a task begins", "the task goes on", "the task is complete"
"""Reasons of the checkpoints at the beginning of a task, when a program takes it up again, and at its end."""
SCHEMA = 1
"""Version of this schema; a higher one was written by a newer Recto."""
MAX_TEXT = 20_000
"""Characters of one text in a checkpoint."""
Status = Literal["planned", "in_progress", "done"]
Speaker = Literal["system", "user", "assistant", "tool", "agent"]
"""Who said it; `agent` if it was noted or set by hand."""


class Item(Struct, frozen=True, kw_only=True):
    """A statement, verbatim."""

    text: str
    seq: int = 0
    """Its entry; 0 if it is not in this transcript."""
    by: Speaker = "user"


class Subtask(Struct, frozen=True, kw_only=True):
    """A part of the work and its status."""

    text: str
    status: Status
    seq: int = 0
    """The entry that states it."""


class TaskDecision(Struct, frozen=True, kw_only=True):
    """A decision."""

    decision: str
    rationale: str = ""
    """The reason, as far as the wording states it."""
    alternatives: tuple[str, ...] = ()
    """The rejected alternatives, as far as the wording states them."""
    seq: int = 0
    by: Speaker = "assistant"


class Issue(Struct, frozen=True, kw_only=True):
    """An unresolved problem."""

    error: str
    reproduction: str = ""
    """The call that shows it; empty if unknown."""
    seq: int = 0
    by: Speaker = "tool"


class FileState(Struct, frozen=True, kw_only=True):
    """The recorded state of a file."""

    path: str
    """Relative to the directory."""
    size: int
    modified: int
    """Microseconds since 1970."""
    digest: str = ""
    """SHA-256 of the content; empty if the file was too large to read."""


class Service(Struct, frozen=True, kw_only=True):
    """A network service."""

    address: str
    """`host:port`."""
    alive: bool
    """Whether it answered when it was probed."""


class Environment(Struct, frozen=True, kw_only=True):
    """The recorded state of the working environment."""

    directory: str = ""
    """Empty if it was not probed."""
    branch: str = ""
    head: str = ""
    """The commit; empty outside of git."""
    dirty: tuple[str, ...] = ()
    """Files that differ from it."""
    paths: tuple[FileState, ...] = ()
    missing: tuple[str, ...] = ()
    """Paths that were probed and do not exist."""
    services: tuple[Service, ...] = ()


class ManualState(Struct, frozen=True, kw_only=True):
    """State set by hand, or imported from a checkpoint of another transcript. It applies until it is set again."""

    goal: str = ""
    success_criteria: tuple[Item, ...] = ()
    constraints: tuple[Item, ...] = ()
    """Of the task that a program stated, or imported; others are stated by people in the transcript."""
    subtasks: tuple[Subtask, ...] = ()
    """Each with the entry after which it was set; later statements of the task list take precedence."""
    issues: tuple[Issue, ...] = ()
    solved: tuple[Item, ...] = ()
    """Solved issues, with the entry after which that was stated."""
    decisions: tuple[TaskDecision, ...] = ()
    learnings: tuple[Item, ...] = ()
    services: tuple[str, ...] = ()


class TaskStatement(Struct, frozen=True, kw_only=True):
    """A task in the words of the program that gives it: in every prompt until it is complete."""

    goal: str = ""
    success_criteria: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.goal or self.success_criteria or self.constraints)

    @property
    def text(self) -> str:
        """The task as it is in the prompt."""
        parts = ["# Task"]
        parts += [self.goal.strip()] if self.goal.strip() else []
        for title, items in (("Done when", self.success_criteria), ("Constraints", self.constraints)):
            parts += ["\n".join((f"{title}:", *(f"- {item.strip()}" for item in items)))] if items else []
        return "\n\n".join(parts) if len(parts) > 1 else ""

    def as_given(self) -> ManualState:
        """The task as a checkpoint holds it."""
        goal = mask_secrets(self.goal)[:MAX_TEXT]
        criteria, constraints = (
            tuple(Item(text=mask_secrets(text)[:MAX_TEXT], by="agent") for text in items)
            for items in (self.success_criteria, self.constraints)
        )
        return ManualState(goal=goal, success_criteria=criteria, constraints=constraints)

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> TaskStatement:
        """The task of a checkpoint, as far as a program stated it."""
        given = checkpoint.given
        return cls(
            goal=given.goal,
            success_criteria=tuple(item.text for item in given.success_criteria),
            constraints=tuple(item.text for item in given.constraints),
        )


class Changes(Struct, frozen=True, kw_only=True):
    """Changes to a checkpoint made by hand. Empty fields are unchanged."""

    goal: str = ""
    success_criteria: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    """Planned subtasks."""
    doing: tuple[str, ...] = ()
    """Subtasks in progress; the last is the current one."""
    done: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()
    solved: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    learnings: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    """`host:port` of services that the work needs."""


class Checkpoint(Struct, frozen=True, kw_only=True):
    """The state of a task."""

    schema: int = SCHEMA
    session: str = ""
    version: int
    """Increases within a session."""
    window: int
    """Number of the window; never decreases."""
    last: int
    """The last entry it covers."""
    reason: str = ""
    """Why it was written."""
    goal: str
    goal_seq: int = 0
    """The entry with the full goal."""
    success_criteria: tuple[Item, ...] = ()
    constraints: tuple[Item, ...] = ()
    """What the user wants, does not want, corrected and agreed to."""
    subtasks: tuple[Subtask, ...] = ()
    decisions: tuple[TaskDecision, ...] = ()
    open_issues: tuple[Issue, ...] = ()
    promises: tuple[Item, ...] = ()
    """What was promised or postponed."""
    questions: tuple[Item, ...] = ()
    learnings: tuple[Item, ...] = ()
    environment: Environment = field(default_factory=Environment)
    files: tuple[str, ...] = ()
    """Files that were worked on, the most important first."""
    tools: tuple[str, ...] = ()
    """Tools that the work called, the last one first."""
    notes: tuple[Note, ...] = ()
    summary: str = ""
    """Pointer to the summary of what was evicted."""
    given: ManualState = field(default_factory=ManualState)

    @property
    def is_complete(self) -> bool:
        """Whether its task is over: nothing waits to be taken up."""
        return self.reason == COMPLETED

    @property
    def current(self) -> Subtask | None:
        """The current subtask: the one started last, else the first planned one."""
        started = [task for task in self.subtasks if task.status == "in_progress"]
        if started:
            return max(started, key=lambda task: task.seq)
        return next((task for task in self.subtasks if task.status == "planned"), None)

    def to_json(self) -> dict[str, Any]:
        """The stored form, as event and file; `current` is added for readers."""
        stored: dict[str, Any] = to_builtins(self)
        return stored | {"current": self.current.text if self.current else ""}


def changes_given(given: Mapping[str, str | Sequence[str]]) -> Changes | None:
    """Validate changes to a checkpoint: each value is a text, or several."""
    known = Changes.__struct_fields__
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; it has {', '.join(known)}"
            raise InputError(f"a checkpoint has no '{name}' that can be set{hint}")
        values = [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [value]
        if not all(isinstance(text, str) for text in values) or (name == "goal" and len(values) != 1):
            wanted = "a text" if name == "goal" else "a text, or several"
            raise InputError(f"'{name}' of a checkpoint is {wanted}. Nothing was stored.")
    if not given:
        return None
    goal = given.get("goal", "")
    texts = {name: (value,) if isinstance(value, str) else tuple(value) for name, value in given.items()}
    texts.pop("goal", None)
    return Changes(goal=goal if isinstance(goal, str) else goal[0], **texts)


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
    if isinstance(hint, type) and issubclass(hint, Struct):
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
    before = len(problems)
    known = _fields_of(kind)
    problems += [f"{_below(where, key)} is not known" for key in value if key not in known]
    values: dict[str, Any] = {}
    for name, item in known.items():
        if name in value:
            values[name] = _value(item.type, value[name], _below(where, name), problems)
        elif item.required:
            problems.append(f"{_below(where, name)} is missing")
    return kind(**values) if len(problems) == before else None


@cache
def _fields_of(kind: Any) -> dict[str, structs.FieldInfo]:  # noqa: ANN401
    """The fields of a class by name; reading their types takes longer than building a value."""
    return {item.name: item for item in structs.fields(kind)}


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
