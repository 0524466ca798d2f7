"""Finds keys by their secrets for one event loop: those who ask at once are looked up together.

Whether a key was revoked is read from the store each time. A thousand requests of one key that come at once read it
once, after the last of them has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from recto.core.keys import Key
from recto.engine.keys import Keys


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
