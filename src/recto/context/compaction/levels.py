"""Levels of detail for an exchange as it ages: in full, key points, one line, a title.

Every level is written from the messages themselves, never from another level, and in their words: what was asked, which
files and commands were involved, and the outcome. Only the labels are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

from recto.context.compaction.extractive import PickedSentence, extract_sentences, find_error_lines, is_filler
from recto.context.facts.tool_use import file_uses, parse_arguments
from recto.context.facts.types import Level, MessageView, ToolCall
from recto.text.lazy_re import lazy_re
from recto.text.secrets import mask_secrets
from recto.text.sentences import collapse_spaces, join_sentences, shorten, split_sentences
from recto.text.terms import clip_middle
from recto.text.truncation import CountText

KEY_POINT_TOKENS = 120
ONE_LINE_TOKENS = 40
TITLE_TOKENS = 12
"""Maximum tokens of each level."""
_REQUEST_TOKENS = 40
_OUTCOME_TOKENS = 48
_ACTION_TOKENS = 32
"""Maximum tokens of each key point; an error gets the rest."""
_LABEL_TOKENS = 4
"""Tokens of a key point's label, or of the arrow between two parts."""
_CANDIDATE_FACTOR = 4
"""How much more of an answer is considered than is shown."""
_MIN_POINT_TOKENS = 10
"""Below this many tokens a key point is not worth writing."""
_MIN_TITLE_CHARS = 16
"""Minimum length of a request that names its subject."""
_MAX_MESSAGES_BACK = 4
"""Messages searched from the end for an outcome."""
_MAX_CHARS = 20_000
"""Characters of a message that are read."""
_SHORT_CHARS = 1_500
"""An exchange below this length may be short enough as it is."""
_MAX_FILES = 6
"""Files named as edited, and as read."""
_MAX_COMMAND_CHARS = 60
"""Characters of a command that are quoted."""
_CERTAIN_TOKENS = TITLE_TOKENS + 4
"""Tokens of a request that, whatever follows it, is longer than a title."""
_TAG = lazy_re(r"</?[\w-]{1,40}>")


def level_for(age: int, key_points_turns: int = 5, line_turns: int = 20) -> Level:
    """The level of an exchange by its age in turns; the current one has age 0."""
    if age <= 0:
        return "full"
    if age <= key_points_turns:
        return "key_points"
    return "one_line" if age <= line_turns else "title"


def render_level(messages: Sequence[MessageView], level: Level, count: CountText) -> str:
    """An exchange at a level, without secrets. No level costs more than the one above it."""
    if level == "full":
        return _full_text(messages)
    limits = {"key_points": KEY_POINT_TOKENS, "one_line": ONE_LINE_TOKENS, "title": TITLE_TOKENS}
    if (
        sum(len(message.text) + sum(len(call.arguments) for call in message.calls) for message in messages)
        <= _SHORT_CHARS
    ):
        flat = collapse_spaces(_full_text(messages))
        if count(flat) <= limits[level]:
            return flat
    exchange = _AgedExchange(messages, count)
    rendered = _FittedText(exchange.key_points(), KEY_POINT_TOKENS, count)
    if level != "key_points":
        rendered = rendered.next(exchange.line(), ONE_LINE_TOKENS, count)
    if level == "title":
        rendered = rendered.next(exchange.title(), TITLE_TOKENS, count)
    return rendered.text


