"""A history that somebody else keeps: what is new in it is stored, and what is sent is a working set of it.

Agent frameworks hand their whole list of messages to every call of the model. Here it is compared with what is stored,
by what the messages say; only what is new is appended. A list that was edited, or cut short, goes on in a branch;
nothing is overwritten. A list whose beginning its owner let go of goes on where it was.

System text at the beginning is its owner's own, often made anew for each call: it goes beside the messages, takes its
room, and is written down when it changes. Messages are in the format of OpenAI Chat, unless another one is named;
frameworks have objects of their own, which come back as they were given wherever nothing in them was changed.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, groupby
from typing import Any, TypeAlias, TypeVar

from recto.engine.context_window_manager import tightened
from recto.engine.fingerprints import Fingerprints
from recto.engine.prompt_builder import Prompt
from recto.engine.session import Session
from recto.errors import AppendConflict
from recto.formats import DEFAULT_FORMAT
from recto.formats.response import usage_in
from recto.text.secrets import mask_secrets
from recto.tokens.limits import limits_in_error
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.events import to_json
from recto.transcript.session_keys import session_in

SYSTEM_TOLD = "system_told"
"""The event that says what the host's own system text is, from there on."""
_BEFORE_ALL = ("system", "developer")
_TRIES = 8
_SHORTEST = 2
"""Messages that must be the same for a list to be the end of one that is known."""

T = TypeVar("T")
ChatMessage: TypeAlias = dict[str, Any]
"""A message in the format of OpenAI Chat, or in the one that the conversation speaks."""


