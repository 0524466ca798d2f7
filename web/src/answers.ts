// What the inspection API answers. Made of its description by tools/make_web_types.py; do not edit.

/** A condition that needs attention: raised when it begins, ended when it is over. */
export interface Alert {
  name: "bloat" | "burn" | "evictions" | "fidelity" | "loop" | "ratio" | "utilization";
  grade: "anomaly" | "critical" | "degradation";
  session: string;
  turn: number;
  ts: number;
  value: number;
  threshold: number;
  says: string;
  action: string;
  ended: boolean;
}

/** A proposal that became memory. */
export interface ApprovalResult {
  memory: string;
  proposal: string;
  digest: string;
  by: string;
}

/** One recorded action, derived from its entry in the transcript. */
export interface AuditLine {
  session: string;
  seq: number;
  id: string;
  ts: number;
  kind: string;
  topic: "bookkeeping" | "continuity" | "decision" | "failure" | "memory" | "note" | "other" | "pin" | "pressure" | "recall" | "session" | "undo";
  surface: string;
  hash: string;
  policy: string;
  reason: string;
  by: string;
  entries: Array<Array<number>>;
  shrunk: Array<Array<number>>;
  messages: number;
  tokens_before: number | null;
  tokens_after: number | null;
  freed: number | null;
  picodollars: number | null;
  undone_by: number | null;
  scores: Record<string, Record<string, number>>;
  details: Record<string, string | number | number | boolean | null>;
  text: string | null;
}

/** What was done to a session, newest first. */
export interface AuditPage {
  lines: Array<AuditLine>;
  next: number | null;
}

/** How much of the prompt the provider has already seen as an unchanged prefix. */
export interface CacheEstimate {
  prefix: number;
  share: number;
  picodollars: number;
}

/** The API key of a request and what it may do. */
export interface Caller {
  name: string;
  id: string;
  rights: Array<"ask" | "change" | "erase" | "read">;
  tenant: string;
  agent: string;
  main: string;
  newest: string;
  model: string;
  version: string;
}

/** The state of a task. */
export interface Checkpoint {
  schema: number;
  session: string;
  version: number;
  window: number;
  last: number;
  reason: string;
  goal: string;
  goal_seq: number;
  success_criteria: Array<Item>;
  constraints: Array<Item>;
  subtasks: Array<Subtask>;
  decisions: Array<TaskDecision>;
  open_issues: Array<Issue>;
  promises: Array<Item>;
  questions: Array<Item>;
  learnings: Array<Item>;
  environment: Environment;
  files: Array<string>;
  tools: Array<string>;
  notes: Array<Note>;
  summary: string;
  given: ManualState;
}

/** One checkpoint of a list. */
export interface CheckpointListItem {
  version: number;
  seq: number;
  ts: number;
  reason: string;
  goal: string;
}

/** Checkpoints, newest first. */
export interface CheckpointPage {
  checkpoints: Array<CheckpointListItem>;
  next: number | null;
}

/** Runs of a command, newest first. */
export interface CommandHistory {
  query: string;
  runs: Array<CommandRun>;
  searched_from: number;
  next: number | null;
}

/** A run of a command; of one that passes after failures, what was done in between. */
export interface CommandRun {
  step: WorkStep;
  numbers: Array<string>;
  failures: number;
  changed: Array<FileEvent>;
  ran: Array<WorkStep>;
}

/** What a compaction did; empty where there was too little to compact. */
export interface CompactionResult {
  decisions: Array<DecisionSummary>;
  compressions: Array<Compression>;
  tokens: number;
}

/** Two prompts of one session, as of two entries, in prompt order. */
export interface Comparison {
  first: number;
  second: number;
  room: number;
  first_tokens: number;
  second_tokens: number;
  first_messages: number;
  second_messages: number;
  lines: Array<PromptLine>;
  more: boolean;
}

/** Usage of one component. */
export interface ComponentUsage {
  component: "history" | "memory" | "reserve" | "results" | "system" | "tools";
  used: number;
  soft: number;
  hard: number;
  level: "ok" | "violation" | "warning";
  burn: number;
  turns_left: number | null;
}

/** A compaction, as reported. */
export interface Compression {
  seq: number;
  kind: string;
  style: string;
  engine: string;
  tokens_from: number;
  tokens_to: number;
  seconds: number;
  picodollars: number;
  attempts: Array<string>;
  claims: number;
  invented: number;
  fidelity: number | null;
  ledger: number | null;
  entities: number | null;
  lost: Record<string, number>;
  undone: boolean;
}

