"""Keeps a session in sync with a message list that an agent framework owns, and returns a working set to send.

Agent frameworks pass their full list of messages to every model call. The list is compared with the stored transcript
by content, and only new messages are appended. A list that was edited or truncated continues in a branch; nothing is
overwritten. A list whose beginning was dropped by its owner continues where it was.

Leading system text belongs to the framework, which often rebuilds it for each call: it is passed alongside the
messages, counted, and recorded when it changes. Messages are in OpenAI Chat format unless another is named. Framework
objects are returned unchanged wherever their messages were not changed.

Messages that a client sends again are recognised by fingerprints: assistant messages by their content, because clients
drop thinking, ids and vendor fields; other messages in canonical form.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, groupby
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct, field

from recto.engine.arguments import check_messages
from recto.engine.context_window_manager import shrink_input_budget
from recto.engine.prompt_builder import Prompt
from recto.engine.session import Session
from recto.errors import AppendConflict
from recto.formats import DEFAULT_FORMAT, canonical, read
from recto.formats.message import Message, Part
from recto.formats.response import usage_in
from recto.formats.response_objects import message_bytes
from recto.text.secrets import mask_secrets
from recto.tokens.limits import limits_in_error
from recto.transcript.entries import MESSAGE, Entry, content_as_sent, is_hidden
from recto.transcript.session_keys import session_in

_CACHE_SIZE = 50_000
"""Messages whose fingerprint is cached: a history is resent with each request."""


class Fingerprints(Struct):
    """Cached fingerprints of messages. Thread-safe."""

    cache_size: int = _CACHE_SIZE
    _cache: OrderedDict[bytes, bytes] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, raw: bytes, wire: str) -> bytes:
        """Return the fingerprint of a message; empty for one without content, which does not affect a history."""
        return self.all([raw], wire)[0]

    def chain(self, seed: bytes, messages: Sequence[bytes], wire: str) -> list[bytes]:
        """Return, for each message, the hash of the history up to and including it."""
        chain: list[bytes] = []
        last = seed
        for fingerprint in self.all(messages, wire):
            last = hashlib.sha256(last + fingerprint).digest() if fingerprint else last
            chain.append(last)
        return chain

    def all(self, messages: Sequence[bytes], wire: str) -> list[bytes]:
        """Return the fingerprints of messages. Nearly all are cached and looked up together."""
        person = wire.encode()[:16]
        keys = [hashlib.blake2b(raw, digest_size=16, person=person).digest() for raw in messages]
        cache = self._cache
        with self._lock:
            cached = [cache.get(key) for key in keys]
            for key, fingerprint in zip(keys, cached, strict=True):
                if fingerprint is not None:
                    cache.move_to_end(key)
        computed = [
            _fingerprint(raw, wire) if fingerprint is None else fingerprint
            for raw, fingerprint in zip(messages, cached, strict=True)
        ]
        with self._lock:
            for key, fingerprint, before in zip(keys, computed, cached, strict=True):
                if before is None:
                    cache[key] = fingerprint
            while len(cache) > self.cache_size:
                cache.popitem(last=False)
        return computed


def _fingerprint(raw: bytes, wire: str) -> bytes:
    message = read(raw, wire)
    if message.role != "assistant":
        return hashlib.sha256(canonical(raw, wire)).digest()
    content = _content(message)
    if not content:
        return b""
    return hashlib.sha256(json.dumps(content).encode()).digest()


def _content(message: Message) -> list[list[str]]:
    words = " ".join(" ".join(part.text.split()) for part in message.parts if part.kind == "text").strip()
    content = [["text", words]] if words else []
    content += [["call", part.name, _arguments(part), part.call_id] for part in message.calls]
    content += [[part.kind, part.text, str(part.weight)] for part in message.parts if part.kind in ("image", "media")]
    # Parts without text are members that the format does not know; clients add and drop their own.
    content += [["other", part.text, str(part.weight)] for part in message.parts if part.kind == "other" and part.text]
    return content


def _arguments(call: Part) -> str:
    try:
        return json.dumps(json.loads(call.text), sort_keys=True)
    except (ValueError, RecursionError):
        return call.text


SYSTEM_TEXT = "system_told"
"""The event that records the host's own system text from there on."""
_SYSTEM_ROLES = ("system", "developer")
_MAX_CONFLICTS = 8
_MIN_OVERLAP = 2
"""Messages that must match for a list to be the continuation of a known one."""

T = TypeVar("T")
ChatMessage: TypeAlias = dict[str, Any]
"""A message in OpenAI Chat format, or in the format of the conversation."""


