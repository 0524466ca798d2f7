"""Regret: what answers needed that was not in their prompts.

Folds one conversation, message by message, under one way of building prompts. The caller says which messages are no
longer in the prompt in full and what else the prompt contains. The answers are those of the recording: what a model
would have done with a different prompt is unknown.

- Fetched again: a tool call whose result was in an earlier message and is no longer in the prompt. Calls are the same
  if tool and arguments are the same, or if they read the same file.
- Referred to: a name, path, address or number from an earlier message that is in no complete message of the prompt.
- Met: needed content that was in the prompt in another form: recalled, in a summary, a handoff, or the placeholder of a
  trimmed result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import TypeAlias

from recto.context.facts.entities import EntityIndex, EntityKind, find_entities
from recto.context.facts.tool_use import file_uses
from recto.context.facts.types import MessageView, ToolCall
from recto.formats.message import Message, Part
from recto.health.metrics import call_fingerprint

MAX_BYTES = 32_000_000
"""Approximate memory for messages that are no longer complete; the oldest are dropped first."""
_KEY_OVERHEAD_BYTES = 150
"""Approximate memory of one remembered name besides its characters."""
_MAX_RESULT_SEQS = 4
"""Results remembered per call: a later one may equal one that was recalled."""
_MAX_PENDING_CALLS = 4_096
"""Calls waiting for their results."""
_MIN_DIGITS = 4
"""Minimum digits of a plain number: smaller ones occur everywhere with other meanings."""
_TEXT_PARTS = ("text", "result")

Names: TypeAlias = Mapping[str, EntityKind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """What one answer needed."""

    fetched_again: int = 0
    """Calls repeated although their results had been in the conversation; `fetched_met` are those whose result was
    recalled."""
    fetched_met: int = 0
    referred: int = 0
    """Names and numbers from messages no longer complete; `referred_met` are those that were elsewhere in the prompt.
    """
    referred_met: int = 0
    entities_used: int = 0
    """Names and numbers in the answer that were known before; `entities_there` are those anywhere in the prompt."""
    entities_there: int = 0


class RegretTracker:
    """Follows one conversation. Its memory is bounded by the prompt and by `MAX_BYTES`, not by the history.

    For each turn: call `add` with every new message; once the prompt is built, `evict` with the messages that are no
    longer complete in it; then `judge` with the answer; then `add` with the answer as well. An answer without a prompt
    is only added.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._names = _PresenceIndex(max_bytes * 3 // 4, max_seqs=0)
        self._results = _PresenceIndex(max_bytes // 4, max_seqs=_MAX_RESULT_SEQS)
        self._calls: dict[str, tuple[str, ...]] = {}
        """Fingerprints of calls without a result yet, by call id."""
        self._question: tuple[int, Names] | None = None
        """The newest user message until it is answered, and the names in it that were known before."""
        self._judged: tuple[Message, Names] | None = None
        self._other_texts: dict[str, EntityIndex] = {}
        """The other texts of the last prompt."""

    def add(self, seq: int, message: Message) -> None:
        """Add a message to the conversation; it is complete in every prompt until it is evicted."""
        names = self._names_in(message)
        if message.role == "user":
            self._question = seq, {name: kind for name, kind in names.items() if self._is_known(name, kind)}
        elif message.role == "assistant":
            self._question = self._judged = None
        self._names.add(seq, (key for name, kind in names.items() for key in _stored_keys(name, kind)))
        for call in message.calls:
            self._calls[call.call_id] = _call_fingerprints(call)
        if results := message.results:
            self._results.add(seq, (mark for part in results for mark in self._calls.pop(part.call_id, ())))
        while len(self._calls) > _MAX_PENDING_CALLS:
            del self._calls[next(iter(self._calls))]

    def evict(self, seqs: Iterable[int]) -> None:
        """Mark messages as evicted or shortened, for good."""
        for seq in seqs:
            self._names.remove(seq)
            self._results.remove(seq)

    def judge(self, answer: Message, other_texts: Sequence[str] = (), recalled: Collection[int] = ()) -> Regret:
        """Return what an answer needed that its prompt did not contain in full.

        Args:
            answer: An answer in several messages is passed as one (`merge_answer`).
            other_texts: Every other text of the prompt: recalled text, summaries, placeholders. Texts already in the
                previous prompt cost nothing.
            recalled: The messages that are quoted there.
        """
        self._other_texts = {text: self._other_texts.get(text) or EntityIndex([text]) for text in other_texts if text}
        repeated = self._repeated_calls(answer)
        names = self._names_in(answer)
        self._judged = answer, names
        known = {name: kind for name, kind in names.items() if self._is_known(name, kind)}
        lacking = {name: kind for name, kind in known.items() if not self._names.contains_any(_lookup_keys(name, kind))}
        elsewhere = {name for name, kind in lacking.items() if self._is_elsewhere(name, kind)}
        requested = self._requested()
        requested_met = {name for name, kind in requested.items() if self._is_elsewhere(name, kind)}
        return Regret(
            fetched_again=len(repeated),
            fetched_met=sum(any(seq in recalled for seq in seqs) for seqs in repeated.values()),
            referred=len(lacking.keys() | requested.keys()),
            referred_met=len(elsewhere | requested_met),
            entities_used=len(known),
            entities_there=len(known) - len(lacking) + len(elsewhere),
        )

    def _repeated_calls(self, answer: Message) -> dict[str, tuple[int, ...]]:
        """Calls that are repeated, each once, and the messages their results were in."""
        repeated: dict[str, tuple[int, ...]] = {}
        for call in answer.calls:
            for fingerprint in _call_fingerprints(call):
                seqs = None if self._results.contains(fingerprint) else self._results.evicted_from(fingerprint)
                if seqs is not None:
                    repeated[fingerprint] = seqs
                    break
        return repeated

    def _requested(self) -> Names:
        """Names in the newest user message that occurred before, and are in no complete message before it any more."""
        if self._question is None:
            return {}
        seq, names = self._question
        own_keys = self._names.keys_of(seq)
        return {
            name: kind
            for name, kind in names.items()
            if not self._names.contains_any(_lookup_keys(name, kind), own_keys)
        }

    def _is_known(self, name: str, kind: EntityKind) -> bool:
        forms = _lookup_keys(name, kind)
        return self._names.contains_any(forms) or any(self._names.evicted_from(form) is not None for form in forms)

    def _is_elsewhere(self, name: str, kind: EntityKind) -> bool:
        return any(index.has(name, kind) for index in self._other_texts.values())

    def _names_in(self, message: Message) -> Names:
        if self._judged is not None and self._judged[0] is message:
            return self._judged[1]
        view = MessageView(
            seq=0,
            role=message.role,
            text="\n".join(part.text for part in message.parts if part.kind in _TEXT_PARTS),
            calls=tuple(ToolCall(part.name, part.text) for part in message.calls),
        )
        entities = find_entities((view,)).items()
        return {
            intern(name): seen.kind for name, seen in entities if not (name.isdecimal() and len(name) < _MIN_DIGITS)
        }


def merge_answer(messages: Sequence[Message]) -> Message:
    """Merge the messages of one answer into one."""
    if len(messages) == 1:
        return messages[0]
    return Message(role="assistant", parts=tuple(part for message in messages for part in message.parts))


def mostly_quoted(texts: Mapping[int, str], quotation: str) -> frozenset[int]:
    """Return the messages of which a quotation contains at least half, line by line.

    Of a long message only the relevant passages are quoted; they do not meet a call for all of it.
    """
    lines = {line.lstrip("> ").rstrip() for line in quotation.splitlines()}
    quoted = set[int]()
    for seq, text in texts.items():
        content = [stripped for line in text.splitlines() if (stripped := line.lstrip("> ").rstrip())]
        if 2 * sum(len(line) for line in content if line in lines) >= sum(map(len, content)) > 0:
            quoted.add(seq)
    return frozenset(quoted)


def _stored_keys(name: str, kind: EntityKind) -> Iterator[str]:
    """Keys under which a name is stored. A path is also stored by its last component."""
    yield name
    if kind == "path":
        yield intern(f"/{name.rpartition('/')[2]}")


def _lookup_keys(name: str, kind: EntityKind) -> tuple[str, ...]:
    """Keys under which a name is looked up: a path also by its file name, a bare file name in any folder."""
    if kind != "path":
        return (name,)
    folder, _, last = name.rpartition("/")
    return (name, last) if folder else (f"/{last}",)


def _call_fingerprints(call: Part) -> tuple[str, ...]:
    """Fingerprints of a call: of itself, and of the files it reads, by the last two components of their paths."""
    paths = (use.path for use in file_uses(ToolCall(call.name, call.text)) if use.action == "read" and use.path)
    return (call_fingerprint(call.name, call.text), *("/" + "/".join(path.split("/")[-2:]) for path in paths))


class _PresenceIndex:
    """Counts what complete messages contain, and remembers what evicted ones contained."""

    def __init__(self, max_bytes: int, max_seqs: int) -> None:
        self._max_seqs = max_seqs
        self._max_bytes = max_bytes // 2
        self._complete: dict[str, int] = {}
        self._keys_by_seq: dict[int, tuple[str, ...]] = {}
        self._recent: dict[str, tuple[int, ...]] = {}
        self._old: dict[str, tuple[int, ...]] = {}
        """Keys of evicted messages, in two generations: when one is full, the older one is dropped."""
        self._bytes = 0

    def add(self, seq: int, keys: Iterable[str]) -> None:
        """Add a complete message with its keys."""
        self.remove(seq)
        self._keys_by_seq[seq] = unique = tuple(dict.fromkeys(keys))
        for key in unique:
            self._complete[key] = self._complete.get(key, 0) + 1

    def remove(self, seq: int) -> None:
        """Remove a message that is no longer complete."""
        for key in self._keys_by_seq.pop(seq, ()):
            remaining = self._complete.pop(key) - 1
            if remaining:
                self._complete[key] = remaining
            if self._max_seqs or not remaining:
                self._remember(key, seq)

    def contains(self, key: str) -> bool:
        """Whether a complete message has the key."""
        return key in self._complete

    def contains_any(self, keys: Iterable[str], excluding: Collection[str] = ()) -> bool:
        """Whether a complete message has one of the keys, not counting one message whose keys are `excluding`."""
        return any(self._complete.get(key, 0) > (key in excluding) for key in keys)

    def keys_of(self, seq: int) -> Collection[str]:
        """The keys of a message, if it is complete."""
        return self._keys_by_seq.get(seq, ())

    def evicted_from(self, key: str) -> tuple[int, ...] | None:
        """The newest evicted messages that had the key; None if none is known."""
        seqs = self._recent.get(key)
        return self._old.get(key) if seqs is None else seqs

    def _remember(self, key: str, seq: int) -> None:
        if key not in self._recent:
            self._bytes += len(key) + _KEY_OVERHEAD_BYTES
        self._recent[key] = (seq, *(self.evicted_from(key) or ()))[: self._max_seqs]
        if self._bytes > self._max_bytes:
            self._recent, self._old, self._bytes = {}, self._recent, 0
