"""Measures how long a good client of Recto's gateway waits while hostile clients attack the gateway.
The attacks are readers that stall, headers and bodies that never end, bodies of 100 MB, and requests whose clients
disconnect, one kind at a time and then all at once. Each is compared with the idle gateway.

The good client has a key of its own and sends one request after the other over one connection; the hostile clients
share another key. Load, attack, upstream and gateway are processes that share the machine's cores; the attack runs at
low priority. The loop's lag is how late the gateway's event loop resumes a sleeping task.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from bench import gateway_peer
from bench.gateway_attack import LARGE, SLOW, STALLED, STORM, Attack
from bench.gateway_lag import lags
from bench.gateway_load import Load, Took
from bench.gateway_peer import Running
from bench.measure import figures, percentile, progress, row
from recto.config.factory import SystemClock
from recto.gateway.api_keys import Key, Keys
from recto.stores.sqlite import SqliteStore

MANY = {STALLED: 1_000, SLOW: 1_000, LARGE: 8, STORM: 50}
TITLES = {
    STALLED: "readers that stall, arriving and staying",
    SLOW: "half-sent headers and bodies",
    LARGE: "bodies of 100 MB",
    STORM: "clients that ask twice a second and go away",
}
_TURNS = 20
_SECONDS = 45.0
"""How long an attack lasts at most: longer than the gateway's own times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The gateway, the keys to it, and where its lag is written down."""

    gateway: Running
    bad: str
    lag: Path


@dataclass(slots=True)
class Phase:
    """What was measured while something went on."""

    name: str
    turns: list[float] = field(default_factory=list)
    failed: int = 0
    grown: float = 0.0
    lag: list[float] = field(default_factory=list)
    ended: dict[str, list[float]] = field(default_factory=dict)


def run(quick: bool) -> list[dict]:
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        target = stack.enter_context(_listening(stack.enter_context(gateway_peer.upstream())))
        _asked(target, Load(url="", clients=8, sessions=8 if quick else 40, turns=2, name="warm"))
        phases = [_measured(target, "idle", {}, quick)]
        for kind, title in TITLES.items():
            many = MANY[kind] // (10 if quick else 1) or 1
            phases.append(_measured(target, f"{many:,} {title}", {kind: many}, quick))
        every = {kind: many // (10 if quick else 1) or 1 for kind, many in MANY.items()}
        phases += [_measured(target, "all of them at once", every, quick), _measured(target, "idle again", {}, quick)]
    return [*(_row(phase, phases[0]) for phase in phases), *_endings(phases), _others(load)]


@contextmanager
def _listening(to: Running) -> Iterator[Target]:
    """Recto with its own settings: it works on 256 requests at once, of which one key has 224 at most. Only connections
    it holds twice as many as by itself, or all attacks at once would leave none for the good client."""
    with tempfile.TemporaryDirectory() as folder:
        lag, file = Path(folder, "lag"), Path(folder, "recto.yaml")
        with SqliteStore(Path(folder, "transcript.db")) as store:
            keys = Keys(store, SystemClock())
            secrets = [keys.add(Key(id="", name=name))[1] for name in ("good", "bad")]
        settings = gateway_peer.settings(to, folder)
        settings["gateway"] |= {"connections": 4_000}
        file.write_text(json.dumps(settings))
        serve = [sys.executable, "-m", "bench.gateway_lag", str(lag), "--config", str(file), "serve", "--port", "0"]
        with gateway_peer.started(serve) as (process, address):
            gateway = Running(url=f"{address}/v1", key=secrets[0], pid=process.pid)
            yield Target(gateway=gateway, bad=secrets[1], lag=lag)


def _measured(target: Target, name: str, attacks: dict[str, int], quick: bool) -> Phase:
    """A good client's turns, again and again for as long as the attack lasts."""
    phase = Phase(name)
    before, begun = target.gateway.resident_mb, time.monotonic()
    running = [_attacking(target, kind, many, 8.0 if quick else _SECONDS) for kind, many in attacks.items()]
    rounds = 0
    while rounds < (1 if quick or running else 10) or any(one.poll() is None for one in running):
        load = Load(url="", sessions=1, turns=_TURNS, name=f"{name}.{rounds}")
        took = _asked(target, load)
        phase.turns += took.turns
        phase.failed += took.failed
        phase.grown = max(phase.grown, target.gateway.resident_mb - before)
        rounds += 1
    for one in running:
        told, _ = one.communicate()
        phase.ended |= json.loads(told.splitlines()[-1])["ended"]
    phase.lag = lags(target.lag, begun, time.monotonic())
    progress().print(name, f"p50 {_at(phase.turns, 0.5):.1f} ms, p99 {_at(phase.turns, 0.99):.1f} ms")
    return phase


def _attacking(target: Target, kind: str, many: int, seconds: float) -> subprocess.Popen:
    attack = Attack(kind=kind, url=target.gateway.url, key=target.bad, many=many, seconds=seconds)
    command = [sys.executable, "-m", "bench.gateway_attack"]
    one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert one.stdin is not None
    assert one.stdout is not None
    one.stdin.write(json.dumps(asdict(attack)) + "\n")
    one.stdin.flush()
    one.stdout.readline()
    return one


def _asked(target: Target, load: Load) -> Took:
    given = json.dumps(asdict(replace(load, url=target.gateway.url, key=target.gateway.key)))
    command = [sys.executable, "-m", "bench.gateway_load"]
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=True)
    return Took(**json.loads(done.stdout))


def _row(phase: Phase, idle: Phase) -> dict:
    p50, p99 = _at(phase.turns, 0.5), _at(phase.turns, 0.99)
    values = {
        "p50 ms": p50,
        "p99 ms": p99,
        "p50 to idle": p50 / _at(idle.turns, 0.5),
        "p99 to idle": p99 / _at(idle.turns, 0.99),
        "lag p50 ms": 1e3 * _at(phase.lag, 0.5),
        "lag p99 ms": 1e3 * _at(phase.lag, 0.99),
        "memory MB": phase.grown,
        "turns": len(phase.turns),
    }
    return figures(phase.name, values, f"{phase.failed} failed", 1)


def _endings(phases: list[Phase]) -> list[dict]:
    found: dict[str, list[float]] = {}
    for phase in phases:
        for what, seconds in phase.ended.items():
            found.setdefault(what, []).extend(seconds)
    return [
        row(f"{what} is let go after, at the latest", max(seconds), "s", f"{len(seconds):,} of them", 1)
        for what, seconds in found.items()
    ]


def _others(load: float) -> dict:
    note = f"processes that wanted one of {os.cpu_count()} cores; above half of that the ratios tell of them"
    return row("other work on the machine before", load, "", note, 1)


def _at(values: list[float], share: float) -> float:
    return percentile(values, share) if values else 0.0
