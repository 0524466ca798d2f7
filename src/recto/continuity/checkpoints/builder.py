"""Builds checkpoints from facts, notes and files, and from what was set by hand.

A subtask is done only if a task list or a person says so: planned work is never reported as done, and finished work
stays reported when a new list replaces the old one.
The sentence of a decision is split into choice, reason and rejected alternatives, without adding words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from recto.context.facts.claims import fold_words
from recto.context.facts.extraction import by_priority
from recto.context.facts.statements import user_sentences
from recto.context.facts.types import Fact, FactKind, WorkedFile
from recto.context.window.state import MAX_NOTE_CHARS, Note, NoteKind
from recto.continuity.checkpoints.checkpoint import (
    Changes,
    Checkpoint,
    Issue,
    Item,
    ManualState,
    Speaker,
    Status,
    Subtask,
    TaskDecision,
)
from recto.errors import InputError
from recto.text.lazy_re import lazy_re
from recto.text.secrets import mask_secrets

GOAL = 1_200
"""Characters of the goal that are stored; the full text is in its entry."""
MOST = 60
"""Maximum items of each kind."""
_MAX_SUBTASKS = 160
_MAX_CARRIED = 40
"""Subtasks of earlier lists that are still reported as done."""
_MAX_FILES = 20
_MAX_CRITERIA = 8
_MAX_TOOLS = 100
_STATUS: dict[str, Status] = {"in_progress": "in_progress", "completed": "done"}
"""Status words of task lists; everything else is planned."""
_CRITERION = lazy_re(
    r"\b(?:done when|finished when|success(?:ful)? (?:if|when|means|criteri)|acceptance|make sure|ensure|must pass"
    r"|should pass|until (?:all|every|the) |so that (?:all|every|the) \w+ (?:pass|work)|(?:tests?|checks?|build|suite)"
    r" (?:must |should |to )?(?:pass|be green|stay green|succeed)|at least \d|no more than \d|within \d)"
)
"""Phrases that state when a task is done."""
_ADDRESS = lazy_re(r"(?<![\w.:/-])(\[?[A-Za-z0-9.:-]{1,253}\]?):(\d{1,5})(?![\w.:])")
_T = TypeVar("_T")
_REASON = lazy_re(r"(?:,\s{0,3}|\s)(?:because|since|so that|as it|as this|due to)\s{1,3}(\S.{0,400})", re.IGNORECASE)
_ALTERNATIVE = lazy_re(
    r"\b(?:instead of|rather than|in place of|not going with|as opposed to)\s{1,3}(\S.{0,300})", re.IGNORECASE
)
_END = lazy_re(
    r"\s{1,3}[—–-]\s|[;:(]|,\s|\.\s|\b(?:because|since|so that|due to|instead of|rather than)\b", re.IGNORECASE
)
_OR = lazy_re(r"\s{1,3}or\s{1,3}", re.IGNORECASE)
_TRIMMED = " .,;:!)"


def checkpoint_of(
    facts: Sequence[Fact],
    touched: Sequence[WorkedFile],
    notes: Sequence[Note],
    *,
    goal: str,
    version: int,
    window: int,
    last: int,
) -> Checkpoint:
    """Build the checkpoint of a task."""
    ordered = [fact for fact in by_priority(facts) if fact.open]

    def of(*kinds: FactKind) -> list[Fact]:
        return [fact for fact in ordered if fact.kind in kinds]

    def items(*kinds: FactKind) -> tuple[Item, ...]:
        return tuple(Item(text=fact.text, seq=fact.seq, by=_speaker(fact)) for fact in of(*kinds))

    def noted(kind: NoteKind) -> tuple[Item, ...]:
        return tuple(Item(text=note.text, seq=note.seq, by="agent") for note in reversed(notes) if note.kind == kind)

    decisions = [decision_in(fact.text, fact.seq, _speaker(fact)) for fact in of("decision")]
    decisions += [decision_in(note.text, note.seq, "agent") for note in noted("decisions")]
    issues = [
        Issue(error=f.text, reproduction="" if f.about == "pasted" else f.about, seq=f.seq, by=_speaker(f))
        for f in of("error")
    ]
    issues += [Issue(error=note.text, seq=note.seq, by="agent") for note in noted("bugs")]
    newest = sorted(touched, key=lambda file: (file.edits > 0, file.last), reverse=True)
    return Checkpoint(
        version=version,
        window=window,
        last=last,
        goal=goal[:GOAL],
        success_criteria=tuple(Item(text=sentence) for sentence in criteria_in(goal)),
        constraints=(
            *items("constraint", "instruction", "preference", "correction", "approval"),
            *noted("constraints"),
        )[:MOST],
        subtasks=_listed(facts),
        decisions=tuple(decisions[:MOST]),
        open_issues=tuple(issues[:MOST]),
        promises=items("obligation", "deferral")[:MOST],
        questions=items("question")[:MOST],
        learnings=noted("learnings")[:MOST],
        files=tuple(file.path for file in newest[:_MAX_FILES]),
        notes=tuple(notes),
    )


def criteria_in(goal: str) -> list[str]:
    """Return the sentences of a task that state when it is done."""
    return [mask_secrets(sentence) for sentence in user_sentences(goal) if _CRITERION.search(sentence.lower())][
        :_MAX_CRITERIA
    ]


def carried(checkpoint: Checkpoint, previous: Checkpoint | None) -> Checkpoint:
    """Add finished subtasks of the previous checkpoint that a new list no longer contains, and its tools."""
    if previous is None:
        return checkpoint
    checkpoint = with_tools(checkpoint, previous.tools)
    listed = {fold_words(task.text) for task in checkpoint.subtasks}
    done = [task for task in previous.subtasks if task.status == "done" and fold_words(task.text) not in listed]
    return replace(checkpoint, subtasks=(*done[-_MAX_CARRIED:], *checkpoint.subtasks)[-_MAX_SUBTASKS:])


def with_tools(checkpoint: Checkpoint, tools: Iterable[str]) -> Checkpoint:
    """Add tools that were called earlier; those that were called last are kept."""
    return replace(checkpoint, tools=tuple(dict.fromkeys((*checkpoint.tools, *tools)))[:_MAX_TOOLS])


def with_given(checkpoint: Checkpoint, given: ManualState) -> Checkpoint:
    """Apply what was set by hand; of two statements about one subtask the later one counts."""
    tasks = {fold_words(task.text): task for task in checkpoint.subtasks}
    for task in given.subtasks:
        known = tasks.get(fold_words(task.text))
        if known is None or task.seq >= known.seq:
            tasks[fold_words(task.text)] = replace(task, text=known.text if known else task.text)
    solved_at = {fold_words(one.text): one.seq for one in given.solved}
    issues = [
        issue
        for issue in _first((*given.issues, *checkpoint.open_issues), [i.error for i in given.issues])
        if issue.seq > solved_at.get(fold_words(issue.error), -1)
    ]
    return replace(
        checkpoint,
        goal=given.goal or checkpoint.goal,
        goal_seq=0 if given.goal else checkpoint.goal_seq,
        success_criteria=given.success_criteria or checkpoint.success_criteria,
        constraints=_unique((*checkpoint.constraints, *given.constraints), MOST),
        subtasks=tuple(tasks.values())[:_MAX_SUBTASKS],
        open_issues=tuple(issues[:MOST]),
        decisions=(*given.decisions, *checkpoint.decisions)[:MOST],
        learnings=_unique((*given.learnings, *checkpoint.learnings), MOST),
        given=given,
    )


def changed(given: ManualState, changes: Changes, checkpoint: Checkpoint, seq: int) -> ManualState:
    """Return the manual state after these changes, stated in entry `seq`. Raises `InputError` for invalid changes."""
    for text in _texts(changes):
        if not text.strip() or len(text) > MAX_NOTE_CHARS:
            raise InputError(f"a text of a checkpoint has 1 to {MAX_NOTE_CHARS:,} characters each. Nothing was stored.")
    for address in changes.services:
        address_in(address)
    tasks = {fold_words(task.text): task for task in given.subtasks}
    by_status: tuple[tuple[Status, tuple[str, ...]], ...] = (
        ("planned", changes.plan),
        ("in_progress", changes.doing),
        ("done", changes.done),
    )
    for status, texts in by_status:
        for text in texts:
            named = text if status == "planned" else _named(text, (*checkpoint.subtasks, *tasks.values()))
            tasks.pop(fold_words(named), None)
            tasks[fold_words(named)] = Subtask(text=mask_secrets(named), status=status, seq=seq)
    reopened = {fold_words(text) for text in changes.issues}
    still_solved = tuple(one for one in given.solved if fold_words(one.text) not in reopened)
    solved = [_issue_named(text, checkpoint.open_issues) for text in changes.solved]
    return ManualState(
        goal=mask_secrets(changes.goal) or given.goal,
        success_criteria=_items_of(changes.success_criteria, seq) or given.success_criteria,
        constraints=given.constraints,
        subtasks=tuple(tasks.values())[-_MAX_SUBTASKS:],
        issues=(*given.issues, *(Issue(error=mask_secrets(text), seq=seq, by="agent") for text in changes.issues))[
            -MOST:
        ],
        solved=(*still_solved, *(Item(text=text, seq=seq, by="agent") for text in solved))[-MOST:],
        decisions=(*(decision_in(mask_secrets(text), seq, "agent") for text in changes.decisions), *given.decisions)[
            :MOST
        ],
        learnings=(*_items_of(changes.learnings, seq), *given.learnings)[:MOST],
        services=tuple(dict.fromkeys((*given.services, *changes.services)))[-MOST:],
    )


def taken_over(checkpoint: Checkpoint) -> ManualState:
    """Convert a checkpoint of another transcript to manual state: its entry numbers do not apply here."""
    return ManualState(
        goal=checkpoint.goal,
        success_criteria=tuple(replace(item, seq=0) for item in checkpoint.success_criteria),
        constraints=tuple(replace(item, seq=0) for item in checkpoint.constraints),
        subtasks=tuple(replace(item, seq=0) for item in checkpoint.subtasks),
        issues=tuple(replace(item, seq=0) for item in checkpoint.open_issues),
        decisions=tuple(replace(item, seq=0) for item in checkpoint.decisions),
        learnings=tuple(replace(item, seq=0) for item in checkpoint.learnings),
        services=tuple(service.address for service in checkpoint.environment.services),
    )


def services_in(notes: Iterable[Note], limit: int = 8) -> list[str]:
    """Return the local services that notes mention."""
    services: dict[str, None] = {}
    for note in notes:
        for host, port in _ADDRESS.findall(note.text):
            if host.lower() in ("localhost", "127.0.0.1", "[::1]") and 0 < int(port) < 65_536:
                services[f"{host.lower()}:{int(port)}"] = None
    return list(services)[-limit:]


def address_in(text: str) -> tuple[str, int]:
    """Parse host and port of a service. Raises `InputError` for anything else."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[2]) < 65_536:
        raise InputError(f"{text!r:.80} is not a service; one looks like localhost:5432. Nothing was stored.")
    return match[1].strip("[]").lower(), int(match[2])


