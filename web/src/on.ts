// What every view is given: the gateway to ask, who asks, the session that is looked at, and when to look again.
import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import type { Caller, SessionOverview } from "./answers";
import { Api, type Query, Refused } from "./api";
import type { Given } from "./route";
import type { Look } from "./theme";

export interface On {
  api: Api;
  asker: Caller;
  /** The session that is looked at; empty where none is. */
  session: string;
  /** The session as it was when last asked; nothing before that, and where nothing was said in it yet. */
  now: SessionOverview | undefined;
  /** The name of the view that is shown. */
  view: string;
  /** What else is in the address: `seq` and the like. */
  given: URLSearchParams;
  /** Dark or light: options of charts with colours in them depend on it. */
  look: Look;
  /** Grows whenever something was changed: whoever shows it asks again. */
  moment: number;
  /** Something was changed. */
  changed(): void;
  /** Shows a view; of this session, unless another is given. */
  go(view: string, given?: Given): void;
  /** The address of a view; of this session, unless another is given. */
  link(view: string, given?: Given): string;
}

export type Right = "ask" | "read" | "change" | "erase";

export const Here = createContext<On>(undefined as unknown as On);
export const useOn = (): On => useContext(Here);
export const may = (on: On, right: Right): boolean => on.asker.rights.includes(right);

/** What the gateway takes as a session's name in a header; it would hash any other, and that is another session. */
const SAYABLE = /^[A-Za-z0-9][A-Za-z0-9._:@-]{0,119}$/;

/** Why something cannot be done here; empty where it can. A key writes to the sessions of its own agent alone. */
export function hindrance(on: On, right: Right): string {
  if (!may(on, right)) return `This key does not have the right “${right}”.`;
  if (right !== "ask") return "";
  if (on.now?.kind === "memory") return "This session holds the decisions about memory; nothing is said in it.";
  if (!on.session.startsWith(`agent:${on.asker.agent}:`)) {
    return `This key speaks only in sessions of the agent “${on.asker.agent}”.`;
  }
  return SAYABLE.test(on.session) ? "" : "Nothing can be said in a session with such a name from here.";
}

export interface Asked<T> {
  found?: T;
  refused?: Refused;
  loading: boolean;
}

/** Asks the inspection API, and again whenever path, query or moment change. The last answer stays until the next. */
export function useAsked<T>(path: string, query: Query = {}): Asked<T> {
  const { api, moment } = useOn();
  const [asked, set] = useState<Asked<T>>({ loading: true });
  const key = JSON.stringify([path, query]);
  useEffect(() => {
    if (!path) return undefined;
    let gone = false;
    set((before) => ({ ...before, loading: true }));
    shared<T>(api, `${key} ${moment}`, () => api.get<T>(path, query))
      .then((found) => gone || set({ found, loading: false }))
      .catch((error: unknown) => {
        if (gone) return;
        const refused = asRefused(error);
        // A gateway that is away for a moment is shown by the frame of the page; what was seen stays.
        set((before) =>
          refused.status === 0 && before.found ? { ...before, loading: false } : { refused, loading: false },
        );
      });
    return () => {
      gone = true;
    };
  }, [api, key, moment]);
  return asked;
}

const asking = new WeakMap<Api, Map<string, Promise<unknown>>>();

/** Several pieces of the page that ask the same at the same moment share one answer. */
function shared<T>(api: Api, what: string, ask: () => Promise<T>): Promise<T> {
  const open = asking.get(api) ?? new Map<string, Promise<unknown>>();
  asking.set(api, open);
  const found = open.get(what) ?? ask().finally(() => open.delete(what));
  open.set(what, found);
  return found as Promise<T>;
}

export const asRefused = (error: unknown): Refused =>
  error instanceof Refused ? error : new Refused(0, "unreachable", "The gateway does not answer. Is it still running?");
