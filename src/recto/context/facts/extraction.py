"""Fact extraction: constraints, preferences, decisions, approvals, obligations, questions, errors and progress.

A fold over messages, by rule and verbatim: each message adds facts or settles earlier ones. Only users and system text
can forbid, prefer or allow; a tool output can only produce errors, whatever it says. Of a user's sentences every one is
kept that is not shown to be a question, a reaction, a report or a request of the moment. The rules know grammar and
typical wordings, not meaning. The result is bounded, and the state from which the fold goes on.

Two kinds of facts have parsers of their own here: the agent's to-do lists, and short answers of the user, which are
kept with the question they answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from recto.context.facts import patterns
from recto.context.facts.claims import FoldedText, fold_words
from recto.context.facts.patterns import Wording
from recto.context.facts.statements import (
    STANDING,
    cut_words,
    is_document,
    is_momentary,
    is_negative,
    is_passing,
    may_take_back,
    mentions_code,
    own_lines,
    split_sentences,
    statement_kind,
    subject_of,
    takes_back,
    user_sentences,
)
from recto.context.facts.tool_use import (
    PASTED,
    REFUSAL,
    detect_failure,
    pasted_errors,
    resolves_error,
    words_in_refusal,
)
from recto.context.facts.types import Fact, FactKind, MessageView, ToolCall
from recto.text.lazy_re import lazy_re
from recto.text.secrets import mask_secrets

_MAX_ANSWER_CHARS = 80
"""Length of a sentence that is an answer rather than a statement of its own."""
_MAX_OWN_WORDS = 5
"""Words up to which even a statement with a kind of its own is understood only together with the question."""
_MAX_QUESTION_CHARS = 160
"""Characters quoted of the questions."""
_OPTION_CHARS = 90
_MAX_OPTIONS = 8
_MAX_READ_CHARS = 3_000
"""Characters at the end of a message that are searched for options."""
_OPTION = lazy_re(
    r"^\s{0,6}(?:[-*•|]\s{1,3})?\**(?:[Oo]ption\s)?(\d{1,2}|[A-Fa-f])\s?[.):]\**\s{1,3}(\S[^\n]{2,})$", re.MULTILINE
)
_LABELS = lazy_re(
    r"(?:(?:i think|let's|go with|do|use|option|options|variant|plan|number|no|nr|take|and|und|et|y|or|both|yes|ok"
    r"|the)\b|[\s,+&/.#()!和与]|(?P<label>(?:\d{1,2}|[a-f])(?!\w))){1,24}",
    re.IGNORECASE,
)
_FIRST_LABEL = lazy_re(
    r"\W{0,3}(?:(?:i think|let's (?:go with|do)|go with|i like|yeah|yes|ok|option|do)[, ]{1,3}){0,3}"
    r"(\d{1,2}|[a-f])(?=[).:,](?!\d)|$"
    r"|\s(?:is|seems|looks|sounds) (?:good|fine|best|better|great|ok|okay|right|perfect)\b)"
)
"""The label with which a longer answer begins: `B), let's start with …`."""
_LABEL = lazy_re(r"(?<![\w.])(\d{1,2}|[A-Fa-f])(?![\w%])")
_AGREES = lazy_re(
    r"\W{0,4}(?:yes|yep|yeah|yup|sure|ok|okay|great|perfect|sounds good|looks good|lgtm|fine|works for me|agreed|"
    r"correct|exactly|absolutely|definitely|of course|please do|do it|go|all good|ja|jo|klar|genau|gerne?|oui|ouais|"
    r"bien sûr|d'accord|sí|si|vale|claro|de acuerdo|sim|да|نعم|好|是|可以|对|行|嗯|はい|네)(?!\w)(?!\s{0,2}but\b)",
    re.IGNORECASE,
)


def answer_to(questions: Sequence[Fact], sentence: str, kind: FactKind | None) -> tuple[FactKind, str] | None:
    """The kind and the text of a sentence that answers open questions; None if it is complete on its own."""
    if sentence.endswith(("?", "？", "؟", ":", "]")):
        return None
    lowered = sentence.lower().replace("’", "'")
    first = None if _labels_of(lowered) else _FIRST_LABEL.match(lowered)
    if first and any(line.partition(".")[0].lower() == first[1] for line in questions[-1].about.splitlines()):
        return kind or "decision", f"{_quoted(questions, frozenset((first[1],)))} — {sentence}"
    if len(sentence) > _MAX_ANSWER_CHARS:
        return None
    agrees = _AGREES.match(lowered) is not None
    refuses = patterns.NEGATIVE_START.match(lowered) is not None
    labels = _labels_of(lowered)
    if not (agrees or refuses or labels):
        if kind is not None and len(sentence.split()) > _MAX_OWN_WORDS:
            return None
        if kind is None and is_momentary(sentence):
            return None
    answer_kind: FactKind = "constraint" if refuses and kind not in ("approval", "deferral") else kind or "decision"
    if agrees and kind in (None, "decision", "instruction", "circumstance"):
        answer_kind = "approval"
    return answer_kind, f"{_quoted(questions, labels)} — {sentence}"


def options_in(text: str) -> str:
    """The labelled options at the end of an assistant's message, one per line; empty if there are none."""
    options: list[str] = []
    for label, option in _OPTION.findall(text[-_MAX_READ_CHARS:]):
        if label.upper() in ("1", "A"):
            options.clear()
        options.append(f"{label}. {' '.join(option.replace('*', '').split())[:_OPTION_CHARS]}")
    return "\n".join(options[:_MAX_OPTIONS]) if len(options) > 1 else ""


