"""Fact extraction: constraints, preferences, decisions, approvals, obligations, questions, errors and progress.

A fold over messages, by rule and verbatim: each message adds facts or settles earlier ones. Only users and system text
can forbid, prefer or allow; a tool output can only produce errors, whatever it says. The rules know typical wordings,
not meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from recto.context.facts import patterns
from recto.context.facts._todo_lists import TodoItem, todo_changes, todo_list_in
from recto.context.facts.classifier import supersession_score
from recto.context.facts.grounding import fold_words
from recto.context.facts.patterns import Wording
from recto.context.facts.tool_errors import detect_failure, pasted_errors, resolves_failure
from recto.context.facts.types import Fact, FactKind, MessageView
from recto.context.facts.user_text import cut_words, user_sentences
from recto.text.secrets import mask_secrets

MAX_FACTS = 400
"""Number of facts that are kept."""
_MIN_SUPERSESSION_SCORE = 0.5
_MAX_COMPARED = 120
"""Number of user statements that a correction is compared with, newest first."""
_MAX_QUESTION_CHARS = 160
"""Maximum length of a question that is quoted with its answer."""
_CLOSING_CHARS = 700
"""Characters at the end of an assistant message that are searched for questions; earlier ones it answers itself."""
_NEXT_STEP_OPENINGS = ("let me", "let's", "now", "i'll", "i will", "good", "great", "perfect")
"""How a model announces its next step."""
_RETRACTABLE: frozenset[FactKind] = frozenset(("constraint", "preference", "correction", "decision", "approval"))
_RETENTION: dict[FactKind, int] = {
    "constraint": 8, "correction": 8, "preference": 7, "approval": 6, "error": 5, "obligation": 4, "progress": 4,
    "decision": 3, "question": 2,
}  # fmt: skip


def extract_facts(messages: Iterable[MessageView], before: Sequence[Fact] = ()) -> tuple[Fact, ...]:
    """The facts after these messages, in order."""
    ledger = _Ledger(list(before))
    for message in messages:
        ledger.add_message(message)
    return tuple(_limit_facts(ledger.facts))


def by_priority(facts: Iterable[Fact]) -> list[Fact]:
    """The facts by priority, for short budgets; newer ones first among equals."""
    return sorted(facts, key=lambda fact: (_rank(fact), -fact.seq))


def missing_facts(facts: Iterable[Fact], text: str) -> tuple[Fact, ...]:
    """The facts whose words are not in a text; ignoring white space, case and punctuation."""
    text_words = f" {fold_words(text)} "
    return tuple(fact for fact in facts if f" {fold_words(fact.text)} " not in text_words)


_RANKS: dict[FactKind, int] = {
    "constraint": 0, "preference": 0, "correction": 0, "approval": 0, "error": 1, "obligation": 2, "progress": 4,
    "decision": 5, "question": 6,
}  # fmt: skip


def _rank(fact: Fact) -> int:
    if not fact.open:
        return 10
    return 3 if fact.kind == "progress" and fact.about == "in_progress" else _RANKS[fact.kind]


def _limit_facts(facts: list[Fact]) -> list[Fact]:
    if len(facts) <= MAX_FACTS:
        return facts
    order = sorted(
        range(len(facts)),
        key=lambda index: (facts[index].open, facts[index].open and _RETENTION[facts[index].kind], index),
    )
    dropped = set(order[: len(facts) - MAX_FACTS])
    return [fact for index, fact in enumerate(facts) if index not in dropped]


class _Ledger:
    """The facts so far, and how each message changes them."""

    def __init__(self, facts: list[Fact]) -> None:
        self.facts = facts

    def add_message(self, message: MessageView) -> None:
        match message.role:
            case "user":
                self._add_user(message)
            case "assistant":
                self._add_assistant(message)
            case "system":
                self._add_system(message)
            case "tool":
                self._add_result(message)
            case "event":
                pass
        if len(self.facts) > 2 * MAX_FACTS:
            self.facts = _limit_facts(self.facts)

    def _add_user(self, message: MessageView) -> None:
        sentences = user_sentences(message.text)
        self._update_tasks(message)
        if not sentences:
            return
        open_question = next((fact for fact in reversed(self.facts) if _is_open(fact, "question", "assistant")), None)
        self._settle(lambda fact: _is_open(fact, "question", "assistant"))
        if any(patterns.DONE.search(sentence.lower()) for sentence in sentences[:3]):
            self._settle(lambda fact: _is_open(fact, "error", "user"))
        for index, sentence in enumerate(sentences):
            lowered = sentence.lower().replace("’", "'")
            kind = _user_fact_kind(lowered)
            if kind == "correction":
                self._supersede(sentence, message.seq)
            answer_kind = (
                None
                if kind not in (None, "approval") or index > 1
                else _answer_kind(lowered, open_question, alone=len(sentences) == 1)
            )
            if kind := kind or answer_kind:
                quotes_question = bool(answer_kind and open_question and len(open_question.text) <= _MAX_QUESTION_CHARS)
                self._add(
                    kind,
                    f"{open_question.text} — {sentence}" if open_question and quotes_question else sentence,
                    message,
                )
        for line in pasted_errors(message.text):
            self._add("error", line, message, about="pasted")

    def _add_assistant(self, message: MessageView) -> None:
        if message.calls:
            self._settle(lambda fact: fact.open and fact.about == "promised")
        self._update_tasks(message)
        if not message.text.strip():
            return
        self._settle(lambda fact: _is_open(fact, "question", "user"))
        sentences = user_sentences(message.text)
        self._settle_done(sentences)
        for sentence in sentences:
            lowered = sentence.lower().replace("’", "'")
            if sentence.endswith(("?", "？")):
                continue
            if _matches(lowered, patterns.DECISIONS) or _matches(lowered, patterns.CHOICES):
                self._add("decision", sentence, message)
            elif _matches(lowered, patterns.OBLIGATIONS) and not _is_next_step(lowered):
                self._add("obligation", sentence, message)
            elif not message.calls and patterns.PROMISE_START.match(lowered) and not lowered.endswith(":"):
                self._add("obligation", sentence, message, about="promised")
        if not message.calls:
            questions = [
                sentence
                for sentence in user_sentences(message.text[-_CLOSING_CHARS:])
                if sentence.endswith(("?", "？"))
            ]
            for question in questions[-3:]:
                self._add("question", question, message)

    def _add_system(self, message: MessageView) -> None:
        for sentence in user_sentences(message.text):
            if _matches(sentence.lower().replace("’", "'"), patterns.CONSTRAINTS):
                self._add("constraint", sentence, message)

    def _add_result(self, message: MessageView) -> None:
        failure = detect_failure(message)
        if failure.call:
            self._settle(lambda fact: _is_open(fact, "error", "tool") and resolves_failure(failure.call, fact.about))
        if failure.lines:
            for line in failure.lines:
                self._add("error", line, message, about=failure.call)

    def _update_tasks(self, message: MessageView) -> None:
        tasks = todo_list_in(message)
        if tasks is not None:
            self.facts = [fact for fact in self.facts if fact.kind != "progress"]
            for task in tasks:
                self._add_task(task, message)
        known = [fact for fact in self.facts if fact.kind == "progress"]
        for index, task in todo_changes(message, len(known)):
            if index == len(known):
                self._add_task(task, message)
                known = [fact for fact in self.facts if fact.kind == "progress"]
            elif index < len(known):
                old = known[index]
                new = replace(
                    old, about=task.status, open=task.status != "completed", seq=message.seq, role=message.role
                )
                self.facts = [new if fact is old else fact for fact in self.facts]
                known[index] = new

    def _add_task(self, task: TodoItem, message: MessageView) -> None:
        text = mask_secrets(cut_words(task.text))
        self.facts.append(
            Fact(
                kind="progress",
                text=text,
                seq=message.seq,
                role=message.role,
                open=task.status != "completed",
                about=task.status,
            )
        )

    def _add(self, kind: FactKind, text: str, message: MessageView, about: str = "") -> None:
        text = mask_secrets(cut_words(text))
        key = fold_words(text)
        if not key:
            return
        duplicate = next(
            (
                index
                for index, fact in enumerate(self.facts)
                if fact.kind == kind and fact.open and fold_words(fact.text) == key
            ),
            -1,
        )
        if duplicate >= 0 and kind not in ("error", "question"):
            return
        if duplicate >= 0:
            del self.facts[duplicate]
        self.facts.append(Fact(kind=kind, text=text, seq=message.seq, role=message.role, about=about))

    def _settle(self, is_settled: Callable[[Fact], bool]) -> None:
        self.facts = [replace(fact, open=False) if fact.open and is_settled(fact) else fact for fact in self.facts]

    def _settle_done(self, sentences: Sequence[str]) -> None:
        """Settle obligations that are reported as done in about the same words."""
        done_words = [
            set(fold_words(sentence).split()) for sentence in sentences if patterns.DONE.search(sentence.lower())
        ]
        if done_words:
            self._settle(
                lambda fact: fact.kind == "obligation" and any(_shares_words(fact.text, words) for words in done_words)
            )

    def _supersede(self, correction: str, seq: int) -> None:
        candidates = [
            index
            for index, fact in enumerate(self.facts)
            if fact.open and fact.role == "user" and fact.kind in _RETRACTABLE and fact.seq < seq
        ]
        for index in candidates[-_MAX_COMPARED:]:
            if supersession_score(correction, self.facts[index].text) >= _MIN_SUPERSESSION_SCORE:
                self.facts[index] = replace(self.facts[index], open=False, superseded_by=seq)


def _is_open(fact: Fact, kind: FactKind, role: str) -> bool:
    return fact.open and fact.kind == kind and fact.role == role


def _is_next_step(lowered: str) -> bool:
    return lowered.startswith(_NEXT_STEP_OPENINGS) or lowered.endswith(":")


def _shares_words(text: str, words: set[str]) -> bool:
    text_words = {word for word in fold_words(text).split() if len(word) > 3}
    return bool(text_words) and len(text_words & words) / len(text_words) >= 0.6


def _matches(lowered: str, wordings: Sequence[Wording]) -> bool:
    return any(
        any(cue in lowered for cue in wording.cues) and wording.pattern.search(lowered) is not None
        for wording in wordings
    )


def _user_fact_kind(lowered: str) -> FactKind | None:
    if lowered.endswith(("?", "？", "؟")):
        return "question" if len(lowered.split()) > 2 else None
    if _matches(lowered, (*patterns.CORRECTIONS, *patterns.REBUTTALS)):
        return "correction"
    if _matches(lowered, (*patterns.CONSTRAINTS, *patterns.PROHIBITIONS)):
        return "constraint"
    if _matches(lowered, patterns.OBLIGATIONS):
        return "obligation"
    if _matches(lowered, patterns.CRITICAL):
        return "constraint"
    if _matches(lowered, (*patterns.PREFERENCES, *patterns.EVERGREEN)):
        return "preference"
    if _matches(lowered, (*patterns.DECISIONS, *patterns.USER_DECISIONS, *patterns.CHOICES)):
        return "decision"
    return "approval" if _matches(lowered, patterns.APPROVALS) else None


def _answer_kind(lowered: str, question: Fact | None, *, alone: bool) -> FactKind | None:
    """The kind of a short answer to a question: an approval or a constraint."""
    if question is None or len(lowered) > 80:
        return None
    if patterns.AFFIRMATIVE_START.match(lowered):
        return "approval"
    return "constraint" if alone and patterns.NEGATIVE_START.match(lowered) else None