class Following:
    """One conversation of a host, kept in sync with a session."""

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
        """The current session of the conversation; all of its calls may be used."""
        self._reopen = reopen
        """Opens another session of the same store, by name."""
        self._pin = pin
        self._surface = surface
        self._base = session_in(session.key).partition("~")[0]
        self._fingerprints = Fingerprints()
        self._turn = threading.RLock()
        self._system_text = b""
        self._stored: list[bytes] = []
        """The fingerprints of the stored messages."""
        self._seqs: list[int] = []
        self._last_seq = 0
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
        """Store what is new in `given`, the host's own messages, and return what to send in their place.

        Args:
            given: The host's messages.
            write: Converts one of them to one or several Chat messages.
            read: Converts a run of Chat messages that Recto wrote or changed to the host's messages.
            tools: Schemas sent with the prompt.
            beside: System text that the host sends alongside its messages.
        """
        written = [(index, message_bytes(message)) for index, item in enumerate(given) for message in write(item)]
        owners, messages = [index for index, _ in written], [raw for _, raw in written]
        leading = _count_system(messages)
        with self._turn:
            prompt = self._prompt(messages[leading:], messages[:leading], tools, beside)
        return _to_host_messages([*messages[:leading], *prompt.raw], messages, owners, given, read)

    def fitted(self, messages: Sequence[ChatMessage], *, tools: Sequence[Any] = ()) -> list[ChatMessage]:
        """Store what is new in a list of Chat messages, and return what to send in its place."""
        check_messages("'messages'", messages)
        messages = messages if isinstance(messages, Sequence) else list(messages)
        return self.working_set(messages, lambda message: [message], lambda changed: changed, tools=tools)

    def heard(
        self,
        *messages: ChatMessage,
        usage: Mapping[str, Any] | None = None,
        after: Sequence[ChatMessage] | None = None,
        key: str | None = None,
    ) -> None:
        """Store the model's answer at once. When the host resends it, it is not stored again.

        `after` is the list that was answered, for hosts that make several calls at once. With a `key`, a repeated call
        stores nothing.
        """
        with self._turn:
            parsed_usage = usage_in(dict(usage)) if usage else None
            if after is not None:
                self.store(after)
            self._append([message_bytes(message) for message in messages], usage=parsed_usage, key=key)

    def store(self, messages: Sequence[ChatMessage]) -> None:
        """Store what is new in a list, without building a prompt."""
        check_messages("'messages'", messages)
        raws = [message_bytes(message) for message in messages]
        with self._turn:
            self._sync(raws[_count_system(raws) :])

    def new_in(self, messages: Sequence[ChatMessage]) -> list[ChatMessage] | None:
        """Return what is new in a list, without storing it; None if the list does not continue what is stored."""
        raws = [message_bytes(message) for message in messages]
        with self._turn:
            self._catch_up()
            rest = self._new_messages(raws[_count_system(raws) :])[0]
        return None if rest is None else [json.loads(raw) for raw in rest]

    def overflowed(self, error: BaseException | Mapping[str, Any] | str) -> bool:
        """Whether an error says that the prompt was too long. If so, its limits apply from now on: request a working
        set again."""
        body = getattr(error, "body", None) if isinstance(error, BaseException) else error
        limits = limits_in_error(body) if isinstance(body, Mapping | str) else None
        if limits is None and isinstance(error, BaseException):
            limits = limits_in_error(str(error))
        if limits is None:
            return False
        with self._turn:
            shrink_input_budget(self.session, limits)
        return True

    def compact(self, focus: str = "") -> tuple[Entry, ...]:
        """Compact the prompt now; content related to `focus` is preserved as far as possible."""
        with self._turn:
            return self.session.compact(focus)

    def _prompt(self, messages: list[bytes], system: list[bytes], tools: Sequence[Any], beside: str) -> Prompt:
        self._sync(messages)
        system_text = b"".join([*system, *([beside.encode()] if beside else [])])
        if system_text and system_text != self._system_text:
            self._record_system(system_text, [json.loads(raw).get("content") for raw in system], beside)
        return self.session.prompt(tools, beside=system_text, wire=self.wire)

    def _record_system(self, system_text: bytes, system: list[Any], beside: str) -> None:
        """Record system text once per change: it is part of what the model saw."""
        contents = (content if isinstance(content, str) else json.dumps(content) for content in system)
        text = "\n\n".join([*contents, beside]).strip()
        digest = hashlib.sha256(system_text).hexdigest()
        last = [entry for entry in self.session.tail(50) if entry.kind == SYSTEM_TEXT]
        if not last or json.loads(last[-1].content).get("digest") != digest:
            self.session.record(SYSTEM_TEXT, {"digest": digest, "text": mask_secrets(text)})
        self._system_text = system_text

    def _sync(self, messages: Sequence[bytes]) -> None:
        """Bring the session up to date with the host's list."""
        excluded = {session_in(self.session.key)}
        conflicts = 0
        while conflicts < _MAX_CONFLICTS:
            head = self._catch_up()
            rest, common, fingerprints = self._new_messages(messages)
            if rest is None:
                self._branch(common, fingerprints, excluded)
                continue
            try:
                self._append(rest, expect=head)
            except AppendConflict:  # another process is appending to this session
                conflicts += 1
                continue
            return
        raise AppendConflict(self.session.key, head, self.session.head.seq)

    def _new_messages(self, messages: Sequence[bytes]) -> tuple[list[bytes] | None, int, list[bytes]]:
        """Return what is new in a list, None if it diverges from what is stored; how many messages match, and their
        fingerprints."""
        all_fingerprints = self._fingerprints.all(messages, self.wire)
        places = [place for place, fingerprint in enumerate(all_fingerprints) if fingerprint]
        fingerprints = [all_fingerprints[place] for place in places]
        common = _common_prefix(self._stored, fingerprints)
        if common < len(self._stored):
            # A list with a known beginning was edited, even if its beginning is repeated at the end.
            overlap = 0 if common else _overlap(self._stored, fingerprints)
            if not overlap:
                return None, common, fingerprints
            common = overlap
        return list(messages[places[common - 1] + 1 if common else 0 :]), common, fingerprints

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
        """Read what was stored since; returns the last entry."""
        for entry in self.session.read(self._last_seq + 1):
            self._last_seq = entry.seq
            if entry.kind != MESSAGE or is_hidden(entry.meta):
                continue
            if fingerprint := self._fingerprints.of(content_as_sent(entry), entry.wire):
                self._stored.append(fingerprint)
                self._seqs.append(entry.seq)
        return self._last_seq

    def _branch(self, common: int, fingerprints: list[bytes], excluded: set[str]) -> None:
        """Continue in a session of its own from where the list diverges from what is stored.

        Its name is derived from the messages at that point, so that the same list finds the same branch in another
        process. `excluded` are sessions that do not contain the list: of branches that differ only in their number, as
        for repeated answers, the next is used.
        """
        cut, more = b"".join([*fingerprints[:common], b"end"]), b"".join(fingerprints[: common + 1])
        before, at = self.session, self._seqs[common - 1] if common else 0
        branch = self._branch_named(cut, excluded)
        # If the list was never truncated here, a message was edited.
        if common < len(fingerprints) and not branch.head.seq:
            branch.close()
            branch = self._branch_named(more, excluded)
        if at and not branch.head.seq:
            before.fork(session_in(branch.key), at=at)
        before.close()
        self._begin(branch)

    def _branch_named(self, identity: bytes, excluded: set[str]) -> Session:
        numbered = (hashlib.sha256(identity + bytes(number)).hexdigest()[:12] for number in count())
        name = next(name for digest in numbered if (name := f"{self._base}~{digest}") not in excluded)
        excluded.add(name)
        return self._reopen(name)

    def _begin(self, session: Session) -> None:
        self.session = session
        self._stored, self._seqs, self._last_seq = [], [], 0

    def close(self) -> None:
        """Closes the session."""
        self.session.close()

    def __del__(self) -> None:
        if "session" in self.__dict__:  # unset if opening failed
            self.close()


