"""A history that somebody else keeps: what is new in it is stored, and what is sent is a working set of it.

Agent frameworks hand their whole list of messages to every call of the model. Here it is compared with what is stored,
by what the messages say; only what is new is appended. A list that was edited, or cut short, goes on in a branch;
nothing is overwritten. A list whose beginning its owner let go of goes on where it was.

System text at the beginning is its owner's own, often made anew for each call: it goes beside the messages, takes its
room, and is written down when it changes. Messages are in the format of OpenAI Chat; frameworks have objects of their
own, which come back as they were given wherever nothing in them was changed.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

from recto.core.entries import MESSAGE, Entry
from recto.core.scopes import session_in
from recto.core.secrets import masked
from recto.engine.drafts import to_json
from recto.engine.prints import Prints
from recto.engine.prompts import Prompt
from recto.engine.session import Session
from recto.errors import AppendConflict
from recto.wire.names import CHAT
from recto.wire.replies import usage_in

SYSTEM_TOLD = "system_told"
"""The event that says what the host's own system text is, from there on."""
_BEFORE_ALL = ("system", "developer")
_TRIES = 8
_SHORTEST = 2
"""Messages that must be the same for a list to be the end of one that is known."""

T = TypeVar("T")
ChatMessage: TypeAlias = dict[str, Any]
"""A message in the format of OpenAI Chat."""


class Following:
    """One conversation of a host, kept in step with a session."""

    def __init__(
        self,
        session: Session,
        reopen: Callable[[str], Session],
        *,
        pin: Callable[[ChatMessage], bool] | None = None,
        surface: str = "library",
    ) -> None:
        self.session = session
        """Where it is kept now: everything a session can do can be done with it."""
        self._reopen = reopen
        """Opens another session beside this one, by name."""
        self._pin = pin
        self._surface = surface
        self._base = session_in(session.key).partition("~")[0]
        self._prints = Prints()
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
        owners: list[T] = []
        messages: list[bytes] = []
        at: list[int] = []
        for place, one in enumerate(given):
            owners.append(one)
            for message in write(one):
                messages.append(to_json(message))
                at.append(place)
        leading = _leading(messages)
        with self._turn:
            prompt = self._prompt(messages[leading:], messages[:leading], tools, beside)
        return _given_back([*messages[:leading], *prompt.raw], messages, at, owners, read)

    def fitted(self, messages: Sequence[ChatMessage], *, tools: Sequence[Any] = ()) -> list[ChatMessage]:
        """What to send in place of a list of Chat messages."""
        return self.working_set(messages, lambda one: [one], lambda made: made, tools=tools)

    def heard(self, *messages: ChatMessage, usage: Mapping[str, Any] | None = None) -> None:
        """The model has answered: stores it at once. Its host will tell it again, and it is not stored again then."""
        with self._turn:
            told = usage_in(dict(usage)) if usage else None
            self._append([to_json(message) for message in messages], usage=told)

    def store(self, messages: Sequence[ChatMessage]) -> None:
        """Stores what is new in a list, without asking for a prompt."""
        raws = [to_json(message) for message in messages]
        with self._turn:
            self._follow(raws[_leading(raws) :])

    def compact(self, focus: str = "") -> tuple[Entry, ...]:
        """Makes the prompt smaller now; what `focus` names is kept as fully as it can be."""
        with self._turn:
            return self.session.compact(focus)

    def _prompt(self, messages: list[bytes], system: list[bytes], tools: Sequence[Any], beside: str) -> Prompt:
        self._follow(messages)
        said = b"".join([*system, *([beside.encode()] if beside else [])])
        if said and said != self._told:
            self._tell(said, [json.loads(raw).get("content") for raw in system], beside)
        return self.session.prompt(tools, beside=said)

    def _tell(self, said: bytes, system: list[Any], beside: str) -> None:
        """Once for each text: what stood before everything else belongs to what the model saw."""
        text = "\n\n".join([*(one if isinstance(one, str) else json.dumps(one) for one in system), beside]).strip()
        digest = hashlib.sha256(said).hexdigest()
        last = [entry for entry in self.session.tail(50) if entry.kind == SYSTEM_TOLD]
        if not last or json.loads(last[-1].content).get("digest") != digest:
            self.session.record(SYSTEM_TOLD, {"digest": digest, "text": masked(text)})
        self._told = said

    def _follow(self, messages: Sequence[bytes]) -> None:
        """Brings the session to where the host is."""
        for _ in range(_TRIES):
            head = self._catch_up()
            prints = self._prints.all(messages, CHAT)
            spoken = [place for place, one in enumerate(prints) if one]
            said = [prints[place] for place in spoken]
            same = _same(self._known, said)
            if same < len(self._known):
                held = _overlap(self._known, said)
                if not held:
                    self._branch(same, said)
                    continue
                same = held
            rest = list(messages[spoken[same - 1] + 1 if same else 0 :])
            try:
                self._append(rest, expect=head)
            except AppendConflict:  # somebody else goes on with this session just now
                continue
            return
        raise AppendConflict(self.session.key, head, self.session.head.seq)

    def _append(self, messages: list[bytes], **more: Any) -> None:  # noqa: ANN401  # as `append_all` takes them
        if not messages:
            return
        stored = self.session.append_all(messages, wire=CHAT, surface=self._surface, **more)
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

    def _branch(self, same: int, said: list[bytes]) -> None:
        """Goes on in a session of its own from where the list parts from what is stored.

        Its name follows from what is said there, so that the same list finds the same branch in another process.
        """
        parting = hashlib.sha256(b"".join([*said[: same + 1], b"" if same < len(said) else b"end"])).hexdigest()[:12]
        before, at = self.session, self._seqs[same - 1] if same else 0
        branch = self._reopen(f"{self._base}~{parting}")
        if at and not branch.head.seq:
            before.fork(session_in(branch.key), at=at)
        before.close()
        self._begin(branch)

    def _begin(self, session: Session) -> None:
        session.window.material.usual_wire = CHAT
        self.session = session
        self._known, self._seqs, self._upto = [], [], 0

    def close(self) -> None:
        """Closes the session."""
        self.session.close()


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
