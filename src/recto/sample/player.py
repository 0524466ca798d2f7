"""How the story is played: an agent asks for a prompt, calls tools, answers; on five days, through the real engine."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any, Final

from recto.engine.projection import TRIMMED
from recto.engine.session import Session
from recto.formats.response import Usage
from recto.sample import files, script
from recto.sample.script import Bug, Talk, Ticket, tickets
from recto.testing import FakeClock

DAY: Final = 86_400_000_000
MINUTE: Final = 60_000_000
_BEGINS: Final = 8 * 60 + 30
"""Minutes after midnight when a day's work begins."""
_TICKETS: Final = 3
"""Tickets between two bugs."""
_TESTS: Final = 389
"""How many there are on the first day."""


def _tool(name: str, about: str, *members: str) -> dict[str, Any]:
    properties = {member: {"type": "string"} for member in members}
    parameters = {"type": "object", "properties": properties, "required": list(members)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


TOOLS: Final = (
    _tool("read_file", "The text of a file.", "path"),
    _tool("read_ticket", "The text of a ticket.", "number"),
    _tool("edit_file", "Replaces text.", "path", "old", "new"),
    _tool("run", "Runs a command.", "command"),
)


class SamplePlayer:
    """Five days of work in one session, which is opened anew each morning."""

    def __init__(self, opened: Callable[[str], Session], clock: FakeClock, monday: int, rng: random.Random) -> None:
        self._opened = opened
        self._clock = clock
        self._monday = monday
        self._rng = rng
        self._files = dict(files.FILES)
        self._talks = iter(script.BETWEEN)
        self._tickets = tickets(rng)
        self._passed = _TESTS
        self._calls = 0

    def play(self) -> None:
        """All of it."""
        days: Sequence[tuple[str, Callable[[Session], None]]] = (
            ("sliding_window", self._first),
            ("sliding_window", self._second),
            ("zones", self._third),
            ("sliding_window", self._fourth),
            ("sliding_window", self._last),
        )
        for day, (mode, work) in enumerate(days):
            self._clock.time = self._monday + day * DAY + _BEGINS * MINUTE
            with closing(self._opened(mode)) as session:
                work(session)

    def _first(self, session: Session) -> None:
        session.append({"role": "system", "content": script.SYSTEM})
        self._talk(session, Talk(said=script.TASK, answer=script.TAKEN_UP))
        for talk in script.FIRST:
            self._talk(session, talk)
        self._bugs(session, script.MONDAY)
        self._talk(session, script.CORRECTION)
        for kind, text, critical in script.NOTES[:2]:
            session.note(kind, text, critical=critical)

    def _second(self, session: Session) -> None:
        self._bugs(session, script.TUESDAY)
        wanted = next(one for one in session.read() if script.BETWEEN[1].said.encode() in one.content)
        session.pin(wanted.seq)
        for kind, text, critical in script.NOTES[2:]:
            session.note(kind, text, critical=critical)

    def _third(self, session: Session) -> None:
        self._bugs(session, script.WEDNESDAY)
        session.checkpoint(goal=script.GOAL, success_criteria=script.CRITERIA, done=script.DONE, plan=script.PLAN)

    def _fourth(self, session: Session) -> None:
        trimmed = next((one for one in session.report().decisions if one.kind == TRIMMED), None)
        before = session.window.state.pins.copy()
        if trimmed is not None:
            session.restore(trimmed.seq)
        self._bugs(session, script.THURSDAY)
        session.unpin(*(session.window.state.pins - before))
        session.compact(script.FOCUS)

    def _last(self, session: Session) -> None:
        for talk in script.LATER:
            self._talk(session, talk)
        self._pass(4, 25)
        session.append({"role": "user", "content": script.REVIEW.said})
        self._use(session, "", [("read_file", {"path": path}, self._files[path]) for path in script.REVIEWED])
        self._say(session, {"role": "assistant", "content": script.REVIEW.answer})

    def _bugs(self, session: Session, bugs: Iterable[Bug]) -> None:
        for bug in bugs:
            self._bug(session, bug)
            for _ in range(_TICKETS):
                self._ticket(session, next(self._tickets))
            if talk := next(self._talks, None):
                self._talk(session, talk)

    def _ticket(self, session: Session, ticket: Ticket) -> None:
        self._pass(3, 15)
        session.append({"role": "user", "content": ticket.asked})
        self._use(session, "", [("read_ticket", {"number": str(ticket.number)}, ticket.text)])
        self._say(session, {"role": "assistant", "content": ticket.answer})

    def _talk(self, session: Session, talk: Talk) -> None:
        self._pass(4, 25)
        session.append({"role": "user", "content": talk.said})
        self._say(session, {"role": "assistant", "content": talk.answer})

    def _bug(self, session: Session, bug: Bug) -> None:
        """One bug: it is read, shown by a test, mended, tested again."""
        self._pass(10, 50)
        session.append({"role": "user", "content": bug.wish})
        self._use(session, "", [("read_file", {"path": path}, self._files[path]) for path in bug.reads])
        command = {"command": f"pytest -q {bug.test}"}
        self._use(session, "", [("run", command, self._failing(bug))])
        path, old, new = bug.change
        self._files[path] = self._files[path].replace(old, new)
        edit = {"path": path, "old": old, "new": new}
        self._use(session, bug.found, [("edit_file", edit, f"{path}: 1 place changed")])
        self._passed += 1
        self._use(session, "", [("run", {"command": "pytest -q"}, self._passing())])
        self._say(session, {"role": "assistant", "content": bug.done})

    def _use(self, session: Session, said: str, calls: Sequence[tuple[str, dict[str, str], str]]) -> None:
        """The model calls tools, and they answer."""
        ids = [f"call_{self._calls + place:04}" for place in range(len(calls))]
        self._calls += len(calls)
        made = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for id, (name, given, _) in zip(ids, calls, strict=True)
        ]
        self._say(session, {"role": "assistant", "content": said or None, "tool_calls": made})
        for id, (_, _, output) in zip(ids, calls, strict=True):
            self._pass(0, 1)
            session.append({"role": "tool", "tool_call_id": id, "content": output})

    def _say(self, session: Session, message: dict[str, Any]) -> None:
        """The model is sent a prompt and answers, and its provider tells what that was."""
        prompt = session.prompt(TOOLS)
        self._clock.time += self._rng.randint(2, 9) * 1_000_000
        told = Usage(prompt=round(prompt.tokens * self._rng.uniform(0.995, 1.01)), output=session.count(message))
        session.append_all([message], usage=told)

    def _pass(self, least: int, most: int) -> None:
        self._clock.time += self._rng.randint(least * 60, most * 60) * 1_000_000

    def _failing(self, bug: Bug) -> str:
        """What pytest prints where one test fails."""
        file, _, name = bug.test.partition("::")
        shown = "\n".join(f">       {line}" if not line.startswith("E") else line for line in bug.failure.splitlines())
        passed, took = self._rng.randint(6, 30), self._rng.uniform(0.3, 3.0)
        return (
            f"{'.' * passed}F\n{'=' * 35} FAILURES {'=' * 35}\n{'_' * 20} {name} {'_' * 20}\n\n{shown}\n\n"
            f"{file}:{self._rng.randint(20, 160)}: AssertionError\n{'=' * 25} short test summary info {'=' * 26}\n"
            f"FAILED {bug.test}\n1 failed, {passed} passed in {took:.2f}s"
        )

    def _passing(self) -> str:
        rows = [
            f"{'.' * 72} [{min(72 * row * 100 // self._passed, 100):>3}%]" for row in range(1, self._passed // 72 + 2)
        ]
        return "\n".join([*rows, f"{self._passed} passed in {self._rng.uniform(34, 41):.2f}s"])
