"""The groups of settings about a session: what it keeps, what leaves, what comes back, what is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from recto.context.window.budget import PROFILES, Enforced
from recto.continuity.checkpoints.checkpoint import LOOPBACK
from recto.continuity.memory.model import KINDS
from recto.formats.json_spans import MAX_DEPTH
from recto.transcript.entries import DEFAULT_SESSION
from recto.transcript.session_keys import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """What Recto refuses to take in or wait for."""

    message_bytes: int = 256 * 1024 * 1024
    """Largest single message."""
    lock_seconds: float = 30.0
    """How long an append waits for another process before it gives up with nothing written."""

    def __post_init__(self) -> None:
        if self.message_bytes < 1:
            raise ValueError("limits.message_bytes must be at least 1")
        if self.lock_seconds <= 0:
            raise ValueError("limits.lock_seconds must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimSettings:
    """How old tool results shrink."""

    keep_newest: int = 3
    """How many of the newest results are left as they are."""
    exclude_tools: tuple[str, ...] = ()
    """Tools whose results never shrink; those of Recto's own MCP server never do."""
    clear_at_least: int = 2000
    """Tokens that must be won, or nothing shrinks; at most a twentieth of the room."""
    placeholder: str = ""
    """What stands in place of a result; `{pointer}` in it, or behind it, says where it is whole. Empty: what it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    """What is done to keep the prompt inside the model's window."""

    mode: str = "sliding_window"
    """`sliding_window`: whole units leave, oldest first. `auto_compact`: the older part becomes a summary. `zones`: the
    whole cascade, the cheapest first."""
    ceiling_percent: float = 92.0
    """Relief starts above this share of the room."""
    floor_percent: float = 70.0
    """Relief goes down to this share in one step."""
    min_recent_messages: int = 24
    """The newest messages, which stay as long as they fit."""
    policy: str = "prune"
    """What leaves first: `prune`, or an eviction policy: fifo, lru, priority, semantic_merge, type_ttl, hybrid."""
    scorer: Mapping[str, Any] = field(default_factory=dict)
    """Settings of an eviction policy, such as `{weights: {lru: 0.5, priority: 0.5}}` for `hybrid`."""
    yellow_percent: float = 0.0
    """Where the yellow zone of pressure begins; 0, here as for the next two: by the size of the window."""
    orange_percent: float = 0.0
    """Where the orange zone begins."""
    red_percent: float = 0.0
    """Where the red zone begins."""
    keep_tools: tuple[str, ...] = ()
    """Tools whose calls and results never leave."""
    mark: str = "DO_NOT_EVICT"
    """A message whose text holds this never leaves. Empty: no such mark."""
    protect_task: bool = True
    """Whether the first user message never leaves."""
    cache_aware: bool = True
    """Whether relief that would cost more in re-billed cache than it saves is put off until it must happen."""
    reserve: int = 0
    """Tokens kept for the answer; 0: by the budget's profile."""
    profile: str = "default"
    """The budget's profile: default, code_review, research, customer_support."""
    enforced: Enforced = "globally"
    """Whether budgets bind the whole prompt (`globally`) or each component too (`per_component`)."""
    checkpoint_warning_percent: float = 85.0
    """For `auto_compact`: from here on a compaction is announced, and a checkpoint and a handoff are written."""
    compact_target_percent: float = 92.0
    """For `auto_compact`: from here on it is carried out."""
    keep_recent_tokens: int = 20_000
    """The newest messages that a compaction leaves as they are; at most two fifths of the room."""
    trim: TrimSettings = field(default_factory=TrimSettings)

    def __post_init__(self) -> None:
        if self.mode not in ("sliding_window", "auto_compact", "zones"):
            raise ValueError("window.mode is sliding_window, auto_compact or zones")
        if not 0 < self.checkpoint_warning_percent <= self.compact_target_percent <= 100:
            raise ValueError("window.checkpoint_warning_percent must not be above window.compact_target_percent")
        if self.keep_recent_tokens < 0:
            raise ValueError("window.keep_recent_tokens must not be below zero")
        if self.enforced not in get_args(Enforced):
            raise ValueError("window.enforced is globally or per_component")
        if self.profile not in PROFILES:
            raise ValueError(f"window.profile is one of {', '.join(PROFILES)}")
        if not 0 < self.floor_percent < self.ceiling_percent <= 100:
            raise ValueError("window.floor_percent must be below window.ceiling_percent, both between 0 and 100")
        if self.min_recent_messages < 0:
            raise ValueError("window.min_recent_messages must not be below zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderSettings:
    """What turns texts into vectors for recall."""

    use: str = "auto"
    """`auto`: the embedded model where its weights are, else `hashing`. Or `arctic`, `onnx`, `endpoint`, `hashing`,
    `none` (words alone)."""
    path: str = ""
    """For `onnx`, and for `arctic` from its publisher's own files: a folder with `model.onnx` and `tokenizer.json`."""
    url: str = ""
    """For `endpoint`: the base URL of an OpenAI-compatible server, such as http://localhost:11434/v1."""
    model: str = ""
    """For `endpoint`: the name of the model there."""
    key: str = ""
    """For `endpoint`: the key it wants. Better given as RECTO_RECALL__EMBEDDER__KEY than in a file."""
    seconds: float = 10.0
    """How long one call may take."""
    dims: int = 0
    """For `endpoint`: how long its vectors shall be; 0: as long as they come."""
    query_prefix: str = ""
    """For `onnx` and `endpoint`: what the model wants before a question."""
    document_prefix: str = ""
    """For `onnx` and `endpoint`: what it wants before everything else."""
    pooling: str = "cls"
    """For `onnx`: `cls` or `mean`, as the model's makers say."""

    def __post_init__(self) -> None:
        if self.use not in ("auto", "arctic", "onnx", "endpoint", "hashing", "none"):
            raise ValueError("recall.embedder.use is auto, arctic, onnx, endpoint, hashing or none")
        if self.pooling not in ("cls", "mean"):
            raise ValueError("recall.embedder.pooling is cls or mean")
        if self.seconds <= 0 or self.dims < 0:
            raise ValueError("recall.embedder.seconds must be more than 0 and dims not below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSettings:
    """How what left the prompt is found again, and when it comes back by itself."""

    enabled: bool = True
    """Whether messages are indexed before they leave. Without it they leave unindexed, and nothing is recalled."""
    inject: bool = True
    """Whether what matters for a turn is quoted in its prompt without being asked for."""
    scope: Scope = "session"
    """Where is searched: this `session`, all sessions of its `agent`, or all of its `tenant`."""
    threshold: float = 0.4
    """The chance of being relevant, from 0 to 1, from which on something comes back by itself."""
    most: int = 12
    """Messages that come back in one prompt, at most."""
    tokens: int = 0
    """What recalled text may cost in a prompt; 0: the memory share of the budget."""
    half_life_days: float = 30.0
    """After how long the advantage of a recent message has halved."""
    index_seconds: float = 10.0
    """How long relief waits for the index where it does not get on; what is not indexed by then stays in the prompt as
    long as it fits. Indexing that gets on is waited for, up to 30 times as long."""
    background: bool = True
    """Whether messages are indexed ahead of need, on a thread of its own."""
    embedder: EmbedderSettings = field(default_factory=EmbedderSettings)

    def __post_init__(self) -> None:
        if self.scope not in get_args(Scope):
            raise ValueError("recall.scope is session, agent or tenant")
        if not 0 <= self.threshold <= 1:
            raise ValueError("recall.threshold must be between 0 and 1")
        if self.most < 1 or self.tokens < 0:
            raise ValueError("recall.most must be at least 1 and recall.tokens not below 0")
        if self.half_life_days <= 0 or self.index_seconds <= 0:
            raise ValueError("recall.half_life_days and recall.index_seconds must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressModelSettings:
    """The model that writes shorter texts. What it writes is checked against its sources."""

    use: str = "none"
    """`none`: sentences are picked by rule. Or `openai` (any compatible endpoint), `anthropic`, `embedded`."""
    url: str = ""
    """The base URL of an endpoint, such as http://localhost:11434/v1."""
    model: str = ""
    """The name of the model there; for `embedded` the name of weights, `smollm2` where none is given."""
    key: str = ""
    """The key it wants. Better given as RECTO_COMPRESS__MODEL__KEY than in a file."""
    path: str = ""
    """For `embedded`: a GGUF file of your own."""
    context: int = 0
    """Tokens of its window; 0: 8192 for `embedded`, unknown for others."""
    seconds: float = 60.0
    """How long one text may take, other attempts included."""
    input_tokens: int = 24_000
    """What it is shown at most; of more, the most telling sentences."""
    calls: int = 4
    """How many tool results it shortens for one decision; the others are shortened by rule."""

    def __post_init__(self) -> None:
        if self.use not in ("none", "openai", "anthropic", "embedded"):
            raise ValueError("compress.model.use is none, openai, anthropic or embedded")
        if self.seconds <= 0 or self.context < 0 or self.input_tokens < 200 or self.calls < 0:
            raise ValueError("compress.model.seconds must be more than 0 and input_tokens at least 200")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressSettings:
    """How content becomes shorter text when leaving is not enough."""

    result_tokens: int = 500
    """Tool results above this are summarised."""
    result_share: float = 0.2
    """What a summary may have of a result's tokens."""
    key_points_turns: int = 5
    """Up to this age in turns an exchange that leaves keeps its key points."""
    line_turns: int = 20
    """Up to this age it keeps one line; beyond it a title."""
    summary_tokens: int = 3_000
    """What stands in place of everything that left, at most; never more than an eighth of the room."""
    handoff_tokens: int = 600
    """What a handoff may have in the prompt of one turn; never more than a twentieth of the room."""
    background: bool = True
    """Whether a model writes ahead of need, from the yellow zone on, so that the turn does not wait."""
    delegate_seconds: float = 300.0
    """How long a sub-agent may take."""
    model: CompressModelSettings = field(default_factory=CompressModelSettings)

    def __post_init__(self) -> None:
        if self.result_tokens < 1 or not 0 < self.result_share < 1:
            raise ValueError("compress.result_tokens must be at least 1 and compress.result_share between 0 and 1")
        if not 0 <= self.key_points_turns <= self.line_turns:
            raise ValueError("compress.key_points_turns must not be above compress.line_turns")
        if self.summary_tokens < 200 or self.handoff_tokens < 1 or self.delegate_seconds <= 0:
            raise ValueError("compress.summary_tokens must be at least 200, the others more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingSettings:
    """Files whose text stands before everything else in every prompt."""

    files: tuple[str, ...] = ()
    """Who the agent is, who the user is, how the project works: such as IDENTITY.md, USER.md, AGENTS.md."""
    warning_percent: float = 5.0
    """The share of the room above which they should be thinner; a warning says so."""
    most_percent: float = 20.0
    """The share of the room above which they are cut."""

    def __post_init__(self) -> None:
        if not 0 < self.warning_percent <= self.most_percent <= 50:
            raise ValueError("standing.warning_percent must not be above standing.most_percent, nor that above 50")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """What is remembered for good, who approves it, and when it is old."""

    folder: str = ""
    """Where the pages are kept; empty: a folder beside the store, named like it with `-memory`."""
    approve: tuple[str, ...] = ()
    """Kinds that are approved by rule where a user typed it in their own words; everything else waits for a person."""
    half_life_days: float = 90.0
    """After how long without use a new memory counts half."""
    retire: str = "propose"
    """What happens to memory that is old: `never`, `propose` (a person decides), `unused` (retired if never used)."""
    retire_below: float = 0.1
    """The strength, from 0 to 1, below which memory is old."""
    proposals: int = 20
    """Proposals that one cycle of consolidation makes of one session, at most."""
    every_hours: float = 0.0
    """How often `recto consolidate --due` runs a cycle; 0: never."""

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.approve if kind not in KINDS]
        if unknown:
            raise ValueError(f"memory.approve holds kinds of memory: {', '.join(KINDS)}")
        if self.retire not in ("never", "propose", "unused"):
            raise ValueError("memory.retire is never, propose or unused")
        if self.half_life_days <= 0 or not 0 <= self.retire_below < 1:
            raise ValueError("memory.half_life_days must be more than 0 and memory.retire_below between 0 and 1")
        if self.proposals < 0 or self.every_hours < 0:
            raise ValueError("memory.proposals and memory.every_hours must not be below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuitySettings:
    """How the work of a session goes on in a new window, in another process, or elsewhere."""

    folder: str = ""
    """Where checkpoints and handoffs are kept as files too, a folder for each session. Empty: in the transcript."""
    milestones: str = "auto"
    """Checkpoints at milestones: `always`, `never`, `auto` (where there is a folder, or a mode that summarises)."""
    environment: bool = True
    """Whether a checkpoint says how the directory, git, files and services stand."""
    directory: str = ""
    """The directory the work is done in; empty: the current one. For tenants it has to be named."""
    hosts: tuple[str, ...] = LOOPBACK
    """Hosts whose services may be asked whether they answer."""
    resume_tokens: int = 1_500
    """What the first page of a new window may have; never more than a tenth of the room."""

    def __post_init__(self) -> None:
        if self.milestones not in ("auto", "always", "never"):
            raise ValueError("continuity.milestones is auto, always or never")
        if self.resume_tokens < 100:
            raise ValueError("continuity.resume_tokens must be at least 100")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """A copy of the store that is read in its place by those who only look."""

    url: str = ""
    """A streaming replica of a store in PostgreSQL: `postgresql://…`. Empty: none."""
    staleness_seconds: float = 5.0
    """How far it may be behind; beyond that, and where it does not answer, the store itself is read."""

    def __post_init__(self) -> None:
        if self.staleness_seconds <= 0:
            raise ValueError("replica.staleness_seconds must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
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
class WebhookSettings:
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
class HealthSettings:
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
    alerts: AlertSettings = field(default_factory=AlertSettings)
    webhook: WebhookSettings = field(default_factory=WebhookSettings)

    def __post_init__(self) -> None:
        if self.regret_turns < 1:
            raise ValueError("health.regret_turns must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set."""

    store: str = "~/.recto/transcript.db"
    """Where transcripts are kept: a path, `postgresql://…`, or `memory:` for a store that goes with the process."""
    replica: ReplicaSettings = field(default_factory=ReplicaSettings)
    session: str = DEFAULT_SESSION
    """The session that is meant when none is named."""
    tenant: str = ""
    """Whose sessions these are, where several customers share a store. No tenant ever sees another's."""
    model: str = ""
    """The model whose window and tokenizer count. Empty: unknown, so the most careful assumptions."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    window: WindowSettings = field(default_factory=WindowSettings)
    recall: RecallSettings = field(default_factory=RecallSettings)
    compress: CompressSettings = field(default_factory=CompressSettings)
    standing: StandingSettings = field(default_factory=StandingSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    continuity: ContinuitySettings = field(default_factory=ContinuitySettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What you know better about a model than the registry: `{my-model: {window: 32768, tokenizer: llama3}}`."""
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    """Tokenizers of your own: `{my-tokenizer: path/to/tokenizer.json}`, usable as a model's `tokenizer`."""