class Following:
    """One conversation of a host, kept in step with a session."""

    def __init__(
        self,
        session: Session,
        reopen: Callable[[str], Session],
        *,
        pin: Callable[[ChatMessage], bool] | None = None,
        surface: str = "library",
        wire: str = DEFAULT_FORMAT.name,
    ) -> None:
        self.wire = wire
        """The format of the messages."""
        self.session = session
        """Where it is kept now: everything a session can do can be done with it."""
        self._reopen = reopen
        """Opens another session beside this one, by name."""
        self._pin = pin
        self._surface = surface
        self._base = session_in(session.key).partition("~")[0]
        self._prints = Fingerprints()
        self._turn = threading.RLock()
        self._told = b""
        self._known: list[bytes] = []
        """What each stored message is recognised by."""
        self._seqs: list[int] = []
        self._upto = 0
        self._begin(session)

    def working_set(
        self,
        given: Sequence[T],
        write: Callable[[T], Iterable[ChatMessage]],
        read: Callable[[list[ChatMessage]], Iterable[T]],
        *,
        tools: Sequence[Any] = (),
        beside: str = "",
    ) -> list[T]:
        """What to send in place of `given`, a host's own messages: stores what is new, and fits the window.

        `write` says one of them in Chat messages, one or several; `read` makes some of the host's from a run of Chat
        messages that Recto wrote or changed. `tools` are the schemas that go with the prompt, and `beside` is system
        text that the host sends beside its messages.
        """
        written = [(place, to_json(message)) for place, one in enumerate(given) for message in write(one)]
        at, messages = [place for place, _ in written], [raw for _, raw in written]
        leading = _leading(messages)
        with self._turn:
            prompt = self._prompt(messages[leading:], messages[:leading], tools, beside)
        return _given_back([*messages[:leading], *prompt.raw], messages, at, given, read)

    def fitted(self, messages: Sequence[ChatMessage], *, tools: Sequence[Any] = ()) -> list[ChatMessage]:
        """What to send in place of a list of Chat messages."""
        return self.working_set(messages, lambda one: [one], lambda made: made, tools=tools)

    def heard(
        self,
        *messages: ChatMessage,
        usage: Mapping[str, Any] | None = None,
        after: Sequence[ChatMessage] | None = None,
    ) -> None:
        """The model has answered: stores it at once. Its host will tell it again, and it is not stored again then.

        `after` is the list that was answered, for hosts that ask several times at once.
        """
        with self._turn:
            told = usage_in(dict(usage)) if usage else None
            if after is not None:
                self.store(after)
            self._append([to_json(message) for message in messages], usage=told)

    def store(self, messages: Sequence[ChatMessage]) -> None:
        """Stores what is new in a list, without asking for a prompt."""
        raws = [to_json(message) for message in messages]
        with self._turn:
            self._follow(raws[_leading(raws) :])

    def new_in(self, messages: Sequence[ChatMessage]) -> list[ChatMessage] | None:
        """What is new in a list, which is not stored; None where the list does not go on from what is stored."""
        raws = [to_json(message) for message in messages]
        with self._turn:
            self._catch_up()
            rest = self._beyond(raws[_leading(raws) :])[0]
        return None if rest is None else [json.loads(raw) for raw in rest]

    def overflowed(self, error: BaseException | Mapping[str, Any] | str) -> bool:
        """Whether an error says that the prompt was too long. If so, its word is taken: ask for a working set again."""
        told = getattr(error, "body", None) if isinstance(error, BaseException) else error
        limits = limits_in_error(told) if isinstance(told, Mapping | str) else None
        if limits is None and isinstance(error, BaseException):
            limits = limits_in_error(str(error))
        if limits is None:
            return False
        with self._turn:
            tightened(self.session, limits)
        return True

    def compact(self, focus: str = "") -> tuple[Entry, ...]:
        """Makes the prompt smaller now; what `focus` names is kept as fully as it can be."""
        with self._turn:
            return self.session.compact(focus)

    def _prompt(self, messages: list[bytes], system: list[bytes], tools: Sequence[Any], beside: str) -> Prompt:
        self._follow(messages)
        said = b"".join([*system, *([beside.encode()] if beside else [])])
        if said and said != self._told:
            self._tell(said, [json.loads(raw).get("content") for raw in system], beside)
        return self.session.prompt(tools, beside=said, wire=self.wire)

    def _tell(self, said: bytes, system: list[Any], beside: str) -> None:
        """Once for each text: what stood before everything else belongs to what the model saw."""
        text = "\n\n".join([*(one if isinstance(one, str) else json.dumps(one) for one in system), beside]).strip()
        digest = hashlib.sha256(said).hexdigest()
        last = [entry for entry in self.session.tail(50) if entry.kind == SYSTEM_TOLD]
        if not last or json.loads(last[-1].content).get("digest") != digest:
            self.session.record(SYSTEM_TOLD, {"digest": digest, "text": mask_secrets(text)})
        self._told = said

    def _follow(self, messages: Sequence[bytes]) -> None:
        """Brings the session to where the host is."""
        passed = {session_in(self.session.key)}
        conflicts = 0
        while conflicts < _TRIES:
            head = self._catch_up()
            rest, same, said = self._beyond(messages)
            if rest is None:
                self._branch(same, said, passed)
                continue
            try:
                self._append(rest, expect=head)
            except AppendConflict:  # somebody else goes on with this session just now
                conflicts += 1
                continue
            return
        raise AppendConflict(self.session.key, head, self.session.head.seq)

    def _beyond(self, messages: Sequence[bytes]) -> tuple[list[bytes] | None, int, list[bytes]]:
        """What is new in a list, or nothing where it parts from what is stored; up to where it is the same, and what
        its messages are recognised by.
        """
        prints = self._prints.all(messages, self.wire)
        spoken = [place for place, one in enumerate(prints) if one]
        said = [prints[place] for place in spoken]
        same = _same(self._known, said)
        if same < len(self._known):
            # One that begins as it always did was edited, even where its beginning was said again at the end.
            held = 0 if same else _overlap(self._known, said)
            if not held:
                return None, same, said
            same = held
        return list(messages[spoken[same - 1] + 1 if same else 0 :]), same, said

    def _append(self, messages: list[bytes], **more: Any) -> None:  # noqa: ANN401  # as `append_all` takes them
        if not messages:
            return
        stored = self.session.append_all(messages, wire=self.wire, surface=self._surface, **more)
        self._catch_up()
        if self._pin is not None:
            pinned = [entry.seq for entry in stored if self._pin(json.loads(entry.content))]
            if pinned:
                self.session.pin(*pinned)

    def _catch_up(self) -> int:
        """Takes in what was stored since; returns the last entry."""
        for entry in self.session.read(self._upto + 1):
            self._upto = entry.seq
            if entry.kind == MESSAGE and (said := self._prints.of(entry.content, entry.wire)):
                self._known.append(said)
                self._seqs.append(entry.seq)
        return self._upto

    def _branch(self, same: int, said: list[bytes], passed: set[str]) -> None:
        """Goes on in a session of its own from where the list parts from what is stored.

        Its name follows from what is said there, so that the same list finds the same branch in another process.
        `passed` are sessions that do not hold the list: of branches with one name but for its number, as of answers
        that are asked for again and again, the next one is taken.
        """
        cut, more = b"".join([*said[:same], b"end"]), b"".join(said[: same + 1])
        before, at = self.session, self._seqs[same - 1] if same else 0
        branch = self._branch_named(cut, passed)
        if same < len(said) and not branch.head.seq:  # it was never cut short here, so it was said otherwise
            branch.close()
            branch = self._branch_named(more, passed)
        if at and not branch.head.seq:
            before.fork(session_in(branch.key), at=at)
        before.close()
        self._begin(branch)

    def _branch_named(self, told: bytes, passed: set[str]) -> Session:
        numbered = (hashlib.sha256(told + bytes(number)).hexdigest()[:12] for number in count())
        name = next(name for parting in numbered if (name := f"{self._base}~{parting}") not in passed)
        passed.add(name)
        return self._reopen(name)

    def _begin(self, session: Session) -> None:
        self.session = session
        self._known, self._seqs, self._upto = [], [], 0

    def close(self) -> None:
        """Closes the session."""
        self.session.close()

    def __del__(self) -> None:
        if "session" in self.__dict__:  # not where it could not be opened
            self.close()