def _labels_of(lowered: str) -> frozenset[str]:
    """The labels of options, if an answer consists of them."""
    return frozenset(_LABEL.findall(lowered)) if _LABELS.fullmatch(lowered) else frozenset()


def _quoted(questions: Sequence[Fact], labels: frozenset[str]) -> str:
    question = " ".join(fact.text for fact in questions)
    if len(question) > _MAX_QUESTION_CHARS:
        question = f"… {question[-_MAX_QUESTION_CHARS:].partition(' ')[2]}"
    options = questions[-1].about.splitlines() if labels else []
    chosen = [option for option in options if option.partition(".")[0].lower() in labels]
    return f"{question} [{'; '.join(chosen)}]" if chosen else question


_LIST_KEYS = ("todos", "tasks", "plan", "steps", "items")
_TEXT_KEYS = ("content", "step", "subject", "title", "text", "description", "task", "name")
_STATUS_KEYS = ("status", "state")
_CHECKBOX = lazy_re(r"^\s{0,12}(?:[-*+]|\d{1,3}[.)])\s{1,4}\[([ xX~✓✔-])\]\s{1,4}(\S[^\n]{0,600})$", re.MULTILINE)
_MAX_ITEMS = 100
_MAX_ARGUMENT_CHARS = 200_000
"""Characters of arguments that are read."""
_MAX_REMEMBERED_CHARS = 8_000
"""Characters of a message or of the arguments of a call whose reading is remembered."""
_DONE = frozenset(
    ("completed", "complete", "done", "finished", "cancelled", "canceled", "deleted", "skipped", "closed")
)
_STARTED = frozenset(("in_progress", "in progress", "inprogress", "active", "doing", "started", "running"))


class TodoItem(Struct, frozen=True):
    """Something to do, in the agent's words."""

    text: str
    status: str
    """`pending`, `in_progress` or `completed`."""


def todo_list_in(message: MessageView) -> Sequence[TodoItem] | None:
    """The list a message writes, which replaces the previous one; None if it writes none."""
    if message.role == "assistant":
        for call in reversed(message.calls):
            read = _read_short_items if len(call.arguments) <= _MAX_REMEMBERED_CHARS else _read_items
            if (items := read(call.arguments)) is not None:
                return items
    if message.role in ("assistant", "user") and "[" in message.text:
        boxes = _CHECKBOX.findall(message.text[:_MAX_ARGUMENT_CHARS])
        if len(boxes) >= 2:
            return [
                TodoItem(text.strip(), "completed" if box in "xX✓✔" else "in_progress" if box == "~" else "pending")
                for box, text in boxes[:_MAX_ITEMS]
            ]
    return None


def todo_state(call: ToolCall) -> str:
    """What a call writes that a newer one replaces: the list of a tool, or one task; empty if it writes neither."""
    read = _read_short_items if len(call.arguments) <= _MAX_REMEMBERED_CHARS else _read_items
    if read(call.arguments) is not None:
        return call.tool
    return f"{call.tool} {_task_id(_parse_arguments(call.arguments))}" if _is_task_call(call, "taskupdate") else ""


