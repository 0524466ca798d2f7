// What every view is given: the gateway to ask, who asks, the session that is looked at, and when to look again.
import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import type { Asker } from "./answers";
import { Api, type Query, Refused } from "./api";

export interface On {
  api: Api;
  asker: Asker;
  /** The session that is looked at; empty where none is. */
  session: string;
  /** Grows whenever something was changed: whoever shows it asks again. */
  moment: number;
  /** Something was changed. */
  changed(): void;
}

export const Here = createContext<On>(undefined as unknown as On);
export const useOn = (): On => useContext(Here);
export const may = (on: On, right: "ask" | "read" | "change"): boolean => on.asker.rights.includes(right);

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
    const gone = new AbortController();
    set((before) => ({ ...before, loading: true }));
    api
      .get<T>(path, query, gone.signal)
      .then((found) => set({ found, loading: false }))
      .catch((error: unknown) => {
        if (!gone.signal.aborted) set({ refused: asRefused(error), loading: false });
      });
    return () => gone.abort();
  }, [api, key, moment]);
  return asked;
}

export const asRefused = (error: unknown): Refused =>
  error instanceof Refused ? error : new Refused(0, "unreachable", "the gateway does not answer; is it still running?");
