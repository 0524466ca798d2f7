// The palette of commands (Ctrl or Cmd and K), and the dialog that lists the keyboard shortcuts ("?").
import { useCallback, useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import type { SessionPage } from "./answers";
import { line, safe } from "./format";
import { useAsked, useOn } from "./on";
import { link } from "./route";
import { areOff, COMMANDS, isFree, shortcutOf, shortcuts, turnOff, useShortcut } from "./shortcuts";
import { undoLast } from "./toasts";
import { VIEWS } from "./views";
import { Button, Dialog } from "./widgets";

const LISTED = 12;

export function Palettes({ turnLook, onLeave }: { turnLook: () => void; onLeave: () => void }) {
  const on = useOn();
  const [open, show] = useState<"palette" | "help">();
  const undo = useCallback(() => undoLast(on.changed), [on.changed]);
  useShortcut("u", "Undo the last change", undo);
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        if (!document.querySelector("dialog[open]")) show("palette");
        return;
      }
      if (!isFree(event) || areOff()) return;
      const view = VIEWS[Number(event.key) - 1];
      if (event.key === "?") show("help");
      else if (view) on.go(view.name);
      else if (shortcutOf(event.key)) shortcutOf(event.key)!.does();
      else return;
      event.preventDefault();
    };
    const asked = () => show("palette");
    addEventListener("keydown", pressed);
    addEventListener(COMMANDS, asked);
    return () => {
      removeEventListener("keydown", pressed);
      removeEventListener(COMMANDS, asked);
    };
  }, [on]);
  const close = () => show(undefined);
  if (open === "help") return <Help onClose={close} />;
  if (!open) return null;
  const more: Command[] = [
    { says: "Keyboard shortcuts", keys: "?", does: () => show("help") },
    { says: on.look === "dark" ? "Light colours" : "Dark colours", does: turnLook },
    { says: "Log out", does: onLeave },
  ];
  return <Palette more={more} onClose={close} />;
}

interface Command {
  says: string;
  keys?: string;
  does: () => void;
}

function useCommands(more: readonly Command[]): Command[] {
  const on = useOn();
  const sessions = useAsked<SessionPage>("/sessions", { limit: 200 }).found?.sessions;
  return useMemo(() => {
    const views = VIEWS.map((view, place) => ({
      says: `Go to ${view.title}`,
      keys: place < 9 ? String(place + 1) : "",
      does: () => on.go(view.name),
    }));
    const actions = shortcuts().map(({ key, says, does }) => ({ says, keys: key, does }));
    const others = (sessions ?? []).map((one) => ({
      says: `Open session ${line(one.title || one.session, 60)} (${safe(one.session)})`,
      does: () => {
        location.hash = link(on.view, { session: one.session });
      },
    }));
    return [...views, ...actions, ...more, ...others];
  }, [sessions, on]);
}

function Palette({ more, onClose }: { more: readonly Command[]; onClose: () => void }) {
  const commands = useCommands(more);
  const [typed, type] = useState("");
  const [place, move] = useState(0);
  const id = useId();
  const list = useRef<HTMLUListElement>(null);
  const wanted = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const found = commands.filter((one) => wanted.every((word) => one.says.toLowerCase().includes(word))).slice(0, LISTED);
  const at = Math.min(place, found.length - 1);
  useEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [at]);
  const run = (command: Command | undefined) => {
    if (!command) return;
    onClose();
    command.does();
  };
  const pressed = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) move((at + step + found.length) % Math.max(found.length, 1));
    else if (event.key === "Enter") run(found[at]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Commands" onClose={onClose}>
      <input
        class="palette-input"
        type="text"
        autofocus
        role="combobox"
        aria-label="Command"
        aria-autocomplete="list"
        aria-expanded={found.length > 0 ? "true" : "false"}
        aria-controls={id}
        aria-activedescendant={found.length ? `${id}-${at}` : undefined}
        placeholder="A view, a session or an action"
        value={typed}
        onInput={(event) => {
          type(event.currentTarget.value);
          move(0);
        }}
        onKeyDown={pressed}
      />
      <ul ref={list} id={id} class="palette" role="listbox" aria-label="Commands">
        {found.map((one, number) => (
          <li
            key={one.says + number}
            id={`${id}-${number}`}
            role="option"
            aria-selected={number === at ? "true" : "false"}
            onClick={() => run(one)}
          >
            <span>{one.says}</span>
            {one.keys && <kbd>{one.keys}</kbd>}
          </li>
        ))}
      </ul>
      <p class="muted small" role="status">
        {found.length ? "" : "Nothing has this name."}
      </p>
    </Dialog>
  );
}

function Help({ onClose }: { onClose: () => void }) {
  const [off, turn] = useState(areOff());
  const rows: [keys: string, says: string][] = [
    ["Ctrl K or ⌘ K", "Commands: views, sessions, actions"],
    ["?", "This page"],
    ...VIEWS.slice(0, 9).map((view, place): [string, string] => [String(place + 1), view.title]),
    ...shortcuts().map(({ key, says }): [string, string] => [key, says]),
    ["Esc", "Close a dialog or the menu"],
  ];
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl class="shortcuts">
        {rows.map(([keys, says]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{says}</dd>
          </div>
        ))}
      </dl>
      <p class="muted small">Keys that are typed into a field are never shortcuts.</p>
      <Button
        pressed={!off}
        onClick={() => {
          turnOff(!off);
          turn(!off);
        }}
      >
        Single-key shortcuts
      </Button>
    </Dialog>
  );
}
