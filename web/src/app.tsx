// The page: who is asking, and then the frame with its views.
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import type { Caller } from "./answers";
import { Api, Refused } from "./api";
import { keepKey, keptKey, Login } from "./login";
import { asRefused } from "./on";
import { keyInAddress } from "./route";
import { Shell } from "./shell";
import { Waiting } from "./widgets";

const AGAIN = 3_000;
const first = keyInAddress() || keptKey();

export function App() {
  const [key, setKey] = useState(first);
  const [asker, setAsker] = useState<Caller>();
  const [refused, setRefused] = useState<Refused>();
  useEffect(() => {
    const moved = () => {
      const given = keyInAddress();
      if (!given || given === key) return; // the same key again: nothing changed
      setAsker(undefined);
      setRefused(undefined);
      setKey(given);
    };
    addEventListener("hashchange", moved);
    moved(); // one may have come before anything listened
    return () => removeEventListener("hashchange", moved);
  }, [key]);
  const api = useMemo(() => new Api(key), [key]);
  const leave = useCallback((why?: Refused) => {
    keepKey("");
    setKey("");
    setAsker(undefined);
    setRefused(why);
  }, []);
  useEffect(() => {
    if (!key) return undefined;
    let timer = 0;
    const gone = new AbortController();
    const ask = async () => {
      try {
        const found = await api.get<Caller>("/asker", {}, gone.signal);
        keepKey(key);
        setRefused(undefined);
        setAsker(found);
      } catch (error) {
        if (gone.signal.aborted) return;
        const why = asRefused(error);
        if (why.status === 401 || why.status === 403) return leave(why);
        setRefused(why);
        timer = window.setTimeout(ask, AGAIN); // a gateway that is away, or busy: it is asked again
      }
    };
    void ask();
    return () => {
      gone.abort();
      clearTimeout(timer);
    };
  }, [api, key]);
  if (asker) return <Shell api={api} asker={asker} onLeave={leave} />;
  if (key && !refused) return <Waiting kind="page" />;
  const enter = (given: string) => {
    setRefused(undefined);
    setKey(given);
  };
  return <Login refused={refused} busy={Boolean(key)} onKey={enter} />;
}
