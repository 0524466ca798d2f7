"""The ledger: what was asked, forbidden, decided, allowed, promised, asked for, broken and done, by rule and verbatim.

It is a fold: what was known before, and what each message adds to it or settles. Only people and system text forbid,
prefer and allow; a tool's output makes errors and nothing else, whatever it says. What words mean is not known here,
only how people say such things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from recto.context.facts import patterns
from recto.context.facts.classifier import supersedes
from recto.context.facts.grounding import folded
from recto.context.facts.patterns import Wording
from recto.context.facts.todo_lists import TodoItem, changed_tasks, tasks_of
from recto.context.facts.tool_errors import failure_of, pasted_errors, settles
from recto.context.facts.types import Fact, FactKind, MessageView
from recto.context.facts.user_text import cut, sentences_of
from recto.text.secrets import mask_secrets

MOST = 400
"""Facts that are kept."""
_TAKEN_BACK = 0.5
_COMPARED = 120
"""Statements of the user that a correction is held against, newest first."""
_SHORT = 160
"""Characters of a question that is told with its answer."""
_ASKED_AT_END = 700
"""Characters at the end of a message in which the model asks; what it asks before, it answers itself."""
_AT_ONCE = ("let me", "let's", "now", "i'll", "i will", "good", "great", "perfect")
"""How a model begins to say what it does in the next step."""
_STANDING: frozenset[FactKind] = frozenset(("constraint", "preference", "correction", "decision", "approval"))
_LAST_TO_LEAVE: dict[FactKind, int] = {
    "constraint": 8, "correction": 8, "preference": 7, "approval": 6, "error": 5, "obligation": 4, "progress": 4,
    "decision": 3, "question": 2,
}  # fmt: skip


def facts_of(told: Iterable[MessageView], before: Sequence[Fact] = ()) -> tuple[Fact, ...]:
    """What must not be lost after these messages, in the order in which it was said."""
    ledger = _Ledger(list(before))
    for one in told:
        ledger.take(one)
    return tuple(_fitting(ledger.facts))


def critical_first(facts: Iterable[Fact]) -> list[Fact]:
    """The facts in the order in which they matter where room is short; newer ones first among equals."""
    return sorted(facts, key=lambda fact: (_rank(fact), -fact.seq))


def missing(facts: Iterable[Fact], text: str) -> tuple[Fact, ...]:
    """The facts whose words do not stand in a text; white space, case and marks aside."""
    words = f" {folded(text)} "
    return tuple(fact for fact in facts if f" {folded(fact.text)} " not in words)


_RANKS: dict[FactKind, int] = {
    "constraint": 0, "preference": 0, "correction": 0, "approval": 0, "error": 1, "obligation": 2, "progress": 4,
    "decision": 5, "question": 6,
}  # fmt: skip


def _rank(fact: Fact) -> int:
    if not fact.open:
        return 10
    return 3 if fact.kind == "progress" and fact.about == "in_progress" else _RANKS[fact.kind]


def _fitting(facts: list[Fact]) -> list[Fact]:
    if len(facts) <= MOST:
        return facts
    order = sorted(
        range(len(facts)), key=lambda at: (facts[at].open, facts[at].open and _LAST_TO_LEAVE[facts[at].kind], at)
    )
    leaving = set(order[: len(facts) - MOST])
    return [fact for at, fact in enumerate(facts) if at not in leaving]


class _Ledger:
    """The facts so far, and how each message changes them."""

    def __init__(self, facts: list[Fact]) -> None:
        self.facts = facts

    def take(self, one: MessageView) -> None:
        match one.role:
            case "user":
                self._take_user(one)
            case "assistant":
                self._take_assistant(one)
            case "system":
                self._take_system(one)
            case "tool":
                self._take_result(one)
            case "event":
                pass
        if len(self.facts) > 2 * MOST:
            self.facts = _fitting(self.facts)

    def _take_user(self, one: MessageView) -> None:
        sentences = sentences_of(one.text)
        self._tasks(one)
        if not sentences:
            return
        asked = next((fact for fact in reversed(self.facts) if _is_open(fact, "question", "assistant")), None)
        self._settle(lambda fact: _is_open(fact, "question", "assistant"))
        if any(patterns.DONE.search(sentence.lower()) for sentence in sentences[:3]):
            self._settle(lambda fact: _is_open(fact, "error", "user"))
        for place, sentence in enumerate(sentences):
            lowered = sentence.lower().replace("’", "'")
            kind = _kind_by_user(lowered)
            if kind == "correction":
                self._take_back(sentence, one.seq)
            answers = (
                None
                if kind not in (None, "approval") or place > 1
                else _answer(lowered, asked, alone=len(sentences) == 1)
            )
            if kind := kind or answers:
                told = bool(answers and asked and len(asked.text) <= _SHORT)
                self._add(kind, f"{asked.text} — {sentence}" if asked and told else sentence, one)
        for line in pasted_errors(one.text):
            self._add("error", line, one, about="pasted")

    def _take_assistant(self, one: MessageView) -> None:
        if one.calls:
            self._settle(lambda fact: fact.open and fact.about == "promised")
        self._tasks(one)
        if not one.text.strip():
            return
        self._settle(lambda fact: _is_open(fact, "question", "user"))
        sentences = sentences_of(one.text)
        self._settle_done(sentences)
        for sentence in sentences:
            lowered = sentence.lower().replace("’", "'")
            if sentence.endswith(("?", "？")):
                continue
            if _is_said(lowered, patterns.DECISIONS) or _is_said(lowered, patterns.CHOICES):
                self._add("decision", sentence, one)
            elif _is_said(lowered, patterns.OBLIGATIONS) and not _is_next_step(lowered):
                self._add("obligation", sentence, one)
            elif not one.calls and patterns.PROMISES.match(lowered) and not lowered.endswith(":"):
                self._add("obligation", sentence, one, about="promised")
        if not one.calls:
            asked = [said for said in sentences_of(one.text[-_ASKED_AT_END:]) if said.endswith(("?", "？"))]
            for question in asked[-3:]:
                self._add("question", question, one)

    def _take_system(self, one: MessageView) -> None:
        for sentence in sentences_of(one.text):
            if _is_said(sentence.lower().replace("’", "'"), patterns.CONSTRAINTS):
                self._add("constraint", sentence, one)

    def _take_result(self, one: MessageView) -> None:
        failure = failure_of(one)
        if failure.call:
            self._settle(lambda fact: _is_open(fact, "error", "tool") and settles(failure.call, fact.about))
        if failure.lines:
            for line in failure.lines:
                self._add("error", line, one, about=failure.call)

    def _tasks(self, one: MessageView) -> None:
        tasks = tasks_of(one)
        if tasks is not None:
            self.facts = [fact for fact in self.facts if fact.kind != "progress"]
            for task in tasks:
                self._add_task(task, one)
        known = [fact for fact in self.facts if fact.kind == "progress"]
        for place, task in changed_tasks(one, len(known)):
            if place == len(known):
                self._add_task(task, one)
                known = [fact for fact in self.facts if fact.kind == "progress"]
            elif place < len(known):
                old = known[place]
                new = replace(old, about=task.status, open=task.status != "completed", seq=one.seq, role=one.role)
                self.facts = [new if fact is old else fact for fact in self.facts]
                known[place] = new

    def _add_task(self, task: TodoItem, one: MessageView) -> None:
        text = mask_secrets(cut(task.text))
        self.facts.append(
            Fact(
                kind="progress",
                text=text,
                seq=one.seq,
                role=one.role,
                open=task.status != "completed",
                about=task.status,
            )
        )

    def _add(self, kind: FactKind, text: str, one: MessageView, about: str = "") -> None:
        text = mask_secrets(cut(text))
        key = folded(text)
        if not key:
            return
        same = next(
            (at for at, fact in enumerate(self.facts) if fact.kind == kind and fact.open and folded(fact.text) == key),
            -1,
        )
        if same >= 0 and kind not in ("error", "question"):
            return
        if same >= 0:
            del self.facts[same]
        self.facts.append(Fact(kind=kind, text=text, seq=one.seq, role=one.role, about=about))

    def _settle(self, settled: Callable[[Fact], bool]) -> None:
        self.facts = [replace(fact, open=False) if fact.open and settled(fact) else fact for fact in self.facts]

    def _settle_done(self, sentences: Sequence[str]) -> None:
        """What was to be done and is said to be done, in about the same words."""
        done = [set(folded(said).split()) for said in sentences if patterns.DONE.search(said.lower())]
        if done:
            self._settle(lambda fact: fact.kind == "obligation" and any(_is_about(fact.text, words) for words in done))

    def _take_back(self, correction: str, seq: int) -> None:
        stated = [
            at
            for at, fact in enumerate(self.facts)
            if fact.open and fact.role == "user" and fact.kind in _STANDING and fact.seq < seq
        ]
        for at in stated[-_COMPARED:]:
            if supersedes(correction, self.facts[at].text) >= _TAKEN_BACK:
                self.facts[at] = replace(self.facts[at], open=False, superseded_by=seq)


def _is_open(fact: Fact, kind: FactKind, role: str) -> bool:
    return fact.open and fact.kind == kind and fact.role == role


def _is_next_step(lowered: str) -> bool:
    return lowered.startswith(_AT_ONCE) or lowered.endswith(":")


def _is_about(text: str, words: set[str]) -> bool:
    own = {word for word in folded(text).split() if len(word) > 3}
    return bool(own) and len(own & words) / len(own) >= 0.6


def _is_said(lowered: str, wordings: Sequence[Wording]) -> bool:
    return any(any(cue in lowered for cue in one.cues) and one.pattern.search(lowered) is not None for one in wordings)


def _kind_by_user(lowered: str) -> FactKind | None:
    if lowered.endswith(("?", "？", "؟")):
        return "question" if len(lowered.split()) > 2 else None
    if _is_said(lowered, (*patterns.CORRECTIONS, *patterns.REBUTTALS)):
        return "correction"
    if _is_said(lowered, (*patterns.CONSTRAINTS, *patterns.FORBIDDING)):
        return "constraint"
    if _is_said(lowered, patterns.OBLIGATIONS):
        return "obligation"
    if _is_said(lowered, patterns.CRITICAL):
        return "constraint"
    if _is_said(lowered, (*patterns.PREFERENCES, *patterns.EVERGREEN)):
        return "preference"
    if _is_said(lowered, (*patterns.DECISIONS, *patterns.USER_DECISIONS, *patterns.CHOICES)):
        return "decision"
    return "approval" if _is_said(lowered, patterns.APPROVALS) else None


def _answer(lowered: str, asked: Fact | None, *, alone: bool) -> FactKind | None:
    """What a short answer to a question is: leave to do it, or a ban."""
    if asked is None or len(lowered) > 80:
        return None
    if patterns.AGREEING.match(lowered):
        return "approval"
    return "constraint" if alone and patterns.DENYING.match(lowered) else None
