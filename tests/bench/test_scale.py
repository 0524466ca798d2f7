"""The simulated cluster loses no turn, says the same for the same seed, and its arithmetic is what the page shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from bench.cluster import FULL, Measured, measured, need
from bench.scale import Cluster, Simulation, node_of, simulate

from bench import scale

ROOT = Path(__file__).parents[2]
SMALL = Cluster(
    turns_per_second=2_000,
    sessions=3_000,
    gateways=120,
    nodes=4,
    gateway_ms=20.0,
    database_ms=4.0,
    cores=4,
    seconds=1.5,
    hot_sessions=0.002,
    hot_share=0.1,
)
COST = Measured(
    request_ms=15.0,
    file_ms=4.0,
    turn_ms=9.0,
    database_ms=5.0,
    gateway_mb=200.0,
    transcript_bytes=3_000.0,
    log_bytes=4_000.0,
    index_bytes=800.0,
    turns_per_second=100.0,
)
TROUBLE = {
    "calm": SMALL,
    "a node is away": replace(SMALL, node_lost_for=3.0),
    "gateways are lost": replace(SMALL, gateways_lost=30),
    "all but one gateway is lost": replace(SMALL, gateways_lost=500),
    "too small": replace(SMALL, nodes=1, cores=1, gateways=10),
    "one session": replace(SMALL, sessions=1, turns_per_second=50, gateways_lost=5),
}


@pytest.mark.parametrize("cluster", TROUBLE.values(), ids=TROUBLE.keys())
def test_every_turn_that_arrives_is_answered_once_whatever_is_lost(cluster):
    outcome = simulate(cluster)
    assert len(outcome.turns) > 0
    assert {turn.answers for turn in outcome.turns} == {1}
    assert all(wait >= 0 for where in ("session", "gateway", "database") for wait in outcome.waits(where))


def test_the_same_seed_gives_the_same_run_and_another_seed_another_one():
    again = [scale.of_outcome(simulate(replace(SMALL, gateways_lost=9, seed=seed))) for seed in (1, 1, 2)]
    assert again[0] == again[1] != again[2]


@pytest.mark.parametrize("seed", range(3))
def test_more_nodes_never_wait_longer_for_the_database(seed):
    busy = replace(SMALL, cores=1, seed=seed)
    waits = [sum(simulate(replace(busy, nodes=nodes)).waits("database")) for nodes in (4, 8, 16, 32)]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > waits[-1]


@pytest.mark.parametrize("seed", range(3))
def test_more_gateways_never_wait_longer_for_one(seed):
    waits = [
        sum(simulate(replace(SMALL, gateways=gateways, seed=seed)).waits("gateway")) for gateways in (40, 80, 160, 320)
    ]
    assert waits == sorted(waits, reverse=True)


def test_two_turns_of_one_session_never_overlap():
    class Watched(Simulation):
        """Keeps when each turn began to work, and when it ended."""

        def __init__(self, cluster: Cluster) -> None:
            super().__init__(cluster)
            self.spans: dict[int, list[tuple[float, float]]] = defaultdict(list)

        def _end(self, now: float, number: int) -> None:
            turn = self.turns[number]
            self.spans[turn.session].append((turn.at + turn.waited["session"], now))
            super()._end(now, number)

    watched = Watched(replace(SMALL, gateways_lost=30))
    watched.run()
    assert max(len(spans) for spans in watched.spans.values()) > 3
    for spans in watched.spans.values():
        ordered = sorted(spans, key=lambda span: span[1])
        assert all(start >= end for (_, end), (start, _) in pairwise(ordered))


def test_a_lost_node_holds_up_its_own_sessions_and_no_others():
    calm, lost = simulate(SMALL), simulate(replace(SMALL, node_lost_for=3.0))
    longer = [
        turn.session
        for before, turn in zip(calm.turns, lost.turns, strict=True)
        if turn.waited["database"] > before.waited["database"] + 1
    ]
    assert {node_of(session, SMALL.nodes) for session in longer} == {SMALL.nodes // 2}


def test_turns_of_a_lost_gateway_are_tried_again_when_their_lease_has_ended():
    outcome = simulate(replace(SMALL, gateways_lost=30))
    tried = [turn for turn in outcome.turns if turn.tries]
    assert len(tried) == outcome.tried_again > 0
    assert all(turn.waited["session"] >= scale.LEASE for turn in tried)


@pytest.mark.parametrize("nodes", [2, 7, 16, 24])
def test_sessions_are_spread_evenly(nodes):
    counts = Counter(node_of(session, nodes) for session in range(20_000))
    assert set(counts) == set(range(nodes))
    assert max(counts.values()) < 1.25 * 20_000 / nodes


def test_twice_the_turns_need_twice_the_processes_and_nodes():
    one = need(COST, turns=10_000, sessions=1_000_000, model_seconds=2)
    two = need(COST, turns=20_000, sessions=1_000_000, model_seconds=2)
    assert one.gateways == 10_000 * (15 + 9 - 4) / 1_000 / FULL == two.gateways / 2
    assert abs(two.nodes - 2 * one.nodes) <= 1


def test_the_arithmetic_of_the_page_is_that_of_the_figures_measured():
    cost = measured(ROOT / "docs" / "benchmarks.md")
    asked = {"turns": 100_000, "sessions": 10_000_000, "model_seconds": 2.0}
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    for mark, table in scale.planned(cost, *asked.values()).items():
        assert f"<!-- {mark}: begin -->\n{table}<!-- {mark}: end -->" in page, "python -m bench.scale --docs"


def test_a_figure_that_was_never_measured_is_missed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("| what | value |\n|---|--:|\n| after all requests | 1 |\n")
    with pytest.raises(KeyError):
        measured(page)
