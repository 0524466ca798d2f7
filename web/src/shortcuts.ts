// Keyboard shortcuts: keys that do something while a part of the page is shown.
import { useEffect } from "preact/hooks";
import { keep, kept } from "./kept";

export interface Shortcut {
  key: string;
  says: string;
  does: () => void;
}

/** The event that opens the palette, for a button. */
export const COMMANDS = "recto-commands";
const OFF = "recto-shortcuts-off";
const TYPING = "textarea, select, [contenteditable], input:not([type=range], [type=checkbox], [type=radio], [type=button])";
const registered = new Map<string, Shortcut>();

export const shortcuts = (): Shortcut[] => [...registered.values()];
export const shortcutOf = (key: string): Shortcut | undefined => registered.get(key);

/** Who speaks to the computer sets off single keys by speaking: they can be switched off. */
export const areOff = (): boolean => kept(() => localStorage, OFF) !== "";
export const turnOff = (off: boolean): void => keep(() => localStorage, OFF, off ? "off" : "");

/** A key that does something while a part of the page is shown: a shortcut, and a command of the palette. */
export function useShortcut(key: string, says: string, does: () => void): void {
  useEffect(() => {
    const shortcut = { key, says, does };
    registered.set(key, shortcut);
    return () => {
      if (registered.get(key) === shortcut) registered.delete(key);
    };
  }, [key, says, does]);
}

/** Keys that are typed into a field, or meant for a dialog, are not shortcuts. */
export function isFree(event: KeyboardEvent): boolean {
  const { target } = event;
  const typing = target instanceof Element && target.closest(TYPING) !== null;
  return !typing && !event.ctrlKey && !event.metaKey && !event.altKey && !document.querySelector("dialog[open]");
}
