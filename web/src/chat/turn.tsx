// One line of a conversation: a message with its place mark, or what Recto did at that point.
import { useState } from "preact/hooks";
import type { DecisionSummary, EntryView, FullEntry, RecalledMessage } from "../answers";
import { many, percent, safe, when, whole, words } from "../format";
import { useOn } from "../on";
import { PinButton } from "../pin";
import { Restore } from "../restore";
import { Badge, PlaceBadge } from "../widgets";
import { CUT } from "./conversation";

export interface TurnProps {
  entry: EntryView;
  /** Whether it came after the last question. */
  latest: boolean;
  decisions: readonly DecisionSummary[];
  /** What came back for the last question, and what that takes. */
  recalled: { hits: readonly RecalledMessage[]; tokens: number };
}

const WHO: Record<string, string> = { user: "You", assistant: "Assistant", system: "System", tool: "Tool result" };
const FEW = 600;

export function Turn({ entry, latest, decisions, recalled }: TurnProps) {
  if (entry.place === "event") {
    const decision = decisions.find((one) => one.seq === entry.seq);
    if (decision) return <Marker decision={decision} />;
    if (entry.kind === "recall_injected") return <Recalled entry={entry} recalled={latest ? recalled : undefined} />;
    if (entry.kind === CUT) return <Cut entry={entry} />;
    return entry.kind === "restored" ? <Undone /> : null;
  }
  return <Message entry={entry} />;
}

const Undone = () => <p class="marker quiet">A decision was undone; the evicted messages are in the prompt again.</p>;

function Message({ entry }: { entry: EntryView }) {
  const on = useOn();
  const who = WHO[entry.role] ?? entry.role;
  const folded = entry.role === "tool" || entry.role === "system" || entry.text.length > 4 * FEW;
  const text = (
    <div class={entry.role === "tool" ? "bubble said code" : "bubble said"} dir="auto">
      {safe(entry.text)}
      {entry.cut && "…"}
    </div>
  );
  const kind = `turn by-${entry.role} is-${entry.place}${folded ? " folded" : ""}`;
  return (
    <article class={kind} aria-label={`${who}, entry ${entry.seq}`}>
      {folded ? (
        <details>
          <summary>{who}</summary>
          {text}
        </details>
      ) : (
        text
      )}
      <div class="turn-foot">
        <PlaceBadge place={entry.place} />
        {entry.pinned && <Badge kind="pinned">pinned</Badge>}
        <a href={on.link("transcript", { seq: entry.seq })} aria-label={`Entry ${entry.seq} in the transcript`}>
          {entry.seq}
        </a>
        <span class="muted">
          {whole(entry.tokens)} tokens · {when(entry.ts)}
        </span>
        <PinButton seq={entry.seq} pinned={entry.pinned} />
      </div>
    </article>
  );
}

/** An answer that was broken off: what came of it is kept, and is no part of the prompt. */
function Cut({ entry }: { entry: EntryView }) {
  const stored = parsed<{ why: string; messages: { content?: unknown }[] }>(entry.text);
  const texts = stored?.messages?.map((one) => one.content).filter((text) => typeof text === "string") ?? [];
  return (
    <article class="turn by-assistant is-out" aria-label={`Answer that was broken off, entry ${entry.seq}`}>
      <div class="bubble said" dir="auto">
        {safe(texts.join("\n") || "…")}
      </div>
      <p class="turn-foot muted">Broken off: {safe(stored?.why ?? "not known why")}. Kept, and not in the prompt.</p>
    </article>
  );
}

/** Where a decision happened. */
function Marker({ decision }: { decision: DecisionSummary }) {
  const { messages, frees, undone, seq, kind, reason } = decision;
  return (
    <div class={undone ? "marker undone" : "marker"} role="note" aria-label={`Decision ${seq}`}>
      <p>
        <strong>
          {many(messages, "message")} left the prompt, {whole(frees)} tokens
        </strong>{" "}
        <span class="muted">
          {words(kind)}: {safe(reason)}
        </span>
      </p>
      <Restore seq={seq} undone={undone} />
    </div>
  );
}

/** What was quoted for the answer that follows. */
function Recalled({ entry, recalled }: { entry: EntryView; recalled: TurnProps["recalled"] | undefined }) {
  const on = useOn();
  const stored = read(entry.text) ?? (recalled?.hits.length ? recalled : undefined);
  const counted = stored && `${many(stored.hits.length, "message")} recalled, ${whole(stored.tokens)} tokens`;
  const [hits, setHits] = useState<readonly RecalledMessage[]>(stored?.hits ?? []);
  const opened = async (event: Event) => {
    if (!(event.currentTarget as HTMLDetailsElement).open || hits.length) return;
    const whole = await on.api.get<FullEntry>("/session/entry", { session: on.session, seq: entry.seq });
    setHits(read(whole.content)?.hits ?? []);
  };
  return (
    <details class="marker recalled" onToggle={opened}>
      <summary>
        <span aria-hidden="true">↺ </span>
        {counted ?? "Recalled for the answer"}
      </summary>
      <ul>
        {hits.map((hit) => (
          <li key={hit.pointer}>
            <Pointer pointer={hit.pointer} /> <span class="muted">chance {percent(hit.chance)}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** `recto://<session>/<number>` as a way to it. */
function Pointer({ pointer }: { pointer: string }) {
  const on = useOn();
  const found = /^recto:\/\/(.+)\/(\d+)$/s.exec(pointer);
  if (!found) return <code>{safe(pointer)}</code>;
  return <a href={on.link("transcript", { session: decoded(found[1] ?? ""), seq: found[2] })}>{safe(pointer)}</a>;
}

/** The session of a pointer: characters that could forge anything are percent-encoded there. */
function decoded(session: string): string {
  try {
    return decodeURIComponent(session);
  } catch {
    return session;
  }
}

const read = (text: string) => {
  const stored = parsed<{ tokens: number; hits: RecalledMessage[] }>(text);
  return stored && Array.isArray(stored.hits) ? stored : undefined;
};

/** What an event says; nothing where its text is cut short. */
function parsed<T>(text: string): T | undefined {
  try {
    return JSON.parse(text) as T;
  } catch {
    return undefined;
  }
}
