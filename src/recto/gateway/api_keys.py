"""API keys of the gateway, stored as events of a session that is Recto's own.

They are as durable as the transcript, their history is tamper-evident, and every store can hold them. Only the SHA-256
of a secret is stored: a secret has 256 random bits, so a slow hash would add nothing.

An incoming secret is hashed first and looked up in memory. The store is only asked for the head of that one session: no
text of a caller reaches it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hmac import compare_digest
from typing import Any, Final, Literal, get_args

from recto.errors import AppendConflict, InputError, UnknownKey
from recto.formats import FORMATS
from recto.transcript.entries import EMPTY_HEAD, Clock, Entry, Head, event
from recto.transcript.protocols import TranscriptStore

Right = Literal["ask", "read", "change", "erase"]
"""`ask`: call models. `read`: read what is stored. `change`: pins, restores, checkpoints, memory, titles and forks.
`erase`: remove whole sessions, which cannot be undone."""
RIGHTS: Final[tuple[Right, ...]] = get_args(Right)

OPEN_PATHS: Final = (
    "/v1/audio",
    "/v1/completions",
    "/v1/images",
    "/v1/models",
    "/v1/moderations",
    "/v1/rerank",
    *(path for format in FORMATS.values() for path in format.api.open_paths),
)
"""Endpoints without conversations that every key may use: a provider keeps nothing of them."""

SHARED_PATHS: Final = (
    "/v1/batches",
    "/v1/containers",
    "/v1/evals",
    "/v1/files",
    "/v1/fine_tuning",
    "/v1/messages/batches",
    "/v1/responses",
    "/v1/skills",
    "/v1/uploads",
    "/v1/vector_stores",
    "/v1/videos",
    *(path for format in FORMATS.values() for path in format.api.shared_paths),
)
"""Endpoints under which a provider keeps data. Only keys with their path may use them."""

PASSED_ROOTS: Final = ("/v1", *(root for format in FORMATS.values() for root in format.api.roots))
"""Beginnings of the paths that are passed on to an upstream."""

LIMITS: Final = ("requests_per_minute", "concurrency", "body_bytes", "tokens_per_day", "dollars_per_day")
"""The limits of a key; 0: none."""
CHANGEABLE: Final = (*LIMITS, "new_windows")
"""What of a key can be changed later."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_PATH = re.compile(r"/v1(?:beta)?(/[A-Za-z0-9._-]{1,64}){0,4}", re.ASCII)
_MAX_PATHS = 32
_MAX_TEXT = 64
_MAX_NUMBER = 2**53
"""Larger integers are not read alike by every JSON parser."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key. Raises `InputError` for invalid names, rights or limits."""

    id: str = ""
    """Public: used in lists, logs and events. Assigned when the key is created."""
    name: str
    """A name for people."""
    rights: frozenset[Right] = frozenset(RIGHTS)
    tenant: str = ""
    """The tenant whose sessions it can access."""
    agent: str = "default"
    """The agent whose sessions its requests belong to: `agent:<agent>:…`."""
    upstream: str = ""
    """The only upstream it may use; empty: chosen by the model's name."""
    profile: str = ""
    """The budget profile; empty: from the settings."""
    canonical: bool = False
    """Whether a request with neither history nor a name is a turn in the agent's main session. If not, it opens one."""
    paths: tuple[str, ...] = ()
    """Beginnings of the paths that are passed on to its upstream; empty: `OPEN_PATHS`."""
    requests_per_minute: int = 0
    """0: no limit but the gateway's."""
    concurrency: int = 0
    """Requests in flight at once; 0: no limit but the gateway's."""
    body_bytes: int = 0
    """Largest request body; 0: from the settings."""
    tokens_per_day: int = 0
    """Tokens of prompts and answers in a day (UTC); 0: no limit."""
    dollars_per_day: float = 0
    """The price of them; 0: no limit. Models without a price do not count."""
    new_windows: bool | None = None
    """Whether its requests get the tools for new windows; None: as `gateway.new_windows` says."""
    created: int = 0
    """Microseconds since 1970."""
    expires: int = 0
    """Microseconds since 1970; 0: never."""
    revoked: bool = False

    def __post_init__(self) -> None:
        for what, name in (("tenant", self.tenant), ("agent", self.agent)):
            if not _NAME.fullmatch(name) and (what == "agent" or name):
                raise InputError(f"{what} {name!r:.80}: a name is 1 to 64 of the characters A-Z a-z 0-9 . _ -")
        for what, text in (("name", self.name), ("upstream", self.upstream), ("profile", self.profile)):
            if len(text) > _MAX_TEXT or not text.isprintable() or (what == "name" and not text.strip()):
                raise InputError(f"{what} {text!r:.80}: at most {_MAX_TEXT} printable characters, and a key has a name")
        if len(self.paths) > _MAX_PATHS or not all(_PATH.fullmatch(path) for path in self.paths):
            raise InputError(f"a key has at most {_MAX_PATHS} paths, and each is like /v1/files")
        if not self.rights or not self.rights <= frozenset(RIGHTS):
            raise InputError(f"a key has at least one of the rights {', '.join(RIGHTS)}, and no other")
        numbers = (self.created, self.expires, *(getattr(self, name) for name in LIMITS))
        if not all(0 <= number <= _MAX_NUMBER for number in numbers):
            raise InputError("limits and times of a key are not below zero, and not beyond what JSON can say")
        if not isinstance(self.new_windows, bool | None):
            raise InputError("a key has new windows, has none, or is as the setting says")

    @property
    def has_budget(self) -> bool:
        """Whether what it may use in a day is limited."""
        return bool(self.tokens_per_day or self.dollars_per_day)

    def may_use(self, path: str) -> bool:
        """Whether requests to a path are passed on to its upstream."""
        return any(f"{path}/".startswith(f"{allowed}/") for allowed in self.paths or OPEN_PATHS)

    def is_live(self, now: int) -> bool:
        """Whether it is valid at a time, in microseconds since 1970."""
        return not self.revoked and (not self.expires or now < self.expires)


