"""Simulated agents: sessions of any length with known facts and the questions that need them later.

A session is a function of a kind and a seed, byte for byte the same on every machine, generated turn by turn and
without end. A shorter one is the beginning of a longer one. Memory use does not grow with its length.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from recto.errors import InputError
from recto.formats import DEFAULT_FORMAT, FORMATS
from recto.lab.probes import Need, SimulatedTurn
from recto.lab.simulation.agent import Agent, Scene
from recto.lab.simulation.chat import CHAT_AGENT
from recto.lab.simulation.code_review import REVIEW
from recto.lab.simulation.messages import FactScript, SimulatedExchange, SimulatedQuestion, SimulatedStep, render_step
from recto.lab.simulation.monitoring import MONITORING
from recto.lab.simulation.research import RESEARCH
from recto.transcript.entries import Draft

__all__ = ["AGENTS", "limit_tokens", "simulate"]

AGENTS: Final[Mapping[str, Agent]] = {
    "chat": CHAT_AGENT,
    "review": REVIEW,
    "research": RESEARCH,
    "monitoring": MONITORING,
}
"""The kinds of agents, by name."""
_START_TIME: Final = 1_767_225_600_000_000
"""The first day of 2026, when every session begins."""
_SECOND: Final = 1_000_000
_BYTES_PER_TOKEN: Final = 4
_MAX_OPEN_FACTS: Final = 512
"""Facts that wait for their question at one time."""


def simulate(
    kind: str, *, seed: int = 1, turns: int | None = None, wire: str = DEFAULT_FORMAT.name
) -> Iterator[SimulatedTurn]:
    """Generates the turns of a session, `turns` of them or without end, as messages of a wire format."""
    if kind not in AGENTS:
        raise InputError(f"there is no agent '{kind:.40}'; there are {', '.join(AGENTS)}")
    if wire not in FORMATS:
        raise InputError(f"'{wire:.40}' is not a wire format; known are {', '.join(FORMATS)}")
    return _generate(AGENTS[kind], kind, seed, turns, wire)


def limit_tokens(turns: Iterable[SimulatedTurn], tokens: int) -> Iterator[SimulatedTurn]:
    """Yields turns up to about so many tokens, at four bytes each: the same with every tokenizer."""
    remaining = tokens * _BYTES_PER_TOKEN
    for turn in turns:
        yield turn
        remaining -= sum(len(draft.content) for draft in turn.drafts)
        if remaining <= 0:
            return


def _generate(agent: Agent, kind: str, seed: int, turns: int | None, wire: str) -> Iterator[SimulatedTurn]:
    scene, log, time = Scene(seed), _FactLog(), _START_TIME
    agenda = _Agenda(agent, scene)
    while turns is None or scene.turn < turns:
        scene.next_turn()
        exchange = agenda.next_exchange()
        steps = exchange.steps if scene.turn > 1 else (SimulatedStep(by="system", text=agent.system), *exchange.steps)
        time += agent.pause * _SECOND * scene.dice.length(1000) // 1000
        drafts, first = [], log.entries + 1
        for place, step in enumerate(steps):
            for message in render_step(step, wire, f"call_{scene.turn}_{place}"):
                log.note(message.fact, scene.turn)
                time += _SECOND
                draft = Draft(
                    id=f"{kind}-{log.entries}", ts=time, role=message.role, content=message.content, wire=wire
                )
                drafts.append(draft)
        need = log.need(exchange.question, steps[0].text, scene.turn) if exchange.question else None
        yield SimulatedTurn(number=scene.turn, first=first, drafts=tuple(drafts), need=need)


class _FactLog:
    """Where facts were stated whose questions are still open."""

    __slots__ = ("_stated", "entries")

    def __init__(self) -> None:
        self.entries = 0
        self._stated: dict[int, tuple[int, tuple[int, ...]]] = {}

    def note(self, fact: int, turn: int) -> None:
        """Counts an entry, and the fact in it, if there is one."""
        self.entries += 1
        if fact:
            _, entries = self._stated.get(fact, (0, ()))
            self._stated[fact] = (turn, (*entries, self.entries))

    def need(self, question: SimulatedQuestion, text: str, turn: int) -> Need:
        """Returns what a question needs, and closes the fact."""
        said_turn, entries = self._stated.pop(question.fact)
        return Need(
            kind=question.kind,
            turn=turn,
            ask=text,
            expect=question.expect,
            said_turn=said_turn,
            entries=entries,
            outdated=question.outdated,
        )


class _Agenda:
    """What is due when: at most one exchange in a turn, others wait for the next."""

    __slots__ = ("_agent", "_due", "_facts", "_scene")

    def __init__(self, agent: Agent, scene: Scene) -> None:
        self._agent, self._scene, self._facts = agent, scene, 0
        self._due: list[tuple[int, int, FactScript]] = []

    def next_exchange(self) -> SimulatedExchange:
        """Returns the exchange of this turn."""
        agent, scene = self._agent, self._scene
        if scene.turn == 1:
            return agent.opening(scene)
        if self._due and self._due[0][0] <= scene.turn:
            _, fact, script = heapq.heappop(self._due)
            return self._advance(fact, script)
        if len(self._due) < _MAX_OPEN_FACTS and scene.dice.happens(agent.busy):
            self._facts += 1
            return self._advance(self._facts, scene.dice.pick(agent.scripts)(agent, scene, self._facts))
        return agent.idle(scene)

    def _advance(self, fact: int, script: FactScript) -> SimulatedExchange:
        exchange, wait = next(script), next(script, None)
        if not isinstance(exchange, SimulatedExchange):  # a script alternates exchanges and waits
            raise TypeError(exchange)
        if isinstance(wait, int):
            heapq.heappush(self._due, (self._scene.turn + wait, fact, script))
        return exchange
