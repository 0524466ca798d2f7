// What was just done, with a way to undo it: announced to screen readers, reachable by keyboard, gone after a while.
import { useEffect, useRef, useState } from "preact/hooks";
import { safe } from "./format";
import { asRefused, useOn } from "./on";

const SHOWN = 12_000;
const MOST = 3;

interface Toast {
  id: number;
  says: string;
  undo?: (() => Promise<unknown>) | undefined;
}

let shown: readonly Toast[] = [];
let next = 1;
const timers = new Map<number, number>();
const watching = new Set<() => void>();

function show(toasts: readonly Toast[]): void {
  shown = toasts;
  for (const redraw of watching) redraw();
}

/** Reports what was done. `undo` takes it back; without it there is nothing to take back. */
export function toast(says: string, undo?: () => Promise<unknown>): void {
  const id = next++;
  show([...shown, { id, says, undo }].slice(-MOST));
  release(id);
}

/** It does not go while the pointer or the focus is on it. */
const hold = (id: number): void => clearTimeout(timers.get(id));

function release(id: number): void {
  hold(id);
  timers.set(id, window.setTimeout(() => dismiss(id), SHOWN));
}

function dismiss(id: number): void {
  hold(id);
  timers.delete(id);
  show(shown.filter((one) => one.id !== id));
}

/** Undoes what was reported last; whether there was anything. */
export function undoLast(changed: () => void): boolean {
  const last = shown.findLast((one) => one.undo);
  if (last) void undo(last, changed);
  return last !== undefined;
}

async function undo(one: Toast, changed: () => void): Promise<void> {
  dismiss(one.id);
  try {
    await one.undo?.();
    toast(`Undone: ${one.says}`);
    changed();
  } catch (error) {
    toast(`Not undone: ${asRefused(error).message}`);
  }
}

/** Drawn by the frame and by every open dialog, which makes everything outside itself inert. */
export function Toasts() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const again = () => redraw((count) => count + 1);
    watching.add(again);
    return () => {
      watching.delete(again);
    };
  }, []);
  return (
    <section class="toasts" aria-label="What was done" aria-live="polite" aria-relevant="additions">
      {shown.map((one) => (
        <Shown key={one.id} one={one} />
      ))}
    </section>
  );
}

function Shown({ one }: { one: Toast }) {
  const { changed } = useOn();
  const box = useRef<HTMLDivElement>(null);
  const left = (event: FocusEvent) => {
    if (!box.current?.contains(event.relatedTarget as Node | null)) release(one.id);
  };
  return (
    <div
      ref={box}
      class="toast"
      onPointerEnter={() => hold(one.id)}
      onPointerLeave={() => release(one.id)}
      onFocusIn={() => hold(one.id)}
      onFocusOut={left}
    >
      <span>{safe(one.says)}</span>
      {one.undo && (
        <button type="button" class="button quiet" aria-label={`Undo: ${safe(one.says)}`} onClick={() => void undo(one, changed)}>
          Undo
        </button>
      )}
      <button type="button" class="button quiet" aria-label={`Dismiss: ${safe(one.says)}`} onClick={() => dismiss(one.id)}>
        ✕
      </button>
    </div>
  );
}
