"""What a message is recognised by when it comes again.

What an assistant said is compared by what it says: clients drop thinking, ids and vendors' fields when they send it
again. What others said is compared in its canonical form.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from recto.formats import canonical, read
from recto.formats.message import Message, Part

_REMEMBERED = 50_000
"""Messages whose hash is remembered: a history comes again with each request."""


@dataclass(slots=True)
class Fingerprints:
    """The hashes of messages, remembered."""

    most: int = _REMEMBERED
    _known: OrderedDict[bytes, bytes] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, raw: bytes, wire: str) -> bytes:
        """The hash of a message; empty for one that says nothing, which makes no difference to a history."""
        return self.all([raw], wire)[0]

    def chain(self, seed: bytes, messages: Sequence[bytes], wire: str) -> list[bytes]:
        """For each message the hash of the history up to and including it."""
        found: list[bytes] = []
        last = seed
        for one in self.all(messages, wire):
            last = hashlib.sha256(last + one).digest() if one else last
            found.append(last)
        return found

    def all(self, messages: Sequence[bytes], wire: str) -> list[bytes]:
        """The hashes of messages, as `of` gives them; nearly all of them are known, and looked up together."""
        person = wire.encode()[:16]
        names = [hashlib.blake2b(raw, digest_size=16, person=person).digest() for raw in messages]
        known = self._known
        with self._lock:
            found = [known.get(name) for name in names]
            for name, one in zip(names, found, strict=True):
                if one is not None:
                    known.move_to_end(name)
        made = [_print(raw, wire) if one is None else one for raw, one in zip(messages, found, strict=True)]
        with self._lock:
            for name, one, before in zip(names, made, found, strict=True):
                if before is None:
                    known[name] = one
            while len(known) > self.most:
                known.popitem(last=False)
        return made


def _print(raw: bytes, wire: str) -> bytes:
    message = read(raw, wire)
    if message.role != "assistant":
        return hashlib.sha256(canonical(raw, wire)).digest()
    said = _said(message)
    if not said:
        return b""
    return hashlib.sha256(json.dumps(said).encode()).digest()


def _said(message: Message) -> list[list[str]]:
    words = " ".join(" ".join(part.text.split()) for part in message.parts if part.kind == "text").strip()
    found = [["text", words]] if words else []
    found += [["call", part.name, _arguments(part), part.call_id] for part in message.calls]
    found += [[part.kind, part.text, str(part.weight)] for part in message.parts if part.kind in ("image", "media")]
    # Without a text it is members that the format does not know, and clients put in and leave out their own.
    found += [["other", part.text, str(part.weight)] for part in message.parts if part.kind == "other" and part.text]
    return found


def _arguments(call: Part) -> str:
    try:
        return json.dumps(json.loads(call.text), sort_keys=True)
    except (ValueError, RecursionError):
        return call.text
