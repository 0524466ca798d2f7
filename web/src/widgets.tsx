// The pieces that views are built of. They know how things look, and nothing of sessions.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Refused } from "./api";
import { safe } from "./format";
import { asRefused, hindrance, type Right, useOn } from "./on";
import { Toasts } from "./toasts";

export * from "./fields";

export type Place = "in" | "trimmed" | "out" | "recalled" | "event";
export type Zone = "green" | "yellow" | "orange" | "red";

const PLACES: Record<Place, [sign: string, label: string, says: string]> = {
  in: ["●", "in the prompt", "In the prompt"],
  trimmed: ["◐", "trimmed", "A shorter form of it is in the prompt"],
  out: ["○", "evicted", "Not in the prompt; it stays in the transcript"],
  recalled: ["↺", "recalled", "Evicted, and quoted for the current question"],
  event: ["·", "event", "An event, never part of the prompt"],
};
const ZONES: Record<Zone, string> = { green: "●", yellow: "▲", orange: "◆", red: "■" };

/** A word with a sign before it; `kind` is a class of the style sheet and never says anything alone. */
export function Badge(props: { kind: string; sign?: string; says?: string; children: ComponentChildren }) {
  return (
    <span class={`badge ${props.kind}`} title={props.says}>
      {props.sign && <span aria-hidden="true">{props.sign} </span>}
      {props.children}
    </span>
  );
}

export function PlaceBadge({ place }: { place: Place }) {
  const [sign, label, says] = PLACES[place];
  return (
    <Badge kind={`place-${place}`} sign={sign} says={says}>
      {label}
    </Badge>
  );
}

export function ZoneBadge({ zone }: { zone: Zone }) {
  return (
    <Badge kind={`zone-${zone}`} sign={ZONES[zone]}>
      {zone}
    </Badge>
  );
}

/** Text of a transcript: as text, on lines of its own, with nothing in it that could hide or reorder anything. */
export function Said({ text, plain }: { text: string; plain?: boolean }) {
  return (
    <div class={plain ? "said" : "said code"} dir="auto">
      {safe(text)}
    </div>
  );
}

export interface ButtonProps {
  children: ComponentChildren;
  onClick?: (event: MouseEvent) => void;
  kind?: "plain" | "primary" | "quiet" | "danger";
  /** The accessible name, where the text alone would not do: "Restore decision 12". */
  label?: string;
  /** The right it takes: without it the button is disabled and says why. */
  needs?: Right;
  disabled?: boolean;
  /** Why it is disabled. */
  why?: string;
  submit?: boolean;
  pressed?: boolean;
}

export function Button(props: ButtonProps) {
  const { children, onClick, kind = "plain", label, needs, disabled, why, submit, pressed } = props;
  const on = useOn();
  const reason = (needs && on && hindrance(on, needs)) || why || "";
  const off = disabled || Boolean(needs && reason);
  // Not the attribute `disabled`: a button that cannot be reached by keyboard cannot say why.
  return (
    <button
      type={submit ? "submit" : "button"}
      class={`button ${kind}`}
      aria-label={label}
      aria-disabled={off ? "true" : undefined}
      aria-description={off && reason ? reason : undefined}
      aria-pressed={pressed === undefined ? undefined : pressed ? "true" : "false"}
      title={off && reason ? reason : undefined}
      onClick={(event) => {
        if (off) event.preventDefault();
        else onClick?.(event);
      }}
    >
      {children}
    </button>
  );
}

export interface Column<Row> {
  title: string;
  show: (row: Row) => ComponentChildren;
  /** Numbers stand to the right. */
  number?: boolean;
}

export interface TableProps<Row> {
  /** What it lists, for who cannot see it. */
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  id: (row: Row) => string | number;
  empty?: string;
}

