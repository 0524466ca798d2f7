"""The groups of settings about running Recto: where it may read, how its health is told, what the gateway takes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recto.core.json_text import MAX_DEPTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A copy of the store that is read in its place by those who only look."""

    url: str = ""
    """A streaming replica of a store in PostgreSQL: `postgresql://…`. Empty: none."""
    staleness_seconds: float = 5.0
    """How far it may be behind; beyond that, and where it does not answer, the store itself is read."""

    def __post_init__(self) -> None:
        if self.staleness_seconds <= 0:
            raise ValueError("replica.staleness_seconds must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """From where on somebody should be told."""

    utilization: float = 0.9
    """The share of the room above which prompts are too full."""
    utilization_turns: int = 3
    """For so many turns in a row."""
    evictions: float = 5.0
    """Messages that leave in one turn, on average over `eviction_turns`, above which too much leaves."""
    eviction_turns: int = 5
    """Over so many turns that average is taken."""
    fidelity: float = 0.75
    """The score of a summary below which too much was lost."""
    ratio: float = 2.0
    """How many times shorter compressed text should be, at least."""
    bloat: float = 0.3
    """The share of tool results in a prompt above which they crowd everything else out."""
    burn: float = 3.0
    """How many times more than usual a turn may add."""
    clear: float = 0.9
    """An alert ends when its value is back within this share of its threshold: what goes to and fro is told once."""
    quiet_seconds: float = 300.0
    """The same alert of a session is not told again within this time."""

    def __post_init__(self) -> None:
        shares = (self.utilization, self.fidelity, self.bloat, self.clear)
        if not all(0 < share <= 1 for share in shares):
            raise ValueError("health.alerts: utilization, fidelity, bloat and clear are shares between 0 and 1")
        if self.utilization_turns < 1 or self.eviction_turns < 1:
            raise ValueError("health.alerts: numbers of turns must be at least 1")
        if self.evictions <= 0 or self.ratio <= 0 or self.burn <= 1 or self.quiet_seconds < 0:
            raise ValueError("health.alerts: evictions and ratio must be more than 0, burn more than 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Where alerts are sent as JSON."""

    url: str = ""
    """Empty: nowhere."""
    key: str = ""
    """Sent as a bearer token. Better given as RECTO_HEALTH__WEBHOOK__KEY than in a file."""
    seconds: float = 5.0
    """How long one delivery may take; it never holds up a turn."""

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError("health.webhook.seconds must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How it is told whether all is well."""

    enabled: bool = True
    """Whether turns are measured as they happen. They can be measured from the transcript later in any case."""
    regret_turns: int = 10
    """What is asked for again within so many turns of leaving is counted as regret."""
    log: str = ""
    """Where alerts and decisions are logged as lines of JSON: `stderr`, or a file; empty: nowhere."""
    log_text: bool = False
    """Whether the log may hold text of messages."""
    telemetry: bool = False
    """Whether spans and metrics are handed to OpenTelemetry, where its API is installed."""
    alerts: Alerts = field(default_factory=Alerts)
    webhook: Webhook = field(default_factory=Webhook)

    def __post_init__(self) -> None:
        if self.regret_turns < 1:
            raise ValueError("health.regret_turns must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What the gateway listens on, whom it asks, and what it refuses."""

    host: str = "127.0.0.1"
    """The address to listen on. Anything but loopback needs at least one key, and names in `hosts`."""
    port: int = 8642
    """The port to listen on; 0: any that is free."""
    hosts: tuple[str, ...] = ()
    """Names that requests may be addressed to, beside loopback's own: `gateway.example.com`."""
    origins: tuple[str, ...] = ()
    """Web pages that may ask, beside the gateway's own: `https://chat.example.com`."""
    upstreams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Whom it asks, by name: `{main: {url: https://api.openai.com/v1, wire: openai.responses, key_env: OPENAI_API_KEY,
    models: [gpt-*]}}`. None: the embedded model."""
    body_bytes: int = 32 * 1024 * 1024
    """Largest request, after it is unpacked."""
    depth: int = 128
    """How deeply the JSON of a request may be nested."""
    connections: int = 2_000
    """Connections held at once; more are refused."""
    concurrency: int = 256
    """Requests worked on at once; more are told to come back."""
    header_seconds: float = 8.0
    """How long a client may take to send its headers."""
    body_seconds: float = 30.0
    """How long it may take to send the body."""
    write_seconds: float = 20.0
    """How long it may leave its answer unread before it is let go."""
    connect_seconds: float = 10.0
    """How long an upstream may take to be reached."""
    upstream_seconds: float = 600.0
    """How long an upstream may be silent."""
    drain_seconds: float = 30.0
    """How long answers under way may take to end when the gateway is stopped; after that they are stored as far as they
    came."""
    sessions: int = 256
    """Sessions kept open in memory; others are opened again when they are asked for."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError("gateway.port is a port number")
        if min(self.body_bytes, self.connections, self.concurrency, self.sessions) < 1:
            raise ValueError("gateway: body_bytes, connections, concurrency and sessions must be at least 1")
        if not 8 <= self.depth <= MAX_DEPTH:
            raise ValueError(f"gateway.depth must be between 8 and {MAX_DEPTH}")
        seconds = (self.header_seconds, self.body_seconds, self.write_seconds, self.connect_seconds)
        if min(*seconds, self.upstream_seconds) <= 0 or self.drain_seconds < 0:
            raise ValueError("gateway: time-outs must be more than 0 seconds")
