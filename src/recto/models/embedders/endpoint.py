"""An embedder behind any OpenAI-compatible `/embeddings` endpoint.

It sends texts, waits no longer than it may, and trusts no answer before it is checked. The key goes into one header and
nowhere else: not into a message, a log or a redirect.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit
from zlib import crc32

from recto.core.estimates import whole
from recto.errors import EmbedderFailed, SettingsError
from recto.models.embedders.answers import complaint, rows_of

if TYPE_CHECKING:
    import httpx2

    from recto.ports import Matrix

ANSWER_MOST = 64 * 1024 * 1024
"""Bytes of an answer that are read at most."""
COMPLAINT_MOST = 64 * 1024
TEXT_MOST = 6_000
"""Characters of a text that are sent: one text that is too long for the model would fail its whole batch."""
FIRST_WAIT = 0.25
"""Seconds before the second attempt, where the endpoint does not say; twice that before the next."""


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why an attempt gave no answer."""

    reason: str
    again: bool = False
    """Whether another attempt may succeed."""
    wait: float | None = None
    """Seconds that the endpoint asks to wait."""


@dataclass(slots=True, eq=False, kw_only=True)
class EndpointEmbedder:
    """Sends texts in batches. Blank texts are not sent; their row is zeros."""

    url: str = field(kw_only=False, repr=False)
    """Without `/embeddings`, which is added."""
    model: str
    key: str = field(default="", repr=False)
    known_dims: int = 0
    """Asked for and insisted on. 0: as long as the first answer's."""
    seconds: float = 10.0
    """The longest that one batch may take, other attempts and waits included."""
    batch: int = 64
    retries: int = 2
    query_prefix: str = ""
    document_prefix: str = ""
    weight: float = 0.5
    wait: Callable[[float], object] = field(default=time.sleep, repr=False)
    name: str = field(init=False)
    _client: httpx2.Client | None = field(default=None, init=False, repr=False)
    _making: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _asked_dims: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        parts = _checked_url(self.url)
        if not self.model:
            raise SettingsError("recall.embedder.model", "an endpoint needs the name of its model")
        if not (self.key.isascii() and self.key.isprintable()):
            raise SettingsError("recall.embedder.key", "holds a character that no key has")
        if self.seconds <= 0 or self.batch < 1 or self.retries < 0 or self.known_dims < 0:
            raise SettingsError("recall.embedder", "seconds and batch must be more than 0, retries and dims not below")
        self._asked_dims = self.known_dims
        length = f"/{self.known_dims}" if self.known_dims else ""
        prefix = f"/{crc32(self.document_prefix.encode(errors='replace')):08x}" if self.document_prefix else ""
        # Two servers may serve two models under one name.
        self.name = f"{self.model}@{parts.hostname}{f':{parts.port}' if parts.port else ''}{length}{prefix}"

    @property
    def dims(self) -> int:
        """How long its vectors are. Asks the endpoint where nobody said. Raises `EmbedderFailed`."""
        if not self.known_dims:
            self._ask(["a"])
        return self.known_dims

    def documents(self, texts: Sequence[str]) -> Matrix:
        """One row of length 1 for each text; zeros for a blank one. Raises `EmbedderFailed`."""
        return self._rows(self.document_prefix, texts)

    def query(self, text: str) -> Matrix:
        """The vector of a question, as one row. Raises `EmbedderFailed`."""
        return self._rows(self.query_prefix, [text])

    def close(self) -> None:
        """Lets go of its connections; the next use makes new ones."""
        client = self._client
        if client is not None:
            self._let_go(client)
            client.close()

    def _rows(self, prefix: str, texts: Sequence[str]) -> Matrix:
        import numpy as np  # noqa: PLC0415  # only for who embeds

        places = [place for place, text in enumerate(texts) if text.strip()]
        found = []
        for start in range(0, len(places), self.batch):
            chosen = places[start : start + self.batch]
            found.append(self._ask([whole(prefix + texts[place][:TEXT_MOST]) for place in chosen]))
        rows = np.zeros((len(texts), self.dims), dtype=np.float32)
        if found:
            rows[places] = np.concatenate(found)
        return rows

    def _ask(self, texts: list[str]) -> Matrix:
        body: dict[str, object] = {"model": self.model, "input": texts}
        if self._asked_dims:
            body["dimensions"] = self._asked_dims
        answer = self._answer(json.dumps(body).encode())
        try:
            rows = rows_of(answer, count=len(texts), dims=self.known_dims)
        except ValueError as error:
            raise self._failed(str(error)) from None
        self.known_dims = rows.shape[1]
        return rows

    def _answer(self, body: bytes) -> bytes:
        """The answer to a request, after as many attempts as are allowed and as there is time for."""
        ends = time.monotonic() + self.seconds
        trouble = _Trouble("it was not asked")
        for attempt in range(self.retries + 1):
            got = self._attempt_within(body, ends - time.monotonic())
            if isinstance(got, bytes):
                return got
            trouble = got
            if not got.again or attempt == self.retries:
                break
            wait = FIRST_WAIT * 2**attempt if got.wait is None else got.wait
            if time.monotonic() + wait >= ends:
                raise self._failed(f"{got.reason}; there was no time left for another attempt in {wait:g} s")
            self.wait(wait)
        raise self._failed(trouble.reason)

    def _attempt_within(self, body: bytes, seconds: float) -> bytes | _Trouble:
        """One attempt, left alone when its time is over.

        It runs on a thread of its own: no time limit of a socket covers the looking up of a name, or an answer that
        comes byte by byte.
        """
        answers: queue.SimpleQueue[bytes | _Trouble] = queue.SimpleQueue()
        left_alone = threading.Event()

        def work() -> None:
            answers.put(self._attempt(client, body, seconds))
            if left_alone.is_set():
                client.close()

        try:
            client = self._connected()
            threading.Thread(target=work, name="recto-embeddings", daemon=True).start()
            return answers.get(timeout=max(seconds, 0))
        except queue.Empty:
            self._let_go(client)
            left_alone.set()
            if not answers.empty():  # it came in this very moment, and its thread did not see that it was left
                client.close()
            return _Trouble(f"no answer within {self.seconds:g} s")
        except ImportError:
            return _Trouble("the package httpx2 is missing; install it with: pip install 'recto[recall]'")
        except RuntimeError as error:
            return _Trouble(f"no thread could be started ({error})")

    def _attempt(self, client: httpx2.Client, body: bytes, seconds: float) -> bytes | _Trouble:
        import httpx2  # noqa: PLC0415  # only for who asks an endpoint

        try:
            with client.stream("POST", _address(self.url), content=body, timeout=seconds) as response:
                if response.status_code == 200:
                    return _read(response, ANSWER_MOST)
                return self._refused(response)
        except httpx2.TimeoutException:
            return _Trouble(f"no answer within {self.seconds:g} s")
        except httpx2.TransportError as error:
            return _Trouble(f"the connection failed ({type(error).__name__})", again=True)
        except Exception as error:  # noqa: BLE001  nothing may be lost on a thread that nobody looks at
            # Only its kind: what a message of a strange error holds is not known.
            return _Trouble(f"the request failed ({type(error).__name__})", again=client.is_closed)

    def _refused(self, response: httpx2.Response) -> _Trouble:
        status = response.status_code
        if 300 <= status < 400:
            return _Trouble(f"it answered {status}, a redirect, which is not followed; name the address it leads to")
        if status in (401, 403):
            return _Trouble(f"it answered {status}: the key is missing, wrong or not allowed to do this")
        if status in (408, 429) or status >= 500:
            wait = _seconds_to_wait(response.headers.get("retry-after", ""))
            return _Trouble(f"it answered {status}", again=True, wait=wait)
        body = _read(response, COMPLAINT_MOST)
        said = complaint(body) if isinstance(body, bytes) else ""
        if self.key:
            said = said.replace(self.key, "…")
        said = "".join(char if char.isprintable() else " " for char in said[:200]).strip()
        return _Trouble(f"it answered {status}{f' ({said})' if said else ''}")

    def _connected(self) -> httpx2.Client:
        import httpx2  # noqa: PLC0415  # only for who asks an endpoint

        with self._making:
            if self._client is None:
                headers = {"Content-Type": "application/json", "Accept": "application/json"}
                # Not compressed: so many bytes on the wire are so many in memory.
                headers["Accept-Encoding"] = "identity"
                if self.key:
                    headers["Authorization"] = f"Bearer {self.key}"
                self._client = httpx2.Client(headers=headers, follow_redirects=False)
            return self._client

    def _let_go(self, client: httpx2.Client) -> None:
        with self._making:
            if self._client is client:
                self._client = None

    def _failed(self, reason: str) -> EmbedderFailed:
        return EmbedderFailed(self.name, reason)


def _checked_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError("recall.embedder.url", "expects an address such as http://127.0.0.1:8080/v1")
    if parts.username is not None or parts.password is not None:
        raise SettingsError(
            "recall.embedder.url", "must not hold a name or a password; give the key as 'recall.embedder.key'"
        )
    return parts


def _address(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(path=f"{parts.path.rstrip('/')}/embeddings", fragment="").geturl()


def _read(response: httpx2.Response, most: int) -> bytes | _Trouble:
    """The body of an answer, given up where it is longer than an answer can be."""
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > most:
            return _Trouble(f"its answer is longer than {most:,} bytes")
    return bytes(body)


def _seconds_to_wait(asked: str) -> float | None:
    """What `Retry-After` asks for: seconds or a date. None where it cannot be read."""
    try:
        return max(float(asked), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(asked).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None
