// Looks at one session again and again, so that what is said elsewhere is seen here, and notices when the gateway is
// gone and when it is back. A hidden page requests nothing.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { SessionOverview } from "./answers";
import type { Api, Refused } from "./api";
import { asRefused } from "./on";

const EVERY = 3_000;
const SELDOM = 12_000; // where there is nothing to see yet

export interface Watched {
  now: SessionOverview | undefined;
  /** Nothing was said in it yet, or it is not for this key. */
  missing: boolean;
  /** The gateway does not answer. */
  away: boolean;
  refused: Refused | undefined;
  moment: number;
  changed(): void;
}

type Seen = Omit<Watched, "changed"> & { session: string };

const unseen = (session: string, moment: number): Seen => ({
  session,
  now: undefined,
  missing: false,
  away: false,
  refused: undefined,
  moment,
});

/** What is known after an answer. Entries that came, a wish for it and the end of an absence make a new moment. */
function after(before: Seen, session: string, now: SessionOverview | undefined, asked: boolean): Seen {
  const same = before.session === session && before.now?.entries === now?.entries && before.now?.hash === now?.hash;
  const moment = before.moment + (asked || before.away || !same ? 1 : 0);
  return { session, now, missing: !now, away: false, refused: undefined, moment };
}

function failed(before: Seen, session: string, refused: Refused): Seen {
  const kept = before.session === session ? before : unseen(session, before.moment);
  if (refused.status === 404) return after(before, session, undefined, false);
  return refused.status === 0 ? { ...kept, away: true } : { ...kept, away: false, refused };
}

export function useWatched(api: Api, session: string): Watched {
  const [seen, set] = useState<Seen>(() => unseen(session, 0));
  const last = useRef(0);
  const wanted = useRef(session);
  wanted.current = session;
  const look = useCallback(
    async (asked: boolean): Promise<boolean> => {
      const turn = ++last.current;
      const late = () => wanted.current !== session || (turn !== last.current && !asked);
      try {
        const now = await api.get<SessionOverview>("/session", { session });
        if (!late()) set((before) => after(before, session, now, asked));
        return true;
      } catch (error) {
        const refused = asRefused(error);
        if (!late()) set((before) => failed(before, session, refused));
        return refused.status !== 404;
      }
    },
    [api, session],
  );
  useEffect(() => {
    let timer = 0;
    let over = false;
    const again = async () => {
      const there = document.hidden || (await look(false));
      if (!over) timer = window.setTimeout(again, there ? EVERY : SELDOM);
    };
    const shown = () => !document.hidden && void look(false);
    void again();
    document.addEventListener("visibilitychange", shown);
    return () => {
      over = true;
      last.current++;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [look]);
  const changed = useCallback(() => void look(true), [look]);
  const shown = seen.session === session ? seen : unseen(session, seen.moment);
  return { ...shown, changed };
}