/** A message that a decision evicted or shortened. */
export interface DecidedMessage {
  seq: number;
  role: string;
  action: "cleared" | "evicted" | "trimmed";
  text: string;
  cut: boolean;
  tokens: number;
  shorter: string;
  shorter_tokens: number;
  scores: Record<string, number>;
}

/** A decision, or the undoing of one, and where it happened. */
export interface DecisionMark {
  seq: number;
  kind: string;
  policy: string;
  frees: number;
}

/** Decisions, newest first. */
export interface DecisionPage {
  decisions: Array<DecisionSummary>;
  next: number | null;
}

/** A decision, as reported. */
export interface DecisionSummary {
  seq: number;
  id: string;
  ts: number;
  kind: string;
  policy: string;
  reason: string;
  messages: number;
  frees: number;
  undone: boolean;
  scores: Record<string, Record<string, number>>;
}

/** A decision, with its messages. */
export interface DecisionView {
  decision: DecisionSummary;
  tokens_before: number;
  tokens_after: number;
  room: number;
  utilization: number;
  ceiling: number;
  messages: Array<DecidedMessage>;
  more: number;
  summary: string;
}

/** A decision about an entry. */
export interface EntryDecision {
  action: "evicted" | "trimmed";
  decision: DecisionSummary;
  utilization: number;
  ceiling: number;
  tokens_before: number;
  tokens_after: number;
}

/** What became of an entry: where it is now, and the decisions that evicted or shortened it, newest first. */
export interface EntryHistory {
  entry: EntryView;
  decisions: Array<EntryDecision>;
  more: boolean;
}

/** An entry in a list: its size and its first line. */
export interface EntryOutline {
  pointer: string;
  seq: number;
  ts: number;
  role: string;
  kind: string;
  tokens: number;
  characters: number;
  lines: number;
  first_line: string;
}

/** Entries in the requested order. */
export interface EntryPage {
  entries: Array<EntryView>;
  next: number | null;
}

/** Entries one after another that are in the same place. */
export interface EntrySpan {
  first: number;
  last: number;
  place: "event" | "evicted" | "in" | "pinned" | "protected" | "recalled" | "summarized" | "trimmed";
}

/** An entry on a page. */
export interface EntryView {
  seq: number;
  id: string;
  ts: number;
  role: string;
  kind: string;
  surface: string;
  tokens: number;
  text: string;
  cut: boolean;
  place: "event" | "in" | "out" | "recalled" | "trimmed";
  pinned: boolean;
}

/** The recorded state of the working environment. */
export interface Environment {
  directory: string;
  branch: string;
  head: string;
  dirty: Array<string>;
  paths: Array<FileState>;
  missing: Array<string>;
  services: Array<Service>;
}

/** A session that was removed for good, as the record of the erasure names it. */
export interface ErasedSession {
  session: string;
  entries: number;
  hash: string;
}

/** Why a request was refused, and what to do. */
export interface ErrorDetail {
  code: string;
  message: string;
}

/** A result, or a message of the user, that contains an error. */
export interface ErrorEvent {
  pointer: string;
  seq: number;
  ts: number;
  line: string;
  step: WorkStep | null;
}

/** Where an error came from and how it ended. */
export interface ErrorHistory {
  query: string;
  count: number;
  state: "not_found" | "open" | "over";
  first: ErrorEvent | null;
  events: Array<ErrorEvent>;
  ended_by: WorkStep | null;
  followed: Array<WorkStep>;
  omitted: number;
  searched_from: number;
  next: number | null;
}

/** The response to a request that was refused. */
export interface ErrorResponse {
  error: ErrorDetail;
}

/** A part of a session as Recto's JSONL: a file is the lines of all parts, one after the other. */
export interface ExportPage {
  lines: Array<string>;
  through: number;
  next: number | null;
}

/** What a step did with a file. */
export interface FileEvent {
  path: string;
  change: "create" | "delete" | "edit" | "read";
  version: number;
  step: WorkStep;
}

/** What was done with a file, newest first. */
export interface FileHistory {
  query: string;
  paths: Array<string>;
  versions: number;
  events: Array<FileEvent>;
  searched_from: number;
  next: number | null;
}

/** The recorded state of a file. */
export interface FileState {
  path: string;
  size: number;
  modified: number;
  digest: string;
}

/** When the window is full at the current pace. */
export interface Forecast {
  pace: number;
  until_red: number | null;
  until_full: number | null;
}

/** A session that was begun as a copy of another. */
export interface ForkedSession {
  session: string;
  source: string;
  entries: number;
}