def _listed(facts: Sequence[Fact]) -> tuple[Subtask, ...]:
    tasks = [fact for fact in facts if fact.kind == "progress"]
    return tuple(
        Subtask(text=fact.text, status=_STATUS.get(fact.about, "planned"), seq=fact.seq)
        for fact in tasks[:_MAX_SUBTASKS]
    )


def _named(text: str, subtasks: Sequence[Subtask]) -> str:
    """The subtask that a text refers to: the one with the same words, or the only one that contains them."""
    words = fold_words(text)
    if any(fold_words(task.text) == words for task in subtasks):
        return text
    matches = {fold_words(task.text): task.text for task in subtasks if words and words in fold_words(task.text)}
    texts = list(matches.values())
    if len(texts) > 1:
        raise InputError(
            f"several subtasks say '{text[:80]}': {'; '.join(other[:80] for other in texts[:5])}. Say more."
        )
    return texts[0] if texts else text


def _issue_named(text: str, issues: Sequence[Issue]) -> str:
    words = fold_words(text)
    matches = [issue.error for issue in issues if words and words in fold_words(issue.error)]
    if not matches:
        raise InputError(f"no open issue says '{text[:80]}'. Nothing was stored.")
    return matches[0]


def _texts(changes: Changes) -> list[str]:
    groups = (
        changes.success_criteria, changes.plan, changes.doing, changes.done, changes.issues, changes.solved,
        changes.decisions, changes.learnings, changes.services,
    )  # fmt: skip
    return [text for texts in groups for text in texts] + ([changes.goal] if changes.goal else [])


