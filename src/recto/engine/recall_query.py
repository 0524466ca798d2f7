"""Builds the search query of a turn: from the request, what it answers, the task, and the step just taken.

Tool output is never searched for as such: of a step count the words of the model, the files it worked on and the lines
that report an error. A reply without a word of its own ("1+2", "yes") is searched for with what it answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from recto.context.facts.paths import file_uses
from recto.context.facts.statements import FUNCTION_WORDS
from recto.context.facts.tool_errors import detect_failure
from recto.context.facts.types import MessageView
from recto.context.facts.user_text import user_sentences
from recto.context.window.state import WindowState
from recto.engine.prompt_builder import MessageCache
from recto.formats.message import Message
from recto.text.lazy_re import lazy_re

_SHORT_REQUEST = 40
"""Characters below which a request is searched for together with what it answers and the request before it."""
_MAX_ANSWERED = 600
"""Characters of what a bare reply answers, from its end: questions and options stand there."""
_MAX_QUESTIONS = 2
_MAX_READ = 4_000
"""Characters of that message that are read for questions."""
_QUESTION_ENDS = ("?", "？", "؟")
_MAX_WORDS = 400
"""Characters of the model's words in a step."""
_MAX_FAILURE = 600
"""Characters of the lines that report an error."""
_MAX_BEFORE = 600
"""Characters of the request before."""
_MAX_FILES = 4
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
    in_loop: bool
    """Whether the model has taken steps since the request."""


def turn_text(state: WindowState, messages: MessageCache, anchor: int) -> TurnText:
    """Return what is searched for, as of the entry `anchor`."""
    question = state.question
    request = _typed(messages.message(question))
    task = state.task_seq if state.task_seq in state.messages and state.task_seq != question else 0
    steps = [seq for seq in state.messages if question < seq < anchor]
    in_loop = any(state.messages[seq].role == "assistant" for seq in steps)
    text, context = request, ""
    if in_loop:
        context = _step_text(messages.views(_last_step(state, steps)))
    elif len(request) < _SHORT_REQUEST:
        answered, before = _answered(state, messages), _request_before(state, messages)
        if is_bare(request):
            about = answered[-_MAX_ANSWERED:] or before
            text, context = "\n".join(part for part in (about, request) if part), before
        else:
            context = "\n".join(part for part in (*_questions_in(answered), before) if part)
    task_text = _typed(messages.message(task)) if task else ""
    return TurnText(text=text, context=context, task=task_text, in_loop=in_loop)


def is_bare(request: str) -> bool:
    """Whether a request has no word that names a subject."""
    words = _WORD.findall(request.lower())
    return all(word in FUNCTION_WORDS or word in _REPLIES for word in words)


def _typed(message: Message) -> str:
    """The words of a message that carries tool results as well; the text of any other."""
    if not message.results:
        return message.text
    return "\n".join(part.text for part in message.parts if part.kind == "text")


def _last_step(state: WindowState, steps: list[int]) -> list[int]:
    """The last assistant message of the turn, and the results after it."""
    first = max(seq for seq in steps if state.messages[seq].role == "assistant")
    return [seq for seq in steps if seq >= first]


def _step_text(step: list[MessageView]) -> str:
    """The words of the model, the files it worked on, and the errors it met."""
    words, *results = step
    files = [use.path for call in words.calls for use in file_uses(call)][:_MAX_FILES]
    failures = [line for result in results if result.role == "tool" for line in detect_failure(result).lines]
    said = words.text if not words.calls or results else ""
    parts = (said[:_MAX_WORDS], *files, "\n".join(failures)[:_MAX_FAILURE])
    return "\n".join(part for part in parts if part)


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
