"""Plays the sample script through the real engine: five days of user messages, tool calls and answers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any, Final

from recto.engine.projection import TRIMMED
from recto.engine.session import Session
from recto.formats.response import Usage
from recto.sample.script import Bug, ScriptedExchange, ScriptedNote, Ticket, load_script
from recto.testing import FakeClock

DAY: Final = 86_400_000_000
MINUTE: Final = 60_000_000
_START_MINUTE: Final = 8 * 60 + 30
"""Start of each working day, in minutes after midnight."""
_TICKETS_PER_BUG: Final = 3
_INITIAL_TESTS: Final = 389
"""Size of the test suite on the first day."""


def _tool(name: str, description: str, *parameters: str) -> dict[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS: Final = (
    _tool("read_file", "The text of a file.", "path"),
    _tool("read_ticket", "The text of a ticket.", "number"),
    _tool("edit_file", "Replaces text.", "path", "old", "new"),
    _tool("run", "Runs a command.", "command"),
)


class SamplePlayer:
    """Plays five days of work in one session, which is reopened each morning."""

    def __init__(
        self, open_session: Callable[[str], Session], clock: FakeClock, monday: int, rng: random.Random
    ) -> None:
        """Takes a function that opens the session in a window mode, and midnight of the first day in µs."""
        self._open_session = open_session
        self._clock = clock
        self._monday = monday
        self._rng = rng
        self._script = load_script()
        self._files = dict(self._script.files)
        self._between = iter(self._script.between)
        self._tickets = self._script.tickets.generate(rng)
        self._passed = _INITIAL_TESTS
        self._calls = 0

    def play(self) -> None:
        """Plays the full week."""
        days: Sequence[tuple[str, Callable[[Session], None]]] = (
            ("sliding_window", self._play_monday),
            ("sliding_window", self._play_tuesday),
            ("zones", self._play_wednesday),
            ("sliding_window", self._play_thursday),
            ("sliding_window", self._play_friday),
        )
        for day, (mode, play_day) in enumerate(days):
            self._clock.time = self._monday + day * DAY + _START_MINUTE * MINUTE
            with closing(self._open_session(mode)) as session:
                play_day(session)

    def _play_monday(self, session: Session) -> None:
        session.append({"role": "system", "content": self._script.system})
        self._exchange(session, self._script.task)
        for exchange in self._script.instructions:
            self._exchange(session, exchange)
        self._fix_bugs(session, self._script.bugs["monday"])
        self._exchange(session, self._script.correction)
        _take_notes(session, self._script.notes[:2])

    def _play_tuesday(self, session: Session) -> None:
        self._fix_bugs(session, self._script.bugs["tuesday"])
        commit_rule = self._script.between[1].request.encode()
        session.pin(next(entry.seq for entry in session.read() if commit_rule in entry.content))
        _take_notes(session, self._script.notes[2:])

    def _play_wednesday(self, session: Session) -> None:
        self._fix_bugs(session, self._script.bugs["wednesday"])
        session.checkpoint(**self._script.checkpoint)

    def _play_thursday(self, session: Session) -> None:
        trimmed = next((decision for decision in session.report().decisions if decision.kind == TRIMMED), None)
        pins_before = session.window.state.pins.copy()
        if trimmed is not None:
            session.restore(trimmed.seq)
        first, *others = self._script.bugs["thursday"]
        self._fix_bug(session, first)
        self._undo_compaction(session)
        self._fix_bugs(session, others)
        session.unpin(*(session.window.state.pins - pins_before))
        session.compact(self._script.compaction_focus)

    def _undo_compaction(self, session: Session) -> None:
        """Compacts too early: the user still needs the messages, and the decision is undone."""
        pins_before = session.window.state.pins.copy()
        compaction = session.compact(self._script.early_compaction_focus)[-1]
        self._advance_clock(1, 2)
        session.append({"role": "user", "content": self._script.undo.request})
        session.restore(compaction.seq)
        session.unpin(*(session.window.state.pins - pins_before))
        self._respond(session, {"role": "assistant", "content": self._script.undo.answer})

    def _play_friday(self, session: Session) -> None:
        for exchange in self._script.later:
            self._exchange(session, exchange)
        self._advance_clock(4, 25)
        session.append({"role": "user", "content": self._script.review.request})
        self._read_files(session, self._script.reviewed_files)
        self._respond(session, {"role": "assistant", "content": self._script.review.answer})

    def _fix_bugs(self, session: Session, bugs: Iterable[Bug]) -> None:
        for bug in bugs:
            self._fix_bug(session, bug)
            for _ in range(_TICKETS_PER_BUG):
                self._answer_ticket(session, next(self._tickets))
            if exchange := next(self._between, None):
                self._exchange(session, exchange)

    def _answer_ticket(self, session: Session, ticket: Ticket) -> None:
        self._advance_clock(3, 15)
        session.append({"role": "user", "content": ticket.request})
        self._call_tools(session, "", [("read_ticket", {"number": str(ticket.number)}, ticket.text)])
        self._respond(session, {"role": "assistant", "content": ticket.answer})

    def _exchange(self, session: Session, exchange: ScriptedExchange) -> None:
        self._advance_clock(4, 25)
        session.append({"role": "user", "content": exchange.request})
        self._respond(session, {"role": "assistant", "content": exchange.answer})

    def _fix_bug(self, session: Session, bug: Bug) -> None:
        """Reads the code, runs the failing test, edits the file and runs all tests."""
        self._advance_clock(10, 50)
        session.append({"role": "user", "content": bug.request})
        self._read_files(session, bug.reads)
        command = {"command": f"pytest -q {bug.test}"}
        self._call_tools(session, "", [("run", command, self._failing_output(bug))])
        self._files[bug.path] = self._files[bug.path].replace(bug.old, bug.new)
        edit = {"path": bug.path, "old": bug.old, "new": bug.new}
        self._call_tools(session, bug.diagnosis, [("edit_file", edit, f"{bug.path}: 1 place changed")])
        self._passed += 1
        self._call_tools(session, "", [("run", {"command": "pytest -q"}, self._passing_output())])
        self._respond(session, {"role": "assistant", "content": bug.answer})

    def _read_files(self, session: Session, paths: Iterable[str]) -> None:
        self._call_tools(session, "", [("read_file", {"path": path}, self._files[path]) for path in paths])

    def _call_tools(self, session: Session, text: str, calls: Sequence[tuple[str, dict[str, str], str]]) -> None:
        """Appends an assistant message with tool calls (name, arguments, output), then their results."""
        ids = [f"call_{self._calls + place:04}" for place in range(len(calls))]
        self._calls += len(calls)
        tool_calls = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, (name, arguments, _) in zip(ids, calls, strict=True)
        ]
        self._respond(session, {"role": "assistant", "content": text or None, "tool_calls": tool_calls})
        for id, (_, _, output) in zip(ids, calls, strict=True):
            self._advance_clock(0, 1)
            session.append({"role": "tool", "tool_call_id": id, "content": output})

    def _respond(self, session: Session, message: dict[str, Any]) -> None:
        """Builds a prompt and appends the model's message with the usage that its provider would report."""
        prompt = session.prompt(TOOLS)
        self._clock.time += self._rng.randint(2, 9) * 1_000_000
        usage = Usage(prompt=round(prompt.tokens * self._rng.uniform(0.995, 1.01)), output=session.count(message))
        session.append_all([message], usage=usage)

    def _advance_clock(self, min_minutes: int, max_minutes: int) -> None:
        self._clock.time += self._rng.randint(min_minutes * 60, max_minutes * 60) * 1_000_000

    def _failing_output(self, bug: Bug) -> str:
        """Renders pytest's output for one failing test."""
        file, _, name = bug.test.partition("::")
        failure = "\n".join(line if line.startswith("E") else f">       {line}" for line in bug.failure.splitlines())
        passed, seconds = self._rng.randint(6, 30), self._rng.uniform(0.3, 3.0)
        return (
            f"{'.' * passed}F\n{'=' * 35} FAILURES {'=' * 35}\n{'_' * 20} {name} {'_' * 20}\n\n{failure}\n\n"
            f"{file}:{self._rng.randint(20, 160)}: AssertionError\n{'=' * 25} short test summary info {'=' * 26}\n"
            f"FAILED {bug.test}\n1 failed, {passed} passed in {seconds:.2f}s"
        )

    def _passing_output(self) -> str:
        """Renders pytest's output for the full, passing test suite."""
        rows = [
            f"{'.' * 72} [{min(72 * row * 100 // self._passed, 100):>3}%]" for row in range(1, self._passed // 72 + 2)
        ]
        return "\n".join([*rows, f"{self._passed} passed in {self._rng.uniform(34, 41):.2f}s"])


def _take_notes(session: Session, notes: Iterable[ScriptedNote]) -> None:
    for note in notes:
        session.note(note.kind, note.text, critical=note.critical)
