"""The settings tree: one frozen dataclass per group, with defaults, documentation and validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from recto.context.window import CASCADE, MAX_VELOCITY_TURNS, PROTECTABLE, Enforced
from recto.continuity.checkpoints.rules import HANDOFF_FILE, LOOPBACK
from recto.continuity.memory import KINDS
from recto.formats.json_spans import MAX_DEPTH
from recto.transcript.entries import DEFAULT_SESSION
from recto.transcript.session_keys import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Limits on input size and waiting time."""

    message_bytes: int = 256 * 1024 * 1024
    """Largest single message."""
    lock_seconds: float = 30.0
    """How long an append waits for another process before it fails with nothing written."""

    def __post_init__(self) -> None:
        if self.message_bytes < 1:
            raise ValueError("limits.message_bytes must be at least 1")
        if self.lock_seconds <= 0:
            raise ValueError("limits.lock_seconds must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimSettings:
    """How old tool results are trimmed."""

    keep_newest: int = 1
    """How many of the newest results are never trimmed."""
    exclude_tools: tuple[str, ...] = ()
    """Tools whose results are never trimmed. Results of Recto's own MCP server never are."""
    clear_at_least: int = 2000
    """Trim only when at least this many tokens are freed; at most a twentieth of the input budget."""
    keep_share: float = 0.2
    """Share of the input budget that the newest messages may fill before their results are trimmed."""
    placeholder: str = ""
    """Text that replaces a trimmed result. `{pointer}` in it is replaced by the pointer to the full result; without it
    the pointer is appended. Empty: a description of the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSettings:
    """How the prompt is kept inside the model's window."""

    mode: str = "sliding_window"
    """`sliding_window`: complete units are evicted, oldest first. `auto_compact`: the older part is replaced by a
    summary. `zones`: the full cascade, cheapest policy first."""
    ceiling_percent: float = 98.0
    """Relief starts above this share of the input budget. In `auto_compact` it starts at `compact_target_percent`, in
    `zones` where the orange zone begins."""
    floor_percent: float = 0.0
    """Relief goes down to this share in one step. 0: derived from the window size: 95 up to 16 K tokens (a tenth
    below a ceiling that is set), 70 from 32 K on; in the other modes 70, in `zones` at most the middle of the yellow
    zone."""
    min_recent_messages: int = 24
    """This many of the newest messages stay in the prompt as long as they fit. `auto_compact` keeps
    `keep_recent_tokens` instead."""
    shorten_outputs: bool = True
    """Whether old tool outputs are shortened to one line each before anything is evicted."""
    thinking_turns: int = 2
    """User turns whose thinking stays in the prompt, the current one included. Older thinking is left out where the
    provider accepts it, once relief is due anyway and before anything else is touched: clearing it turn by turn would
    rewrite the provider's cache each time. 0: thinking is never cleared."""
    lazy_tools: bool = False
    """Whether the gateway leaves out definitions of tools that the prompt does not use, where all of them cost more
    than the budget's share for tools. The model finds them with the tool `recall`. The list changes only at a relief,
    with the client's tools, or when the model asks for a tool: each change makes the provider write its cache again.
    The library leaves tool lists whole."""
    record_percent: float = 20.0
    """Share of the input budget for the working record: what the user said that still holds, what is open, the steps
    and names of messages that are no longer in the prompt. 0: no record."""
    policy: str = "prune"
    """What is evicted first: `prune`, or an eviction policy: fifo, lru, priority, semantic_merge, type_ttl, hybrid."""
    scorer: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the eviction policy, such as `{tool: 8}` for `type_ttl`: the time to live of each kind, in turns. For
    `hybrid`, the weights of the others and their settings: `{weights: {lru: 0.5, type_ttl: 0.5}, settings: {type_ttl:
    {tool: 8}}}`."""
    yellow_percent: float = 0.0
    """Where the yellow zone of pressure begins. 0, here and for the next two: derived from the window size."""
    orange_percent: float = 0.0
    """Where the orange zone begins."""
    red_percent: float = 0.0
    """Where the red zone begins."""
    velocity_turns: int = 5
    """Turns over which the velocity of pressure and the burn rates of components are averaged, up to 20."""
    spike_factor: float = 3.0
    """A turn that adds more than this many times the usual tokens is a velocity spike."""
    cascade: tuple[str, ...] = CASCADE
    """For `zones`: the policies in the order in which they are applied, each only while tokens are still needed. One
    that is not named is not used."""
    cascade_percents: Mapping[str, float] = field(default_factory=dict)
    """For `zones`: percent of the input budget from which a policy of the cascade is applied, such as `{progressive:
    85}`. Those not named: `compact` from the red zone on, `delegate` from 95, the others from the orange zone on."""
    max_tokens: int = 0
    """The most tokens of any model's window that are used; the window of a model that is not known. 0: no such limit.
    """
    keep_tools: tuple[str, ...] = ()
    """Tools whose calls and results are never evicted."""
    protect: tuple[str, ...] = ()
    """Kinds of messages that are never evicted: `user`, `assistant`, `tool` (results, with their calls). System text
    never is."""
    mark: str = "DO_NOT_EVICT"
    """A message that contains this text is never evicted. Empty: no such mark."""
    protect_task: bool = True
    """Whether the first user message is never evicted."""
    look_ahead: bool = True
    """Whether relief comes before a turn that is expected to pass the ceiling, instead of in the middle of it. Not in
    `auto_compact`."""
    cache_aware: bool = True
    """Whether relief is postponed while it would cost more in re-billed cache than it saves."""
    reserve: int = 0
    """Output reserve in tokens; 0: from the budget profile."""
    profile: str = "default"
    """The budget profile: default, code_review, research, customer_support."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Percent of the window for components, in place of the profile's: system, tools, history, results, memory and
    reserve. Those not named share the rest as in the profile."""
    soft_percent: float = 80.0
    """Percent of its limit above which a component is reported as nearly used up."""
    enforced: Enforced = "globally"
    """Whether budgets limit the prompt as a whole (`globally`) or each component too (`per_component`)."""
    floors: Mapping[str, float] = field(default_factory=dict)
    """For `per_component`: percent of its own limit to which results, history and memory are taken once they pass it.
    Not named: the floor of the window, and 50 for results."""
    checkpoint_warning_percent: float = 85.0
    """Above this share a checkpoint is written, where checkpoints are (`continuity.milestones`). In `auto_compact` it
    is always written, with a handoff, and the compaction is announced."""
    compact_target_percent: float = 92.0
    """For `auto_compact`: above this share the compaction is carried out."""
    keep_recent_tokens: int = 20_000
    """Tokens of the newest messages that a compaction leaves unchanged; at most two fifths of the input budget."""
    trim: TrimSettings = field(default_factory=TrimSettings)

    def __post_init__(self) -> None:
        if self.mode not in ("sliding_window", "auto_compact", "zones"):
            raise ValueError("window.mode is sliding_window, auto_compact or zones")
        self._check_percents()
        self._check_cascade()
        if self.keep_recent_tokens < 0:
            raise ValueError("window.keep_recent_tokens must not be below zero")
        if not 0 <= self.record_percent <= 25:
            raise ValueError("window.record_percent is a share of the input budget, from 0 to 25")
        if self.enforced not in get_args(Enforced):
            raise ValueError("window.enforced is globally or per_component")
        if self.profile != "default":
            from recto.context.window.budget import PROFILES  # noqa: PLC0415  # start-up: budgets come with the window

            if self.profile not in PROFILES:
                raise ValueError(f"window.profile is one of {', '.join(PROFILES)}")
        if self.shares:
            self._check_shares()
        self._check_floors()
        if self.min_recent_messages < 0 or self.thinking_turns < 0:
            raise ValueError("window.min_recent_messages and window.thinking_turns must not be below zero")
        if self.max_tokens < 0:
            raise ValueError("window.max_tokens must not be below zero")
        unknown = [kind for kind in self.protect if kind not in PROTECTABLE]
        if unknown:
            raise ValueError(f"window.protect: '{unknown[0]}' is none of {', '.join(PROTECTABLE)}")
        if not 1 <= self.velocity_turns <= MAX_VELOCITY_TURNS:
            raise ValueError(f"window.velocity_turns is from 1 to {MAX_VELOCITY_TURNS}")
        if self.spike_factor <= 1:
            raise ValueError("window.spike_factor must be more than 1")

    def _check_percents(self) -> None:
        warning, target = self.checkpoint_warning_percent, self.compact_target_percent
        if not (0 < warning <= 100 and 0 < target <= 100):
            raise ValueError(
                "window.checkpoint_warning_percent and window.compact_target_percent are above 0 and at most 100"
            )
        if self.mode == "auto_compact" and warning > target:
            raise ValueError(
                f"window.checkpoint_warning_percent is {warning:g} and must not be above "
                f"window.compact_target_percent, which is {target:g}: a checkpoint comes before the compaction"
            )
        if not 0 < self.soft_percent <= 100:
            raise ValueError("window.soft_percent is above 0 and at most 100")
        if not 0 <= self.floor_percent < self.ceiling_percent <= 100:
            raise ValueError(
                f"window.floor_percent is {self.floor_percent:g} and must be below window.ceiling_percent, which is "
                f"{self.ceiling_percent:g}, both between 0 and 100: lower the floor or raise the ceiling"
            )
        zones = {name: getattr(self, f"{name}_percent") for name in ("yellow", "orange", "red")}
        if not all(0 <= percent <= 100 for percent in zones.values()):
            raise ValueError("window.yellow_percent, window.orange_percent and window.red_percent are from 0 to 100")
        for (lower, low), (higher, high) in pairwise((name, start) for name, start in zones.items() if start):
            if low >= high:
                raise ValueError(
                    f"window.{higher}_percent is {high:g} and must be above window.{lower}_percent, which is {low:g}: "
                    "zones begin at ascending percents"
                )

    def _check_cascade(self) -> None:
        for name in self.cascade:
            if name not in CASCADE:
                raise ValueError(f"window.cascade: '{name}' is none of {', '.join(CASCADE)}")
        if not self.cascade or len(set(self.cascade)) != len(self.cascade):
            raise ValueError("window.cascade names at least one policy, and each once")
        for name, start in self.cascade_percents.items():
            if name not in self.cascade:
                raise ValueError(f"window.cascade_percents: '{name}' is none of {', '.join(self.cascade)}")
            if isinstance(start, bool) or not isinstance(start, int | float) or not 0 < start <= 100:
                raise ValueError(f"window.cascade_percents.{name} is a number of percent, above 0 and at most 100")
        starts = [(name, self.cascade_percents[name]) for name in self.cascade if name in self.cascade_percents]
        for (earlier, low), (later, high) in pairwise(starts):
            if low > high:
                raise ValueError(
                    f"window.cascade_percents.{later} is {high:g} and must not be below window.cascade_percents."
                    f"{earlier}, which is {low:g}: {earlier} comes first in the cascade"
                )

    def _check_shares(self) -> None:
        from recto.context.window.budget import COMPONENTS  # noqa: PLC0415  # start-up: budgets come with the window

        for name, percent in self.shares.items():
            if name not in COMPONENTS:
                raise ValueError(f"window.shares: '{name}' is none of {', '.join(COMPONENTS)}")
            if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
                raise ValueError(f"window.shares.{name} is a number of percent, from 0 to 100")
        total = sum(self.shares.values())
        if total > 100 or (total < 100 and len(self.shares) == len(COMPONENTS)) or self.shares.get("reserve", 0) == 100:
            raise ValueError(
                f"window.shares must add up to 100 percent with the reserve below that, and are {total:g}: lower some"
                if total > 100
                else f"window.shares must add up to 100 percent with the reserve below that, and are {total:g}"
            )

    def _check_floors(self) -> None:
        if not self.floors:
            return
        from recto.context.window.budget import ENFORCEABLE  # noqa: PLC0415  # start-up: budgets come with the window

        for name, percent in self.floors.items():
            if name not in ENFORCEABLE:
                raise ValueError(f"window.floors: '{name}' is none of {', '.join(ENFORCEABLE)}")
            if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 < percent < 100:
                raise ValueError(f"window.floors.{name} is a number of percent of its limit, above 0 and below 100")


_MAX_PASSAGES, _MAX_PASSAGE_CHARACTERS = 8, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderSettings:
    """The embedder that recall uses."""

    use: str = "auto"
    """`auto`: the embedded model where its weights are installed, else `none`. Or `arctic` (English), `multilingual`,
    `onnx`, `endpoint`, `none` (keyword search only)."""
    path: str = ""
    """For `onnx`, and for `arctic` from its publisher's own files: a folder with `model.onnx` and `tokenizer.json`."""
    url: str = ""
    """For `endpoint`: the base URL of an OpenAI-compatible server, such as http://localhost:11434/v1."""
    model: str = ""
    """For `endpoint`: the name of the model."""
    key: str = ""
    """For `endpoint`: its API key. Set it as RECTO_RECALL__EMBEDDER__KEY rather than in a file."""
    seconds: float = 10.0
    """Time-out of one call."""
    dims: int = 0
    """For `endpoint`: the vector dimension to request; 0: the model's default."""
    query_prefix: str = ""
    """For `onnx` and `endpoint`: prefix the model expects before a query."""
    document_prefix: str = ""
    """For `onnx` and `endpoint`: prefix the model expects before a document."""
    pooling: str = "cls"
    """For `onnx`: `cls` or `mean`, as the model's documentation says."""
    cpu_share: float = 0.1
    """Share of one core that background embedding may use on average; 1: no limit. `recto index` has none."""
    passages: int = 1
    """Passages of a message that get vectors: the first ones and, of two or more, the last. In user messages, every
    sentence or two of a passage gets a vector."""
    characters: int = 512
    """Characters of a passage that are embedded, at most 1000."""
    tool_results: bool = False
    """Whether tool results get vectors too. Otherwise they are found by their words."""

    def __post_init__(self) -> None:
        if self.use not in ("auto", "arctic", "multilingual", "onnx", "endpoint", "none"):
            raise ValueError("recall.embedder.use is auto, arctic, multilingual, onnx, endpoint or none")
        if self.pooling not in ("cls", "mean"):
            raise ValueError("recall.embedder.pooling is cls or mean")
        if self.seconds <= 0 or self.dims < 0:
            raise ValueError("recall.embedder.seconds must be more than 0 and dims not below 0")
        if not 0 < self.cpu_share <= 1:
            raise ValueError("recall.embedder.cpu_share must be more than 0 and at most 1")
        if not 1 <= self.passages <= _MAX_PASSAGES or not 1 <= self.characters <= _MAX_PASSAGE_CHARACTERS:
            raise ValueError("recall.embedder.passages is from 1 to 8 and characters from 1 to 1000")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSettings:
    """How evicted messages are searched, and when they are injected into the prompt."""

    enabled: bool = True
    """Whether messages are indexed before they are evicted. If false, they are evicted unindexed and nothing is
    recalled."""
    inject: bool = True
    """Whether relevant history is quoted in the prompt automatically."""
    scope: Scope = "session"
    """What is searched: this `session`, all sessions of its `agent`, or all of its `tenant`."""
    threshold: float = 0.4
    """The chance (relevance, from 0 to 1) from which on a message is injected; up to 0.1 less for the best one where
    tokens are free."""
    most: int = 12
    """Maximum number of messages injected into one prompt."""
    tokens: int = 0
    """Token budget of recalled text in one prompt; 0: the memory share of the budget."""
    index_seconds: float = 10.0
    """How long relief waits for an index that makes no progress. Messages not indexed by then stay in the prompt as
    long as they fit. While indexing makes progress, relief waits up to 30 times as long."""
    query_seconds: float = 0.1
    """How long a prompt waits for the vector of its question. After that, only words are searched."""
    background: bool = True
    """Whether vectors are made on a background thread. If false, they are made when messages are evicted."""
    embedder: EmbedderSettings = field(default_factory=EmbedderSettings)

    def __post_init__(self) -> None:
        if self.scope not in get_args(Scope):
            raise ValueError("recall.scope is session, agent or tenant")
        if not 0 <= self.threshold <= 1:
            raise ValueError("recall.threshold must be between 0 and 1")
        if self.most < 1 or self.tokens < 0:
            raise ValueError("recall.most must be at least 1 and recall.tokens not below 0")
        if self.index_seconds <= 0 or self.query_seconds <= 0:
            raise ValueError("recall.index_seconds and query_seconds must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressModelSettings:
    """The model that writes summaries. Its output is checked against its sources."""

    use: str = "none"
    """`none`: summaries are extractive. Or `openai` (any compatible endpoint), `anthropic`, `embedded`."""
    url: str = ""
    """The base URL of an endpoint, such as http://localhost:11434/v1."""
    model: str = ""
    """The name of the model; for `embedded` the name of its weights, `smollm2` by default."""
    key: str = ""
    """Its API key. Set it as RECTO_COMPRESS__MODEL__KEY rather than in a file."""
    path: str = ""
    """For `embedded`: a GGUF file of your own."""
    context: int = 0
    """Context window in tokens; 0: 8192 for `embedded`, unknown for others."""
    seconds: float = 60.0
    """Time-out of one text, retries included."""
    input_tokens: int = 24_000
    """Maximum input; of longer text, the most informative sentences are sent."""
    calls: int = 4
    """How many tool results the model summarises per decision; the rest are shortened extractively."""

    def __post_init__(self) -> None:
        if self.use not in ("none", "openai", "anthropic", "embedded"):
            raise ValueError("compress.model.use is none, openai, anthropic or embedded")
        if self.seconds <= 0 or self.context < 0 or self.input_tokens < 200 or self.calls < 0:
            raise ValueError("compress.model.seconds must be more than 0 and input_tokens at least 200")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressSettings:
    """How content is compressed when eviction is not enough."""

    result_tokens: int = 500
    """Tool results longer than this are summarised."""
    on_arrival_tokens: int = 0
    """Tool results longer than this are summarised by rule before the model sees them for the first time; the whole is
    read by its pointer. 0: the model sees every result whole once."""
    result_share: float = 0.2
    """Maximum length of a summary as a share of the result's tokens."""
    key_points_turns: int = 5
    """Up to this age in turns an evicted exchange keeps its key points."""
    line_turns: int = 20
    """Up to this age it keeps one line; beyond it a title."""
    summary_tokens: int = 3_000
    """Maximum length of the summary of everything evicted; never more than an eighth of the input budget."""
    handoff_tokens: int = 600
    """Maximum length of a handoff in the prompt of one turn; never more than a twentieth of the input budget."""
    background: bool = True
    """Whether a model writes summaries ahead of need, from the yellow zone on, so that the turn does not wait."""
    delegate_seconds: float = 300.0
    """Time-out of a sub-agent."""
    model: CompressModelSettings = field(default_factory=CompressModelSettings)

    def __post_init__(self) -> None:
        if self.result_tokens < 1 or not 0 < self.result_share < 1:
            raise ValueError("compress.result_tokens must be at least 1 and compress.result_share between 0 and 1")
        if self.on_arrival_tokens < 0:
            raise ValueError("compress.on_arrival_tokens must not be below zero; 0 sends results whole")
        if not 0 <= self.key_points_turns <= self.line_turns:
            raise ValueError("compress.key_points_turns must not be above compress.line_turns")
        if self.summary_tokens < 200 or self.handoff_tokens < 1 or self.delegate_seconds <= 0:
            raise ValueError("compress.summary_tokens must be at least 200, the others more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingSettings:
    """Files whose text is placed before everything else in every prompt."""

    files: tuple[str, ...] = ()
    """Who the agent is, who the user is, how the project works: such as IDENTITY.md, USER.md, AGENTS.md."""
    warning_percent: float = 5.0
    """Share of the input budget above which a warning asks for shorter files."""
    most_percent: float = 20.0
    """Share of the input budget above which they are cut."""

    def __post_init__(self) -> None:
        if not 0 < self.warning_percent <= self.most_percent <= 50:
            raise ValueError("standing.warning_percent must not be above standing.most_percent, nor that above 50")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Durable memory: where it is stored, what is approved automatically, when it is retired."""

    folder: str = ""
    """Folder of the memory pages; empty: a folder next to the store, named like it with `-memory`."""
    approve: tuple[str, ...] = ()
    """Kinds that are approved automatically when a user stated them in their own words; everything else waits for a
    person."""
    half_life_days: float = 90.0
    """After this long without use the strength of a new memory has halved."""
    retire: str = "propose"
    """What happens to old memory: `never`, `propose` (a person decides), `unused` (retired if never used)."""
    retire_below: float = 0.1
    """The strength, from 0 to 1, below which memory counts as old."""
    proposals: int = 20
    """Maximum number of proposals per session in one consolidation cycle."""
    every_hours: float = 0.0
    """How often `recto consolidate --due` runs a cycle; 0: never."""
    critical_percent: float = 5.0
    """Share of the input budget for critical memory in the system text of every prompt; 0: none."""
    files: bool = True
    """Whether recall searches journals and other text files of the memory folder. They are quoted as data, never as
    approved memory."""

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
        if not 0 <= self.critical_percent <= 50:
            raise ValueError("memory.critical_percent must be between 0 and 50")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuitySettings:
    """How the work of a session continues in a new window, in another process, or elsewhere."""

    folder: str = ""
    """Where checkpoints and handoffs are also written as files, one folder per session. Empty: only in the transcript.
    """
    state_file: str = "checkpoint.json"
    """The name of the file of a checkpoint for programs, in the folder of its session."""
    progress_file: str = "checkpoint.md"
    """The name of the file of a checkpoint for people."""
    notes_file: str = ""
    """The name of a file with the notes of a session, in its folder, such as notes.md. Recto never reads it. Empty:
    none."""
    notes: str = "session"
    """Who sees notes: their `session` only, or `agent`: new sessions of the agent begin with the notes of the others.
    What an agent notes is not approved by anyone, unlike memory."""
    milestones: str = "auto"
    """Checkpoints at milestones: `always`, `never`, `auto` (if a folder is set or the mode summarises)."""
    environment: bool = True
    """Whether a checkpoint records the state of the directory, git, files and services."""
    directory: str = ""
    """The working directory; empty: the current one. With tenants it has to be set."""
    hosts: tuple[str, ...] = LOOPBACK
    """Hosts whose services may be probed."""
    resume_tokens: int = 1_500
    """Maximum length of the first page of a new window; never more than a tenth of the input budget."""

    def __post_init__(self) -> None:
        if self.milestones not in ("auto", "always", "never"):
            raise ValueError("continuity.milestones is auto, always or never")
        if self.notes not in ("session", "agent"):
            raise ValueError("continuity.notes is session or agent")
        names = (self.state_file, self.progress_file, HANDOFF_FILE, *([self.notes_file] if self.notes_file else ()))
        if any(name != Path(name).name or name.startswith(".") for name in names) or len(set(names)) != len(names):
            raise ValueError(
                "continuity.state_file, progress_file and notes_file are different names of files, without folders "
                f"(those are continuity.folder), and not {HANDOFF_FILE}"
            )
        if self.resume_tokens < 100:
            raise ValueError("continuity.resume_tokens must be at least 100")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """A replica of the store for read-only queries."""

    url: str = ""
    """A streaming replica of a PostgreSQL store: `postgresql://…`. Empty: none."""
    staleness_seconds: float = 5.0
    """Maximum replication lag; beyond it, and when the replica does not answer, the store itself is read."""

    def __post_init__(self) -> None:
        if self.staleness_seconds <= 0:
            raise ValueError("replica.staleness_seconds must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Thresholds of alerts."""

    utilization: float = 0.9
    """The share of the input budget above which a prompt is too full."""
    utilization_turns: int = 3
    """For this many turns in a row."""
    evictions: float = 5.0
    """Evicted messages per turn, averaged over `eviction_turns`, above which too much is evicted."""
    eviction_turns: int = 5
    """The number of turns of that average."""
    fidelity: float = 0.75
    """The score of a summary below which too much was lost."""
    ratio: float = 2.0
    """The lowest acceptable compression ratio."""
    bloat: float = 0.3
    """The share of the input budget above which tool results crowd out everything else."""
    burn: float = 3.0
    """How many times the usual growth a turn may add."""
    loop: int = 3
    """How many times in a row the same tool calls may give the same results: one call, or up to four that alternate.
    A message of the user starts over."""
    clear: float = 0.9
    """An alert ends when its value is back within this share of its threshold, so that a value that oscillates raises
    one alert."""
    quiet_seconds: float = 300.0
    """The same alert of a session is not raised again within this time."""

    def __post_init__(self) -> None:
        shares = (self.utilization, self.fidelity, self.bloat, self.clear)
        if not all(0 < share <= 1 for share in shares):
            raise ValueError("health.alerts: utilization, fidelity, bloat and clear are shares between 0 and 1")
        if self.utilization_turns < 1 or self.eviction_turns < 1 or self.loop < 1:
            raise ValueError("health.alerts: numbers of turns, and loop, must be at least 1")
        if self.evictions <= 0 or self.ratio <= 0 or self.burn <= 1 or self.quiet_seconds < 0:
            raise ValueError("health.alerts: evictions and ratio must be more than 0, burn more than 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Where alerts are sent as JSON."""

    url: str = ""
    """Empty: nowhere."""
    key: str = ""
    """Sent as a bearer token. Set it as RECTO_HEALTH__WEBHOOK__KEY rather than in a file."""
    seconds: float = 5.0
    """Time-out of one delivery; it never delays a turn."""

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError("health.webhook.seconds must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """How the health of sessions is measured and reported."""

    enabled: bool = True
    """Whether turns are measured as they happen. They can always be measured from the transcript later."""
    regret_turns: int = 10
    """Content requested again within this many turns of its eviction counts as regret."""
    log: str = ""
    """Where alerts and decisions are logged as lines of JSON: `stderr`, or a file; empty: nowhere."""
    log_text: bool = False
    """Whether the log may contain message text."""
    telemetry: bool = False
    """Whether spans and metrics are sent to OpenTelemetry, where its API is installed."""
    alerts: AlertSettings = field(default_factory=AlertSettings)
    webhook: WebhookSettings = field(default_factory=WebhookSettings)

    def __post_init__(self) -> None:
        if self.regret_turns < 1:
            raise ValueError("health.regret_turns must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """What the gateway listens on, its upstreams, and its limits."""

    host: str = "127.0.0.1"
    """The address to listen on. Anything but loopback needs at least one key, and names in `hosts`."""
    port: int = 8642
    """The port to listen on; 0: any free port."""
    hosts: tuple[str, ...] = ()
    """Host names accepted besides loopback's own: `gateway.example.com`."""
    origins: tuple[str, ...] = ()
    """Web origins accepted besides the gateway's own: `https://chat.example.com`."""
    trusted_proxies: tuple[str, ...] = ()
    """Reverse proxies whose `X-Forwarded-For` names the client, in the access log: addresses, networks such as
    `10.0.0.0/8`, or `unix` for a Unix socket. The header of everything else is ignored."""
    access_log: Literal["off", "text", "json"] = "text"
    """One line for each request, on standard error: `text` (`name=value`), `json`, or `off`."""
    local: bool = False
    """Whether requests need no key, and clients may name their provider's address themselves: every program on this
    machine may then ask. Only on loopback."""
    targets: tuple[str, ...] = ()
    """Hosts that clients may name besides the known vendors, where `local` is on: `llm.example.com`, or an origin that
    is meant literally, such as `http://127.0.0.1:8000`."""
    project: str = ""
    """The folder that the agents of this gateway work in: recorded with each new session, so that a search can be
    limited to a project. `recto run` sets it."""
    program: str = ""
    """The agent that uses this gateway, such as `codex`, recorded likewise. `recto run` sets it."""
    upstreams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Upstreams by name: `{main: {url: https://api.openai.com/v1, wire: openai.responses, key_env: OPENAI_API_KEY,
    models: [gpt-*]}}`. None: the embedded model."""
    body_bytes: int = 32 * 1024 * 1024
    """Largest request body, after decompression, and largest message of an MCP client on standard input."""
    upload_bytes: int = 512 * 1024 * 1024
    """Largest body that is passed on to an upstream while it arrives: a file, audio or an image."""
    depth: int = 128
    """Maximum nesting depth of the JSON of a request."""
    connections: int = 2_000
    """Maximum number of open connections; more are refused."""
    concurrency: int = 256
    """Maximum number of concurrent requests; more get an error that says when to retry."""
    header_seconds: float = 8.0
    """How long a client may take to send its headers."""
    body_seconds: float = 30.0
    """How long a client may take to send the body."""
    write_seconds: float = 20.0
    """How long a client may leave its response unread before it is disconnected."""
    connect_seconds: float = 10.0
    """How long connecting to an upstream may take."""
    upstream_seconds: float = 600.0
    """How long an upstream may be silent."""
    drain_seconds: float = 30.0
    """How long responses in progress may take to end when the gateway is stopped; after that they are stored as far as
    they were received."""
    sessions: int = 256
    """Number of sessions kept open in memory; others are opened on demand."""
    recall_tool: str = "auto"
    """Whether a model whose client brings tools can look up evicted messages with a tool that the gateway answers:
    `auto`, from the first eviction of a session on; `always`, from its first request on; `never`."""
    new_windows: bool = False
    """Whether a model whose client brings tools gets the tools `new_context`, `history_search`, `history_read` and
    `note`, which the gateway answers: it opens a new window for itself when it asks. A key can differ
    (`recto keys add --new-windows`)."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError("gateway.port is a port number")
        if self.access_log not in ("off", "text", "json"):
            raise ValueError("gateway.access_log is off, text or json")
        for address in self.trusted_proxies:
            if address != "unix":
                try:
                    ip_network(address)
                except ValueError as error:
                    raise ValueError(
                        f"gateway.trusted_proxies: {error}; 10.0.0.1, 10.0.0.0/8 and unix are meant"
                    ) from None
        if self.recall_tool not in ("auto", "always", "never"):
            raise ValueError("gateway.recall_tool is auto, always or never")
        if min(self.body_bytes, self.upload_bytes, self.connections, self.concurrency, self.sessions) < 1:
            raise ValueError("gateway: body_bytes, upload_bytes, connections, concurrency, sessions must be at least 1")
        if not 8 <= self.depth <= MAX_DEPTH:
            raise ValueError(f"gateway.depth must be between 8 and {MAX_DEPTH}")
        seconds = (self.header_seconds, self.body_seconds, self.write_seconds, self.connect_seconds)
        if min(*seconds, self.upstream_seconds) <= 0 or self.drain_seconds < 0:
            raise ValueError("gateway: time-outs must be more than 0 seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSettings:
    """Where `recto models get` fetches the weights of models that run on this machine."""

    mirror: str = ""
    """A mirror of huggingface.co, with its paths: `https://artifacts.example/huggingface`. It is asked instead of the
    publisher's hub. Every file must have the SHA-256 that is written in Recto, so a mirror need not be trusted."""
    fallback: bool = True
    """Whether packages of third parties, which contain the same weights, are fetched by pip if the publisher cannot be
    reached. They are checked by their hashes and never installed or run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings."""

    store: str = "~/.recto/transcript.db"
    """Where transcripts are stored: a path, `postgresql://…`, or `memory:` for a store that ends with the process."""
    store_key: str = ""
    """The key that `recto store grant` printed: a role that does not own the tables of a PostgreSQL store opens tenants
    with it. Set it as `RECTO_STORE_KEY`."""
    replica: ReplicaSettings = field(default_factory=ReplicaSettings)
    session: str = DEFAULT_SESSION
    """The default session."""
    tenant: str = ""
    """The owner of the sessions, where several customers share a store. No tenant ever sees another's."""
    model: str = ""
    """The model whose window and tokenizer apply. Empty: unknown, so the most conservative assumptions."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    window: WindowSettings = field(default_factory=WindowSettings)
    recall: RecallSettings = field(default_factory=RecallSettings)
    compress: CompressSettings = field(default_factory=CompressSettings)
    standing: StandingSettings = field(default_factory=StandingSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    continuity: ContinuitySettings = field(default_factory=ContinuitySettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    weights: WeightsSettings = field(default_factory=WeightsSettings)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Overrides of the model registry: `{my-model: {window: 32768, tokenizer: llama3}}`."""
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    """Your own tokenizers: `{my-tokenizer: path/to/tokenizer.json}`, usable as a model's `tokenizer`."""


FOLDER_SETTINGS = frozenset(
    {
        "session",
        "model",
        "models",
        "window.mode",
        "window.ceiling_percent",
        "window.floor_percent",
        "window.min_recent_messages",
        "window.shorten_outputs",
        "window.record_percent",
        "window.policy",
        "window.scorer",
        "window.yellow_percent",
        "window.orange_percent",
        "window.red_percent",
        "window.velocity_turns",
        "window.spike_factor",
        "window.cascade",
        "window.cascade_percents",
        "window.max_tokens",
        "window.keep_tools",
        "window.protect",
        "window.mark",
        "window.protect_task",
        "window.look_ahead",
        "window.cache_aware",
        "window.reserve",
        "window.profile",
        "window.shares",
        "window.soft_percent",
        "window.enforced",
        "window.floors",
        "window.checkpoint_warning_percent",
        "window.compact_target_percent",
        "window.keep_recent_tokens",
        "window.trim.keep_newest",
        "window.trim.exclude_tools",
        "window.trim.clear_at_least",
        "window.trim.keep_share",
        "recall.inject",
        "recall.threshold",
        "recall.most",
        "recall.tokens",
        "compress.result_tokens",
        "compress.result_share",
        "compress.key_points_turns",
        "compress.line_turns",
        "compress.summary_tokens",
        "compress.handoff_tokens",
        "standing.warning_percent",
        "standing.most_percent",
    }
)
"""What a `recto.yaml` in a working folder may set without being trusted: nothing here can make Recto send, execute,
read or write anywhere else, widen a search, approve memory, or add text to a prompt. A new setting is not among them
until it is added."""
