"""One JSON endpoint over HTTP: a question, an answer in time, and nothing that can hurt on the way.

The key goes into one header and nowhere else: not into a message, a log or a redirect. What is asked, and what the
answer means, is not known here.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from recto.context.compaction.protocols import Cancelled
from recto.errors import SettingsError

if TYPE_CHECKING:
    import httpx2

COMPLAINT_MOST = 64 * 1024
"""Bytes of a refusal that are read at most."""
FIRST_WAIT = 0.25
"""Seconds before the second attempt, where the endpoint does not say; twice that before the next."""
LOOK_SECONDS = 0.05
"""How often it is looked whether an answer is still wanted."""
NO_LONGER_WANTED = "the answer is no longer wanted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why there is no answer."""

    reason: str
    status: int = 0
    """What HTTP says; 0 where it came to no answer at all."""
    again: bool = False
    """Whether another attempt may succeed."""
    wait: float | None = None
    """Seconds that the endpoint asks to wait."""


@dataclass(slots=True, eq=False, kw_only=True)
class Endpoint:
    """Where questions are sent. Any number of threads may ask."""

    url: str = field(repr=False)
    """Without the path, which is added."""
    path: str
    setting: str
    """The settings that it was made of, for who must mend them."""
    key: str = field(default="", repr=False)
    key_header: str = "Authorization"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    retries: int = 2
    wait: Callable[[float], object] = field(default=time.sleep, repr=False)
    parts: SplitResult = field(init=False, repr=False)
    _client: httpx2.Client | None = field(default=None, init=False, repr=False)
    _making: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        self.parts = self._checked_url()
        if not (self.key.isascii() and self.key.isprintable()):
            raise SettingsError(f"{self.setting}.key", "holds a character that no key has")

    def post(
        self, body: Mapping[str, Any], *, seconds: float, most: int, cancelled: Cancelled | None = None
    ) -> bytes | Trouble:
        """The answer, of so many bytes at most, after as many attempts as are allowed and as there is time for."""
        content = json.dumps(body).encode()
        ends = time.monotonic() + seconds
        trouble = Trouble(reason="it was not asked")
        for attempt in range(self.retries + 1):
            call = _Call(content=content, ends=ends, seconds=seconds, most=most, cancelled=cancelled)
            got = self._attempt_within(call)
            if isinstance(got, bytes):
                return got
            trouble = got
            if not got.again or attempt == self.retries:
                break
            wait = FIRST_WAIT * 2**attempt if got.wait is None else got.wait
            if time.monotonic() + wait >= ends:
                return Trouble(reason=f"{got.reason}; there was no time left for another attempt in {wait:g} s")
            self._pause(wait, cancelled)
        return trouble

    def close(self) -> None:
        """Lets go of its connections; the next use makes new ones."""
        client = self._client
        if client is not None:
            self._let_go(client)
            client.close()

    def complaint(self, answer: bytes) -> str:
        """What an answer says is wrong, where it says so in one of the usual ways; in one line and without the key."""
        try:
            tree = parsed(answer)
        except ValueError:
            return ""
        for name in ("error", "message", "detail"):
            if isinstance(tree, dict):
                tree = tree.get(name, tree)
        said = tree if isinstance(tree, str) else ""
        if self.key:
            said = said.replace(self.key, "…")
        return "".join(char if char.isprintable() else " " for char in said[:200]).strip()

    def _pause(self, seconds: float, cancelled: Cancelled | None) -> None:
        if cancelled is None:
            self.wait(seconds)
            return
        while seconds > 0 and not cancelled.is_set():
            self.wait(min(seconds, LOOK_SECONDS))
            seconds -= LOOK_SECONDS

    def _attempt_within(self, call: _Call) -> bytes | Trouble:
        """One attempt, left alone when its time is over or its answer is no longer wanted.

        It runs on a thread of its own: no time limit of a socket covers the looking up of a name, or an answer that
        comes byte by byte.
        """
        if call.unwanted:
            return Trouble(reason=NO_LONGER_WANTED)

        def work() -> None:
            call.answers.put(self._attempt(client, call))
            if call.left_alone.is_set():
                client.close()

        try:
            client = self._connected()
            threading.Thread(target=work, name="recto-endpoint", daemon=True).start()
            return call.answer()
        except queue.Empty:
            self._let_go(client)
            call.left_alone.set()
            if not call.answers.empty():  # it came in this very moment, and its thread did not see that it was left
                client.close()
            return Trouble(reason=NO_LONGER_WANTED if call.unwanted else call.too_late)
        except ImportError:
            return Trouble(reason="the package httpx2 is missing; install it with: pip install httpx2")
        except RuntimeError as error:
            return Trouble(reason=f"no thread could be started ({error})")

    def _attempt(self, client: httpx2.Client, call: _Call) -> bytes | Trouble:
        import httpx2  # noqa: PLC0415  # only for who asks an endpoint

        try:
            with client.stream("POST", self._address(), content=call.content, timeout=call.left) as response:
                if response.status_code == 200:
                    return call.read(response, call.most)
                return self._refused(response, call)
        except httpx2.TimeoutException:
            return Trouble(reason=call.too_late)
        except httpx2.TransportError as error:
            return Trouble(reason=f"the connection failed ({type(error).__name__})", again=True)
        except Exception as error:  # noqa: BLE001  nothing may be lost on a thread that nobody looks at
            # Only its kind: what a message of a strange error holds is not known.
            return Trouble(reason=f"the request failed ({type(error).__name__})", again=client.is_closed)

    def _refused(self, response: httpx2.Response, call: _Call) -> Trouble:
        status = response.status_code
        if 300 <= status < 400:
            reason = f"it answered {status}, a redirect, which is not followed; name the address it leads to"
            return Trouble(reason=reason, status=status)
        if status in (401, 403):
            reason = f"it answered {status}: the key is missing, wrong or not allowed to do this"
            return Trouble(reason=reason, status=status)
        if status in (408, 429) or status >= 500:
            wait = _seconds_to_wait(response.headers.get("retry-after", ""))
            return Trouble(reason=f"it answered {status}", status=status, again=True, wait=wait)
        body = call.read(response, COMPLAINT_MOST)
        said = self.complaint(body) if isinstance(body, bytes) else ""
        return Trouble(reason=f"it answered {status}{f' ({said})' if said else ''}", status=status)

    def _connected(self) -> httpx2.Client:
        import httpx2  # noqa: PLC0415  # only for who asks an endpoint

        with self._making:
            if self._client is None:
                headers = {"Content-Type": "application/json", "Accept": "application/json", **self.headers}
                # Not compressed: so many bytes on the wire are so many in memory.
                headers["Accept-Encoding"] = "identity"
                if self.key:
                    headers[self.key_header] = f"Bearer {self.key}" if self.key_header == "Authorization" else self.key
                self._client = httpx2.Client(headers=headers, follow_redirects=False)
            return self._client

    def _let_go(self, client: httpx2.Client) -> None:
        with self._making:
            if self._client is client:
                self._client = None

    def _address(self) -> str:
        return self.parts._replace(path=f"{self.parts.path.rstrip('/')}{self.path}", fragment="").geturl()

    def _checked_url(self) -> SplitResult:
        name = f"{self.setting}.url"
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            usable = False
        if not usable:
            raise SettingsError(name, "expects an address such as http://127.0.0.1:8080/v1")
        if parts.username is not None or parts.password is not None:
            raise SettingsError(name, f"must not hold a name or a password; give the key as '{self.setting}.key'")
        return parts