def title_by_request(beginning: Sequence[MessageView], count: CountText) -> str:
    """The title of messages that begin with these; empty if it depends on how they go on.

    It does not if they are long and their request alone is longer than a title.
    """
    if sum(len(message.text) for message in beginning) <= _SHORT_CHARS:
        return ""
    if not any(message.role == "user" and message.text.strip() for message in beginning):
        return ""
    request = find_request(beginning)
    if len(request) < _MIN_TITLE_CHARS or count(fit_text(request, ONE_LINE_TOKENS // 2, count)) < _CERTAIN_TOKENS:
        return ""
    return fit_text(request, TITLE_TOKENS, count)


def fit_text(text: str, max_tokens: int, count: CountText) -> str:
    """The beginning of a text in at most `max_tokens`, cut at a pause and marked where it was cut."""
    piece = shorten(text, max(0, 8 * max_tokens))
    fitted = piece if len(piece) == len(text) else f"{piece}…"
    while piece and (size := count(fitted)) > max_tokens:
        piece = shorten(piece, min(len(piece) - 1, len(piece) * max_tokens // size))
        fitted = f"{piece}…"
    return fitted if piece else ""


class _FittedText:
    """A text that fits, and its cost."""

    def __init__(self, text: str, max_tokens: int, count: CountText) -> None:
        self.text = fit_text(text, max_tokens, count)
        self._size = count(self.text) if self.text else 0

    def next(self, text: str, max_tokens: int, count: CountText) -> _FittedText:
        """The next level, or this one if nothing would be gained."""
        below = _FittedText(text, max_tokens, count)
        if self._size <= max_tokens and (below._size >= self._size or not below.text):
            return _FittedText(collapse_spaces(self.text), max_tokens, count)
        return below


class _AgedExchange:
    """The request, the actions and the outcome of an exchange."""

    def __init__(self, messages: Sequence[MessageView], count: CountText) -> None:
        self._messages = messages
        self._count = count
        self._request = find_request(messages)
        self._outcome_sentences = self._find_outcome()

    def key_points(self) -> str:
        outcome = join_sentences(sentence.text for sentence in self._outcome_sentences)
        error_line = self._final_error()
        request_point = self._point("Asked", self._request, _REQUEST_TOKENS)
        outcome_point = self._point("Came out", outcome, _OUTCOME_TOKENS)
        available = KEY_POINT_TOKENS - self._count(f"{request_point}\n{outcome_point}") - 2
        action_point = self._point("Done", self._describe_actions(), min(available, _ACTION_TOKENS))
        available -= self._count(action_point) + 1 if action_point else 0
        error_point = (
            self._point("Error", error_line, available)
            if available >= _MIN_POINT_TOKENS and error_line not in outcome
            else ""
        )
        return "\n".join(point for point in (request_point, action_point, outcome_point, error_point) if point)

    def _point(self, name: str, text: str, max_tokens: int) -> str:
        fitted = fit_text(text, max_tokens - _LABEL_TOKENS, self._count)
        return f"{name}: {fitted}" if fitted else ""

    def line(self) -> str:
        best = (
            max(self._outcome_sentences, key=lambda sentence: sentence.score).text
            if self._outcome_sentences
            else self._final_error() or self._describe_actions()
        )
        request = fit_text(self._request, ONE_LINE_TOKENS // 2 if best else ONE_LINE_TOKENS, self._count)
        outcome = fit_text(
            best, ONE_LINE_TOKENS - _LABEL_TOKENS - (self._count(request) if request else 0), self._count
        )
        return " → ".join(part for part in (request, outcome) if part)

    def title(self) -> str:
        """The request; one such as `yes` names nothing, so the outcome is added."""
        is_named = len(self._request) >= _MIN_TITLE_CHARS or not (self._outcome_sentences or self._request)
        return self._request or self._describe_actions() if is_named else self.line()

    def _find_outcome(self) -> list[PickedSentence]:
        """The outcome: informative sentences of the last assistant message that has any."""
        answers = [answer for answer in reversed(self._messages) if answer.role == "assistant" and answer.text.strip()]
        for answer in answers[:_MAX_MESSAGES_BACK]:
            clipped = MessageView(seq=answer.seq, role="assistant", text=clip_middle(answer.text, _MAX_CHARS))
            picked = extract_sentences(
                [clipped], goal=self._request, tokens=_CANDIDATE_FACTOR * _OUTCOME_TOKENS, count=self._count
            )
            if informative := [sentence for sentence in picked if not is_filler(sentence.text)]:
                return self._choose_outcome(informative)
        return []

    def _choose_outcome(self, sentences: list[PickedSentence]) -> list[PickedSentence]:
        """The most informative sentence, and others that fit beside it, in order."""
        ranked = sorted(sentences, key=lambda sentence: -sentence.score)
        chosen, available = ranked[:1], _OUTCOME_TOKENS - _LABEL_TOKENS - self._count(ranked[0].text)
        for sentence in ranked[1:]:
            cost = self._count(sentence.text) + 1
            if cost <= available:
                chosen.append(sentence)
                available -= cost
        return [sentence for sentence in sentences if sentence in chosen]

    def _final_error(self) -> str:
        """The error at the end of the exchange; errors resolved before are omitted."""
        results = [result for result in reversed(self._messages) if result.role == "tool"]
        return next((errors[0] for result in results[:2] if (errors := find_error_lines(result.text, 1))), "")

    def _describe_actions(self) -> str:
        calls = chain.from_iterable(message.calls for message in self._messages)
        names: dict[str, dict[str, None]] = {"edit": {}, "read": {}, "name": {}}
        commands: dict[str, None] = {}
        tools: dict[str, None] = {}
        for call in calls:
            for use in file_uses(call):
                names[use.action][use.path.rpartition("/")[2]] = None
            command = _short_command(call) if len(call.arguments) <= _SHORT_CHARS else _command_of(call)
            if command is not None:
                commands[command] = None
            else:
                tools[collapse_spaces(call.tool[:60])] = None
        parts = [
            _list_names("edited", list(names["edit"])),
            _list_names("ran", [command for command in commands if command][-2:]),
            _list_names("read", [name for name in names["read"] if name not in names["edit"]]),
        ]
        return mask_secrets("; ".join(part for part in parts if part) or ", ".join(list(tools)[:_MAX_FILES]))


def find_request(messages: Sequence[MessageView]) -> str:
    """The user's first words, or the first message's if there is no user message."""
    messages = [message for message in messages if message.text.strip()]
    for message in [message for message in messages if message.role == "user"] or messages[:1]:
        clipped = mask_secrets(clip_middle(message.text, _MAX_CHARS))
        sentences = split_sentences(clipped)
        if sentences:
            return join_sentences(sentences[:3])
        if flat := collapse_spaces(_TAG.sub(" ", shorten(clipped, _SHORT_CHARS))):
            return flat
    return ""


def _command_of(call: ToolCall) -> str | None:
    """The beginning of the shell command that a call runs; None if it runs none."""
    command = parse_arguments(call).get("command")
    if not isinstance(command, str) or not command.strip():
        return None
    return shorten(collapse_spaces(shorten(command, 400)), _MAX_COMMAND_CHARS)


_short_command = lru_cache(4096)(_command_of)


def _list_names(action: str, names: list[str]) -> str:
    more = ", …" if len(names) > _MAX_FILES else ""
    return f"{action} {', '.join(names[:_MAX_FILES])}{more}" if names else ""


def _full_text(messages: Sequence[MessageView]) -> str:
    """All messages in full, with their roles if there are several."""
    if len(messages) == 1 and not messages[0].calls:
        return mask_secrets(messages[0].text.strip())
    lines: list[str] = []
    for message in messages:
        if message.text.strip():
            lines.append(f"{message.role}: {message.text.strip()}")
        if message.role == "assistant":
            lines += (f"{call.tool} {call.arguments}".strip() for call in message.calls)
    return mask_secrets("\n".join(lines))
