// Begins the page. Nothing but the empty text may ever become markup in it: charts clear their box with that.
import { render } from "preact";
import { App } from "./app";
import { wear } from "./theme";

interface Policies {
  createPolicy(name: string, rules: Record<string, (text: string) => string>): unknown;
}

const policies = (window as unknown as { trustedTypes?: Policies }).trustedTypes;
const none = (text: string): string => {
  if (text) throw new TypeError("text cannot become markup here");
  return text;
};
policies?.createPolicy("default", { createHTML: none });

wear();
render(<App />, document.getElementById("app")!);
