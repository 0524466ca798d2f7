"""Webhook: sends alerts as CloudEvents in JSON, without delaying a turn.

One thread sends alerts in order; it starts with the first alert and ends when the queue is empty. Alerts that do not
fit in the queue or are not accepted in time are dropped and counted. The transport is passed in as `post`.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from msgspec.structs import asdict

from recto.context.compaction.protocols import Cancelled
from recto.health.exporters.exporter import Exporter, finite, format_time
from recto.health.metrics import Alert

Post: TypeAlias = Callable[[Mapping[str, Any], Cancelled], str]
"""Sends a body; returns an empty string if it was accepted, else the reason, without secrets."""
CONTENT_TYPE = "application/cloudevents+json"
QUEUE_SIZE = 256
BEGAN, ENDED = "recto.alert.began", "recto.alert.ended"
_IDLE_SECONDS = 5.0


class Webhook(Exporter):
    """Sends alerts; ignores turns and events."""

    name = "webhook"

    def __init__(
        self, post: Post, *, close_post: Callable[[], None] = lambda: None, queue_size: int = QUEUE_SIZE
    ) -> None:
        """`close_post` is called on close, to release the connections of `post`."""
        self.dropped = 0
        self.delivered = 0
        self.last_error = ""
        """Why the last dropped alert was dropped."""
        self._post = post
        self._close_post = close_post
        self._queue: queue.Queue[Alert | None] = queue.Queue(queue_size)
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def alert(self, alert: Alert) -> None:
        """Queue the alert."""
        with self._lock:
            if self._closed.is_set():
                self._drop("it came after the end")
                return
            try:
                self._queue.put_nowait(alert)
                self._ensure_thread()
            except queue.Full:
                self._drop("too many were waiting")
            except RuntimeError as error:  # no thread can be started: the alert waits for the next attempt
                self.last_error = f"no thread could be started ({error})"

    def close(self, seconds: float = 2.0) -> None:
        """Wait up to `seconds` for queued alerts to be sent; the rest are dropped and counted."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            _join_within(self._queue, seconds)
        self._closed.set()
        with suppress(queue.Full):  # then the thread is not waiting for more
            self._queue.put_nowait(None)
        if thread is not None:
            thread.join(1.0)
        with self._lock:
            while not self._queue.empty():
                if self._queue.get_nowait() is not None:
                    self._drop("there was no time left")
        self._close_post()

    def _ensure_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._work, name="recto-webhook", daemon=True)
            thread.start()
            self._thread = thread

    def _work(self) -> None:
        while not self._closed.is_set():
            try:
                alert = self._queue.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._queue.empty():
                        self._thread = None
                        return
                continue
            if alert is None:
                return
            error = self._send(alert)
            with self._lock:
                if error:
                    self._drop(error)
                else:
                    self.delivered += 1
            self._queue.task_done()

    def _send(self, alert: Alert) -> str:
        try:
            return self._post(cloud_event(alert), self._closed)
        except Exception as error:  # noqa: BLE001  # only its type: its text may contain secrets
            return f"sending broke ({type(error).__name__})"

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        self.last_error = reason[:300]


def cloud_event(alert: Alert) -> dict[str, Any]:
    """Build the CloudEvent of an alert; the same alert always gets the same id."""
    kind = ENDED if alert.ended else BEGAN
    identity = f"{kind}\n{alert.session}\n{alert.turn}\n{alert.name}"
    data = {key: value for key, value in asdict(alert).items() if key not in ("session", "ts")}
    return {
        "specversion": "1.0",
        "id": hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:32],
        "source": "recto",
        "type": kind,
        "subject": alert.session,
        "time": format_time(alert.ts),
        "datacontenttype": "application/json",
        "data": {key: finite(value) for key, value in data.items()},
    }


def _join_within(pending: queue.Queue[Alert | None], seconds: float) -> None:
    """`Queue.join` with a time limit."""
    with pending.all_tasks_done:
        pending.all_tasks_done.wait_for(lambda: not pending.unfinished_tasks, seconds)
