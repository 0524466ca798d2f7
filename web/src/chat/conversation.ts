// One question on its way: what was said, what came of the answer so far, and how to stop it. It goes on while another
// view is looked at.
import { useEffect, useReducer } from "preact/hooks";
import type { EntryPage, EntryView, SessionOverview } from "../answers";
import type { Api, Refused } from "../api";
import { safe } from "../format";
import { asRefused, type On, useOn } from "../on";

/** The event that keeps what came of an answer that was broken off. */
export const CUT = "reply_cut";

export type State = "asking" | "answered" | "stopped" | "failed";

interface Talk {
  /** The last entry before it was said. */
  before: number;
  text: string;
  answer: string;
  state: State;
  refused?: Refused;
  stop: AbortController;
  /** When it was said. */
  since: number;
}

export interface Conversation {
  /** The question, until it is in the transcript. */
  said: string;
  /** The answer so far, until it is in the transcript; null where there is none. */
  answering: string | null;
  /** The whole answer once it is there, to be read out. */
  heard: string;
  state: State | undefined;
  /** When the question was said, in milliseconds. */
  since: number;
  refused: Refused | undefined;
  /** Says something. What comes back is text that was not stored, to be fixed. */
  say: (text: string, model: string) => Promise<string>;
  stop: () => void;
}

/** Of each session what was said in it last, by the key that said it; and who wants to know how it goes on. */
const talks = new WeakMap<Api, Map<string, Talk>>();
const listening = new Set<() => void>();

function talksOf(api: Api): Map<string, Talk> {
  const found = talks.get(api) ?? new Map<string, Talk>();
  talks.set(api, found);
  return found;
}

/** `entries` are those that are shown: what is in them is no longer on its way. */
export function useConversation(entries: readonly EntryView[]): Conversation {
  const on = useOn();
  const [, draw] = useReducer((count: number, _: undefined) => count + 1, 0);
  useEffect(() => {
    const hear = () => draw(undefined);
    listening.add(hear);
    return () => void listening.delete(hear);
  }, []);
  const talk = talksOf(on.api).get(on.session);
  const asking = talk?.state === "asking";
  const after = entries.filter((entry) => entry.seq > (talk?.before ?? 0));
  const asked = after.some((entry) => entry.role === "user");
  const answered = after.some((entry) => entry.role === "assistant" || entry.kind === CUT);
  return {
    said: talk && talk.state !== "failed" && !asked ? safe(talk.text) : "",
    answering: talk && !answered && (asking || talk.answer) ? safe(talk.answer) : null,
    heard: talk && !asking ? safe(talk.answer) : "",
    state: talk?.state,
    since: talk?.since ?? 0,
    refused: talk?.refused,
    say: (text, model) => say(on, text, model),
    stop: () => talk?.stop.abort(),
  };
}

async function say(on: On, text: string, model: string): Promise<string> {
  const before = on.now?.entries ?? (await entriesOf(on));
  const talk: Talk = { before, text, answer: "", state: "asking", stop: new AbortController(), since: Date.now() };
  talksOf(on.api).set(on.session, talk);
  tell();
  const piece = (more: string) => {
    talk.answer += more;
    soon();
  };
  let unsaid = "";
  try {
    await on.api.say(on.session, text, model, piece, talk.stop.signal);
    talk.state = "answered";
  } catch (error) {
    const stopped = talk.stop.signal.aborted;
    if (!stopped) talk.refused = asRefused(error);
    if (!stopped && !(await isStored(on, talk))) unsaid = text;
    talk.state = stopped ? "stopped" : "failed";
  }
  tell();
  on.changed();
  return unsaid;
}

/** How many entries there are, for who speaks before the session was looked at; none where nothing was said in it. */
async function entriesOf(on: On): Promise<number> {
  const now = await on.api.get<SessionOverview>("/session", { session: on.session }).catch(() => undefined);
  return now?.entries ?? 0;
}

/** Whether a question that was not answered is in the transcript all the same. */
async function isStored(on: On, talk: Talk): Promise<boolean> {
  const query = { session: on.session, order: "desc", limit: 50 };
  const page = await on.api.get<EntryPage>("/session/transcript", query).catch(() => undefined);
  const isIt = (one: EntryView) => one.seq > talk.before && one.role === "user" && talk.text.startsWith(one.text);
  return Boolean(page?.entries.some(isIt));
}

const tell = (): void => listening.forEach((hear) => hear());

/** Pieces of an answer come faster than anybody reads: they are shown once a frame. */
let frame = 0;
function soon(): void {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    tell();
  });
}