def _is_task_call(call: ToolCall, *names: str) -> bool:
    return call.tool.lower().replace("_", "") in names


def _task_id(arguments: Mapping[str, Any]) -> str:
    return str(arguments.get("taskId", arguments.get("task_id", arguments.get("id", ""))))


def todo_changes(message: MessageView) -> list[tuple[int | None, TodoItem]]:
    """Tasks created or updated individually; updated ones with their index in the list."""
    changes: list[tuple[int | None, TodoItem]] = []
    for call in message.calls if message.role == "assistant" else ():
        if not _is_task_call(call, "taskcreate", "taskupdate"):
            continue
        arguments = _parse_arguments(call.arguments)
        if _is_task_call(call, "taskcreate") and (text := _text(arguments)):
            changes.append((None, TodoItem(text, _status(arguments))))
        elif _is_task_call(call, "taskupdate"):
            number = _task_id(arguments)
            if number.isascii() and number.isdigit() and 0 < len(number) < 5 and "status" in arguments:
                changes.append((int(number) - 1, TodoItem("", _status(arguments))))
    return changes


def _parse_arguments(arguments: str) -> Mapping[str, Any]:
    if len(arguments) > _MAX_ARGUMENT_CHARS:
        return {}
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _read_items(arguments: str) -> Sequence[TodoItem] | None:
    parsed = _parse_arguments(arguments)
    for name in _LIST_KEYS:
        items = parsed.get(name)
        if not isinstance(items, list) or not items:
            continue
        tasks = [
            TodoItem(text, _status(item))
            for item in items[:_MAX_ITEMS]
            if isinstance(item, dict) and _has_status(item) and (text := _text(item))
        ]
        if tasks:
            return tasks
    return None


_read_short_items = lru_cache(1024)(_read_items)
"""A call is read again with every eviction before its own."""


def _text(item: Mapping[str, Any]) -> str:
    return next((value for name in _TEXT_KEYS if isinstance(value := item.get(name), str) and value.strip()), "")


def _has_status(item: Mapping[str, Any]) -> bool:
    return any(isinstance(item.get(name), str) for name in _STATUS_KEYS)


def _status(item: Mapping[str, Any]) -> str:
    status = next((value.lower() for name in _STATUS_KEYS if isinstance(value := item.get(name), str)), "")
    return "completed" if status in _DONE else "in_progress" if status in _STARTED else "pending"


MAX_FACTS = 400
"""Number of facts that are kept."""
_REMEMBERED = 4096
"""Sentences whose words are remembered. A relief reads the facts of several folds over the same messages."""
_MAX_COMPARED = 120
"""Number of user statements that a correction is compared with, newest first."""
_MAX_PER_MESSAGE = 24
"""Statements kept of one message."""
_CLOSING_CHARS = 700
"""Characters at the end of an assistant message that are searched for questions; earlier ones it answers itself."""
_NEXT_STEP_OPENINGS = ("let me", "let's", "now", "i'll", "i will", "good", "great", "perfect")
"""How a model announces its next step."""
_RETENTION: dict[FactKind, int] = {
    "constraint": 8, "correction": 8, "approval": 8, "instruction": 7, "preference": 7, "deferral": 6, "error": 5,
    "obligation": 4, "progress": 4, "decision": 3, "circumstance": 3, "question": 2,
}  # fmt: skip
_QUESTION_ENDS = ("?", "？", "؟")
_FIRST_PERSON = lazy_re(
    r"\b(?:i|i'm|my|me|we|we're|our|us|ich|mein\w*|wir|uns\w*|je|j'\w+|mon|ma|mes|nous|notre|nos|on|mi|mis|nuestr\w+|yo)\b|我"
)
_ANSWER = "answer"
"""What a statement is about that answers a question of the assistant."""
_STANDING_RANKS: dict[FactKind, int] = {
    "constraint": 0, "approval": 0, "correction": 0, "instruction": 1, "decision": 2, "preference": 3,
    "circumstance": 4, "deferral": 5, "obligation": 5,
}  # fmt: skip
"""What a short list of standing statements contains first."""
_REPLY_RANKS: dict[FactKind, int] = {"constraint": 2, "approval": 4}
"""The same for answers to questions of the assistant."""
_FORCEFUL: tuple[FactKind, ...] = ("constraint", "approval", "preference")
"""What counts in a text that was pasted."""
_ADVICE = lazy_re(r"^\*\*[^*\n]{2,60}\*\*|\b(?:don't|do not) forget\b|\bremind me\b|\byou(?:r|rself)?\b")
_OWN_WORK = lazy_re(r"\b(?:i|we|let's)\b")
_STANDING_PROMISE = lazy_re(r"\bwhen(?:ever)?\b|\b(?:if|once) you\b|\balways\b")
_MIN_REPORT_SENTENCES, _MIN_REPORT_SHARE = 4, 0.4
"""Sentences of a pasted report, and the share of them that names code."""
_MIN_SAME_SUBJECT = 0.8
"""Share of their words in common from which two statements of the same force say the same."""