@dataclass(slots=True, eq=False, kw_only=True)
class _Call:
    """One attempt: what is sent, what it may cost, and where its answer is left."""

    content: bytes
    ends: float
    seconds: float
    """All that there was, for who is told."""
    most: int
    cancelled: Cancelled | None
    answers: queue.SimpleQueue[bytes | Trouble] = field(default_factory=queue.SimpleQueue)
    left_alone: threading.Event = field(default_factory=threading.Event)

    @property
    def left(self) -> float:
        """Seconds that there still are."""
        return max(self.ends - time.monotonic(), 0.0)

    @property
    def unwanted(self) -> bool:
        """Whether nobody wants the answer any more."""
        return self.cancelled is not None and self.cancelled.is_set()

    @property
    def too_late(self) -> str:
        """What is said when the time is over."""
        return f"no answer within {self.seconds:.4g} s"

    def answer(self) -> bytes | Trouble:
        """Waits for it. Raises `queue.Empty` when the time is over or nobody wants it any more."""
        while self.cancelled is not None and self.left > LOOK_SECONDS and not self.unwanted:
            try:
                return self.answers.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
        return self.answers.get(timeout=0 if self.unwanted else self.left)

    def read(self, response: httpx2.Response, most: int) -> bytes | Trouble:
        """The body of an answer, given up where it is longer than an answer can be, or nobody waits for it."""
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > most:
                return Trouble(reason=f"its answer is longer than {most:,} bytes")
            if self.left_alone.is_set():
                return Trouble(reason=self.too_late)
        return bytes(body)


def parsed(answer: bytes) -> Any:  # noqa: ANN401  # whatever the JSON holds
    """The JSON of an answer. Raises `ValueError` in plain words."""
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None


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


_POSTING_RESPONSE_BYTES = 64 * 1024


class Posting:
    """Sends a body within so many seconds, other attempts included.

    Any 2xx means that it was taken. Redirects are not followed, and the key goes into one header and nowhere else.
    """

    def __init__(
        self, url: str, *, setting: str, key: str = "", seconds: float = 5.0, content_type: str = "application/json"
    ) -> None:
        slash = "/" if url.partition("?")[0].endswith("/") else ""  # an address is used as it was written
        headers = {"Content-Type": content_type}
        self._endpoint = Endpoint(url=url, path=slash, setting=setting, key=key, headers=headers)
        self._seconds = seconds

    def __call__(self, body: Mapping[str, Any], cancelled: Cancelled) -> str:
        """Nothing where it was taken, else why not."""
        got = self._endpoint.post(body, seconds=self._seconds, most=_POSTING_RESPONSE_BYTES, cancelled=cancelled)
        return "" if isinstance(got, bytes) or 200 <= got.status < 300 else got.reason

    def close(self) -> None:
        """Lets go of its connections."""
        self._endpoint.close()