export function Table<Row>({ label, columns, rows, id, empty = "Nothing here." }: TableProps<Row>) {
  if (!rows.length) return <p class="muted">{empty}</p>;
  return (
    <div class="scroll" role="region" aria-label={label} tabIndex={0}>
      <table aria-label={label}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.title} scope="col" class={column.number ? "number" : undefined}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {columns.map((column) => (
                <td key={column.title} class={column.number ? "number" : undefined}>
                  {column.show(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The accessible equivalent of a chart. */
export function AsTable<Row>({ title = "As a table", ...table }: TableProps<Row> & { title?: string }) {
  const [open, set] = useState(false);
  return (
    <details class="as-table" onToggle={(event) => set((event.currentTarget as HTMLDetailsElement).open)}>
      <summary>{title}</summary>
      {open && <Table {...table} />}
    </details>
  );
}

export interface PanelProps {
  title: string;
  note?: ComponentChildren;
  actions?: ComponentChildren;
  kind?: string;
  children: ComponentChildren;
}

export function Panel({ title, note, actions, kind = "", children }: PanelProps) {
  const id = useId();
  return (
    <section class={`panel ${kind}`} aria-labelledby={id}>
      <header class="panel-head">
        <h2 id={id}>{title}</h2>
        {note && <p class="muted">{note}</p>}
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </section>
  );
}

/** Labels and values beside each other. */
export function Facts({ facts }: { facts: readonly (readonly [label: string, value: ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {facts.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** Why something was refused, where it was asked for. */
export function Refusal({ refused }: { refused: Refused | undefined }) {
  if (!refused) return null;
  return (
    <div class="refusal" role="alert">
      <strong>{refused.status ? "Refused" : "No answer"}</strong> <span>{safe(refused.message)}</span>
      {refused.status > 0 && (
        <span class="muted"> ({[refused.status, safe(refused.code)].filter(Boolean).join(", ")})</span>
      )}
    </div>
  );
}

/** Where something is still awaited: it keeps the place, so that nothing jumps. */
export function Waiting({ kind = "" }: { kind?: string }) {
  return (
    <div class={`waiting ${kind}`} role="status">
      <span class="unseen">Loading</span>
    </div>
  );
}

export interface PagerProps {
  /** What is on the page: "entries 51–100". */
  says: string;
  onNewer?: (() => void) | undefined;
  onOlder?: (() => void) | undefined;
  newer?: string;
  older?: string;
}

export function Pager({ says, onNewer, onOlder, newer = "Newer", older = "Older" }: PagerProps) {
  return (
    <nav class="pager" aria-label="Pages">
      <Button onClick={onNewer} disabled={!onNewer}>
        {newer}
      </Button>
      <span class="muted">{says}</span>
      <Button onClick={onOlder} disabled={!onOlder}>
        {older}
      </Button>
    </nav>
  );
}

export interface DialogProps {
  title: string;
  onClose: () => void;
  actions?: ComponentChildren;
  wide?: boolean;
  children: ComponentChildren;
}

/** A dialog of the browser's own: it holds the focus, and Esc closes it. */
export function Dialog({ title, onClose, actions, wide, children }: DialogProps) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const shown = box.current!;
    const before = document.activeElement;
    shown.showModal();
    return () => {
      shown.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const beside = (event: MouseEvent) => event.target === box.current && onClose();
  const cancelled = (event: Event) => {
    event.preventDefault();
    onClose();
  };
  const kind = wide ? "dialog wide" : "dialog";
  return (
    <dialog ref={box} class={kind} aria-labelledby={id} onCancel={cancelled} onClick={beside}>
      <div class="dialog-body">
        <div class="dialog-head">
          <h2 id={id}>{title}</h2>
          <Button kind="quiet" label="Close" onClick={onClose}>
            ✕
          </Button>
        </div>
        {children}
        {actions && <footer class="actions">{actions}</footer>}
      </div>
      <Toasts />
    </dialog>
  );
}

export interface Doing {
  /** While it lasts. */
  busy: boolean;
  /** Why it was refused. */
  refused: Refused | undefined;
  /** Does it; whether it was done. */
  run: (does: () => Promise<unknown>) => Promise<boolean>;
}

/** Does something that may be refused. */
export function useDoing(): Doing {
  const [state, set] = useState<{ busy: boolean; refused?: Refused }>({ busy: false });
  const run = async (does: () => Promise<unknown>): Promise<boolean> => {
    set({ busy: true });
    try {
      await does();
      set({ busy: false });
      return true;
    } catch (error) {
      set({ busy: false, refused: asRefused(error) });
      return false;
    }
  };
  return { busy: state.busy, refused: state.refused, run };
}