def extract_facts(messages: Iterable[MessageView], before: Sequence[Fact] = ()) -> tuple[Fact, ...]:
    """The facts after these messages, in order."""
    ledger = _Ledger(list(before))
    for message in messages:
        ledger.add_message(message)
    return tuple(_limit_facts(ledger.facts))


def settled_facts(facts: Sequence[Fact], since: Iterable[MessageView]) -> tuple[Fact, ...]:
    """The facts as later messages leave them: answered, solved, taken back or still open. None is added."""
    known = {(fact.seq, fact.text) for fact in facts}
    return tuple(fact for fact in extract_facts(since, facts) if (fact.seq, fact.text) in known)


def lasting_sentences(messages: Iterable[MessageView]) -> list[tuple[int, str]]:
    """The user's sentences that are not shown to be over once they are said, with their entries.

    Whatever kind the sentence has, and whether a fact was made of it: what a summary is measured by must not depend on
    what the summary was made of. Questions, requests of the moment, reactions, reports and pasted texts are over.
    """
    found: list[tuple[int, str]] = []
    for message in messages:
        text = message.text if message.role == "user" else f"{message.typed}\n{words_in_refusal(message)}".strip()
        own = "\n".join(own_lines(text)) if text else ""
        if not own or is_document(own):
            continue
        sentences = split_sentences(own)
        if _is_report(sentences):
            continue
        found += (
            (message.seq, mask_secrets(cut_words(sentence)))
            for index, sentence in enumerate(sentences)
            if not is_passing(sentence) and not _leads_to_question(sentences, index)
        )
    return found


def by_priority(facts: Iterable[Fact]) -> list[Fact]:
    """The facts by priority, for short budgets; newer ones first among equals."""
    return sorted(facts, key=lambda fact: (_rank(fact), -fact.seq))


def missing_facts(facts: Iterable[Fact], text: str) -> tuple[Fact, ...]:
    """The facts whose words are not in a text; ignoring white space, case and punctuation."""
    facts = tuple(facts)
    return facts_not_in(facts, FoldedText(text)) if facts else ()


def facts_not_in(facts: Iterable[Fact], text: FoldedText) -> tuple[Fact, ...]:
    """The same for a text that is folded already."""
    return tuple(fact for fact in facts if fact.text not in text)


def standing_statements(facts: Iterable[Fact]) -> list[Fact]:
    """What holds: the user's statements that were not taken back, the most important first.

    Prohibitions, permissions and corrections come before instructions, decisions, preferences and circumstances, and
    these before what was left open; newer ones come first among equals, and of near-duplicates only the newest.
    """
    held = [fact for fact in facts if fact.open and fact.role == "user" and fact.kind in _STANDING_RANKS]
    held.sort(key=lambda fact: (_standing_rank(fact), -fact.seq))
    known = _KnownStatements()
    return [fact for fact in held if known.add(fact)]


def _standing_rank(fact: Fact) -> int:
    """A permission in the user's own words comes first; a `yes` or `no` to a question is mostly one of the moment."""
    if fact.about == _ANSWER and fact.kind in _REPLY_RANKS:
        return _REPLY_RANKS[fact.kind]
    return _STANDING_RANKS[fact.kind]


