"""Identifies requests that their client may send again.

A client marks them by an `Idempotency-Key`, or by the retry count that the SDKs of OpenAI and Anthropic send.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from recto.errors import InputError

_KEY: Final = "idempotency-key"
_COUNT: Final = "x-stainless-retry-count"
_MAX_KEY: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryKey:
    """Identifies a request that may come again."""

    owner: str
    """The API key and the address that was called."""
    name: str
    """The client's own `Idempotency-Key`; empty without one."""
    body: bytes
    """Digest of the body."""
    count: int
    """How often an SDK has sent it before."""
    is_new: bool = False
    """Whether its earlier attempt is known to have failed: in a session that several clients share, the turn of another
    client may have answered it nevertheless."""

    @property
    def asks_again(self) -> bool:
        """Whether an earlier attempt may have been answered, so that the transcript is searched for the question."""
        return self.count > 0 and not self.name and not self.is_new

    @property
    def lineage_names(self) -> list[bytes | str]:
        """The names under which the answer to an `Idempotency-Key` is recorded: with the body, and without it."""
        if not self.name:
            return []
        return [f"idempotency/{json.dumps(part)}" for part in ([*self._key, self.body.hex()], self._key)]

    @property
    def _key(self) -> list[str]:
        return [self.owner, self.name]


def may_come_again(headers: Mapping[str, str]) -> bool:
    """Whether the client of a request says that it may send it again."""
    return _COUNT in headers or _KEY in headers


def retry_key(headers: Mapping[str, str], owner: str, body: bytes) -> RetryKey:
    """Return what identifies a request.

    Raises:
        InputError: The key is longer than 255 characters.
    """
    name, count = headers.get(_KEY, ""), headers.get(_COUNT, "")
    if len(name) > _MAX_KEY:
        raise InputError(f"an Idempotency-Key has at most {_MAX_KEY} characters")
    number = int(count) if count.isascii() and count.isdecimal() and len(count) < 4 else 0
    return RetryKey(owner=owner, name=name, body=hashlib.blake2b(body, digest_size=16).digest(), count=number)