def _items_of(texts: Iterable[str], seq: int) -> tuple[Item, ...]:
    return tuple(Item(text=mask_secrets(text), seq=seq, by="agent") for text in texts)


def _unique(items: Iterable[Item], limit: int) -> tuple[Item, ...]:
    unique: dict[str, Item] = {}
    for item in items:
        unique.setdefault(fold_words(item.text), item)
    return tuple(unique.values())[:limit]


def _first(issues: Sequence[Issue], first: Sequence[str]) -> list[Issue]:
    """Each issue once; those named by hand come first."""
    unique: dict[str, Issue] = {}
    for issue in issues:
        unique.setdefault(fold_words(issue.error), issue)
    named = {fold_words(error) for error in first}
    return sorted(unique.values(), key=lambda issue: fold_words(issue.error) not in named)


def _speaker(fact: Fact) -> Speaker:
    return "agent" if fact.role == "event" else fact.role


def decision_in(text: str, seq: int = 0, by: Speaker = "assistant") -> TaskDecision:
    """Parse a decision; the sentence itself stays complete."""
    why = _REASON.search(text)
    against = _ALTERNATIVE.search(text)
    return TaskDecision(
        decision=text,
        rationale=_until(why[1], _ALTERNATIVE).strip(_TRIMMED) if why else "",
        alternatives=_split_alternatives(against[1]) if against else (),
        seq=seq,
        by=by,
    )


def _until(text: str, end: re.Pattern[str]) -> str:
    match = end.search(text)
    return text[: match.start()] if match else text


def _split_alternatives(text: str) -> tuple[str, ...]:
    alternatives = (text.strip(_TRIMMED) for text in _OR.split(_until(text, _END)))
    return tuple(text for text in alternatives if text)[:5]
