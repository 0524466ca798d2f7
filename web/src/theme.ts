// Dark or light: as the system says, or as was chosen here and kept in this browser.
import { useEffect, useState } from "preact/hooks";
import { keep, kept } from "./kept";

export type Look = "light" | "dark";
const KEPT = "recto.look";
const system = matchMedia("(prefers-color-scheme: dark)");

let chosen = kept(() => localStorage, KEPT);

export const look = (): Look => (chosen === "light" || chosen === "dark" ? chosen : system.matches ? "dark" : "light");

/** Puts on what was chosen; with a choice, that one from now on. */
export function wear(choice?: Look): void {
  if (choice) {
    chosen = choice;
    keep(() => localStorage, KEPT, choice);
  }
  if (chosen) document.documentElement.dataset.look = look();
}

export function useLook(): [Look, () => void] {
  const [now, set] = useState(look);
  useEffect(() => {
    const changed = () => set(look());
    system.addEventListener("change", changed);
    return () => system.removeEventListener("change", changed);
  }, []);
  const turn = () => {
    wear(now === "dark" ? "light" : "dark");
    set(look());
  };
  return [now, turn];
}
