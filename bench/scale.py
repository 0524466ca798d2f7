"""Simulates turns over the nodes of a cluster: what waits, where, and the effect of losing a node.

    python -m bench.scale --turns-per-second 100000 --sessions 10000000

This is a discrete-event simulation, the same for the same seed. A turn has exclusive use of its session from beginning
to end; other turns of that session wait, and check again up to a quarter of a second after it ends. A turn uses a
gateway and the node of its session, waits for the model, and uses the node and the gateway again. Sessions are spread
over nodes by hash; some are hot. A lost node comes back after a while; the turns of a lost gateway are retried when
their leases have expired. Costs come from docs/benchmarks.md; `--docs` writes the figures of docs/scale.md.
"""

from __future__ import annotations

import argparse
import heapq
import random
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.cluster import MACHINE_CORES, Measured, measured, need, one_of_each
from bench.measure import percentile

TEXT = Path("docs/scale.md")
LEASE = 15.0
LOOKED_AGAIN = 0.25
_PLACES = ("session", "gateway", "database")
_START, _FIRST_GATEWAY, _FIRST_NODE, _SECOND_NODE, _SECOND_GATEWAY, _END, _LOSS = range(7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What is simulated."""

    turns_per_second: float
    sessions: int
    gateways: int
    nodes: int
    gateway_ms: float
    database_ms: float
    cores: int = MACHINE_CORES
    """Of each node."""
    seconds: float = 2.0
    """For which turns arrive; all of them are followed to their end."""
    model_seconds: float = 2.0
    hot_sessions: float = 0.001
    hot_share: float = 0.02
    """This share of the sessions gets this share of the turns."""
    node_lost_for: float = 0.0
    """Seconds, from the middle on."""
    gateways_lost: int = 0
    """In the middle, for good."""
    seed: int = 1


@dataclass(slots=True)
class Turn:
    """One turn, and how long it waited where."""

    at: float
    session: int
    place: float
    """Which gateway gets it, as a share of all of them."""
    work: float
    """Its own part of the usual cost."""
    thinking: float
    noticed: float
    """How long it takes to see that the session is free."""
    waited: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_PLACES, 0.0))
    tries: int = 0
    gateway: int = 0
    answers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of it."""

    turns: Sequence[Turn]
    tried_again: int
    busiest_node: float
    """Work of the node with most of it, over that of an average one."""
    ended: float

    @property
    def answered(self) -> int:
        return sum(turn.answers for turn in self.turns)

    def waits(self, where: str) -> list[float]:
        return [turn.waited[where] for turn in self.turns]


def arrivals(cluster: Cluster) -> Iterator[Turn]:
    """The same turns whatever they meet."""
    rng = random.Random(cluster.seed)  # to be drawn again
    hot = max(int(cluster.sessions * cluster.hot_sessions), 1)
    now = rng.expovariate(cluster.turns_per_second)
    while now < cluster.seconds:
        of = hot if rng.random() < cluster.hot_share else cluster.sessions
        yield Turn(
            at=now,
            session=rng.randrange(of),
            place=rng.random(),
            work=0.5 + rng.random(),
            thinking=rng.expovariate(1 / cluster.model_seconds),
            noticed=rng.random() * LOOKED_AGAIN,
        )
        now += rng.expovariate(cluster.turns_per_second)


def node_of(session: int, nodes: int) -> int:
    """By hash, so that neighbours are apart."""
    mixed = (session + 1) * 0x9E3779B97F4A7C15 % 2**64
    return (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 % 2**64 // 2**20 % nodes


class Simulation:
    """One run. Events are taken in the order of their time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.turns = list(arrivals(cluster))
        self._events: list[tuple[float, int, int, int, int]] = []
        self._count = 0
        self._waiting: dict[int, deque[int]] = {}
        """By session that has a turn: those that wait for it."""
        self._gateways = [0.0] * cluster.gateways
        self._nodes = [[0.0] * cluster.cores for _ in range(cluster.nodes)]
        self._worked = [0.0] * cluster.nodes
        self._down: set[int] = set()
        self._flying: set[int] = set()
        self._tried_again = 0
        self._lost_node = cluster.nodes // 2 if cluster.node_lost_for else -1

    def run(self) -> Outcome:
        for number, turn in enumerate(self.turns):
            self._at(turn.at, _START, number)
        if self.cluster.gateways_lost:
            self._at(self.cluster.seconds / 2, _LOSS, -1)
        now = 0.0
        while self._events:
            now, _, step, number, attempt = heapq.heappop(self._events)
            if step == _LOSS:
                self._lose(now)
            elif attempt == self.turns[number].tries:
                self._step(now, step, number)
        average = sum(self._worked) / len(self._worked) or 1.0
        return Outcome(
            turns=self.turns,
            tried_again=self._tried_again,
            busiest_node=max(self._worked) / average,
            ended=now,
        )

    def _step(self, now: float, step: int, number: int) -> None:
        turn = self.turns[number]
        if step == _START:
            self._start(now, number)
        elif step == _FIRST_GATEWAY:
            self._at(self._on_gateway(now, turn), _FIRST_NODE, number)
        elif step == _FIRST_NODE:
            self._at(self._on_node(now, turn) + turn.thinking, _SECOND_NODE, number)
        elif step == _SECOND_NODE:
            self._at(self._on_node(now, turn), _SECOND_GATEWAY, number)
        elif step == _SECOND_GATEWAY:
            self._at(self._on_gateway(now, turn), _END, number)
        else:
            self._end(now, number)

    def _start(self, now: float, number: int) -> None:
        """At once, or when those before it are done; one that is tried again has its session still."""
        turn = self.turns[number]
        if not turn.tries:
            if (before := self._waiting.get(turn.session)) is not None:
                before.append(number)
                return
            self._waiting[turn.session] = deque()
        turn.waited["session"] = now - turn.at
        turn.gateway = self._alive(turn.place)
        self._flying.add(number)
        self._at(now, _FIRST_GATEWAY, number)

    def _end(self, now: float, number: int) -> None:
        turn = self.turns[number]
        turn.answers += 1
        self._flying.discard(number)
        waiting = self._waiting.pop(turn.session)
        if waiting:
            following = waiting.popleft()
            self._waiting[turn.session] = waiting
            after = self.turns[following]
            after.waited["session"] = now + after.noticed - after.at
            after.gateway = self._alive(after.place)
            self._flying.add(following)
            self._at(now + after.noticed, _FIRST_GATEWAY, following)

    def _lose(self, now: float) -> None:
        self._down = set(range(min(self.cluster.gateways_lost, self.cluster.gateways - 1)))
        for number in sorted(self._flying):
            turn = self.turns[number]
            if turn.gateway in self._down:
                turn.tries += 1
                self._tried_again += 1
                self._flying.discard(number)
                self._at(now + LEASE, _START, number)

    def _alive(self, place: float) -> int:
        """The gateways that are lost are the first ones."""
        return len(self._down) + int(place * (self.cluster.gateways - len(self._down)))

    def _on_gateway(self, now: float, turn: Turn) -> float:
        start = max(now, self._gateways[turn.gateway])
        turn.waited["gateway"] += start - now
        self._gateways[turn.gateway] = end = start + turn.work * self.cluster.gateway_ms / 2e3
        return end

    def _on_node(self, now: float, turn: Turn) -> float:
        node = node_of(turn.session, self.cluster.nodes)
        cores = self._nodes[node]
        start = max(now, cores[0])
        lost = self.cluster.seconds / 2
        if node == self._lost_node and lost <= start < lost + self.cluster.node_lost_for:
            start = lost + self.cluster.node_lost_for
        turn.waited["database"] += start - now
        took = turn.work * self.cluster.database_ms / 2e3
        self._worked[node] += took
        heapq.heapreplace(cores, start + took)
        return start + took

    def _at(self, time: float, step: int, number: int) -> None:
        self._count += 1
        attempt = self.turns[number].tries if number >= 0 else 0
        heapq.heappush(self._events, (time, self._count, step, number, attempt))


def simulate(cluster: Cluster) -> Outcome:
    return Simulation(cluster).run()


def table(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def of_outcome(outcome: Outcome) -> list[str]:
    """One column of the table."""

    def shown(where: str) -> str:
        waits = outcome.waits(where)
        return " / ".join(f"{percentile(waits, share) * 1e3:,.1f}" for share in (0.5, 0.99, 1.0))

    return [
        f"{len(outcome.turns):,}",
        f"{outcome.answered:,}",
        f"{outcome.tried_again:,}",
        *(shown(where) for where in _PLACES),
        f"{outcome.busiest_node:.2f}",
    ]


FIGURES = (
    "turns that arrived",
    "answered",
    "tried again",
    "waited for the session: p50 / p99 / longest, ms",
    "waited for a gateway",
    "waited for the database",
    "busiest node over an average one",
)


def scenarios(cluster: Cluster) -> dict[str, Cluster]:
    """What the page tells, one beside the other."""
    calm = replace(cluster, node_lost_for=0.0, gateways_lost=0)
    return {
        "as planned": calm,
        "a third of the nodes": replace(calm, nodes=max(cluster.nodes // 3, 1)),
        "hot sessions get a fifth": replace(calm, hot_share=0.2),
        "a node is away for 5 s": replace(calm, node_lost_for=5.0),
        "1 % of the gateways is lost": replace(calm, gateways_lost=max(cluster.gateways // 100, 1)),
    }


def simulated(cases: dict[str, Cluster]) -> str:
    columns = [of_outcome(simulate(case)) for case in cases.values()]
    return table([[name, *cells] for name, *cells in zip(FIGURES, *columns, strict=True)], ["", *cases])


def planned(cost: Measured, turns: float, sessions: int, model_seconds: float) -> dict[str, str]:
    """The tables that need no simulation, by the mark they stand under."""
    columns = ["what", "how much", "how"]
    wanted = need(cost, turns=turns, sessions=sessions, model_seconds=model_seconds)
    return {"one of each": table(one_of_each(cost), columns), "cluster": table(wanted.rows, columns)}


def write(tables: dict[str, str], page: Path = TEXT) -> None:
    """Puts tables between their marks."""
    text = page.read_text(encoding="utf-8")
    for mark, found in tables.items():
        between = re.compile(rf"(<!-- {mark}: begin -->\n).*?(<!-- {mark}: end -->)", re.DOTALL)
        text = between.sub(lambda where, found=found: where[1] + found + where[2], text)
    page.write_text(text, encoding="utf-8")


def given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--turns-per-second", type=float, default=100_000)
    parser.add_argument("--sessions", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=2.0, help="for which turns arrive")
    parser.add_argument("--model-seconds", type=float, default=2.0, help="that a model takes on average")
    parser.add_argument("--gateways", type=int, help="processes (default: what the arithmetic says)")
    parser.add_argument("--nodes", type=int, help="of the database (default: what the arithmetic says)")
    parser.add_argument("--hot-share", type=float, default=0.02, help="of the turns, for a thousandth of the sessions")
    parser.add_argument("--node-lost-for", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--gateways-lost", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--docs", action="store_true", help="write the figures of docs/scale.md anew")
    return parser.parse_args()


def main() -> None:
    asked, cost = given(), measured()
    plan = need(cost, turns=asked.turns_per_second, sessions=asked.sessions, model_seconds=asked.model_seconds)
    cluster = Cluster(
        turns_per_second=asked.turns_per_second,
        sessions=asked.sessions,
        gateways=asked.gateways or plan.gateways,
        nodes=asked.nodes or plan.nodes,
        gateway_ms=cost.gateway_ms,
        database_ms=cost.database_ms,
        seconds=asked.seconds,
        model_seconds=asked.model_seconds,
        hot_share=asked.hot_share,
        node_lost_for=asked.node_lost_for,
        gateways_lost=asked.gateways_lost,
        seed=asked.seed,
    )
    tables = planned(cost, asked.turns_per_second, asked.sessions, asked.model_seconds)
    told = f"{cluster.gateways:,} gateways, {cluster.nodes:,} nodes"
    tables["simulation"] = simulated(scenarios(cluster) if asked.docs else {told: cluster})
    print("\n".join(tables.values()))
    if asked.docs:
        write(tables)


if __name__ == "__main__":
    main()