SESSION: Final = "recto:keys"
ADDED: Final = "key_added"
LIMITED: Final = "key_limited"
REVOKED: Final = "key_revoked"
PREFIX: Final = "rk-"
"""Prefix of every secret, so that secret scanners find it."""

_MAX_SECRET = 128
"""Characters of what is looked up as a secret; a secret has 46."""
_MAX_LIVE_KEYS = 10_000
"""Valid keys at once."""


@dataclass(frozen=True, slots=True)
class _StoredKey:
    key: Key
    digest: bytes


class Keys:
    """The API keys of one store. Safe for threads; any number of processes may add and revoke keys."""

    def __init__(self, store: TranscriptStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._head: Head = EMPTY_HEAD
        self._by_id: dict[str, _StoredKey] = {}
        self._by_digest: dict[bytes, _StoredKey] = {}
        self._temporary: dict[bytes, Key] = {}

    def add(self, template: Key, *, surface: str = "cli") -> tuple[Key, str]:
        """Create a key like the template, with a new id. Returns it with its secret, which is not stored."""
        now = self._clock.now()
        with self._lock:
            self._catch_up()
            if sum(stored.key.is_live(now) for stored in self._by_id.values()) >= _MAX_LIVE_KEYS:
                raise InputError(
                    f"there are {_MAX_LIVE_KEYS:,} keys already. Revoke some of them: 'recto keys list' shows all."
                )
        return self._append(template, surface)

    def add_first(self, template: Key, *, surface: str = "cli") -> tuple[Key, str] | None:
        """Create a key if the store never had one; of several processes that try at once, one creates it."""
        with self._lock:
            self._catch_up()
            head = self._head.seq
            if self._by_id:
                return None
        try:
            return self._append(template, surface, expect=head)
        except AppendConflict:
            return None

    def _append(self, template: Key, surface: str, expect: int | None = None) -> tuple[Key, str]:
        key = replace(template, id=secrets.token_hex(6), created=max(self._clock.now(), 0), revoked=False)
        secret = PREFIX + secrets.token_urlsafe(32)
        payload = {**asdict(key), "rights": [right for right in RIGHTS if right in key.rights]}
        payload = {name: value for name, value in payload.items() if name != "revoked" and value is not None}
        payload["hash"] = _digest(secret).hex()
        self._store.append(SESSION, [event(self._clock, ADDED, payload, f"add/{key.id}", surface)], expect=expect)
        return key, secret

    def lend(self, template: Key) -> str:
        """Create a temporary key that only this process knows. Nothing is stored. Returns its secret."""
        secret = PREFIX + secrets.token_urlsafe(32)
        key = replace(template, id=secrets.token_hex(6), created=max(self._clock.now(), 0), revoked=False)
        with self._lock:
            self._temporary[_digest(secret)] = key
        return secret

    def find(self, secret: str) -> Key | None:
        """Return the valid key of a secret, if any. A key revoked by another process is invalid from then on.

        The time of the table lookup reveals nothing: callers cannot choose digests.
        """
        if not secret.startswith(PREFIX) or len(secret) > _MAX_SECRET:
            return None
        digest = _digest(secret)
        with self._lock:
            if digest in self._temporary:
                return self._temporary[digest]
            self._catch_up()
            stored = self._by_digest.get(digest)
        if stored is None or not compare_digest(stored.digest, digest) or not stored.key.is_live(self._clock.now()):
            return None
        return stored.key

    def find_at_once(self, secret: str) -> Key | None:
        """Return the valid key of a secret that was found before, if the store can be read at once; else None."""
        digest = _digest(secret)
        with self._lock:
            is_known = digest in self._temporary or (self._store.is_local and digest in self._by_digest)
        return self.find(secret) if is_known else None

    def list(self) -> tuple[Key, ...]:
        """List all keys ever created, oldest first."""
        with self._lock:
            self._catch_up()
            return tuple(stored.key for stored in self._by_id.values())

    def limit(self, id: str, limits: Mapping[str, float | None], *, surface: str = "cli") -> Key:
        """Change limits of a key, by their names in `CHANGEABLE`. Raises `UnknownKey` and `InputError`."""
        with self._lock:
            self._catch_up()
            stored = self._by_id.get(id)
        if stored is None:
            raise UnknownKey(id)
        changed = _limited(stored.key, limits)
        self._store.append(SESSION, [event(self._clock, LIMITED, {"id": id, **limits}, surface=surface)])
        return changed

    def revoke(self, id: str, *, surface: str = "cli") -> Key:
        """Revoke a key for good; idempotent. Raises `UnknownKey`."""
        with self._lock:
            self._catch_up()
            stored = self._by_id.get(id)
        if stored is None:
            raise UnknownKey(id)
        if not stored.key.revoked:
            self._store.append(SESSION, [event(self._clock, REVOKED, {"id": id}, f"revoke/{id}", surface)])
        return replace(stored.key, revoked=True)

    def any_live(self) -> bool:
        """Whether any key is valid now."""
        now = self._clock.now()
        return bool(self._temporary) or any(key.is_live(now) for key in self.list())

    def _catch_up(self) -> None:
        """Read the new events of the session; all of them if its history was replaced."""
        head = self._store.head(SESSION)
        if head == self._head:
            return
        start = self._head.seq + 1
        if not self._is_longer(head):
            self._by_id, self._by_digest, start = {}, {}, 1
        for entry in self._store.read(SESSION, start, head.seq):
            self._apply(entry)
        self._head = head

    def _is_longer(self, head: Head) -> bool:
        """Whether the events read so far are a prefix of those stored now."""
        if not 0 < self._head.seq < head.seq:
            return False
        last = next(iter(self._store.read(SESSION, self._head.seq, self._head.seq)), None)
        return last is not None and last.hash == self._head.hash

    def _apply(self, entry: Entry) -> None:
        """Apply an event; malformed events are ignored."""
        match entry.kind:
            case "key_added":
                stored = _parse_key(entry.content)
                if stored is not None and stored.key.id not in self._by_id and stored.digest not in self._by_digest:
                    self._index(stored)
            case "key_revoked":
                payload = _object(entry.content)
                known = self._by_id.get(str(payload.get("id")))
                if known is not None:
                    self._index(_StoredKey(replace(known.key, revoked=True), known.digest))
            case "key_limited":
                payload = _object(entry.content)
                known = self._by_id.get(str(payload.pop("id", "")))
                if known is not None:
                    with suppress(InputError, TypeError):
                        self._index(_StoredKey(_limited(known.key, payload), known.digest))
            case _:
                pass

    def _index(self, stored: _StoredKey) -> None:
        self._by_id[stored.key.id] = self._by_digest[stored.digest] = stored


def _limited(key: Key, limits: Mapping[str, float | None]) -> Key:
    if unknown := limits.keys() - set(CHANGEABLE):
        raise InputError(f"a key has no limit {', '.join(sorted(unknown))!r:.80}; there are {', '.join(CHANGEABLE)}")
    return replace(key, **limits)  # type: ignore[arg-type]  # fields of these names


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _parse_key(content: bytes) -> _StoredKey | None:
    payload = _object(content)
    try:
        digest = bytes.fromhex(payload.pop("hash"))
        paths = tuple(payload.pop("paths", ()))
        key = Key(**{**payload, "rights": frozenset(payload.pop("rights")), "paths": paths})
    except (KeyError, TypeError, ValueError, AttributeError, InputError):
        return None  # also a key with a limit of a newer Recto, which this one could not enforce
    return _StoredKey(key, digest) if key.id and len(digest) == hashlib.sha256().digest_size else None


class KeyLookup:
    """Looks up keys off the event loop, in batches."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        # A thread of its own: clients that guess keys only slow down each other.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recto-keys")
        self._pending: dict[str, asyncio.Future[Key | None]] = {}
        self._found: dict[str, Key] = {}
        """Keys found since the event loop last looked for new requests: what is revoked later arrives later."""
        self._worker: asyncio.Task[None] | None = None

    async def find(self, secret: str) -> Key | None:
        """Return the valid key of a secret, if any. Raises `StoreError`."""
        found = self._found.get(secret) or self._keys.find_at_once(secret)
        if found is not None:
            if not self._found:
                asyncio.get_running_loop().call_soon(self._found.clear)
            self._found[secret] = found
            return found
        result = self._pending.get(secret)
        if result is None:
            result = self._pending[secret] = asyncio.get_running_loop().create_future()
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await asyncio.shield(result)

    async def _work(self) -> None:
        """Look up batch after batch: secrets that arrive during one are in the next, which reads the store again."""
        try:
            while self._pending:
                batch, self._pending = self._pending, {}
                loop = asyncio.get_running_loop()
                found = await loop.run_in_executor(self._thread, self._find_all, tuple(batch))
                for result, key in zip(batch.values(), found, strict=True):
                    if isinstance(key, Exception):
                        result.set_exception(key)
                        result.exception()  # marks it as retrieved: its caller may be gone
                    else:
                        result.set_result(key)
        finally:
            self._worker = None

    def _find_all(self, secrets: Sequence[str]) -> list[Key | Exception | None]:
        return [self._find(secret) for secret in secrets]

    def _find(self, secret: str) -> Key | Exception | None:
        try:
            return self._keys.find(secret)
        except Exception as error:  # noqa: BLE001  # raised in the caller
            return error
