// Where the page is: `#/<view>?session=…`, in the address, so that it can be bookmarked and gone back to.
import { useEffect, useMemo, useState } from "preact/hooks";

export interface Route {
  view: string;
  given: URLSearchParams;
}

export type Given = Record<string, string | number | null | undefined>;

export function route(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { view: path, given: new URLSearchParams(query) };
}

/** The address of a view. What is null or empty is left out. */
export function link(view: string, given: Given): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  return `#/${view}${query.size ? `?${query}` : ""}`;
}

export function useRoute(): Route {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const moved = () => set(location.hash);
    addEventListener("hashchange", moved);
    moved(); // it may have changed since it was drawn, before anything listened
    return () => removeEventListener("hashchange", moved);
  }, []);
  return useMemo(route, [hash]);
}

/** A key that came in the address (`#key=rk-…`); it is taken out of it at once. */
export function keyInAddress(): string {
  const found = /[#?&]key=([^&]*)/.exec(location.hash);
  if (!found) return "";
  const rest = location.hash.replace(found[0], found[0].startsWith("?") ? "?" : "").replace(/\?&?$/, "");
  history.replaceState(null, "", `${location.pathname}${rest.startsWith("#/") ? rest : ""}`);
  return new URLSearchParams(`key=${found[1] ?? ""}`).get("key") ?? "";
}
