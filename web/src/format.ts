// Numbers, shares and times as people read them.
export const whole = (value: number): string => value.toLocaleString("en");
export const percent = (share: number, digits = 0): string => `${(share * 100).toFixed(digits)} %`;
export const when = (microseconds: number): string =>
  new Date(microseconds / 1000).toISOString().replace("T", " ").slice(0, 19);
export const dollars = (picodollars: number): string => `$${(picodollars / 1e12).toFixed(4)}`;
export const short = (text: string, most: number): string =>
  text.length > most ? `${text.slice(0, most - 1)}…` : text;
