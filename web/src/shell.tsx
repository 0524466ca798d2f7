// The frame of the page: sessions and menu beside, the session's gauge on top, one view in the middle.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Caller, SessionOverview } from "./answers";
import type { Api, Refused } from "./api";
import { line, safe } from "./format";
import { Gauge } from "./gauge";
import { Here, may, type On, useOn } from "./on";
import { type Given, link, type Route, useRoute } from "./route";
import { Palettes } from "./palette";
import { SessionMenu } from "./session_menu";
import { Sessions } from "./sessions";
import { COMMANDS } from "./shortcuts";
import { useLook } from "./theme";
import { Toasts } from "./toasts";
import { VIEWS, type View } from "./views";
import { useWatched, type Watched } from "./watch";
import { Button, Empty, Refusal, Waiting } from "./widgets";

/** These show something also where nothing was said in a session yet. */
const WITHOUT_SESSION = new Set(["chat", "memory", "keys"]);
const narrow = matchMedia("(max-width: 60rem)");

const viewNamed = (name: string): View | undefined => VIEWS.find((one) => one.name === name);

export interface ShellProps {
  api: Api;
  asker: Caller;
  onLeave: (why?: Refused) => void;
}

export function Shell({ api, asker, onLeave }: ShellProps) {
  const here = useRoute();
  // After an import there is nothing in the main session: its reader wants the newest. Chat never adds to one on a guess.
  const unnamed = here.view === "chat" ? asker.main : asker.newest || asker.main;
  const session = here.given.get("session") || unnamed;
  const watched = useWatched(api, session);
  const view = viewNamed(here.view) ?? viewNamed(watched.missing ? "chat" : "window")!;
  const unknown = here.view !== "" && here.view !== view.name;
  const [look, turnLook] = useLook();
  const on = useOnOf(api, asker, session, view, here, watched, look);
  const [open, setOpen] = useState(false);
  const place = useRef<HTMLElement>(null);
  useEffect(() => setOpen(false), [here]);
  useEffect(() => {
    document.title = `${view.title} · ${safe(watched.now?.title || session)} · Recto`;
  }, [view, session, watched.now?.title]);
  useEffect(() => {
    if (watched.refused?.status === 401) onLeave(watched.refused);
  }, [watched.refused]);
  const skip = (event: Event) => {
    event.preventDefault();
    place.current?.focus();
  };
  return (
    <Here.Provider value={on}>
      <a class="skip" href="#main" onClick={skip}>
        Skip to content
      </a>
      <div class="frame">
        <Side open={open} onClose={() => setOpen(false)} turnLook={turnLook} onLeave={() => onLeave()} />
        <div class="middle">
          <Top open={open} onMenu={() => setOpen(!open)} />
          {watched.away && (
            <p class="notice" role="status">
              The gateway does not answer. This page tries again every few seconds; what you see is as it was.
            </p>
          )}
          <main ref={place} id="main" tabIndex={-1} class={`view view-${view.name}`}>
            <h1>{unknown ? "Not found" : view.title}</h1>
            {unknown ? (
              <Empty title={`There is no view “${line(here.view, 40)}”.`}>
                <a href={on.link("window")}>To the window</a>
              </Empty>
            ) : (
              <Shown key={`${view.name} ${session}`} view={view} watched={watched} />
            )}
          </main>
        </div>
      </div>
      <Toasts />
      <Palettes turnLook={turnLook} onLeave={() => onLeave()} />
    </Here.Provider>
  );
}

function useOnOf(
  api: Api,
  asker: Caller,
  session: string,
  view: View,
  here: Route,
  watched: Watched,
  look: On["look"],
): On {
  const { now, moment, changed } = watched;
  const to = useCallback((name: string, given: Given = {}) => link(name, { session, ...given }), [session]);
  const go = useCallback(
    (name: string, given: Given = {}) => {
      location.hash = to(name, given);
    },
    [to],
  );
  return useMemo(
    () => ({ api, asker, session, now, view: view.name, given: here.given, look, moment, changed, go, link: to }),
    [api, asker, session, now, view, here, look, moment, changed, go, to],
  );
}