class _KnownStatements:
    """Statements by force and by the number of words in their subject, so that few pairs have to be compared.

    Two statements say the same if they share most words of their subjects. Then neither subject is much longer.
    """

    def __init__(self) -> None:
        self._subjects: dict[tuple[bool, bool], dict[int, list[frozenset[str]]]] = {}

    def add(self, fact: Fact) -> bool:
        """Add a statement, unless one that says the same is known."""
        subject = subject_of(fact.text)
        size = len(subject)
        by_size = self._subjects.setdefault((is_negative(fact.text), fact.kind == "approval"), {})
        for other_size, others in by_size.items():
            if min(size, other_size) < _MIN_SAME_SUBJECT * max(size, other_size):
                continue
            for other in others:
                shared = len(subject & other)
                if shared > 1 and shared >= _MIN_SAME_SUBJECT * (size + other_size - shared):
                    return False
        by_size.setdefault(size, []).append(subject)
        return True


_RANKS: dict[FactKind, int] = {
    "constraint": 0, "preference": 0, "correction": 0, "approval": 0, "instruction": 1, "error": 2, "obligation": 3,
    "deferral": 3, "progress": 5, "decision": 6, "circumstance": 7, "question": 8,
}  # fmt: skip


def _rank(fact: Fact) -> int:
    if not fact.open:
        return 10
    return 4 if fact.kind == "progress" and fact.about == "in_progress" else _RANKS[fact.kind]


def _limit_facts(facts: list[Fact]) -> list[Fact]:
    if len(facts) <= MAX_FACTS:
        return facts
    order = sorted(range(len(facts)), key=lambda index: (*_retention(facts[index]), index))
    dropped = set(order[: len(facts) - MAX_FACTS])
    return [fact for index, fact in enumerate(facts) if index not in dropped]


def _retention(fact: Fact) -> tuple[bool, int]:
    """How long a fact is kept: closed ones are dropped first, decisions of users last among decisions."""
    is_user_decision = fact.kind == "decision" and fact.role == "user"
    return fact.open, 0 if not fact.open else 6 if is_user_decision else _RETENTION[fact.kind]


@lru_cache(_REMEMBERED)
def _key(text: str) -> str:
    return fold_words(text)


@lru_cache(_REMEMBERED)
def _clean(sentence: str) -> str:
    """A sentence as it is kept: cut, and without secrets."""
    return mask_secrets(cut_words(sentence))


class _UserReading(NamedTuple):
    """What a user message says, whatever was said before."""

    sentences: tuple[str, ...]
    kinds: tuple[FactKind | None, ...]
    """The kind of each sentence."""
    leads: tuple[bool, ...]
    """Whether a sentence only introduces a question."""
    reports_success: bool
    errors: tuple[str, ...]


class _AssistantReading(NamedTuple):
    """What an assistant message says, whatever was said before."""

    done: tuple[frozenset[str], ...]
    """The words of each sentence that reports something as done."""
    facts: tuple[tuple[FactKind, str, str], ...]
    """Kind, text, and what it is about."""


def _read_user(text: str) -> _UserReading:
    own = "\n".join(own_lines(text))
    sentences = split_sentences(own)
    is_report = _is_report(sentences)
    strict = is_report or is_document(own)
    kinds = [_user_fact_kind(sentence, strict=strict) for sentence in sentences]
    return _UserReading(
        sentences=tuple(sentences),
        kinds=tuple(None if is_report and kind not in _FORCEFUL else kind for kind in kinds),
        leads=tuple(_leads_to_question(sentences, index) for index in range(len(sentences))),
        reports_success=any(patterns.DONE.search(sentence.lower()) for sentence in sentences[:3]),
        errors=tuple(pasted_errors(text)) if sentences else (),
    )


def _read_assistant(text: str, has_calls: bool) -> _AssistantReading:
    sentences = user_sentences(text)
    facts: list[tuple[FactKind, str, str]] = []
    done = [frozenset(fold_words(each).split()) for each in sentences if patterns.DONE.search(each.lower())]
    for sentence in sentences:
        lowered = sentence.lower().replace("’", "'")
        if sentence.endswith(("?", "？")):
            continue
        if _matches(lowered, patterns.DECISIONS) or _matches(lowered, patterns.CHOICES):
            facts.append(("decision", sentence, ""))
        elif _matches(lowered, patterns.OBLIGATIONS) and not _is_next_step(lowered) and not _is_advice(lowered):
            facts.append(("obligation", sentence, ""))
        elif not has_calls and _is_promise(lowered):
            facts.append(("obligation", sentence, "promised"))
    if not has_calls:
        closing = user_sentences(text[-_CLOSING_CHARS:])
        questions = [sentence for sentence in closing if sentence.endswith(("?", "？"))]
        options = options_in(text) if questions else ""
        facts += [("question", question, options) for question in questions[-3:]]
    return _AssistantReading(tuple(done), tuple(facts))


