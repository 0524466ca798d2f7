"""The keys of the gateway, kept in the store itself: made and revoked by events of one session that is Recto's own.

So they are as durable as the transcript, their history cannot be changed unseen, and every store can keep them. Of
a secret only its SHA-256 is stored: it is 256 bits of chance, which nobody can guess from a fast hash any better than
from a slow one.

A secret that comes in is hashed before anything else is done with it, and looked for in memory. The store is only ever
asked where that one session ends: no text of a caller reaches it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from hmac import compare_digest
from typing import Any, Final, Literal, get_args

from recto.errors import InputError, UnknownKey
from recto.transcript.entries import Entry, Head
from recto.transcript.events import event
from recto.transcript.hash_chain import EMPTY_HEAD
from recto.transcript.protocols import Clock, TranscriptStore

Right = Literal["ask", "read", "change"]
"""`ask`: models, through the gateway. `read`: what is stored. `change`: pins, restores, checkpoints, memory."""
RIGHTS: Final[tuple[Right, ...]] = get_args(Right)

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_LONGEST = 64
_LARGEST = 2**53
"""Numbers up to here are read alike by every JSON reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is known of a key. Raises `InputError` for one that could not be told apart, or could do nothing."""

    id: str = ""
    """Public: it stands in lists, logs and events. Given when the key is made."""
    name: str
    """What people call it."""
    rights: frozenset[Right] = frozenset(RIGHTS)
    tenant: str = ""
    """Whose sessions it sees; no others exist for it."""
    agent: str = "default"
    """The agent whose sessions its requests belong to: `agent:<agent>:…`."""
    upstream: str = ""
    """The only upstream it may ask; empty: by the model's name."""
    profile: str = ""
    """The budget's profile; empty: as the settings say."""
    canonical: bool = True
    """Whether a request with neither tools nor history is a turn in the agent's main session. If not, it opens one."""
    requests_per_minute: int = 0
    """0: as many as the gateway takes."""
    concurrency: int = 0
    """Requests under way at once; 0: as many as the gateway takes."""
    body_bytes: int = 0
    """Largest request; 0: as the settings say."""
    created: int = 0
    """Microseconds since 1970."""
    expires: int = 0
    """The same; 0: never."""
    revoked: bool = False

    def __post_init__(self) -> None:
        for what, name in (("tenant", self.tenant), ("agent", self.agent)):
            if not _NAME.fullmatch(name) and (what == "agent" or name):
                raise InputError(f"{what} {name!r:.80}: a name is 1 to 64 of the characters A-Z a-z 0-9 . _ -")
        for what, text in (("name", self.name), ("upstream", self.upstream), ("profile", self.profile)):
            if len(text) > _LONGEST or not text.isprintable() or (what == "name" and not text.strip()):
                raise InputError(f"{what} {text!r:.80}: at most {_LONGEST} printable characters, and a key has a name")
        if not self.rights or not self.rights <= frozenset(RIGHTS):
            raise InputError(f"a key has at least one of the rights {', '.join(RIGHTS)}, and no other")
        numbers = (self.requests_per_minute, self.concurrency, self.body_bytes, self.created, self.expires)
        if not all(0 <= number <= _LARGEST for number in numbers):
            raise InputError("limits and times of a key are not below zero, and not beyond what JSON can say")

    def is_live(self, now: int) -> bool:
        """Whether it opens anything at a time, in microseconds since 1970."""
        return not self.revoked and (not self.expires or now < self.expires)


SESSION: Final = "recto:keys"
ADDED: Final = "key_added"
REVOKED: Final = "key_revoked"
PREFIX: Final = "rk-"
"""What every secret begins with, so that tools that look for leaked secrets find it."""

_LONGEST_KEYS = 128
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
        self._head: Head = EMPTY_HEAD
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
        if not secret.startswith(PREFIX) or len(secret) > _LONGEST_KEYS:
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


class Lookup:
    """The keys of one gateway."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        # One thread of its own: those who guess keys can only wait for each other.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recto-keys")
        self._asked: dict[str, asyncio.Future[Key | None]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def find(self, secret: str) -> Key | None:
        """The key that a secret opens now, if it opens one. Raises `StoreError`."""
        found = self._asked.get(secret)
        if found is None:
            found = self._asked[secret] = asyncio.get_running_loop().create_future()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(found)

    async def _look(self) -> None:
        """Round after round: what is asked during one is answered by the next, which reads anew."""
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                loop = asyncio.get_running_loop()
                answers = await loop.run_in_executor(self._thread, self._all, tuple(asked))
                for one, answer in zip(asked.values(), answers, strict=True):
                    if isinstance(answer, Exception):
                        one.set_exception(answer)
                        one.exception()  # whoever asked may have gone: then nobody misses it
                    else:
                        one.set_result(answer)
        finally:
            self._looking = None

    def _all(self, secrets: Sequence[str]) -> list[Key | Exception | None]:
        return [self._one(secret) for secret in secrets]

    def _one(self, secret: str) -> Key | Exception | None:
        try:
            return self._keys.find(secret)
        except Exception as error:  # noqa: BLE001  # told to who asked
            return error
