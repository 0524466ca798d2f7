"""The keys of the gateway, kept in the store itself: made and revoked by events of one session that is Recto's own.

So they are as durable as the transcript, their history cannot be changed unseen, and every store can keep them. Of
a secret only its SHA-256 is stored: it is 256 bits of chance, which nobody can guess from a fast hash any better than
from a slow one.

A secret that comes in is hashed before anything else is done with it, and looked for in memory. The store is only ever
asked where that one session ends: no text of a caller reaches it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from dataclasses import asdict, dataclass, replace
from hmac import compare_digest
from typing import Any, Final

from recto.core.chain import EMPTY
from recto.core.entries import Entry, Head
from recto.core.keys import RIGHTS, Key
from recto.engine.drafts import event
from recto.errors import InputError, UnknownKey
from recto.ports import Clock, TranscriptStore

SESSION: Final = "recto:keys"
ADDED: Final = "key_added"
REVOKED: Final = "key_revoked"
PREFIX: Final = "rk-"
"""What every secret begins with, so that tools that look for leaked secrets find it."""

_LONGEST = 128
"""Characters of what could be a secret; a secret has 46."""
_MOST = 10_000
"""Keys at once that open something."""


@dataclass(frozen=True, slots=True)
class _Kept:
    key: Key
    digest: bytes


class Keys:
    """The keys of one store. Any number of threads may ask, and any number of processes may add and revoke."""

    def __init__(self, store: TranscriptStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._head: Head = EMPTY
        self._by_id: dict[str, _Kept] = {}
        self._by_digest: dict[bytes, _Kept] = {}
        self._lent: dict[bytes, Key] = {}

    def add(self, wanted: Key, *, surface: str = "cli") -> tuple[Key, str]:
        """Makes a key as it is wanted, with an id of its own. The secret is given back here and nowhere else."""
        now = self._clock.now()
        with self._lock:
            self._catch_up()
            if sum(kept.key.is_live(now) for kept in self._by_id.values()) >= _MOST:
                raise InputError(f"there are {_MOST:,} keys already. Revoke some of them: 'recto keys list' shows all.")
        key = replace(wanted, id=secrets.token_hex(6), created=max(now, 0), revoked=False)
        secret = PREFIX + secrets.token_urlsafe(32)
        about = {**asdict(key), "rights": [right for right in RIGHTS if right in key.rights]}
        about = {name: value for name, value in about.items() if name != "revoked"}
        about["hash"] = _digest(secret).hex()
        self._store.append(SESSION, [event(self._clock, ADDED, about, f"add/{key.id}", surface)])
        return key, secret

    def lend(self, wanted: Key) -> str:
        """The secret of a key that this process alone knows: nothing is stored, and it ends with the process."""
        secret = PREFIX + secrets.token_urlsafe(32)
        key = replace(wanted, id=secrets.token_hex(6), created=max(self._clock.now(), 0), revoked=False)
        with self._lock:
            self._lent[_digest(secret)] = key
        return secret

    def find(self, secret: str) -> Key | None:
        """The key that a secret opens, if it opens one now. Revoked by another process, it opens nothing from then on.

        Finding a digest in a table tells nothing by the time it takes: whoever asks cannot choose digests.
        """
        if not secret.startswith(PREFIX) or len(secret) > _LONGEST:
            return None
        digest = _digest(secret)
        with self._lock:
            if digest in self._lent:
                return self._lent[digest]
            self._catch_up()
            kept = self._by_digest.get(digest)
        if kept is None or not compare_digest(kept.digest, digest) or not kept.key.is_live(self._clock.now()):
            return None
        return kept.key

    def list(self) -> tuple[Key, ...]:
        """All that were ever made, oldest first."""
        with self._lock:
            self._catch_up()
            return tuple(kept.key for kept in self._by_id.values())

    def revoke(self, id: str, *, surface: str = "cli") -> Key:
        """Ends a key for good; doing it again changes nothing. Raises `UnknownKey`."""
        with self._lock:
            self._catch_up()
            kept = self._by_id.get(id)
        if kept is None:
            raise UnknownKey(id)
        if not kept.key.revoked:
            self._store.append(SESSION, [event(self._clock, REVOKED, {"id": id}, f"revoke/{id}", surface)])
        return replace(kept.key, revoked=True)

    def any_live(self) -> bool:
        """Whether there is a key that opens something now."""
        now = self._clock.now()
        return bool(self._lent) or any(key.is_live(now) for key in self.list())

    def _catch_up(self) -> None:
        """Takes in what is new in the session. Where its history is another one, all of it is read again."""
        head = self._store.head(SESSION)
        if head == self._head:
            return
        start = self._head.seq + 1
        if not self._is_longer(head):
            self._by_id, self._by_digest, start = {}, {}, 1
        for entry in self._store.read(SESSION, start, head.seq):
            self._take(entry)
        self._head = head

    def _is_longer(self, head: Head) -> bool:
        """Whether what was read is the beginning of what is there now."""
        if not 0 < self._head.seq < head.seq:
            return False
        last = next(iter(self._store.read(SESSION, self._head.seq, self._head.seq)), None)
        return last is not None and last.hash == self._head.hash

    def _take(self, entry: Entry) -> None:
        """What cannot be read makes no key, and what names no key revokes none."""
        match entry.kind:
            case "key_added":
                kept = _kept(entry.content)
                if kept is not None and kept.key.id not in self._by_id and kept.digest not in self._by_digest:
                    self._put(kept)
            case "key_revoked":
                about = _object(entry.content)
                known = self._by_id.get(str(about.get("id")))
                if known is not None:
                    self._put(_Kept(replace(known.key, revoked=True), known.digest))
            case _:
                pass

    def _put(self, kept: _Kept) -> None:
        self._by_id[kept.key.id] = self._by_digest[kept.digest] = kept


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _kept(content: bytes) -> _Kept | None:
    about = _object(content)
    try:
        digest = bytes.fromhex(about.pop("hash"))
        key = Key(**{**about, "rights": frozenset(about.pop("rights"))})
    except (KeyError, TypeError, ValueError, AttributeError, InputError):
        return None  # also one with a limit that a newer Recto knows and this one could not keep to
    return _Kept(key, digest) if key.id and len(digest) == hashlib.sha256().digest_size else None
