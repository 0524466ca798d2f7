// The transcript: every entry, wherever it is now. A stretch of it is held at a time, so that its length is no matter.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { EntryView } from "../answers";
import { PinButton } from "../pin";
import { EntryDialog, Pinned } from "../transcript/entry";
import { line, many, safe, when, whole, words } from "../format";
import { useOn } from "../on";
import { type Looked, type Stretch, useStretch } from "../transcript/stretch";
import { Button, Choice, Empty, Field, PlaceBadge, Refusal, Said, Waiting } from "../widgets";

const PLACES = [
  ["", "Everything"],
  ["message", "Messages"],
  ["in", "● In the prompt"],
  ["trimmed", "◐ Trimmed"],
  ["out", "○ Evicted"],
  ["recalled", "↺ Recalled"],
  ["event", "· Events"],
] as const;
const ORDERS = [
  ["desc", "Newest first"],
  ["asc", "Oldest first"],
] as const;
const LINES = 700;

export function Transcript() {
  const on = useOn();
  const looked = lookedFor(on.given);
  const held = useStretch(looked);
  const [open, show] = useState<number>();
  const list = useKept(held, looked.seq);
  const go = (more: Partial<Looked>) => {
    const { order, q, place, seq } = { ...looked, seq: null, ...more };
    on.go("transcript", { order: order === "asc" ? order : "", q, place, seq });
  };
  return (
    <div class="stack">
      <Asking looked={looked} go={go} />
      <Found held={held} looked={looked} />
      <Refusal refused={held.refused} />
      <Edge way="up" held={held} looked={looked} />
      <ol ref={list} class="entries" aria-label="Entries" aria-busy={held.busy ? "true" : "false"}>
        {held.entries.map((entry) => (
          <Line key={entry.seq} entry={entry} q={looked.q} current={entry.seq === looked.seq} onOpen={show} />
        ))}
      </ol>
      {held.busy && !held.entries.length && <Waiting kind="tall" />}
      {!held.busy && !held.refused && !held.entries.length && <Nothing held={held} looked={looked} go={go} />}
      <Edge way="down" held={held} looked={looked} />
      {open !== undefined && (
        <EntryDialog seq={open} last={on.now?.entries ?? open} onMove={show} onClose={() => show(undefined)} />
      )}
    </div>
  );
}

function lookedFor(given: URLSearchParams): Looked {
  const place = given.get("place") ?? "";
  const seq = Number(given.get("seq"));
  return {
    order: given.get("order") === "asc" ? "asc" : "desc",
    q: given.get("q") ?? "",
    place: PLACES.some(([name]) => name === place) ? place : "",
    seq: Number.isInteger(seq) && seq > 0 ? seq : null,
  };
}

function Asking({ looked, go }: { looked: Looked; go: (more: Partial<Looked>) => void }) {
  const [q, type] = useState(looked.q);
  const [seq, number] = useState("");
  useEffect(() => type(looked.q), [looked.q]);
  const search = (event: Event) => {
    event.preventDefault();
    go({ q: q.trim() });
  };
  const jump = (event: Event) => {
    event.preventDefault();
    if (/^\d+$/.test(seq)) go({ q: "", place: "", seq: Number(seq) });
  };
  return (
    <div class="asking">
      <form class="form wide" role="search" onSubmit={search}>
        <Field
          type="search"
          label="Search the transcript"
          most={200}
          placeholder="Words of an entry"
          value={q}
          onInput={type}
        />
        <Button submit kind="primary">
          Search
        </Button>
        {looked.q && (
          <Button kind="quiet" label="Clear search" onClick={() => go({ q: "" })}>
            Clear
          </Button>
        )}
      </form>
      <div class="form">
        <Choice label="Show" value={looked.place} options={PLACES} onChange={(place) => go({ place })} />
        <Choice
          label="Order"
          value={looked.order}
          options={ORDERS}
          onChange={(order) => go({ order: order as Looked["order"] })}
        />
      </div>
      <form class="form jump" onSubmit={jump}>
        <Field type="number" label="Go to entry" placeholder="Number" value={seq} onInput={number} />
        <Button submit>Go</Button>
      </form>
    </div>
  );
}

/** How far a search is; it may have to look through all of a long transcript. */
function Found({ held, looked }: { held: Stretch; looked: Looked }) {
  const { now } = useOn();
  if (looked.seq && now && looked.seq > now.entries) {
    return (
      <p class="found muted" role="status">
        There is no entry {whole(looked.seq)}; the newest is {whole(now.entries)}.
      </p>
    );
  }
  if (!looked.q && !looked.place) return null;
  return (
    <p class="found muted" role="status">
      {held.looking !== null ? (
        <>
          Looking: at entry {whole(held.looking)} of {whole(now?.entries ?? 0)}, {many(held.count, "match", "matches")}{" "}
          so far{" "}
          <Button kind="quiet" label="Stop looking" onClick={held.cancel}>
            Stop
          </Button>
        </>
      ) : (
        <>
          {held.stopped && "Stopped. "}
          {held.entries.length > 0 && `${many(held.entries.length, "entry", "entries")} shown`}
        </>
      )}
    </p>
  );
}