def _leading(messages: Sequence[bytes]) -> int:
    """How many of the messages are system text before everything else."""
    for place, raw in enumerate(messages):
        if json.loads(raw).get("role") not in _BEFORE_ALL:
            return place
    return len(messages)


def _same(known: Sequence[bytes], said: Sequence[bytes]) -> int:
    """How many messages are the same from the beginning."""
    pairs = enumerate(zip(known, said, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(known), len(said)))


def _overlap(known: Sequence[bytes], said: Sequence[bytes]) -> int:
    """How many messages at the beginning of a list are the end of what is known; 0 where they are not."""
    for length in range(min(len(known) - 1, len(said)), _SHORTEST - 1, -1):
        if known[-length] == said[0] and list(known[-length:]) == list(said[:length]):
            return length
    return 0


def _given_back(
    sent: Sequence[bytes],
    messages: Sequence[bytes],
    at: Sequence[int],
    owners: Sequence[T],
    read: Callable[[list[ChatMessage]], Iterable[T]],
) -> list[T]:
    """The prompt in the host's own messages: those that are whole and unchanged as they were given."""
    places: dict[bytes, list[int]] = {}
    for place, raw in enumerate(messages):
        places.setdefault(raw, []).append(place)
    # From the end: of messages that say the same, the older ones have left.
    found = [places[raw].pop() if places.get(raw) else None for raw in reversed(sent)][::-1]
    whole = _whole(found, at)
    result: list[T] = []
    pairs = zip(found, sent, strict=True)
    marked = [(at[place] if place is not None and at[place] in whole else None, raw) for place, raw in pairs]
    for owner, run in groupby(marked, key=lambda one: one[0]):
        if owner is None:
            result += read([json.loads(raw) for _, raw in run])
        else:
            result.append(owners[owner])
    return result


def _whole(found: Sequence[int | None], at: Sequence[int]) -> set[int]:
    """The host's messages of which every part is sent, in its place and one behind the other."""
    parts: dict[int, list[int]] = {}
    for place, owner in enumerate(at):
        parts.setdefault(owner, []).append(place)
    whole: set[int] = set()
    for place, first in enumerate(found):
        if first is None:
            continue
        wanted = parts[at[first]]
        if first == wanted[0] and list(found[place : place + len(wanted)]) == wanted:
            whole.add(at[first])
    return whole