/** An entry, complete. */
export interface FullEntry {
  session: string;
  seq: number;
  id: string;
  ts: number;
  role: string;
  kind: string;
  wire: string;
  surface: string;
  tokens: number;
  counter: string;
  text: string;
  content: string;
  meta: string;
  prev: string;
  hash: string;
}

/** A line of an entry's text; a long one is cut around the match. */
export interface GrepLine {
  number: number;
  text: string;
  matches: boolean;
}

/** An entry with lines that match. */
export interface GrepMatch {
  pointer: string;
  seq: number;
  ts: number;
  role: string;
  count: number;
  lines: Array<GrepLine>;
}

/** Entries with lines that match, in the requested order. */
export interface GrepPage {
  matches: Array<GrepMatch>;
  searched: number;
  next: number | null;
}

/** How a session is, and where it is heading. */
export interface HealthReport {
  session: string;
  turns: Array<TurnHealth>;
  trends: Array<Trend>;
  forecast: Forecast | null;
  alerts: Array<Alert>;
  reading: PressureReading | null;
  sinks_failed: number;
}

/** An unresolved problem. */
export interface Issue {
  error: string;
  reproduction: string;
  seq: number;
  by: "agent" | "assistant" | "system" | "tool" | "user";
}

/** A statement, verbatim. */
export interface Item {
  text: string;
  seq: number;
  by: "agent" | "assistant" | "system" | "tool" | "user";
}

/** A key of the gateway, without its secret. A limit of 0 is none. */
export interface KeyItem {
  id: string;
  name: string;
  rights: Array<"ask" | "change" | "erase" | "read">;
  agent: string;
  state: "expired" | "live" | "revoked";
  expires: number;
  requests_per_minute: number;
  concurrency: number;
  tokens_per_day: number;
  dollars_per_day: number;
  tokens_today: number;
  dollars_today: number;
  new_windows: boolean | null;
}

/** The keys of a tenant, oldest first. */
export interface KeyList {
  keys: Array<KeyItem>;
}

/** State set by hand, or imported from a checkpoint of another transcript. It applies until it is set again. */
export interface ManualState {
  goal: string;
  success_criteria: Array<Item>;
  constraints: Array<Item>;
  subtasks: Array<Subtask>;
  issues: Array<Issue>;
  solved: Array<Item>;
  decisions: Array<TaskDecision>;
  learnings: Array<Item>;
  services: Array<string>;
}

/** A memory, as its page states it. */
export interface Memory {
  id: string;
  kind: "correction" | "decision" | "fact" | "lesson" | "preference" | "procedure";
  title: string;
  text: string;
  created: number;
  tags: Array<string>;
  half_life_days: number;
  critical: boolean;
  evergreen: boolean;
  hits: number;
  prevented: number;
  last_applied: number;
  sources: Array<string>;
  replaces: Array<string>;
  state: "approved" | "retired";
}

/** That one memory repeats or contradicts another. */
export interface MemoryFlag {
  kind: "conflict" | "duplicate";
  id: string;
  score: number;
}

/** One memory of an agent. */
export interface MemoryListItem {
  memory: Memory;
  strength: number;
  approved_by: string;
  how: string;
  approved: number;
  edited: boolean;
  retired: string;
}

/** Memories by id. */
export interface MemoryPage {
  agent: string;
  memories: Array<MemoryListItem>;
  next: string | null;
}

/** One note. */
export interface Note {
  seq: number;
  kind: "bugs" | "constraints" | "decisions" | "learnings" | "misc" | "task_progress";
  text: string;
  critical: boolean;
  level: "critical" | "high" | "normal";
  before: number;
}

/** Notes, oldest first. */
export interface NoteList {
  notes: Array<Note>;
}

/** Numbers with units in lines that contain the words of a question, newest first. */
export interface NumberHistory {
  query: string;
  numbers: Array<NumberMention>;
  searched_from: number;
  next: number | null;
}

/** A number with its unit, and the line that states it. */
export interface NumberMention {
  pointer: string;
  seq: number;
  ts: number;
  role: string;
  number: string;
  line: string;
}

/** Entries in the requested order. */
export interface OutlinePage {
  entries: Array<EntryOutline>;
  next: number | null;
}

/** Pinned messages. */
export interface PinList {
  pins: Array<EntryView>;
  more: boolean;
}

/** One measurement. */
export interface PressureReading {
  tokens: number;
  room: number;
  utilization: number;
  zone: "green" | "orange" | "red" | "yellow";
  velocity: number;
  turns_until_red: number | null;
  spike: boolean;
  baseline: number | null;
  gain: number;
  turn: number;
  source: "counted" | "estimated" | "reported" | "warning";
}

