// The views of the page, in the order of its menu. A view is one file; it draws what the inspection API answers.
import type { FunctionComponent } from "preact";
import type { Right } from "./on";
import { Budget } from "./views/budget";
import { Chat } from "./views/chat";
import { Compare } from "./views/compare";
import { Decisions } from "./views/decisions";
import { Health } from "./views/health";
import { Keys } from "./views/keys";
import { Memory } from "./views/memory";
import { Recall } from "./views/recall";
import { Settings } from "./views/settings";
import { Transcript } from "./views/transcript";
import { Window } from "./views/window";

export interface View {
  name: string;
  title: string;
  show: FunctionComponent;
  /** The right without which the menu does not list it. */
  needs?: Right;
}

export const VIEWS: readonly View[] = [
  { name: "window", title: "Window", show: Window },
  { name: "chat", title: "Chat", show: Chat },
  { name: "transcript", title: "Transcript", show: Transcript },
  { name: "recall", title: "Recall", show: Recall },
  { name: "decisions", title: "Decisions", show: Decisions },
  { name: "compare", title: "Compare", show: Compare },
  { name: "budget", title: "Budget", show: Budget },
  { name: "memory", title: "Memory", show: Memory },
  { name: "health", title: "Health", show: Health },
  { name: "keys", title: "Keys", show: Keys, needs: "change" },
  { name: "settings", title: "Settings", show: Settings, needs: "change" },
];
