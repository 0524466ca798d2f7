// A stretch of the transcript: so many entries in a row, which grows at one end and is let go at the other, so that a
// session of any length is held in the same room.
import { useEffect, useRef, useState } from "preact/hooks";
import type { EntryPage, EntryView } from "../answers";
import type { Api, Refused } from "../api";
import { asRefused, useOn } from "../on";
import { type Page, type Walk, walk } from "../walking";

export type Order = "asc" | "desc";

/** What is looked for. */
export interface Looked {
  order: Order;
  q: string;
  /** A place, `message` for all but events, or empty for everything. */
  place: string;
  /** The entry to show, with what is around it. */
  seq: number | null;
}

const PAGE = 40;
const MOST = 120;
const AROUND = 6;
const ASKED = 200;

interface Held {
  entries: EntryView[];
  /** Where the next page above begins, and the next below; null where nothing more is. */
  up: number | null;
  down: number | null;
}

/** An entry, and where on the screen it is. */
type Still = { seq: number; top: number } | undefined;

export interface Stretch extends Held {
  busy: boolean;
  refused: Refused | undefined;
  /** While it looks through many entries: the one it is at, and how many it has found. */
  looking: number | null;
  count: number;
  /** Whether the caller stopped before anything was found. */
  stopped: boolean;
  moreUp: () => void;
  moreDown: () => void;
  cancel: () => void;
  /** The list as it is drawn; and what must not move when entries come or go, with where it was. */
  list: { current: HTMLElement | null };
  anchor: { current: Still };
}

const other = (order: Order): Order => (order === "asc" ? "desc" : "asc");

/** How a transcript is walked through in one order, as far as it fits what is looked for. */
function walking(api: Api, session: string, { q, place }: Looked, order: Order, most: number): Walk<EntryView, number> {
  const fits = (entry: EntryView) => !place || entry.place === place || (place === "message" && entry.place !== "event");
  return {
    most,
    at: (row) => row.seq,
    ask: async (from, wanted, signal) => {
      const limit = place ? ASKED : Math.min(wanted, ASKED);
      const page = await api.get<EntryPage>("/session/transcript", { session, from, order, q, limit }, signal);
      return { rows: page.entries.filter(fits), next: page.next };
    },
  };
}

/** Where to begin, so that an entry is in the middle of others. */
const begin = ({ seq, order }: Looked): number | null =>
  seq === null ? null : order === "desc" ? seq + AROUND : Math.max(seq - AROUND, 1);

function above(from: number | null, order: Order, entries: EntryView[], last: number): number | null {
  const first = entries[0]?.seq ?? from;
  if (from === null || first === null) return null;
  if (order === "desc") return first < last ? first + 1 : null;
  return first > 1 ? first - 1 : null;
}

/** More at the bottom; what is too much leaves at the top, and could be asked for again. */
function below(held: Held, page: Page<EntryView, number>): Held {
  const all = [...held.entries, ...page.rows];
  const over = Math.max(all.length - MOST, 0);
  return { entries: all.slice(over), up: over ? all[over - 1]!.seq : held.up, down: page.next };
}

/** More at the top; what is too much leaves at the bottom. */
function atop(held: Held, page: Page<EntryView, number>): Held {
  const all = [...page.rows.reverse(), ...held.entries];
  return { entries: all.slice(0, MOST), up: page.next, down: all[MOST]?.seq ?? held.down };
}

const NOTHING: Held = { entries: [], up: null, down: null };
type Going = Pick<Stretch, "busy" | "refused" | "looking" | "count" | "stopped">;
const QUIET: Going = { busy: false, refused: undefined, looking: null, count: 0, stopped: false };

/** One walk at a time: the last one that was begun counts, and whoever waits for it can have enough. */
function useGoing() {
  const [going, set] = useState<Going>({ ...QUIET, busy: true });
  const stop = useRef<AbortController>(undefined);
  const gone = useRef<AbortController>(undefined);
  const go = (
    way: Walk<EntryView, number>,
    from: number | null,
    done: (page: Page<EntryView, number>) => void,
    meanwhile: (rows: EntryView[]) => void = () => {},
  ) => {
    gone.current?.abort();
    const left = (gone.current = new AbortController());
    const own = (stop.current = new AbortController());
    set({ ...QUIET, busy: true });
    walk(way, from, left.signal, own.signal, ({ rows, next }) => {
      if (left.signal.aborted) return;
      set((before) => ({ ...before, looking: next, count: rows.length }));
      meanwhile(rows);
    })
      .then((page) => {
        if (left.signal.aborted) return;
        done(page);
        set({ ...QUIET, stopped: own.signal.aborted });
      })
      .catch((error: unknown) => !left.signal.aborted && set({ ...QUIET, refused: asRefused(error) }));
  };
  const leave = () => gone.current?.abort();
  return { going, go, leave, cancel: () => stop.current?.abort() };
}

export function useStretch(looked: Looked): Stretch {
  const { api, session, moment, now } = useOn();
  const { going, go, leave, cancel } = useGoing();
  const [held, hold] = useState(NOTHING);
  const list = useRef<HTMLElement | null>(null);
  const anchor = useRef<Still>(undefined);
  const key = JSON.stringify([session, looked]);
  const asked = useRef({ moment, found: false });
  const { order } = looked;
  const way = (to: Order, most: number) => walking(api, session, looked, to, most);

  const whole = (from: number | null, most: number, still: boolean) => {
    const done = ({ rows, next }: Page<EntryView, number>) => {
      if (still) anchor.current = standing(list.current);
      asked.current.found = true;
      hold({ entries: rows, up: above(from, order, rows, now?.entries ?? Infinity), down: next });
    };
    // What is found is shown at once, unless it would stand in the place of more.
    const meanwhile = (rows: EntryView[]) => !asked.current.found && hold({ ...NOTHING, entries: [...rows] });
    go(way(order, most), from, done, meanwhile);
  };
  const more = (to: Order, from: number | null, joined: (held: Held, page: Page<EntryView, number>) => Held) =>
    go(way(to, PAGE), from, (page) => {
      anchor.current = standing(list.current);
      hold(joined(held, page));
    });

  useEffect(() => {
    hold(NOTHING);
    asked.current = { moment, found: false };
    whole(begin(looked), PAGE, false);
    return leave;
  }, [key]);
  useEffect(() => {
    // Something has changed meanwhile. Who is still looking, or had enough of it, is not made to begin again.
    if (going.busy || going.stopped || asked.current.moment === moment) return;
    asked.current.moment = moment;
    const from = !asked.current.found ? begin(looked) : held.up === null ? null : (held.entries[0]?.seq ?? null);
    const most = Math.min(Math.max(held.entries.length, PAGE), MOST);
    whole(from, most, !atTop(list.current)); // at the top, what is new is to be seen
  }, [moment, going.busy]);

  return {
    ...held,
    ...going,
    cancel,
    list,
    anchor,
    moreDown: () => more(order, held.down, below),
    moreUp: () => more(other(order), held.up, atop),
  };
}

const atTop = (list: HTMLElement | null): boolean => (list?.closest(".view")?.scrollTop ?? 0) < 40;

/** The first entry that is in sight, and where. */
function standing(list: HTMLElement | null): Still {
  const frame = list?.closest(".view")?.getBoundingClientRect().top ?? 0;
  for (const row of list?.querySelectorAll<HTMLElement>("[data-seq]") ?? []) {
    const { top, bottom } = row.getBoundingClientRect();
    if (bottom > frame) return { seq: Number(row.dataset.seq), top };
  }
  return undefined;
}
