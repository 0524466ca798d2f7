"""Builds the search query of a turn: from the request, what it answers, and the task.

Tool output is never searched for, nor are the reminders that coding agents add to a message. A reply without a word of
its own ("1+2", "yes") is searched for with what it answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from recto.context.facts.statements import FUNCTION_WORDS
from recto.context.facts.user_text import user_sentences
from recto.context.window.state import WindowState
from recto.engine.prompt_builder import MessageCache
from recto.formats.message import Message
from recto.text.lazy_re import lazy_re
from recto.text.reminders import without_reminders

_SHORT_REQUEST = 40
"""Characters below which a request is searched for together with what it answers and the request before it."""
_MAX_ANSWERED = 600
"""Characters of what a bare reply answers, from its end: questions and options stand there."""
_MAX_QUESTIONS = 2
_MAX_READ = 4_000
"""Characters of that message that are read for questions."""
_QUESTION_ENDS = ("?", "？", "؟")
_MAX_BEFORE = 600
"""Characters of the request before."""
_WORD = lazy_re(r"[^\W\d_]{3,}|[\u3400-\u9fff]{3,}")
_REPLIES = frozenset(
    """
    yes yep yeah sure okay fine good great perfect thanks thank continue proceed next ahead option options number both
    first second third last one two three four five agreed correct exactly right done lgtm nope neither either none
    ja nein klar gerne genau weiter danke oui non merci continuez vale claro gracias sigue sim sì
    """.split()  # noqa: SIM905  read as prose
)
"""Words of replies that name no subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnText:
    """What is searched for in a turn."""

    text: str
    context: str
    """Searched for as well, with less weight."""
    task: str


def turn_text(state: WindowState, messages: MessageCache) -> TurnText:
    """Return what is searched for."""
    question = state.question
    request = _typed(messages.message(question))
    task = state.task_seq if state.task_seq in state.messages and state.task_seq != question else 0
    text, context = request, ""
    if len(request) < _SHORT_REQUEST:
        answered, before = _answered(state, messages), _request_before(state, messages)
        if is_bare(request):
            about = answered[-_MAX_ANSWERED:] or before
            text, context = "\n".join(part for part in (about, request) if part), before
        else:
            context = "\n".join(part for part in (*_questions_in(answered), before) if part)
    task_text = _typed(messages.message(task)) if task else ""
    return TurnText(text=text, context=context, task=task_text)


def is_bare(request: str) -> bool:
    """Whether a request has no word that names a subject."""
    words = _WORD.findall(request.lower())
    return all(word in FUNCTION_WORDS or word in _REPLIES for word in words)


def _typed(message: Message) -> str:
    """The words of a message, without tool results and without what a coding agent added to them."""
    text = message.text
    if message.results:
        text = "\n".join(part.text for part in message.parts if part.kind == "text")
    return without_reminders(text) or text


def _answered(state: WindowState, messages: MessageCache) -> str:
    """The assistant message that the request answers."""
    before = (line for line in reversed(state.messages.values()) if line.seq < state.question)
    answered = next((line.seq for line in before if line.role == "assistant"), 0)
    return messages.text_of(answered) if answered else ""


def _questions_in(text: str) -> list[str]:
    """The last questions of a message."""
    asked = [sentence for sentence in user_sentences(text[-_MAX_READ:]) if sentence.endswith(_QUESTION_ENDS)]
    return asked[-_MAX_QUESTIONS:]


def _request_before(state: WindowState, messages: MessageCache) -> str:
    earlier = [line.seq for line in state.messages.values() if line.seq < state.question and line.acts_as == "user"]
    return _typed(messages.message(earlier[-1]))[:_MAX_BEFORE] if earlier else ""