function Nothing({ held, looked, go }: { held: Stretch; looked: Looked; go: (more: Partial<Looked>) => void }) {
  if (held.down !== null) return <Empty title="Nothing found so far; there is more to look through." />;
  return (
    <Empty title={looked.q ? "No entry says that." : "No entry is there now."}>
      <Button onClick={() => go({ q: "", place: "" })}>Show everything</Button>
    </Empty>
  );
}

/** One end of what is held: whatever lies beyond is fetched once it is seen, or asked for. */
function Edge({ way, held, looked }: { way: "up" | "down"; held: Stretch; looked: Looked }) {
  const box = useRef<HTMLDivElement>(null);
  const beyond = held[way];
  const more = way === "up" ? held.moreUp : held.moreDown;
  useEffect(() => {
    // Upwards only when asked for: a list that grows at its top while it is being looked at is hard to follow.
    if (way === "up" || beyond === null || held.busy || held.stopped) return undefined;
    const watch = new IntersectionObserver(([seen]) => seen?.isIntersecting && more());
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, [way, beyond, held.busy, held.stopped]);
  if (beyond === null || (!held.entries.length && !held.stopped)) return null;
  const older = (way === "down") === (looked.order === "desc");
  return (
    <div ref={box} class="edge">
      <Button disabled={held.busy} onClick={more}>
        {held.busy ? "Loading …" : older ? "Older entries" : "Newer entries"}
      </Button>
    </div>
  );
}

/** Keeps what is being looked at where it is while entries come and go around it; brings a chosen one into sight. */
function useKept(held: Stretch, seq: number | null) {
  const list = useRef<HTMLOListElement>(null);
  const arrived = useRef<number | null>(null);
  const row = (wanted: number) => list.current?.querySelector<HTMLElement>(`[data-seq="${wanted}"]`);
  useLayoutEffect(() => {
    const still = held.anchor.current;
    held.anchor.current = undefined;
    if (seq !== null && arrived.current !== seq && row(seq)) {
      arrived.current = seq;
      row(seq)!.scrollIntoView({ block: "center" });
      row(seq)!.focus({ preventScroll: true });
    } else if (still) {
      const now = row(still.seq);
      const scroller = list.current?.closest(".view");
      if (now && scroller) scroller.scrollTop += now.getBoundingClientRect().top - still.top;
    }
  }, [held.entries, seq]);
  held.list.current = list.current;
  return list;
}

interface LineProps {
  entry: EntryView;
  q: string;
  current: boolean;
  onOpen: (seq: number) => void;
}

function Line({ entry, q, current, onOpen }: LineProps) {
  const on = useOn();
  const event = entry.place === "event";
  return (
    <li
      class={`entry entry-${entry.place}`}
      data-seq={entry.seq}
      tabIndex={-1}
      aria-current={current ? "true" : undefined}
      aria-label={`Entry ${entry.seq}`}
    >
      <div class="entry-head">
        <a class="entry-seq" href={on.link("transcript", { seq: entry.seq })} aria-label={`Link to entry ${entry.seq}`}>
          {whole(entry.seq)}
        </a>
        <strong>{event ? words(safe(entry.kind)) : safe(entry.role)}</strong>
        <PlaceBadge place={entry.place} />
        {entry.pinned && <Pinned />}
        <span class="muted small entry-about">
          {!event && `${many(entry.tokens, "token")} · `}
          {when(entry.ts)} · {safe(entry.surface)}
        </span>
        <span class="actions entry-actions">
          <Button kind="quiet" label={`Open entry ${entry.seq}`} onClick={() => onOpen(entry.seq)}>
            Open
          </Button>
          {!event && <PinButton seq={entry.seq} pinned={entry.pinned} />}
        </span>
      </div>
      {event && !q ? <p class="muted small entry-event">{summaryOf(entry)}</p> : <Excerpt entry={entry} q={q} />}
    </li>
  );
}

/** What an event tells, in a line: its plain members where it has some. */
function summaryOf(entry: EntryView): string {
  try {
    const about: unknown = JSON.parse(entry.text);
    const plain = Object.entries(about as object).filter(([, value]) =>
      ["string", "number", "boolean"].includes(typeof value),
    );
    const says = plain.filter(([, value]) => value !== "").map(([name, value]) => `${words(name)}: ${value}`);
    if (says.length) return line(says.join(" · "), 240);
  } catch {
    // cut short, or no JSON: as it is
  }
  return line(entry.text, 240);
}

/** The beginning of what it says, or what is around the words that were looked for. */
function Excerpt({ entry, q }: { entry: EntryView; q: string }) {
  if (!entry.text) return <p class="muted small">No text of its own: open it to see the exact content.</p>;
  const at = q ? entry.text.toLowerCase().indexOf(q.toLowerCase()) : -1;
  if (at < 0) {
    const cut = entry.cut || entry.text.length > LINES;
    return <Said plain text={entry.text.slice(0, LINES) + (cut ? " …" : "")} />;
  }
  const from = Math.max(at - 160, 0);
  const [before, found, after] = [
    entry.text.slice(from, at),
    entry.text.slice(at, at + q.length),
    entry.text.slice(at + q.length),
  ];
  return (
    <div class="said" dir="auto">
      {from > 0 && "… "}
      {safe(before)}
      <mark>{safe(found)}</mark>
      {safe(after.slice(0, LINES))}
      {(entry.cut || after.length > LINES) && " …"}
    </div>
  );
}