def _count_system(messages: Sequence[bytes]) -> int:
    """How many leading messages are system text."""
    for place, raw in enumerate(messages):
        if json.loads(raw).get("role") not in _SYSTEM_ROLES:
            return place
    return len(messages)


def _common_prefix(stored: Sequence[bytes], fingerprints: Sequence[bytes]) -> int:
    """How many messages match from the beginning."""
    pairs = enumerate(zip(stored, fingerprints, strict=False))
    return next((place for place, (first, second) in pairs if first != second), min(len(stored), len(fingerprints)))


def _overlap(stored: Sequence[bytes], fingerprints: Sequence[bytes]) -> int:
    """How many messages at the beginning of a list are the end of what is stored; 0 if none."""
    for length in range(min(len(stored) - 1, len(fingerprints)), _MIN_OVERLAP - 1, -1):
        if stored[-length] == fingerprints[0] and list(stored[-length:]) == list(fingerprints[:length]):
            return length
    return 0


def _to_host_messages(
    sent: Sequence[bytes],
    messages: Sequence[bytes],
    owner_of: Sequence[int],
    host_messages: Sequence[T],
    read: Callable[[list[ChatMessage]], Iterable[T]],
) -> list[T]:
    """Convert the prompt to the host's messages: complete, unchanged ones are returned as they are."""
    places: dict[bytes, list[int]] = {}
    for place, raw in enumerate(messages):
        places.setdefault(raw, []).append(place)
    # From the end: of identical messages, the older ones were evicted.
    matches = [places[raw].pop() if places.get(raw) else None for raw in reversed(sent)][::-1]
    complete = _complete_owners(matches, owner_of)
    result: list[T] = []
    pairs = zip(matches, sent, strict=True)
    tagged = [
        (owner_of[place] if place is not None and owner_of[place] in complete else None, raw) for place, raw in pairs
    ]
    for owner, run in groupby(tagged, key=lambda pair: pair[0]):
        if owner is None:
            result += read([json.loads(raw) for _, raw in run])
        else:
            result.append(host_messages[owner])
    return result


def _complete_owners(matches: Sequence[int | None], owner_of: Sequence[int]) -> set[int]:
    """The host's messages of which every part is sent, in order and adjacent."""
    parts: dict[int, list[int]] = {}
    for place, owner in enumerate(owner_of):
        parts.setdefault(owner, []).append(place)
    complete: set[int] = set()
    for place, first in enumerate(matches):
        if first is None:
            continue
        expected = parts[owner_of[first]]
        if first == expected[0] and list(matches[place : place + len(expected)]) == expected:
            complete.add(owner_of[first])
    return complete
