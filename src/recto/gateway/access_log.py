"""The access log: one line on standard error for each request, as text or JSON.

Lines are ASCII and bounded, and everything that clients send is escaped, so no request can forge a line or act on a
terminal. A thread of its own writes them: a reader of the log that has stopped reading holds up no request. Lines that
find no place are lost and counted.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal

from recto.gateway.request_record import RequestRecord
from recto.health.exporters.base import format_time
from recto.health.exporters.json_log import render_line
from recto.transcript.protocols import Clock

Style = Literal["text", "json"]
_MAX_WAITING: Final = 10_000
"""Lines that wait to be written."""
_CLOSE_SECONDS: Final = 2.0
"""How long to wait at the end until everything is written."""
_MAX_DECISIONS: Final = 32
_MAX_TEXT: Final = 512
_PLAIN = re.compile(r"[A-Za-z0-9._:/@,+~-]+", re.ASCII)
_PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Requests of orchestrators, every few seconds: only those that fail are logged."""


class AccessLog:
    """Writes one line for each request."""

    def __init__(self, style: Style, clock: Clock) -> None:
        self.dropped = 0
        self._style = style
        self._clock = clock
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def write(self, record: RequestRecord) -> None:
        """Log a request that is over. Never blocks."""
        if record.path in _PROBES and record.status < 400:
            return
        fields = fields_of(record, format_time(self._clock.now()))
        line = render_line(fields) if self._style == "json" else _as_text(fields)
        with self._changed:
            if len(self._lines) >= _MAX_WAITING or self._closing:
                self.dropped += 1
                return
            self._lines.append(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="recto-access-log", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Write what waits, unless it is not read."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._closing:
                    self._changed.wait()
                lines, self._lines = self._lines, deque()
            if not lines:
                return
            try:
                sys.stderr.write(b"".join(lines).decode("ascii"))
                sys.stderr.flush()
            except Exception:  # noqa: BLE001  # a log never fails a request, whatever is wrong with it
                self.dropped += len(lines)


def fields_of(record: RequestRecord, now: str) -> dict[str, Any]:
    """Return the fields of a line. A field that has no value is left out."""
    key, turn = record.key, record.turn
    fields: dict[str, Any] = {
        "request": record.id,
        "method": record.method,
        "path": record.path,
        "status": record.status,
        "outcome": record.outcome,
        "reason": record.reason,
        "client": record.client,
    }
    if key is not None:
        fields |= {"key": key.id, "tenant": key.tenant, "agent": key.agent}
    fields |= {"model": record.model, "upstream": record.upstream}
    if record.wire:
        fields["streamed"] = record.is_streamed
    if record.is_replayed:
        fields["replayed"] = True
    if turn is not None:
        fields |= {
            "input_tokens": turn.usage.prompt,
            "output_tokens": turn.usage.output,
            "cached_tokens": turn.usage.cache_read,
            "counted_by": "recto" if turn.is_estimated else "upstream",
            "decisions": ",".join(map(str, turn.decisions[:_MAX_DECISIONS])) or "none",
            "recalled": len(turn.prompt.recalled),
        }
    fields |= {"added_ms": _milliseconds(record.added_seconds), "total_ms": _milliseconds(record.seconds)}
    fields = {name: value for name, value in fields.items() if value != ""}
    common = {"time": now, "level": "error" if record.status >= 500 else "info", "what": "request"}
    return {**common, "session": turn.resolved.name if turn is not None else "", **fields}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1_000, 1)


def _as_text(fields: Mapping[str, Any]) -> bytes:
    """Return a line of `name=value` after the time. Values that are not plain are quoted as in JSON."""
    words = [f"{name}={_word(value)}" for name, value in fields.items() if name != "time" and value != ""]
    return f"{' '.join((fields['time'], *words))}\n".encode("ascii")


def _word(value: object) -> str:
    if isinstance(value, str):
        value = value[:_MAX_TEXT]
        return value if _PLAIN.fullmatch(value) else json.dumps(value).replace("\x7f", "\\u007f")
    return json.dumps(value)
