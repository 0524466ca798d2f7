"""Lines of JSON: one for each turn, alert and event. They hold numbers and words of ours, and no text of messages.

A line is written whole or not at all, whatever a session's key or a model's name holds: everything but plain ASCII is
escaped. Where it cannot be written, that is counted, and nothing else happens.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any

from recto.health.exporters.fields import facts_of
from recto.health.metrics import Alert, TurnHealth
from recto.transcript.entries import Entry

STDERR = "stderr"
LINE_MOST = 16 * 1024
"""Bytes of one line."""
_TEXT_MOST = 12_000
_NAME_MOST = 512
_ALWAYS = ("time", "level", "what", "session")
_LEVELS = {"critical": "error", "degradation": "warning", "anomaly": "warning"}
_EVENT_LEVELS = {
    "window_overflow": "error",
    "index_failed": "error",
    "checkpoint_unsaved": "error",
    "fidelity_low": "warning",
    "budget_violation": "warning",
}
_UNTOLD = frozenset({"window_snapshot"})
"""Housekeeping that says nothing about health."""
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class Log:
    """A `HealthSink` that writes lines, to the standard error stream or to a file that only its owner can read."""

    name = "log"

    def __init__(self, where: str, *, text: bool = False) -> None:
        """`where` is `stderr` or a path; with `text`, events are told with all they hold, which can quote messages."""
        self.dropped = 0
        self._path = None if where == STDERR else Path(where).expanduser()
        self._text = text
        self._file: int | None = None
        self._torn = False
        self._lock = threading.Lock()

    def turn(self, session: str, turn: TurnHealth) -> None:
        """A turn is over."""
        self._write(turn.ts, "info", "turn", session, asdict(turn))

    def alert(self, alert: Alert) -> None:
        """Something should be looked at, or is over."""
        level = "info" if alert.ended else _LEVELS[alert.grade]
        self._write(alert.ts, level, "alert", alert.session, asdict(alert))

    def event(self, entry: Entry) -> None:
        """Something happened to a session."""
        if entry.kind in _UNTOLD:
            return
        told = {"kind": entry.kind, "seq": entry.seq, **facts_of(entry)}
        if self._text:
            told["content"] = entry.content[:_TEXT_MOST].decode(errors="replace")
            told |= {"cut": True} if len(entry.content) > _TEXT_MOST else {}
        self._write(entry.ts, _EVENT_LEVELS.get(entry.kind, "info"), "event", entry.session, told)

    def close(self) -> None:
        """Lets go of the file; the next line opens it again."""
        with self._lock:
            self._let_go()

    def _write(self, ts: int, level: str, what: str, session: str, told: Mapping[str, Any]) -> None:
        try:
            line = _line({**told, "time": time_of(ts), "level": level, "what": what, "session": session})
            with self._lock:
                if self._path is not None:
                    self._append(self._path, line)
                else:
                    sys.stderr.write(line.decode("ascii"))
                    sys.stderr.flush()
        except Exception:  # noqa: BLE001  # a log never fails a turn, whatever is wrong with it
            self.dropped += 1

    def _append(self, path: Path, line: bytes) -> None:
        self._follow(path)
        if self._file is None:
            self._file = os.open(path, _FLAGS, 0o600)
        whole = b"\n" + line if self._torn else line
        try:
            written = os.write(self._file, whole)
        except OSError:
            self._let_go()
            raise
        self._torn = written < len(whole)
        if self._torn:  # the disk is full: the next line begins on a line of its own
            self.dropped += 1

    def _follow(self, path: Path) -> None:
        """Opens the file anew where somebody moved it away, as rotation does."""
        if self._file is None:
            return
        try:
            same = os.path.samestat(os.fstat(self._file), path.stat())
        except OSError:
            same = False
        if not same:
            self._let_go()
            self._torn = False

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _line(told: Mapping[str, Any]) -> bytes:
    """One line: what stands in every line first, texts shortened, and only numbers that JSON has."""
    first = {name: told[name] for name in _ALWAYS}
    whole = first | {name: value for name, value in told.items() if name not in first and name != "ts"}
    short: dict[str, Any] = {name: _plain(name, value) for name, value in whole.items()}
    if any(isinstance(value, str) and len(value) < len(whole[name]) for name, value in short.items()):
        short["cut"] = True
    while len(line := _json(short)) > LINE_MOST:
        longest = max((name for name in short if isinstance(short[name], str)), key=lambda name: len(short[name]))
        short |= {longest: short[longest][: len(short[longest]) // 2], "cut": True}
    return line


def _plain(name: str, value: object) -> object:
    if isinstance(value, str):
        return value[: _TEXT_MOST if name == "content" else _NAME_MOST]
    return None if isinstance(value, float) and not isfinite(value) else value


def _json(told: Mapping[str, Any]) -> bytes:
    line = json.dumps(told, separators=(",", ":"), allow_nan=False).encode("ascii")
    return line.replace(b"\x7f", b"\\u007f") + b"\n"  # the one control character that JSON leaves as it is


def time_of(ts: int) -> str:
    """As logs write it, to the microsecond; a moment that no calendar has is told as the number it is."""
    try:
        return (_BEGINNING + timedelta(microseconds=ts)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(ts)