/** One block of a prompt. */
export interface PromptBlock {
  what: "frame" | "handoff" | "instructions" | "marker" | "message" | "notes" | "placeholder" | "recalled" | "record" | "summary" | "tools";
  seq: number | null;
  role: string;
  text: string;
  cut: boolean;
  tokens: number;
  stored_tokens: number;
  reason: "answered" | "client" | "fits" | "kind" | "marked" | "pinned" | "question" | "recent" | "system" | "task" | "tool" | "unanswered" | "written";
  sources: Array<number>;
  quotes: Array<RecalledQuote>;
}

/** One piece of one of two prompts, or of both. */
export interface PromptLine {
  seq: number | null;
  what: "entry" | "frame" | "handoff" | "marker" | "recalled" | "standing" | "summary" | "system";
  role: string;
  text: string;
  cut: boolean;
  first_tokens: number | null;
  second_tokens: number | null;
  side: "both" | "changed" | "first" | "second";
}

/** A piece of a prompt as it was sent. */
export interface PromptPiece {
  kind: "file" | "frame" | "generated" | "handoff" | "history" | "marker" | "notes" | "recalled" | "record" | "result" | "summary" | "system" | "tool";
  name: string;
  tokens: number;
  raw: number | null;
}

/** A prompt that was answered: what it was made of when it was sent. */
export interface PromptRun {
  seq: number;
  ts: number;
  model: string;
  window: number;
  room: number;
  reserve: number;
  tokens: number;
  pieces: Array<PromptPiece>;
  previous: number | null;
}

/** A prompt, as it would be sent. */
export interface PromptView {
  wire: string;
  tokens: number;
  room: number;
  fits: boolean;
  system: Array<Record<string, unknown>>;
  messages: Array<Record<string, unknown>>;
  costs: Array<number>;
}

/** A memory that might be approved. */
export interface Proposal {
  id: string;
  action: "edit" | "keep" | "merge" | "retire";
  text: string;
  digest: string;
  memory: Memory;
  by: "agent" | "model" | "person" | "rule";
  why: string;
  flags: Array<MemoryFlag>;
  pointer: string;
  ts: number;
}

/** Proposals by id. `text` is exactly what would be remembered; an approval names its `digest`. */
export interface ProposalPage {
  agent: string;
  proposals: Array<Proposal>;
  next: string | null;
}

/** A message that recall found, and why. */
export interface RecallHit {
  pointer: string;
  session: string;
  seq: number;
  role: string;
  ts: number;
  text: string;
  cut: boolean;
  score: number;
  chance: number;
  parts: Record<string, number>;
  marks: Array<string>;
  in_prompt: boolean;
  superseded_by: number | null;
  supersedes: Array<number>;
  note: string;
  context: Array<number>;
  reasons: Array<string>;
  verdict: "helpful" | "not_helpful" | "withdrawn" | null;
  agent: string;
  project: string;
}

/** What recall found, the likeliest first. */
export interface RecallResult {
  query: string;
  scope: "agent" | "session" | "tenant";
  searched: number;
  behind: number;
  without_vectors: number;
  notes: Array<string>;
  hits: Array<RecallHit>;
}

/** An evicted message quoted in the last prompt. */
export interface RecalledMessage {
  pointer: string;
  score: number;
  chance: number;
  parts: Record<string, number>;
  superseded_by: number | null;
}

/** One quotation of a recalled block. */
export interface RecalledQuote {
  pointer: string;
  seq: number | null;
  heading: string;
  text: string;
  question: number;
  reasons: Array<string>;
  verdict: "helpful" | "not_helpful" | "withdrawn" | null;
}

/** What one policy of the next relief would take first, if it began now. */
export interface ReliefCandidates {
  policy: string;
  action: "clear" | "evict" | "shorten";
  ranges: Array<Array<number>>;
  messages: number;
  frees: number;
}

/** Breakdown of the next prompt of a session, and of the last one that was sent. */
export interface Report {
  session: string;
  model: string;
  window: number;
  room: number;
  tokens: number;
  messages: number;
  reading: PressureReading;
  components: Array<ComponentUsage>;
  largest: Array<TokenHolder>;
  protected_tokens: number;
  left_messages: number;
  left_tokens: number;
  left_first: number;
  left_last: number;
  tools_left_out: number;
  tools_left_out_tokens: number;
  recalled: Array<RecalledMessage>;
  recalled_tokens: number;
  decisions: Array<DecisionSummary>;
  compressions: Array<Compression>;
  judged: number | null;
  marker_tokens: number;
  summary_tokens: number;
  notes: number;
  omitted: Array<string>;
  cache: CacheEstimate | null;
  candidates: Array<ReliefCandidates>;
  run: PromptRun | null;
}

