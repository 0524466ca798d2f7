"""Alerts sent somewhere as JSON, each a CloudEvent. It never holds up a turn.

One thread sends, one alert after the other; it begins with the first alert and ends when there is nothing to send. What
does not find room in the queue, or is not taken in time, is lost and counted. How a body reaches its address is not
known here: `post` is handed in.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from math import isfinite
from typing import Any, TypeAlias

from recto.context.compaction.protocols import Cancelled
from recto.health.exporters.json_log import time_of
from recto.health.metrics import Alert, TurnHealth
from recto.transcript.entries import Entry

Post: TypeAlias = Callable[[Mapping[str, Any], Cancelled], str]
"""Sends a body; returns nothing where it was taken, else why not, without any secret in it."""
CONTENT_TYPE = "application/cloudevents+json"
QUEUED_MOST = 256
BEGAN, ENDED = "recto.alert.began", "recto.alert.ended"
_IDLE_SECONDS = 5.0


class Webhook:
    """A `HealthSink` that sends alerts, and nothing else."""

    name = "webhook"

    def __init__(self, post: Post, *, let_go: Callable[[], None] = lambda: None, most: int = QUEUED_MOST) -> None:
        """`let_go` is called at the end, for what `post` holds open."""
        self.dropped = 0
        self.delivered = 0
        self.trouble = ""
        """Why the last one that was lost was lost."""
        self._post = post
        self._let_go = let_go
        self._waiting: queue.Queue[Alert | None] = queue.Queue(most)
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def turn(self, session: str, turn: TurnHealth) -> None:
        """Nothing is sent for a turn."""

    def event(self, entry: Entry) -> None:
        """Nor for an event."""

    def alert(self, alert: Alert) -> None:
        """Puts it in the queue."""
        with self._lock:
            if self._closed.is_set():
                self._lost("it came after the end")
                return
            try:
                self._waiting.put_nowait(alert)
                self._started()
            except queue.Full:
                self._lost("too many were waiting")
            except RuntimeError as error:  # no thread can be had: the alert waits for the next one
                self.trouble = f"no thread could be started ({error})"

    def close(self, seconds: float = 2.0) -> None:
        """Waits so long for what is queued to be sent; what is not is lost and counted."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            _ends_within(self._waiting, seconds)
        self._closed.set()
        with suppress(queue.Full):  # then it is not waiting for more
            self._waiting.put_nowait(None)
        if thread is not None:
            thread.join(1.0)
        with self._lock:
            while not self._waiting.empty():
                if self._waiting.get_nowait() is not None:
                    self._lost("there was no time left")
        self._let_go()

    def _started(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._work, name="recto-webhook", daemon=True)
            thread.start()
            self._thread = thread

    def _work(self) -> None:
        while not self._closed.is_set():
            try:
                alert = self._waiting.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._thread = None
                        return
                continue
            if alert is None:
                return
            why = self._sent(alert)
            with self._lock:
                if why:
                    self._lost(why)
                else:
                    self.delivered += 1
            self._waiting.task_done()

    def _sent(self, alert: Alert) -> str:
        try:
            return self._post(body_of(alert), self._closed)
        except Exception as error:  # noqa: BLE001  # only its kind: what its text holds is not known
            return f"sending broke ({type(error).__name__})"

    def _lost(self, why: str) -> None:
        self.dropped += 1
        self.trouble = why[:300]


def body_of(alert: Alert) -> dict[str, Any]:
    """What is sent: a CloudEvent whose id is the same whenever the same alert is sent again."""
    kind = ENDED if alert.ended else BEGAN
    told = f"{kind}\n{alert.session}\n{alert.turn}\n{alert.name}"
    data = {key: value for key, value in asdict(alert).items() if key not in ("session", "ts")}
    return {
        "specversion": "1.0",
        "id": hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()[:32],
        "source": "recto",
        "type": kind,
        "subject": alert.session,
        "time": time_of(alert.ts),
        "datacontenttype": "application/json",
        "data": {key: None if isinstance(one, float) and not isfinite(one) else one for key, one in data.items()},
    }


def _ends_within(waiting: queue.Queue[Alert | None], seconds: float) -> None:
    """`Queue.join`, which knows no time limit, with one."""
    with waiting.all_tasks_done:
        waiting.all_tasks_done.wait_for(lambda: not waiting.unfinished_tasks, seconds)
