"""Answers of one fixed reader to questions about long conversations, given the prompts of each arm.

The question is the last message of its conversation; every arm builds its prompt for it as at any other moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from recto.config import Settings
from recto.config.factory import open_session
from recto.context.compaction.protocols import ChatModel, ModelRequest
from recto.errors import ModelFailed
from recto.lab.bootstrap import Interval, ratio_interval
from recto.lab.isolation import isolated
from recto.lab.moments import EQUAL, ArmPrompt, Choice, Moment, RecordedRun, evenly, moments_of
from recto.lab.question_sets import QuestionedConversation, ValueQuestion
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE

_SYSTEM = (
    "Answer the last question from the conversation. Reply with the value alone: a number, a date or a name. If the "
    "conversation does not say it, reply: unknown"
)
_MAX_TOKENS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderAnswer:
    """Whether the reader answered one question rightly from one prompt."""

    conversation: str
    window: int
    arm: str
    right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderResult:
    """One arm in one window, over all questions."""

    window: int
    arm: str
    right: int
    questions: int
    gain: Interval | None
    """Share of right answers above trimming at equal tokens, paired, with its 95 % interval by conversation."""

    @property
    def share(self) -> float:
        """Share of the questions that were answered rightly."""
        return self.right / self.questions


def question_moments(
    conversation: QuestionedConversation, question: ValueQuestion, settings: Settings, choice: Choice, model: str | None
) -> list[Moment]:
    """Returns the moment at which a question is asked, in each window that the conversation does not fit."""
    said = [*conversation.messages, ("user", question.ask), ("assistant", question.value.text)]
    base = isolated(settings, model=model, window=choice.windows[0])
    with closing(MemoryStore()) as store, closing(open_session(base, store)) as session:
        session.append_all([{"role": role, "content": text} for role, text in said])
        entries = [entry for entry in session.read() if entry.kind == MESSAGE]
    run = RecordedRun(conversation.name, entries)
    last = Choice(windows=choice.windows, modes=choice.modes, count=1, longest=choice.longest)
    return list(moments_of(run, settings, last, model=model))


def ask_reader(
    reader: ChatModel,
    conversations: Sequence[QuestionedConversation],
    settings: Settings,
    choice: Choice,
    *,
    model: str | None = None,
    seconds: float = 60.0,
    advance: Callable[[int], object] = lambda by: None,
) -> tuple[list[ReaderAnswer], Counter[str]]:
    """Asks up to `choice.count` questions about each conversation; returns the answers, and why others failed."""
    answers: list[ReaderAnswer] = []
    failures: Counter[str] = Counter()
    for conversation in conversations:
        for place in evenly(range(len(conversation.questions)), choice.count):
            question = conversation.questions[place]
            for moment in question_moments(conversation, question, settings, choice, model):
                for prompt in moment.arms:
                    try:
                        right = not prompt.refused and question.value.is_in(_reply(reader, prompt, seconds))
                    except ModelFailed as error:
                        failures[error.detail] += 1
                        continue
                    answers.append(
                        ReaderAnswer(conversation=conversation.name, window=moment.window, arm=prompt.arm, right=right)
                    )
        advance(1)
    return answers, failures


def _reply(reader: ChatModel, prompt: ArmPrompt, seconds: float) -> str:
    text = "\n\n".join(f"{message.role}: {message.text}" for message in prompt.messages)
    request = ModelRequest(system=_SYSTEM, text=text, max_tokens=_MAX_TOKENS, seconds=seconds)
    return reader.complete(request).text


def summarize_answers(answers: Sequence[ReaderAnswer], *, seed: int = 0) -> list[ReaderResult]:
    """Sums up the answers, by window and arm, in order of first appearance."""
    results = []
    for window, arm in dict.fromkeys((one.window, one.arm) for one in answers):
        mine = [one for one in answers if (one.window, one.arm) == (window, arm)]
        trimmed = [one for one in answers if (one.window, one.arm) == (window, EQUAL)]
        results.append(
            ReaderResult(
                window=window,
                arm=arm,
                right=sum(one.right for one in mine),
                questions=len(mine),
                gain=None if arm == EQUAL else _gain(mine, trimmed, seed),
            )
        )
    return results


def _gain(mine: Sequence[ReaderAnswer], trimmed: Sequence[ReaderAnswer], seed: int) -> Interval | None:
    ours, theirs = _by_conversation(mine), _by_conversation(trimmed)
    both = [name for name in ours if name in theirs and len(ours[name]) == len(theirs[name])]
    if not both:
        return None
    gains = [sum(ours[name]) - sum(theirs[name]) for name in both]
    return ratio_interval(gains, [len(ours[name]) for name in both], seed=seed)


def _by_conversation(answers: Sequence[ReaderAnswer]) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = {}
    for one in answers:
        found.setdefault(one.conversation, []).append(one.right)
    return found