/** A checkpoint that was stored. */
export interface SavedCheckpoint {
  session: string;
  version: number;
  seq: number;
  id: string;
  pointer: string;
}

/** A network service. */
export interface Service {
  address: string;
  alive: boolean;
}

/** One session of a list. */
export interface SessionListItem {
  session: string;
  title: string;
  kind: "conversation" | "memory";
  entries: number;
  first_ts: number;
  last_ts: number;
  last: string;
  agent: string;
  project: string;
}

/** One session, in short. */
export interface SessionOverview {
  session: string;
  title: string;
  kind: "conversation" | "memory";
  entries: number;
  first_ts: number;
  last_ts: number;
  hash: string;
  model: string;
  requested_model: string;
  upstream: string;
  reading: PressureReading;
  messages: number;
  left_messages: number;
  left_tokens: number;
  pins: number;
  notes: number;
  checkpoints: number;
  windows: number;
}

/** Sessions by name. */
export interface SessionPage {
  own: string;
  sessions: Array<SessionListItem>;
  next: string | null;
}

/** One setting of the gateway, and where its value comes from. */
export interface SettingItem {
  key: string;
  value: string;
  origin: "argument" | "default" | "environment" | "file";
  where: string;
}

/** The settings of the gateway; empty for the key of a tenant. */
export interface SettingList {
  settings: Array<SettingItem>;
}

/** The event that a change was stored as. */
export interface StoredEvent {
  done: string;
  session: string;
  seq: number;
  id: string;
  kind: string;
  pointer: string;
}

/** A part of the work and its status. */
export interface Subtask {
  text: string;
  status: "done" | "in_progress" | "planned";
  seq: number;
}

/** A decision. */
export interface TaskDecision {
  decision: string;
  rationale: string;
  alternatives: Array<string>;
  seq: number;
  by: "agent" | "assistant" | "system" | "tool" | "user";
}

/** The turns of a range of entries, oldest first. */
export interface Timeline {
  room: number;
  yellow: number;
  orange: number;
  red: number;
  utilization: number;
  zone: "green" | "orange" | "red" | "yellow";
  points: Array<TurnPoint>;
  next: number | null;
}

/** Something that uses tokens of the prompt. */
export interface TokenHolder {
  what: string;
  seq: number | null;
  role: string;
  tools: Array<string>;
  tokens: number;
  share: number;
  condition: string;
}

/** How one metric moves over the turns examined. */
export interface Trend {
  name: string;
  values: Array<number | null>;
  now: number | null;
  delta: number | null;
  direction: "falling" | "rising" | "steady";
  worse: boolean;
}

/** The metrics of one turn. */
export interface TurnHealth {
  turn: number;
  seq: number;
  ts: number;
  model: string;
  tokens: number;
  room: number;
  utilization: number;
  evicted: number;
  freed: number;
  burn: number;
  burn_usual: number | null;
  ratio: number | null;
  fidelity: number | null;
  bloat: number;
  loop: number;
  prefix: number;
  recall_hits: number;
  recall_misses: number;
  regret: number;
  index_lag: number;
  protected: number;
  estimate_error: number | null;
  cache_read: number;
  cache_write: number;
}

/** One turn. */
export interface TurnPoint {
  turn: number;
  first: number;
  last: number;
  ts: number;
  tokens: number;
  recalled: number;
  peak: number;
  utilization: number;
  zone: "green" | "orange" | "red" | "yellow";
  messages: number;
  left: number;
  decisions: Array<DecisionMark>;
}

/** The window after one entry. */
export interface WindowView {
  at: number;
  last: number;
  turn: number;
  tokens: number;
  counted: number;
  room: number;
  utilization: number;
  zone: "green" | "orange" | "red" | "yellow";
  messages: number;
  evicted: number;
  blocks: Array<PromptBlock>;
  more: number;
  spans: Array<EntrySpan>;
}

/** One call of the agent and how it ended. */
export interface WorkStep {
  pointer: string;
  seq: number;
  ts: number;
  tool: string;
  call: string;
  state: "failed" | "ok" | "refused" | "unanswered";
  exit_code: number | null;
  line: string;
  result: number | null;
  why: string;
}
