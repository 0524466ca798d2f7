// What the browser keeps for the page. One that keeps nothing (storage switched off) is no reason to fail.
export function kept(storage: () => Storage, name: string): string {
  try {
    return storage().getItem(name) ?? "";
  } catch {
    return "";
  }
}

/** Keeps a text; the empty one is forgotten. */
export function keep(storage: () => Storage, name: string, text: string): void {
  try {
    if (text) storage().setItem(name, text);
    else storage().removeItem(name);
  } catch {
    // Then it lasts as long as the page does.
  }
}
