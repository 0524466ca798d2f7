"""How much is left of an exchange as it grows old: all of it, its key points, one line, a title.

Every level is made from the messages themselves, never from another level, and in their words: what was asked, which
files and commands it came to, what came out. Words of ours only say which is which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from recto.context.compaction.extractive import Picked, errors_in, extract, is_idle
from recto.context.facts.paths import file_uses, parse_arguments
from recto.context.facts.types import Level, MessageView
from recto.text.identifiers import clip_middle
from recto.text.secrets import mask_secrets
from recto.text.sentences import collapse_spaces, join_sentences, shorten, split_sentences
from recto.text.truncation import CountText

KEY_POINTS = 120
ONE_LINE = 40
TITLE = 12
"""Tokens of each level at most."""
_ASKED = 40
_CAME = 48
_DONE = 32
"""Tokens that the key points of an exchange get of that, each at most; an error gets what is left."""
_NAME = 4
"""Tokens of the name of a point, or of the arrow between two."""
_WIDE = 4
"""How many times as much of an answer is weighed as is told."""
_LEAST = 10
"""Tokens of a point below which it is not worth making."""
_TELLING = 16
"""Characters of a question that names its subject."""
_BACK = 4
"""Messages that are looked at, from the last one on, for one that says what came out."""
_LOOKED = 20_000
"""Characters of a message that are looked at."""
_SHORT = 1_500
"""Characters of an exchange that may be short enough as it is."""
_FILES = 6
"""Files that are named as edited, and as read."""
_COMMAND = 60
"""Characters of a command that are quoted."""
_TAG = re.compile(r"</?[\w-]{1,40}>")


def level_for(age: int, key_points_turns: int = 5, line_turns: int = 20) -> Level:
    """The level of an exchange that is so many turns old; the current one has age 0."""
    if age <= 0:
        return "full"
    if age <= key_points_turns:
        return "key_points"
    return "one_line" if age <= line_turns else "title"


def at_level(told: Sequence[MessageView], level: Level, count: CountText) -> str:
    """An exchange at a level, without its secrets. No level costs more than the one above it."""
    if level == "full":
        return _whole(told)
    most = {"key_points": KEY_POINTS, "one_line": ONE_LINE, "title": TITLE}
    if sum(len(one.text) + sum(len(call.arguments) for call in one.calls) for one in told) <= _SHORT:
        flat = collapse_spaces(_whole(told))
        if count(flat) <= most[level]:
            return flat
    exchange = _Exchange(told, count)
    made = _Level(exchange.key_points(), KEY_POINTS, count)
    if level != "key_points":
        made = made.next(exchange.line(), ONE_LINE, count)
    if level == "title":
        made = made.next(exchange.title(), TITLE, count)
    return made.text


def fitted(text: str, most: int, count: CountText) -> str:
    """The beginning of a text in at most so many tokens, cut where it pauses, with a mark where it was cut."""
    piece = shorten(text, max(0, 8 * most))
    made = piece if len(piece) == len(text) else f"{piece}…"
    while piece and (size := count(made)) > most:
        piece = shorten(piece, min(len(piece) - 1, len(piece) * most // size))
        made = f"{piece}…"
    return made if piece else ""


class _Level:
    """A text that fits, and what it costs."""

    def __init__(self, text: str, most: int, count: CountText) -> None:
        self.text = fitted(text, most, count)
        self._size = count(self.text) if self.text else 0

    def next(self, text: str, most: int, count: CountText) -> _Level:
        """The level below, which is this one where nothing would be gained."""
        below = _Level(text, most, count)
        if self._size <= most and (below._size >= self._size or not below.text):
            return _Level(collapse_spaces(self.text), most, count)
        return below


class _Exchange:
    """What was asked, what was done, and what came out."""

    def __init__(self, told: Sequence[MessageView], count: CountText) -> None:
        self._told = told
        self._count = count
        self._asked = self._ask()
        self._came = self._outcome()

    def key_points(self) -> str:
        came = join_sentences(one.text for one in self._came)
        wrong = self._errors()
        asked = self._point("Asked", self._asked, _ASKED)
        came_out = self._point("Came out", came, _CAME)
        left = KEY_POINTS - self._count(f"{asked}\n{came_out}") - 2
        done = self._point("Done", self._deeds(), min(left, _DONE))
        left -= self._count(done) + 1 if done else 0
        error = self._point("Error", wrong, left) if left >= _LEAST and wrong not in came else ""
        return "\n".join(point for point in (asked, done, came_out, error) if point)

    def _point(self, name: str, text: str, most: int) -> str:
        made = fitted(text, most - _NAME, self._count)
        return f"{name}: {made}" if made else ""

    def line(self) -> str:
        best = max(self._came, key=lambda one: one.score).text if self._came else self._errors() or self._deeds()
        asked = fitted(self._asked, ONE_LINE // 2 if best else ONE_LINE, self._count)
        came = fitted(best, ONE_LINE - _NAME - (self._count(asked) if asked else 0), self._count)
        return " → ".join(part for part in (asked, came) if part)

    def title(self) -> str:
        """What was asked; an answer such as `yes` names nothing, so what came of it is added."""
        named = len(self._asked) >= _TELLING or not (self._came or self._asked)
        return self._asked or self._deeds() if named else self.line()

    def _ask(self) -> str:
        """The first words of the user, or of whoever speaks first where no user does."""
        said = [one for one in self._told if one.text.strip()]
        for one in [one for one in said if one.role == "user"] or said[:1]:
            looked = mask_secrets(clip_middle(one.text, _LOOKED))
            found = split_sentences(looked)
            if found:
                return join_sentences(found[:3])
            if flat := collapse_spaces(_TAG.sub(" ", shorten(looked, _SHORT))):
                return flat
        return ""

    def _outcome(self) -> list[Picked]:
        """What the last words of the assistant say that say anything, in its sentences."""
        said = [one for one in reversed(self._told) if one.role == "assistant" and one.text.strip()]
        for one in said[:_BACK]:
            looked = MessageView(seq=one.seq, role="assistant", text=clip_middle(one.text, _LOOKED))
            picked = extract([looked], goal=self._asked, tokens=_WIDE * _CAME, count=self._count)
            if telling := [sentence for sentence in picked if not is_idle(sentence.text)]:
                return self._best(telling)
        return []

    def _best(self, said: list[Picked]) -> list[Picked]:
        """The sentence that tells most, and beside it what there is room for, in their order."""
        ranked = sorted(said, key=lambda one: -one.score)
        kept, left = ranked[:1], _CAME - _NAME - self._count(ranked[0].text)
        for one in ranked[1:]:
            cost = self._count(one.text) + 1
            if cost <= left:
                kept.append(one)
                left -= cost
        return [one for one in said if one in kept]

    def _errors(self) -> str:
        """What went wrong in the end; what was mended before is not told."""
        results = [one for one in reversed(self._told) if one.role == "tool"]
        return next((wrong[0] for one in results[:2] if (wrong := errors_in(one.text, 1))), "")

    def _deeds(self) -> str:
        calls = chain.from_iterable(one.calls for one in self._told)
        names: dict[str, dict[str, None]] = {"edit": {}, "read": {}, "name": {}}
        commands: dict[str, None] = {}
        tools: dict[str, None] = {}
        for call in calls:
            for use in file_uses(call):
                names[use.action][use.path.rpartition("/")[2]] = None
            command = parse_arguments(call).get("command")
            if isinstance(command, str) and command.strip():
                commands[shorten(collapse_spaces(shorten(command, 400)), _COMMAND)] = None
            else:
                tools[collapse_spaces(call.tool[:60])] = None
        parts = [
            _listed("edited", list(names["edit"])),
            _listed("ran", [command for command in commands if command][-2:]),
            _listed("read", [name for name in names["read"] if name not in names["edit"]]),
        ]
        return mask_secrets("; ".join(part for part in parts if part) or ", ".join(list(tools)[:_FILES]))


def _listed(action: str, names: list[str]) -> str:
    more = ", …" if len(names) > _FILES else ""
    return f"{action} {', '.join(names[:_FILES])}{more}" if names else ""


def _whole(told: Sequence[MessageView]) -> str:
    """Everything that was said, with who said it where there was more than one."""
    if len(told) == 1 and not told[0].calls:
        return mask_secrets(told[0].text.strip())
    lines: list[str] = []
    for one in told:
        if one.text.strip():
            lines.append(f"{one.role}: {one.text.strip()}")
        if one.role == "assistant":
            lines += (f"{call.tool} {call.arguments}".strip() for call in one.calls)
    return mask_secrets("\n".join(lines))