_read_short_user = lru_cache(1024)(_read_user)
_read_short_assistant = lru_cache(1024)(_read_assistant)
"""A message is read again with every eviction before its own."""


class _Ledger:
    """The facts so far, and how each message changes them."""

    def __init__(self, facts: list[Fact]) -> None:
        self.facts = facts
        self._open = _open_by_kind(facts)
        """The open facts of each kind, in order, without progress: most messages settle none, and few are open."""

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
                if message.typed:
                    self._add_user(replace(message, role="user", text=message.typed, calls=()))
                if said := words_in_refusal(message):
                    self._add_user(replace(message, role="user", text=said, calls=()), about=REFUSAL)
            case "event":
                pass
        # After every message, so that the fold does not depend on how the messages are divided.
        if len(self.facts) > MAX_FACTS:
            self.facts = _limit_facts(self.facts)
            self._open = _open_by_kind(self.facts)

    def _add_user(self, message: MessageView, about: str = "") -> None:
        read = _read_short_user if len(message.text) <= _MAX_REMEMBERED_CHARS else _read_user
        reading = read(message.text)
        self._update_tasks(message)
        if not reading.sentences:
            return
        questions = [fact for fact in self._open.get("question", ()) if fact.role == "assistant"]
        self._settle("question", lambda fact: fact.role == "assistant")
        if reading.reports_success:
            self._settle("error", lambda fact: fact.role == "user")
        count = 0
        for index, (sentence, kind) in enumerate(zip(reading.sentences, reading.kinds, strict=True)):
            text, source = sentence, about
            if questions and index == 0 and (answer := answer_to(questions, sentence, kind)):
                (kind, text), source = answer, _ANSWER  # noqa: PLW2901
            if kind is None or (kind == "circumstance" and reading.leads[index]) or count >= _MAX_PER_MESSAGE:
                continue
            count += kind != "question"
            if kind in STANDING:
                self._take_back(sentence, kind, message.seq)
            self._add(kind, text, message, source)
        for line in reading.errors:
            self._add("error", line, message, about=PASTED)

    def _add_assistant(self, message: MessageView) -> None:
        if message.calls:
            self._settle("obligation", lambda fact: fact.about == "promised")
        self._update_tasks(message)
        if not message.text.strip():
            return
        self._settle("question", lambda fact: fact.role == "user")
        read = _read_short_assistant if len(message.text) <= _MAX_REMEMBERED_CHARS else _read_assistant
        reading = read(message.text, bool(message.calls))
        if reading.done:
            self._settle("obligation", lambda fact: any(_shares_words(fact.text, words) for words in reading.done))
        for kind, text, about in reading.facts:
            self._add(kind, text, message, about)

    def _add_system(self, message: MessageView) -> None:
        for sentence in user_sentences(message.text):
            if _matches(sentence.lower().replace("’", "'"), patterns.CONSTRAINTS):
                self._add("constraint", sentence, message)

    def _add_result(self, message: MessageView) -> None:
        for failure in map(detect_failure, message.answers()):
            if failure.call:
                self._settle_errors(failure.call)
            for line in failure.lines:
                self._add("error", line, message, about=failure.call)

    def _settle_errors(self, call: str) -> None:
        self._settle(
            "error",
            lambda fact: (fact.role == "tool" or fact.about == PASTED) and resolves_error(call, fact.about, fact.text),
        )

    def _update_tasks(self, message: MessageView) -> None:
        tasks = todo_list_in(message)
        if tasks is not None:
            self.facts = [fact for fact in self.facts if fact.kind != "progress"]
            for task in tasks:
                self._add_task(task, message)
        changes = todo_changes(message)
        known = [fact for fact in self.facts if fact.kind == "progress"] if changes else []
        for index, task in changes:
            if index is None or index == len(known):
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
        text = _clean(text)
        key = _key(text)
        if not key:
            return
        same_kind = self._open.setdefault(kind, [])
        duplicate = next((fact for fact in same_kind if _key(fact.text) == key), None)
        if duplicate is not None:
            if kind not in ("error", "question"):
                return
            self._change(duplicate)
        fact = Fact(kind=kind, text=text, seq=message.seq, role=message.role, about=about)
        self.facts.append(fact)
        self._open[kind].append(fact)

    def _settle(self, kind: FactKind, is_settled: Callable[[Fact], bool]) -> None:
        """Close the open facts of a kind for which this is true."""
        for fact in [fact for fact in self._open.get(kind, ()) if is_settled(fact)]:
            self._change(fact, replace(fact, open=False))

    def _change(self, open_fact: Fact, closed: Fact | None = None) -> None:
        """Replace an open fact by a closed one, or drop it."""
        self._open[open_fact.kind] = [fact for fact in self._open[open_fact.kind] if fact is not open_fact]
        place = next(index for index, fact in enumerate(self.facts) if fact is open_fact)
        self.facts[place : place + 1] = () if closed is None else (closed,)

    def _take_back(self, statement: str, kind: FactKind, seq: int) -> None:
        if not may_take_back(statement, kind):
            return
        candidates = [
            fact
            for fact in self.facts
            if fact.open and fact.role == "user" and fact.kind in STANDING and fact.seq < seq
        ]
        for fact in candidates[-_MAX_COMPARED:]:
            if takes_back(statement, kind, fact):
                self._change(fact, replace(fact, open=False, superseded_by=seq))


