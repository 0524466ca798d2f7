"""Calls one JSON endpoint over HTTP, with time limits, retries and bounded responses.

The API key is sent in one header and appears nowhere else: not in a message, a log or a redirect.
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
from recto.version import install_command

if TYPE_CHECKING:
    import httpx2

COMPLAINT_MOST = 64 * 1024
"""Largest error response that is read, in bytes."""
FIRST_WAIT = 0.25
"""Seconds before the first retry if the endpoint does not say; doubled before each further one."""
LOOK_SECONDS = 0.05
"""Interval of checks for cancellation, in seconds."""
NO_LONGER_WANTED = "the answer is no longer wanted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a request failed."""

    reason: str
    status: int = 0
    """HTTP status; 0 if there was no response."""
    again: bool = False
    """Whether a retry may succeed."""
    wait: float | None = None
    """Seconds to wait, as requested by the endpoint."""


@dataclass(slots=True, eq=False, kw_only=True)
class Endpoint:
    """One endpoint. Thread-safe."""

    url: str = field(repr=False)
    """Base URL; the path is added."""
    path: str
    setting: str
    """Name of the settings group, for error messages."""
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
        self,
        body: Mapping[str, Any],
        *,
        seconds: float,
        most: int,
        ends: float | None = None,
        cancelled: Cancelled | None = None,
    ) -> bytes | Trouble:
        """Send a request and return the response body, of at most `most` bytes; retries within the time limit.

        `ends` is the moment, on the monotonic clock, at which a limit that began earlier is over.
        """
        content = json.dumps(body).encode()
        ends = time.monotonic() + seconds if ends is None else ends
        trouble = Trouble(reason="it was not asked")
        for attempt in range(self.retries + 1):
            call = _Attempt(content=content, ends=ends, seconds=seconds, most=most, cancelled=cancelled)
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
        """Close its connections; the next use opens new ones."""
        client = self._client
        if client is not None:
            self._let_go(client)
            client.close()

    def complaint(self, answer: bytes) -> str:
        """Return the error message of a response in one line and without the key, if it has one of the usual forms."""
        try:
            tree = parsed(answer)
        except ValueError:
            return ""
        for name in ("error", "message", "detail"):
            if isinstance(tree, dict):
                tree = tree.get(name, tree)
        message = tree if isinstance(tree, str) else ""
        if self.key:
            message = message.replace(self.key, "…")
        return "".join(char if char.isprintable() else " " for char in message[:200]).strip()

    def _pause(self, seconds: float, cancelled: Cancelled | None) -> None:
        if cancelled is None:
            self.wait(seconds)
            return
        while seconds > 0 and not cancelled.is_set():
            self.wait(min(seconds, LOOK_SECONDS))
            seconds -= LOOK_SECONDS

    def _attempt_within(self, call: _Attempt) -> bytes | Trouble:
        """Make one attempt; it is abandoned when its time is over or when it is cancelled.

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
            if not call.answers.empty():  # it arrived just now, and its thread did not notice the end
                client.close()
            return Trouble(reason=NO_LONGER_WANTED if call.unwanted else call.too_late)
        except ImportError:
            return Trouble(reason=f"the package httpx2 is missing; install it with: {install_command('recall')}")
        except RuntimeError as error:
            return Trouble(reason=f"no thread could be started ({error})")

    def _attempt(self, client: httpx2.Client, call: _Attempt) -> bytes | Trouble:
        import httpx2  # noqa: PLC0415  # imported only when an endpoint is used

        try:
            with client.stream("POST", self._address(), content=call.content, timeout=call.left) as response:
                if response.status_code == 200:
                    return call.read(response, call.most)
                return self._refused(response, call)
        except httpx2.TimeoutException:
            return Trouble(reason=call.too_late)
        except httpx2.TransportError as error:
            return Trouble(reason=f"the connection failed ({type(error).__name__})", again=True)
        except Exception as error:  # noqa: BLE001  nothing may be lost on a thread that is not watched
            # Only the type: the message of an unknown error may contain the key.
            return Trouble(reason=f"the request failed ({type(error).__name__})", again=client.is_closed)

    def _refused(self, response: httpx2.Response, call: _Attempt) -> Trouble:
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
        message = self.complaint(body) if isinstance(body, bytes) else ""
        return Trouble(reason=f"it answered {status}{f' ({message})' if message else ''}", status=status)

    def _connected(self) -> httpx2.Client:
        import httpx2  # noqa: PLC0415  # imported only when an endpoint is used

        with self._making:
            if self._client is None:
                headers = {"Content-Type": "application/json", "Accept": "application/json", **self.headers}
                # Uncompressed, so that the size limit on the wire is also the limit in memory.
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
class _Attempt:
    """One attempt: the request, its limits, and the queue for its result."""

    content: bytes
    ends: float
    seconds: float
    """The complete time limit, for the error message."""
    most: int
    cancelled: Cancelled | None
    answers: queue.SimpleQueue[bytes | Trouble] = field(default_factory=queue.SimpleQueue)
    left_alone: threading.Event = field(default_factory=threading.Event)

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return max(self.ends - time.monotonic(), 0.0)

    @property
    def unwanted(self) -> bool:
        """Whether the call was cancelled."""
        return self.cancelled is not None and self.cancelled.is_set()

    @property
    def too_late(self) -> str:
        """The error for a timeout."""
        return f"no answer within {self.seconds:g} s"

    def answer(self) -> bytes | Trouble:
        """Wait for the result. Raises `queue.Empty` on timeout or cancellation."""
        while self.cancelled is not None and self.left > LOOK_SECONDS and not self.unwanted:
            try:
                return self.answers.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
        return self.answers.get(timeout=0 if self.unwanted else self.left)

    def read(self, response: httpx2.Response, most: int) -> bytes | Trouble:
        """Read the body of a response; aborts if it is too long or if it was cancelled."""
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > most:
                return Trouble(reason=f"its answer is longer than {most:,} bytes")
            if self.left_alone.is_set():
                return Trouble(reason=self.too_late)
        return bytes(body)


def parsed(answer: bytes) -> Any:  # noqa: ANN401  # whatever the JSON holds
    """Parse a JSON response. Raises `ValueError` with a readable message."""
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None


def _seconds_to_wait(header: str) -> float | None:
    """Parse `Retry-After`: seconds or a date. None if it is invalid."""
    try:
        return max(float(header), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(header).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None


_POSTING_RESPONSE_BYTES = 64 * 1024


class Posting:
    """Posts a body within a time limit, including retries.

    Any 2xx means that it was taken. Redirects are not followed, and the key goes into one header and nowhere else.
    """

    def __init__(
        self, url: str, *, setting: str, key: str = "", seconds: float = 5.0, content_type: str = "application/json"
    ) -> None:
        slash = "/" if url.partition("?")[0].endswith("/") else ""  # the URL is used exactly as configured
        headers = {"Content-Type": content_type}
        self._endpoint = Endpoint(url=url, path=slash, setting=setting, key=key, headers=headers)
        self._seconds = seconds

    def __call__(self, body: Mapping[str, Any], cancelled: Cancelled) -> str:
        """Post a body; returns an error message, empty on success."""
        got = self._endpoint.post(body, seconds=self._seconds, most=_POSTING_RESPONSE_BYTES, cancelled=cancelled)
        return "" if isinstance(got, bytes) or 200 <= got.status < 300 else got.reason

    def close(self) -> None:
        """Close its connections."""
        self._endpoint.close()
