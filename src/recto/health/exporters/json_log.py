"""JSON log: one line per turn, alert and event, with numbers and fixed words only and no message text.

Lines are pure ASCII and written atomically. A line that cannot be written is counted, and nothing else happens.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from recto.health.exporters.exporter import Exporter, event_fields, finite, format_time
from recto.health.metrics import Alert, TurnHealth
from recto.transcript.entries import Entry

STDERR = "stderr"
MAX_LINE_BYTES = 16 * 1024
"""Maximum length of a line."""
_MAX_TEXT = 12_000
_MAX_NAME = 512
_COMMON_FIELDS = ("time", "level", "what", "session")
_LEVELS = {"critical": "error", "degradation": "warning", "anomaly": "warning"}
_EVENT_LEVELS = {
    "window_overflow": "error",
    "index_failed": "error",
    "checkpoint_unsaved": "error",
    "fidelity_low": "warning",
    "budget_violation": "warning",
}
_SKIPPED_EVENTS = frozenset({"window_snapshot"})
"""Bookkeeping events that say nothing about health."""
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class JsonLog(Exporter):
    """Writes lines to standard error or to a file that only its owner can read."""

    name = "log"

    def __init__(self, where: str, *, text: bool = False) -> None:
        """`where` is `stderr` or a path. With `text`, events are logged with their full content, which can quote
        messages."""
        self.dropped = 0
        self._path = None if where == STDERR else Path(where).expanduser()
        self._text = text
        self._file: int | None = None
        self._incomplete = False
        self._lock = threading.Lock()

    def turn(self, session: str, turn: TurnHealth) -> None:
        """Log a finished turn."""
        self._write(turn.ts, "info", "turn", session, asdict(turn))

    def alert(self, alert: Alert) -> None:
        """Log an alert that was raised or has ended."""
        level = "info" if alert.ended else _LEVELS[alert.grade]
        self._write(alert.ts, level, "alert", alert.session, asdict(alert))

    def event(self, entry: Entry) -> None:
        """Log an event."""
        if entry.kind in _SKIPPED_EVENTS:
            return
        values = {"kind": entry.kind, "seq": entry.seq, **event_fields(entry)}
        if self._text:
            values["content"] = entry.content[:_MAX_TEXT].decode(errors="replace")
            values |= {"cut": True} if len(entry.content) > _MAX_TEXT else {}
        self._write(entry.ts, _EVENT_LEVELS.get(entry.kind, "info"), "event", entry.session, values)

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        with self._lock:
            self._close_file()

    def _write(self, ts: int, level: str, what: str, session: str, values: Mapping[str, Any]) -> None:
        try:
            line = render_line({**values, "time": format_time(ts), "level": level, "what": what, "session": session})
            with self._lock:
                if self._path is not None:
                    self._append(self._path, line)
                else:
                    sys.stderr.write(line.decode("ascii"))
                    sys.stderr.flush()
        except Exception:  # noqa: BLE001  # a log never fails a turn, whatever is wrong with it
            self.dropped += 1

    def _append(self, path: Path, line: bytes) -> None:
        self._reopen_if_moved(path)
        if self._file is None:
            self._file = os.open(path, _FLAGS, 0o600)
        data = b"\n" + line if self._incomplete else line
        try:
            written = os.write(self._file, data)
        except OSError:
            self._close_file()
            raise
        self._incomplete = written < len(data)
        if self._incomplete:  # the disk is full: the next record starts a new line
            self.dropped += 1

    def _reopen_if_moved(self, path: Path) -> None:
        """Close the file if it was moved away, as log rotation does, so that it is opened again."""
        if self._file is None:
            return
        try:
            same = os.path.samestat(os.fstat(self._file), path.stat())
        except OSError:
            same = False
        if not same:
            self._close_file()
            self._incomplete = False

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def render_line(values: Mapping[str, Any]) -> bytes:
    """Render one line: common fields first, long texts shortened, non-finite numbers as null."""
    common = {name: values[name] for name in _COMMON_FIELDS}
    ordered = common | {name: value for name, value in values.items() if name not in common and name != "ts"}
    bounded: dict[str, Any] = {name: _bounded(name, value) for name, value in ordered.items()}
    if any(isinstance(value, str) and len(value) < len(ordered[name]) for name, value in bounded.items()):
        bounded["cut"] = True
    while len(line := _json(bounded)) > MAX_LINE_BYTES:
        longest = max((name for name in bounded if isinstance(bounded[name], str)), key=lambda name: len(bounded[name]))
        bounded |= {longest: bounded[longest][: len(bounded[longest]) // 2], "cut": True}
    return line


def _bounded(name: str, value: object) -> object:
    if isinstance(value, str):
        return value[: _MAX_TEXT if name == "content" else _MAX_NAME]
    return finite(value)


def _json(values: Mapping[str, Any]) -> bytes:
    line = json.dumps(values, separators=(",", ":"), allow_nan=False).encode("ascii")
    return line.replace(b"\x7f", b"\\u007f") + b"\n"  # the only control character that JSON does not escape