function Shown({ view, watched }: { view: View; watched: Watched }) {
  const on = useOn();
  if (WITHOUT_SESSION.has(view.name)) return <view.show />;
  if (watched.missing) {
    return (
      <Empty title="Nothing was said in this session yet.">
        <p>
          Say something in <a href={on.link("chat")}>Chat</a>, or choose another session.
        </p>
      </Empty>
    );
  }
  if (watched.now) return <view.show />;
  return watched.refused ? <Refusal refused={watched.refused} /> : <Waiting kind="page" />;
}

/** "gpt-4 → smollm2, embedded": the model that was requested, the one that answers, and where. */
function whoAnswers({ model, requested_model: requested, upstream }: SessionOverview): string {
  const named = requested && requested !== model ? `${requested} → ${model}` : model;
  return upstream ? `${named}, ${upstream}` : named;
}

function Top({ open, onMenu }: { open: boolean; onMenu: () => void }) {
  const { session, now, asker } = useOn();
  const shown = open ? "true" : "false";
  return (
    <header class="top">
      <button type="button" class="menu-button" aria-expanded={shown} aria-controls="side" onClick={onMenu}>
        <span aria-hidden="true">☰</span>
        <span class="unseen">Menu</span>
      </button>
      <div class="top-name">
        <p class="session-name" title={safe(now?.title || session)}>
          {safe(now?.title || session)}
        </p>
        <p class="muted small session-key" title={safe(session)}>
          {now?.title && `${safe(session)} · `}
          {safe(now ? whoAnswers(now) : asker.model)}
        </p>
      </div>
      <SessionMenu key={session} />
      <Gauge />
    </header>
  );
}

interface SideProps {
  open: boolean;
  onClose: () => void;
  turnLook: () => void;
  onLeave: () => void;
}

function Side({ open, onClose, turnLook, onLeave }: SideProps) {
  const on = useOn();
  const small = useNarrow();
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    if (!small || !open) return undefined;
    box.current?.querySelector<HTMLElement>("a, button, input")?.focus();
    const escape = (event: KeyboardEvent) => event.key === "Escape" && onClose();
    addEventListener("keydown", escape);
    return () => removeEventListener("keydown", escape);
  }, [small, open]);
  return (
    <>
      {small && open && <div class="shade" onClick={onClose} />}
      <aside ref={box} id="side" class={open ? "side open" : "side"} inert={small && !open}>
        <p class="wordmark">
          <img src="/web/icon.svg" alt="" width="26" height="26" /> Recto
        </p>
        <nav aria-label="Views">
          <ul class="menu">
            {VIEWS.filter((one) => !one.needs || may(on, one.needs)).map((one) => (
              <li key={one.name}>
                <a href={on.link(one.name)} aria-current={one.name === on.view ? "page" : undefined}>
                  {one.title}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <div class="side-sessions">
          <Sessions />
        </div>
        <footer class="side-foot">
          <p class="muted small">
            {safe(on.asker.name)}: {on.asker.rights.join(", ")}
          </p>
          <p class="muted small">Recto {safe(on.asker.version)}</p>
          <div class="actions">
            <Button kind="quiet" onClick={() => dispatchEvent(new Event(COMMANDS))}>
              Commands <kbd>Ctrl K</kbd>
            </Button>
            <Button kind="quiet" onClick={turnLook}>
              {on.look === "dark" ? "Light colours" : "Dark colours"}
            </Button>
            <Button kind="quiet" onClick={onLeave}>
              Log out
            </Button>
          </div>
        </footer>
      </aside>
    </>
  );
}

function useNarrow(): boolean {
  const [now, set] = useState(narrow.matches);
  useEffect(() => {
    const changed = () => set(narrow.matches);
    narrow.addEventListener("change", changed);
    return () => narrow.removeEventListener("change", changed);
  }, []);
  return now;
}
