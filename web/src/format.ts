// Numbers, shares, times and foreign text as people read them.
export const whole = (value: number): string => value.toLocaleString("en");
export const percent = (share: number, digits = 0): string => {
  const text = (share * 100).toFixed(digits);
  return `${Number(text) === 0 ? text.replace("-", "") : text} %`;
};
export const when = (microseconds: number): string => {
  const time = new Date(microseconds / 1000);
  return Number.isNaN(time.getTime()) ? String(microseconds) : time.toISOString().replace("T", " ").slice(0, 19);
};
export const dollars = (picodollars: number): string => `$${(picodollars / 1e12).toFixed(4)}`;
export const short = (text: string, most: number): string =>
  text.length > most ? `${text.slice(0, most - 1)}…` : text;
export const many = (count: number, one: string, several = `${one}s`): string =>
  `${whole(count)} ${count === 1 ? one : several}`;
/** `context_window_pruned` as it is said: "context window pruned". */
export const words = (name: string): string => name.replaceAll("_", " ");

// Controls, direction overrides, invisible tags, and halves of characters: text that would hide or reorder what
// is beside it. Line breaks and tabs stay.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]|(?!\u200c|\u200d)\p{Cf}|\p{Cs}|[\u2028\u2029]/gu;

/** Text from a transcript, with whatever would not be seen shown by its number. Every such text goes through here. */
export const safe = (text: string): string =>
  text
    .replaceAll("\r\n", "\n")
    .replace(UNSEEN, (unseen) => `⟨U+${unseen.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`);

/** The beginning of a text on one line, safe. */
export const line = (text: string, most: number): string =>
  short(safe(text.slice(0, most * 4)).replace(/\s+/g, " ").trim(), most);
