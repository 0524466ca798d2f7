"""Agents that are made up: sessions of any length in which it is known what is said where and needed when.

A session comes from a kind and a seed, byte for byte the same on every machine, turn by turn and without end. A shorter
one is the beginning of a longer one. What is held meanwhile does not grow with its length.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from recto.errors import InputError
from recto.formats import DEFAULT_FORMAT, FORMATS
from recto.lab.probes import KnownTurn, Need
from recto.lab.simulation.agent import Agent, Scene
from recto.lab.simulation.chat import CHAT_AGENT
from recto.lab.simulation.code_review import REVIEW
from recto.lab.simulation.messages import Exchange, Life, SimulatedQuestion, SimulatedStep, written
from recto.lab.simulation.monitoring import MONITORING
from recto.lab.simulation.research import RESEARCH
from recto.transcript.entries import Draft

__all__ = ["AGENTS", "shortened", "simulate"]

AGENTS: Final[Mapping[str, Agent]] = {
    "chat": CHAT_AGENT,
    "review": REVIEW,
    "research": RESEARCH,
    "monitoring": MONITORING,
}
"""The kinds of agents, by name."""
_BEGINNING: Final = 1_767_225_600_000_000
"""The first day of 2026: when every session begins."""
_SECOND: Final = 1_000_000
_BYTES_OF_A_TOKEN: Final = 4
_MOST_OPEN: Final = 512
"""Facts that wait for their question at one time."""


def simulate(
    kind: str, *, seed: int = 1, turns: int | None = None, wire: str = DEFAULT_FORMAT.name
) -> Iterator[KnownTurn]:
    """The turns of a made-up session, so many or without end, as messages of a wire format."""
    if kind not in AGENTS:
        raise InputError(f"there is no agent '{kind:.40}'; there are {', '.join(AGENTS)}")
    if wire not in FORMATS:
        raise InputError(f"'{wire:.40}' is not a wire format; known are {', '.join(FORMATS)}")
    return _turns(AGENTS[kind], kind, seed, turns, wire)


def shortened(turns: Iterable[KnownTurn], tokens: int) -> Iterator[KnownTurn]:
    """As many of the turns as come to about so many tokens, at four bytes each: the same whoever counts."""
    left = tokens * _BYTES_OF_A_TOKEN
    for turn in turns:
        yield turn
        left -= sum(len(draft.content) for draft in turn.drafts)
        if left <= 0:
            return


def _turns(agent: Agent, kind: str, seed: int, turns: int | None, wire: str) -> Iterator[KnownTurn]:
    scene, record, now = Scene(seed), _Record(), _BEGINNING
    agenda = _Agenda(agent, scene)
    while turns is None or scene.turn < turns:
        scene.next_turn()
        exchange = agenda.next_exchange()
        said = exchange.said if scene.turn > 1 else (SimulatedStep(by="system", text=agent.system), *exchange.said)
        now += agent.pause * _SECOND * scene.dice.length(1000) // 1000
        drafts, first = [], record.entries + 1
        for step, one in enumerate(said):
            for message in written(one, wire, f"call_{scene.turn}_{step}"):
                record.note(message.fact, scene.turn)
                now += _SECOND
                draft = Draft(
                    id=f"{kind}-{record.entries}", ts=now, role=message.role, content=message.content, wire=wire
                )
                drafts.append(draft)
        need = record.need(exchange.question, said[0].text, scene.turn) if exchange.question else None
        yield KnownTurn(number=scene.turn, first=first, drafts=tuple(drafts), need=need)


class _Record:
    """Where facts were said that are not asked for yet."""

    __slots__ = ("_said", "entries")

    def __init__(self) -> None:
        self.entries = 0
        self._said: dict[int, tuple[int, tuple[int, ...]]] = {}

    def note(self, fact: int, turn: int) -> None:
        """One more entry, and the fact in it, if there is one."""
        self.entries += 1
        if fact:
            _, before = self._said.get(fact, (0, ()))
            self._said[fact] = (turn, (*before, self.entries))

    def need(self, question: SimulatedQuestion, text: str, turn: int) -> Need:
        """What a question needs; nobody asks for it again."""
        said_turn, entries = self._said.pop(question.fact)
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
    """What is due when: at most one thing in a turn, others wait for the next."""

    __slots__ = ("_agent", "_due", "_facts", "_scene")

    def __init__(self, agent: Agent, scene: Scene) -> None:
        self._agent, self._scene, self._facts = agent, scene, 0
        self._due: list[tuple[int, int, Life]] = []

    def next_exchange(self) -> Exchange:
        """What happens in this turn."""
        agent, scene = self._agent, self._scene
        if scene.turn == 1:
            return agent.opening(scene)
        if self._due and self._due[0][0] <= scene.turn:
            _, fact, life = heapq.heappop(self._due)
            return self._lived(fact, life)
        if len(self._due) < _MOST_OPEN and scene.dice.happens(agent.busy):
            self._facts += 1
            return self._lived(self._facts, scene.dice.pick(agent.lives)(agent, scene, self._facts))
        return agent.idle(scene)

    def _lived(self, fact: int, life: Life) -> Exchange:
        exchange, wait = next(life), next(life, None)
        if not isinstance(exchange, Exchange):  # a life is exchanges with a wait between any two
            raise TypeError(exchange)
        if isinstance(wait, int):
            heapq.heappush(self._due, (self._scene.turn + wait, fact, life))
        return exchange
