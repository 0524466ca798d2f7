"""Message fingerprints, to recognise messages that a client sends again.

Assistant messages are compared by content, because clients drop thinking, ids and vendor fields when they resend them.
Other messages are compared in canonical form.
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

_CACHE_SIZE = 50_000
"""Messages whose fingerprint is cached: a history is resent with each request."""


@dataclass(slots=True)
class Fingerprints:
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
