// The window after an entry, fetched one at a time: while the scrubber moves, only the newest wish is asked for.
import { useEffect, useRef, useState } from "preact/hooks";
import type { WindowView } from "../answers";
import type { Refused } from "../api";
import { asRefused, useOn } from "../on";

const KEPT = 80;

export interface WindowAt {
  view: WindowView | undefined;
  refused: Refused | undefined;
  loading: boolean;
}

/** `at` is an entry; nothing for what would be sent now. What was fetched of the past is kept until something changes:
 * the prompt of a past moment stays as it is, and what was judged in it may not. */
export function useWindowAt(at: number | undefined): WindowAt {
  const { api, session, moment } = useOn();
  const [shown, set] = useState<WindowAt>({ view: undefined, refused: undefined, loading: true });
  const kept = useRef(new Map<number, WindowView>());
  const keptAt = useRef(moment);
  const wanted = useRef<string | undefined>(undefined);
  const busy = useRef(false);
  useEffect(() => {
    if (keptAt.current !== moment) kept.current.clear();
    keptAt.current = moment;
    const known = at === undefined ? undefined : kept.current.get(at);
    wanted.current = `${at ?? ""} ${moment}`;
    if (known) {
      set({ view: known, refused: undefined, loading: false });
      return;
    }
    set((before) => ({ ...before, loading: true }));
    if (!busy.current) void fetchWanted();
  }, [api, session, at, moment]);

  async function fetchWanted(): Promise<void> {
    busy.current = true;
    let done = "";
    while (wanted.current !== undefined && done !== wanted.current) {
      done = wanted.current;
      const seq = done.split(" ")[0];
      try {
        const view = await api.get<WindowView>("/session/window", { session, at: seq ? Number(seq) : undefined });
        if (seq) remember(Number(seq), view);
        if (done === wanted.current) set({ view, refused: undefined, loading: false });
      } catch (error) {
        if (done === wanted.current) set((before) => ({ ...before, refused: asRefused(error), loading: false }));
      }
    }
    busy.current = false;
  }

  function remember(seq: number, view: WindowView): void {
    kept.current.set(seq, view);
    const oldest = kept.current.keys().next().value;
    if (kept.current.size > KEPT && oldest !== undefined) kept.current.delete(oldest);
  }
  return shown;
}
