// Follows the pages of a list until there is enough to show: a page with a filter may hold nothing and still have a
// next. What the rows are is not known here.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Refused } from "./api";
import { asRefused, useOn } from "./on";

export interface Page<Row, At> {
  rows: Row[];
  /** What the next page begins with; null at the end. */
  next: At | null;
}

export interface Walk<Row, At> {
  /** One page, from a place on; `most` is how many rows are wanted at most. */
  ask: (from: At | null, most: number, signal: AbortSignal) => Promise<Page<Row, At>>;
  most: number;
  /** Where a page begins that goes on with a row that was one too many, given the one before it. */
  at: (row: Row, before: Row) => At;
}

/** Asks page after page until there are enough rows, nothing follows, or the caller stops. */
export async function walk<Row, At>(
  given: Walk<Row, At>,
  from: At | null,
  signal: AbortSignal,
  stop: AbortSignal,
  report: (page: Page<Row, At>) => void = () => {},
): Promise<Page<Row, At>> {
  const rows: Row[] = [];
  for (let next = from; ;) {
    const page = await given.ask(next, given.most - rows.length, AbortSignal.any([signal, stop])).catch((error) => {
      if (signal.aborted || !stop.aborted) throw error;
      return { rows: [], next }; // the caller stopped: it can continue from here
    });
    rows.push(...page.rows);
    const over = rows[given.most];
    if (over !== undefined) return { rows: rows.slice(0, given.most), next: given.at(over, rows[given.most - 1]!) };
    if (page.next === null || rows.length === given.most || stop.aborted) return { rows, next: page.next };
    next = page.next;
    report({ rows, next });
  }
}

export interface Walking<Row, At> extends Page<Row, At> {
  busy: boolean;
  /** While it goes on: where it is by now. */
  reached: At | null;
  refused: Refused | undefined;
  /** How many pages lie before this one. */
  before: number;
  forward: (() => void) | undefined;
  back: (() => void) | undefined;
  cancel: () => void;
}

interface Held<Row, At> extends Page<Row, At> {
  key: string;
  /** What the page that is held begins with. */
  from: At | null;
  busy: boolean;
  reached: At | null;
  refused?: Refused;
}

/** A list a page at a time, forward and back. It starts again where its key changes, and looks again at every moment
 * of the session, unless that would be much to ask. */
export function useWalk<Row, At>(key: string, given: Walk<Row, At>, again = true): Walking<Row, At> {
  const moment = useOn().moment * Number(again);
  const nothing: Held<Row, At> = { key, from: null, rows: [], next: null, busy: true, reached: null };
  const [held, set] = useState(nothing);
  const [gone, go] = useState<{ key: string; to: At[] }>({ key, to: [] });
  const to = gone.key === key ? gone.to : [];
  const from = to.at(-1) ?? null;
  const stop = useRef<AbortController>(undefined);
  useEffect(() => {
    const left = new AbortController();
    const own = (stop.current = new AbortController());
    set((before) => (before.key === key ? { ...before, busy: true, reached: null } : nothing));
    const restarts = held.key !== key || held.from !== from || !held.rows.length;
    const report = ({ rows, next }: Page<Row, At>) =>
      set((before) => ({ ...before, reached: next, ...(restarts ? { rows: [...rows], from } : {}) }));
    walk(given, from, left.signal, own.signal, report)
      .then((page) => !left.signal.aborted && set({ key, from, ...page, busy: false, reached: null }))
      .catch((error: unknown) => {
        if (!left.signal.aborted) set((before) => ({ ...before, busy: false, refused: asRefused(error) }));
      });
    return () => left.abort();
  }, [key, from, moment]);
  const shown = held.key === key ? held : nothing;
  const { next } = shown;
  return {
    ...shown,
    refused: shown.refused,
    before: to.length,
    forward: next === null || shown.busy ? undefined : () => go({ key, to: [...to, next] }),
    back: to.length ? () => go({ key, to: to.slice(0, -1) }) : undefined,
    cancel: () => stop.current?.abort(),
  };
}
