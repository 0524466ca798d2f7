// What the inspection API answers. Made of its description by tools/make_web_types.py; do not edit.

/** Something that should be looked at: raised when it begins, and ended when it is over. */
export interface Alert {
  name: "utilization" | "evictions" | "fidelity" | "ratio" | "bloat" | "burn";
  grade: "critical" | "degradation" | "anomaly";
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
export interface Approved {
  memory: string;
  proposal: string;
  digest: string;
  by: string;
}

/** Who asks, and what of. */
export interface Asker {
  name: string;
  id: string;
  rights: Array<"ask" | "read" | "change">;
  tenant: string;
  agent: string;
  main: string;
  model: string;
  version: string;
}

/** Something that was done, as its entry in the transcript tells it. */
export interface AuditLine {
  session: string;
  seq: number;
  id: string;
  ts: number;
  kind: string;
  topic: "decision" | "undo" | "pin" | "memory" | "continuity" | "recall" | "pressure" | "failure" | "session" | "note" | "bookkeeping" | "other";
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

/** How much of the prompt a provider has seen before, unchanged from its beginning. */
export interface CacheEstimate {
  prefix: number;
  share: number;
  picodollars: number;
}

/** A message that had left and was quoted in the last prompt. */
export interface CameBack {
  pointer: string;
  score: number;
  chance: number;
  parts: Record<string, number>;
  superseded_by: number | null;
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
  decisions: Array<Decision>;
  open_issues: Array<Issue>;
  promises: Array<Item>;
  questions: Array<Item>;
  learnings: Array<Item>;
  environment: Environment;
  files: Array<string>;
  notes: Array<Note>;
  summary: string;
  given: Given;
}

/** One checkpoint of a list. */
export interface CheckpointLine {
  version: number;
  seq: number;
  ts: number;
  reason: string;
  goal: string;
}

/** Checkpoints, newest first. */
export interface CheckpointPage {
  checkpoints: Array<CheckpointLine>;
  next: number | null;
}

/** A checkpoint that was written. */
export interface CheckpointSaved {
  version: number;
  seq: number;
  id: string;
}

/** What a compaction did; nothing where there was too little to be worth it. */
export interface Compacted {
  decisions: Array<Decided>;
  compressions: Array<Compression>;
  tokens: number;
}

/** Two prompts of one session, as they stood after two entries, in the order in which a prompt holds its lines. */
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

/** How content became shorter, as it is told. */
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

/** A decision, as it is told. */
export interface Decided {
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

/** What was decided. */
export interface Decision {
  decision: string;
  rationale: string;
  alternatives: Array<string>;
  seq: number;
  by: "system" | "user" | "assistant" | "tool" | "agent";
}

/** A decision, or the undoing of one, where it happened. */
export interface DecisionMark {
  seq: number;
  kind: string;
  policy: string;
  frees: number;
}

/** Decisions, newest first. */
export interface DecisionPage {
  decisions: Array<Decided>;
  next: number | null;
}

/** Entries in the order that was asked for. */
export interface EntryPage {
  entries: Array<Shown>;
  next: number | null;
}

/** Where the work is done, as it was found. */
export interface Environment {
  directory: string;
  branch: string;
  head: string;
  dirty: Array<string>;
  paths: Array<FileState>;
  missing: Array<string>;
  services: Array<Service>;
}

/** A file as it was. */
export interface FileState {
  path: string;
  size: number;
  modified: number;
  digest: string;
}

/** That one memory repeats or contradicts another. */
export interface Flag {
  kind: "duplicate" | "conflict";
  id: string;
  score: number;
}

/** How long it goes on like this. */
export interface Forecast {
  pace: number;
  until_red: number | null;
  until_full: number | null;
}

/** What was set by hand, or taken over from a checkpoint of another transcript. It stays until it is set again. */
export interface Given {
  goal: string;
  success_criteria: Array<Item>;
  constraints: Array<Item>;
  subtasks: Array<Subtask>;
  issues: Array<Issue>;
  solved: Array<Item>;
  decisions: Array<Decision>;
  learnings: Array<Item>;
  services: Array<string>;
}

/** How a session is, and where it is heading. */
export interface HealthReport {
  session: string;
  turns: Array<TurnHealth>;
  trends: Array<Trend>;
  forecast: Forecast | null;
  alerts: Array<Alert>;
  sinks_failed: number;
}

/** A message that recall found, and why. */
export interface HitLine {
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
}

/** Something that holds tokens of the prompt. */
export interface Holder {
  what: string;
  seq: number | null;
  role: string;
  tools: Array<string>;
  tokens: number;
  share: number;
  condition: string;
}

/** Something that is broken and not mended. */
export interface Issue {
  error: string;
  reproduction: string;
  seq: number;
  by: "system" | "user" | "assistant" | "tool" | "agent";
}

/** Something that was said, verbatim. */
export interface Item {
  text: string;
  seq: number;
  by: "system" | "user" | "assistant" | "tool" | "agent";
}

/** Something remembered, as its file says it. */
export interface Memory {
  id: string;
  kind: "decision" | "lesson" | "correction" | "preference" | "fact" | "procedure";
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

/** Something that is remembered. */
export interface MemoryLine {
  memory: Memory;
  strength: number;
  approved_by: string;
  how: string;
  approved: number;
  edited: boolean;
  retired: string;
}

/** What is remembered, by id. */
export interface MemoryPage {
  agent: string;
  memories: Array<MemoryLine>;
  next: string | null;
}

/** One thing written down. */
export interface Note {
  seq: number;
  kind: "task_progress" | "decisions" | "bugs" | "constraints" | "learnings" | "misc";
  text: string;
  critical: boolean;
}

/** What was written down, oldest first. */
export interface Notes {
  notes: Array<Note>;
}

/** What is kept in the prompt by hand. */
export interface Pins {
  pins: Array<Shown>;
  more: boolean;
}

/** Why a request was refused, and what to do. */
export interface Problem {
  code: string;
  message: string;
}

/** One thing that stands in one of two prompts, or in both. */
export interface PromptLine {
  seq: number | null;
  what: "frame" | "standing" | "system" | "entry" | "marker" | "summary" | "recalled" | "handoff";
  role: string;
  text: string;
  cut: boolean;
  first_tokens: number | null;
  second_tokens: number | null;
  side: "both" | "first" | "second" | "changed";
}

/** A prompt, as it would be sent. */
export interface PromptNow {
  wire: string;
  tokens: number;
  room: number;
  fits: boolean;
  system: Array<Record<string, unknown>>;
  messages: Array<Record<string, unknown>>;
  costs: Array<number>;
}

/** Something that might be remembered. */
export interface Proposal {
  id: string;
  action: "keep" | "merge" | "edit" | "retire";
  text: string;
  digest: string;
  memory: Memory;
  by: "rule" | "model" | "agent" | "person";
  why: string;
  flags: Array<Flag>;
  pointer: string;
  ts: number;
}

/** What waits for a decision, by id. `text` is exactly what would be remembered, `digest` what an approval names. */
export interface ProposalPage {
  agent: string;
  proposals: Array<Proposal>;
  next: string | null;
}

/** What was measured at one moment. */
export interface Reading {
  tokens: number;
  room: number;
  utilization: number;
  zone: "green" | "yellow" | "orange" | "red";
  velocity: number;
  turns_until_red: number | null;
  spike: boolean;
  baseline: number | null;
  gain: number;
  turn: number;
}

/** What recall answers. */
export interface Recalled {
  query: string;
  scope: "session" | "agent" | "tenant";
  searched: number;
  behind: number;
  without_vectors: number;
  notes: Array<string>;
  hits: Array<HitLine>;
}

/** The answer to a request that was refused. */
export interface Refused {
  error: Problem;
}

/** One prompt, taken apart. */
export interface Report {
  session: string;
  model: string;
  window: number;
  room: number;
  tokens: number;
  messages: number;
  reading: Reading;
  components: Array<Usage>;
  largest: Array<Holder>;
  protected_tokens: number;
  left_messages: number;
  left_tokens: number;
  left_first: number;
  left_last: number;
  recalled: Array<CameBack>;
  recalled_tokens: number;
  decisions: Array<Decided>;
  compressions: Array<Compression>;
  judged: number | null;
  marker_tokens: number;
  summary_tokens: number;
  notes: number;
  omitted: Array<string>;
  cache: CacheEstimate | null;
}

/** Something that listens. */
export interface Service {
  address: string;
  alive: boolean;
}

/** One session of a list. */
export interface SessionLine {
  session: string;
  kind: "conversation" | "memory";
  entries: number;
  first_ts: number;
  last_ts: number;
}

/** One session, in short. */
export interface SessionNow {
  session: string;
  kind: "conversation" | "memory";
  entries: number;
  first_ts: number;
  last_ts: number;
  hash: string;
  model: string;
  reading: Reading;
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
  sessions: Array<SessionLine>;
  next: string | null;
}

/** An entry on a page. */
export interface Shown {
  seq: number;
  id: string;
  ts: number;
  role: string;
  kind: string;
  surface: string;
  tokens: number;
  text: string;
  cut: boolean;
  place: "in" | "trimmed" | "out" | "recalled" | "event";
  pinned: boolean;
}

/** The event that a change was stored as. */
export interface Stored {
  seq: number;
  id: string;
  kind: string;
}

/** A part of the work, and how far it is. */
export interface Subtask {
  text: string;
  status: "planned" | "in_progress" | "done";
  seq: number;
}

/** The turns of a range of entries, oldest first. */
export interface Timeline {
  room: number;
  yellow: number;
  orange: number;
  red: number;
  points: Array<TurnPoint>;
  next: number | null;
}

/** How one measure moves over the turns looked at. */
export interface Trend {
  name: string;
  values: Array<number | null>;
  now: number | null;
  delta: number | null;
  direction: "rising" | "falling" | "steady";
  worse: boolean;
}

/** The measures of one turn. */
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
  zone: "green" | "yellow" | "orange" | "red";
  messages: number;
  left: number;
  decisions: Array<DecisionMark>;
}

/** How one component stands. */
export interface Usage {
  component: "system" | "tools" | "history" | "results" | "memory" | "reserve";
  used: number;
  soft: number;
  hard: number;
  level: "ok" | "warning" | "violation";
  burn: number;
  turns_left: number | null;
}

/** An entry, all of it. */
export interface WholeEntry {
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
