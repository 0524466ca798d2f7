// One entry, all of it: what it says, the exact content, and what it is hashed with.
import { useEffect, useState } from "preact/hooks";
import type { FullEntry } from "../answers";
import { safe, when, whole, words } from "../format";
import { useAsked, useOn } from "../on";
import { Badge, Button, Dialog, Facts, Refusal, Said, Tabs, Waiting } from "../widgets";

const LONG = 20_000;

/** A text of any length: the beginning at once, all of it when asked for. */
export function Long({ text, plain }: { text: string; plain?: boolean }) {
  const [all, set] = useState(false);
  useEffect(() => set(false), [text]);
  if (!text) return <p class="muted">Empty.</p>;
  const shown = all ? text : text.slice(0, LONG);
  return (
    <>
      <Said text={shown} plain={plain ?? false} />
      {shown.length < text.length && (
        <p>
          <Button onClick={() => set(true)}>Show all {whole(text.length)} characters</Button>
        </p>
      )}
    </>
  );
}

const PARTS = [
  ["text", "Text"],
  ["content", "Exact content"],
  ["meta", "Meta and hashes"],
] as const;

export function EntryDialog(props: { seq: number; last: number; onMove: (seq: number) => void; onClose: () => void }) {
  const { seq, last, onMove, onClose } = props;
  const on = useOn();
  const [part, show] = useState<string>("text");
  const { found, refused } = useAsked<FullEntry>("/session/entry", { session: on.session, seq });
  const entry = found?.seq === seq ? found : undefined;
  const actions = (
    <>
      <Button disabled={seq <= 1} onClick={() => onMove(seq - 1)}>
        Entry before
      </Button>
      <Button disabled={seq >= last} onClick={() => onMove(seq + 1)}>
        Entry after
      </Button>
    </>
  );
  return (
    <Dialog title={`Entry ${whole(seq)}`} wide onClose={onClose} actions={actions}>
      <Refusal refused={refused} />
      {!refused && !entry && <Waiting kind="tall" />}
      {entry && (
        <div class="stack">
          <Facts facts={factsOf(entry)} />
          <Tabs label="Parts of the entry" value={part} options={PARTS} onChange={show} />
          <div class="entry-part" tabIndex={0} role="region" aria-label={PARTS.find(([name]) => name === part)?.[1]}>
            {part === "text" && <Long text={entry.text} plain />}
            {part === "content" && <Long text={entry.content} />}
            {part === "meta" && <Chained entry={entry} />}
          </div>
        </div>
      )}
    </Dialog>
  );
}

const factsOf = (entry: FullEntry) =>
  [
    ["Role", safe(entry.role)],
    ["Kind", words(safe(entry.kind))],
    ["Tokens", `${whole(entry.tokens)} (${safe(entry.counter) || "not counted"})`],
    ["Stored", when(entry.ts)],
    ["Surface", safe(entry.surface)],
    ["Format", safe(entry.wire) || "none"],
  ] as const;

function Chained({ entry }: { entry: FullEntry }) {
  return (
    <dl class="chained">
      {[
        ["Id", entry.id],
        ["Hash", entry.hash],
        ["Hash of the entry before", entry.prev],
      ].map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd class="code">{safe(value ?? "")}</dd>
        </div>
      ))}
      <div>
        <dt>Meta</dt>
        <dd>
          <Long text={entry.meta} />
        </dd>
      </div>
    </dl>
  );
}

export function Pinned() {
  return (
    <Badge kind="pinned" sign="◆" says="Pinned by hand: it is never evicted">
      pinned
    </Badge>
  );
}
