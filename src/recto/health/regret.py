"""What answers needed that did not stand in their prompts: fetched again, referred to, and how much was there.

A fold over one conversation, message by message as it happened, under one way of making prompts. Who makes them tells
which messages no longer stand whole, and what else a prompt says. It is not known here how prompts are made, nor what
a model would have done without what it lacked: the answers are those of the recording.

- Fetched again: a tool call whose result stood in an earlier message, and in this prompt no more. It is the same call
  where tool and arguments are the same, or where it reads the same file.
- Referred to: a name, path, address or number that stood in an earlier message, and stands in none that is whole.
- Met: what was needed stood in the prompt all the same, in another place: recalled, in a summary, a handoff, or in
  what stands for a shortened result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import TypeAlias

from recto.context.facts.entities import EntityIndex, EntityKind, entities_in
from recto.context.facts.paths import uses_in
from recto.context.facts.types import MessageView, ToolCall
from recto.formats.message import Message, Part
from recto.health.metrics import call_mark

MOST_BYTES = 32_000_000
"""What may be remembered of messages that are not whole any more, about; the oldest is forgotten first."""
_KEY_BYTES = 150
"""What one remembered name takes beside its letters, about."""
_PLACES = 4
"""Results of one call that are remembered: a later one may say the same as one that came back."""
_MOST_CALLS = 4_096
"""Calls that wait for their results."""
_LARGE = 4
"""Digits of a plain number that is looked for: smaller ones stand everywhere, and mostly mean something else."""
_SAID = ("text", "result")

Names: TypeAlias = Mapping[str, EntityKind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """What one answer needed."""

    fetched_again: int = 0
    """Calls made again whose results had been there, and below those whose result was recalled."""
    fetched_met: int = 0
    referred: int = 0
    """Names and numbers from messages that are not whole any more, and below those that stood elsewhere."""
    referred_met: int = 0
    entities_used: int = 0
    """Names and numbers in answers that were known from before, and below those that stood anywhere in the prompt."""
    entities_there: int = 0


class Needs:
    """Follows one conversation. What it remembers is bounded by the prompt and by `MOST_BYTES`, not by the history.

    For each turn: `said` with every message that is new; then, once the prompt is made, `left` with those that it has
    no longer whole; then `answered` with the answer; then `said` with the answer as well. A turn that had no prompt is
    not judged: its answer is only said.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._names = _Shelf(most_bytes * 3 // 4, places=0)
        self._results = _Shelf(most_bytes // 4, places=_PLACES)
        self._calls: dict[str, tuple[str, ...]] = {}
        """By its id: what a call is recognised by that has no result yet."""
        self._question: tuple[int, Names] | None = None
        """The newest message of the user until it is answered, and what in it was known before it came."""
        self._judged: tuple[Message, Names] | None = None
        self._beside: dict[str, EntityIndex] = {}
        """The other texts of the last prompt."""

    def said(self, seq: int, message: Message) -> None:
        """A message is part of the conversation, and from now on of every prompt, whole, until it has `left`."""
        names = self._named(message)
        if message.role == "user":
            self._question = seq, {name: kind for name, kind in names.items() if self._is_known(name, kind)}
        elif message.role == "assistant":
            self._question = self._judged = None
        self._names.put(seq, (key for name, kind in names.items() for key in _keys(name, kind)))
        for call in message.calls:
            self._calls[call.call_id] = _marks(call)
        if results := message.results:
            self._results.put(seq, (mark for part in results for mark in self._calls.pop(part.call_id, ())))
        while len(self._calls) > _MOST_CALLS:
            del self._calls[next(iter(self._calls))]

    def left(self, seqs: Iterable[int]) -> None:
        """These messages stand no longer whole in the prompt, for good: they are left out, or shortened."""
        for seq in seqs:
            self._names.take(seq)
            self._results.take(seq)

    def answered(self, answer: Message, beside: Sequence[str] = (), recalled: Collection[int] = ()) -> Regret:
        """What an answer needed that its prompt did not have whole.

        An answer that came in several messages is given as one (`whole_answer`). `beside` is every other text of the
        prompt: what was recalled, what is said in place of what left, what stands for shortened results. A text that
        stood in the prompt before costs nothing. `recalled` are the messages that are quoted there.
        """
        self._beside = {text: self._beside.get(text) or EntityIndex(text) for text in beside if text}
        again = self._fetched(answer)
        names = self._named(answer)
        self._judged = answer, names
        known = {name: kind for name, kind in names.items() if self._is_known(name, kind)}
        lacking = {name: kind for name, kind in known.items() if not self._names.any_stands(_asked(name, kind))}
        elsewhere = {name for name, kind in lacking.items() if self._is_beside(name, kind)}
        asked = self._asked_for()
        asked_met = {name for name, kind in asked.items() if self._is_beside(name, kind)}
        return Regret(
            fetched_again=len(again),
            fetched_met=sum(any(seq in recalled for seq in seqs) for seqs in again.values()),
            referred=len(lacking.keys() | asked.keys()),
            referred_met=len(elsewhere | asked_met),
            entities_used=len(known),
            entities_there=len(known) - len(lacking) + len(elsewhere),
        )

    def _fetched(self, answer: Message) -> dict[str, tuple[int, ...]]:
        """What is fetched again, each once, and the messages it stood in."""
        found: dict[str, tuple[int, ...]] = {}
        for call in answer.calls:
            for one in _marks(call):
                seqs = None if self._results.stands(one) else self._results.gone(one)
                if seqs is not None:
                    found[one] = seqs
                    break
        return found

    def _asked_for(self) -> Names:
        """What the user's newest message names that stood before it, and in no whole message before it any more."""
        if self._question is None:
            return {}
        seq, names = self._question
        own = self._names.held(seq)
        return {name: kind for name, kind in names.items() if not self._names.any_stands(_asked(name, kind), own)}

    def _is_known(self, name: str, kind: EntityKind) -> bool:
        forms = _asked(name, kind)
        return self._names.any_stands(forms) or any(self._names.gone(form) is not None for form in forms)

    def _is_beside(self, name: str, kind: EntityKind) -> bool:
        return any(standing.has(name, kind) for standing in self._beside.values())

    def _named(self, message: Message) -> Names:
        if self._judged is not None and self._judged[0] is message:
            return self._judged[1]
        told = MessageView(
            seq=0,
            role=message.role,
            text="\n".join(part.text for part in message.parts if part.kind in _SAID),
            calls=tuple(ToolCall(part.name, part.text) for part in message.calls),
        )
        found = entities_in((told,)).items()
        return {intern(name): seen.kind for name, seen in found if not (name.isdecimal() and len(name) < _LARGE)}


def whole_answer(messages: Sequence[Message]) -> Message:
    """The messages of one answer as one."""
    if len(messages) == 1:
        return messages[0]
    return Message(role="assistant", parts=tuple(part for message in messages for part in message.parts))


def quoted_whole(texts: Mapping[int, str], quotation: str) -> frozenset[int]:
    """Which of these messages a quotation holds in the main: at least half of what they say, line by line.

    Of a long message only the passages are quoted that matter for a question; a call for all of it is not met by them.
    """
    lines = {line.lstrip("> ").rstrip() for line in quotation.splitlines()}
    found = set[int]()
    for seq, text in texts.items():
        said = [stripped for line in text.splitlines() if (stripped := line.lstrip("> ").rstrip())]
        if 2 * sum(len(line) for line in said if line in lines) >= sum(map(len, said)) > 0:
            found.add(seq)
    return frozenset(found)


def _keys(name: str, kind: EntityKind) -> Iterator[str]:
    """What a name is found by. A path is also found by its last part, which no name begins like."""
    yield name
    if kind == "path":
        yield intern(f"/{name.rpartition('/')[2]}")


def _asked(name: str, kind: EntityKind) -> tuple[str, ...]:
    """What a name is looked for by: a file in a folder also by its name alone, a name alone in whichever folder."""
    if kind != "path":
        return (name,)
    folder, _, last = name.rpartition("/")
    return (name, last) if folder else (f"/{last}",)


def _marks(call: Part) -> tuple[str, ...]:
    """What a call is recognised by: itself, and the files that it reads, told by the last two parts of their paths."""
    paths = (use.path for use in uses_in(ToolCall(call.name, call.text)) if use.deed == "read" and use.path)
    return (call_mark(call.name, call.text), *("/" + "/".join(path.split("/")[-2:]) for path in paths))


class _Shelf:
    """What stands in whole messages and how often, and what did and does no more."""

    def __init__(self, most_bytes: int, places: int) -> None:
        self._places = places
        self._most = most_bytes // 2
        self._standing: dict[str, int] = {}
        self._of: dict[int, tuple[str, ...]] = {}
        self._young: dict[str, tuple[int, ...]] = {}
        self._old: dict[str, tuple[int, ...]] = {}
        """What is gone, in two halves: where one is full, the older one is forgotten as a whole."""
        self._bytes = 0

    def put(self, seq: int, keys: Iterable[str]) -> None:
        """A message with these stands whole."""
        self.take(seq)
        self._of[seq] = held = tuple(dict.fromkeys(keys))
        for key in held:
            self._standing[key] = self._standing.get(key, 0) + 1

    def take(self, seq: int) -> None:
        """A message stands whole no more."""
        for key in self._of.pop(seq, ()):
            left = self._standing.pop(key) - 1
            if left:
                self._standing[key] = left
            if self._places or not left:
                self._remember(key, seq)

    def stands(self, key: str) -> bool:
        """Whether a whole message has it."""
        return key in self._standing

    def any_stands(self, keys: Iterable[str], besides: Collection[str] = ()) -> bool:
        """Whether a whole message has one of them, apart from a message with these."""
        return any(self._standing.get(key, 0) > (key in besides) for key in keys)

    def held(self, seq: int) -> Collection[str]:
        """What a message has, where it is whole."""
        return self._of.get(seq, ())

    def gone(self, key: str) -> tuple[int, ...] | None:
        """The newest messages that had it and are not whole; None where none is known."""
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def _remember(self, key: str, seq: int) -> None:
        if key not in self._young:
            self._bytes += len(key) + _KEY_BYTES
        self._young[key] = (seq, *(self.gone(key) or ()))[: self._places]
        if self._bytes > self._most:
            self._young, self._old, self._bytes = {}, self._young, 0