def _open_by_kind(facts: Iterable[Fact]) -> dict[FactKind, list[Fact]]:
    found: dict[FactKind, list[Fact]] = {}
    for fact in facts:
        if fact.open and fact.kind != "progress":
            found.setdefault(fact.kind, []).append(fact)
    return found


def _is_advice(lowered: str) -> bool:
    """Whether a sentence of the assistant tells the user what to do, and is no work of its own."""
    return _ADVICE.search(lowered) is not None and _OWN_WORK.search(lowered) is None


def _is_promise(lowered: str) -> bool:
    """Whether a sentence of the assistant says what it does next; a rule for its answers leaves nothing to do."""
    begins = patterns.PROMISE_START.match(lowered) is not None
    return begins and not _is_heading(lowered) and not _STANDING_PROMISE.search(lowered)


def _is_next_step(lowered: str) -> bool:
    return lowered.startswith(_NEXT_STEP_OPENINGS) or _is_heading(lowered)


def _is_heading(sentence: str) -> bool:
    """Whether a sentence only announces what follows it; it may be bold."""
    return sentence.rstrip("*_ ").endswith(":")


def _shares_words(text: str, words: frozenset[str]) -> bool:
    text_words = {word for word in fold_words(text).split() if len(word) > 3}
    return bool(text_words) and len(text_words & words) / len(text_words) >= 0.6


def _matches(lowered: str, wordings: Sequence[Wording]) -> bool:
    return any(
        any(cue in lowered for cue in wording.cues) and wording.pattern.search(lowered) is not None
        for wording in wordings
    )


def _is_report(sentences: Sequence[str]) -> bool:
    """Whether a text speaks of code and no person speaks in it, as in review comments and logs that users paste."""
    about_code = sum(mentions_code(sentence) for sentence in sentences)
    return (
        len(sentences) >= _MIN_REPORT_SENTENCES
        and about_code >= _MIN_REPORT_SHARE * len(sentences)
        and not any(_FIRST_PERSON.search(sentence.lower()) for sentence in sentences)
    )


def _leads_to_question(sentences: Sequence[str], index: int) -> bool:
    """Whether a sentence only introduces the question after it; what users say of themselves is complete on its own."""
    following = sentences[index + 1 : index + 2]
    asks = bool(following) and following[0].endswith(_QUESTION_ENDS)
    return asks and _FIRST_PERSON.search(sentences[index].lower()) is None


def _user_fact_kind(sentence: str, *, strict: bool) -> FactKind | None:
    kind = statement_kind(sentence, strict=strict)
    if kind is None and sentence.endswith(_QUESTION_ENDS) and len(sentence.split()) > 2:
        return "question"
    return kind
