// A conversation in the session that is looked at: what was said, what of it the model still sees, and what Recto did
// in between. The gateway holds the history; only what is said now is sent.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { DecisionPage, EntryPage, EntryView, Report } from "../answers";
import { Turn, type TurnProps } from "../chat/turn";
import { Composer } from "../chat/composer";
import { useConversation } from "../chat/conversation";
import { NewSession } from "../chat/new_session";
import { hindrance, useAsked, useOn } from "../on";
import { Button, Empty, Refusal, Waiting } from "../widgets";

const FIRST = 60;
const MOST = 200;

export function Chat() {
  const on = useOn();
  const [limit, setLimit] = useState(FIRST);
  const query = { session: on.session, order: "desc", limit };
  const page = useAsked<EntryPage>(on.now ? "/session/transcript" : "", query);
  const decisions = useAsked<DecisionPage>(on.now ? "/session/decisions" : "", { session: on.session, limit: 50 });
  const report = useAsked<Report>(on.now ? "/session/context" : "", { session: on.session });
  const entries = useMemo(() => [...(page.found?.entries ?? [])].reverse(), [page.found]);
  const talk = useConversation(entries);
  const shared = useMemo(
    () => ({
      decisions: decisions.found?.decisions ?? [],
      recalled: { hits: report.found?.recalled ?? [], tokens: report.found?.recalled_tokens ?? 0 },
    }),
    [decisions.found, report.found],
  );
  const older = page.found?.next;
  return (
    <div class="chat">
      <Log entries={entries} talk={talk} shared={shared}>
        {older && limit < MOST && (
          <Button kind="quiet" onClick={() => setLimit(Math.min(limit * 2, MOST))}>
            Earlier messages
          </Button>
        )}
        {older && limit >= MOST && (
          <a href={on.link("transcript", { seq: older })}>Earlier messages, in the transcript</a>
        )}
        <Refusal refused={page.refused} />
        {on.now && page.loading && !page.found && <Waiting kind="page" />}
        {!entries.length && !talk.said && !(on.now && page.loading) && <Nothing />}
      </Log>
      <div class="chat-foot">
        <Refusal refused={talk.refused} />
        <Composer talk={talk} extra={<NewSession />} />
      </div>
    </div>
  );
}

const BEGIN = "Say something below. The gateway keeps every message; the gauge shows how much of it the model sees.";

function Nothing() {
  const on = useOn();
  return (
    <Empty title="Nothing was said here yet.">
      <p>{hindrance(on, "ask") || BEGIN}</p>
    </Empty>
  );
}

interface LogProps {
  entries: EntryView[];
  talk: ReturnType<typeof useConversation>;
  shared: Pick<TurnProps, "decisions" | "recalled">;
  children: preact.ComponentChildren;
}

/** What was said, and what is being said. It stays at its end unless the reader scrolled away. */
function Log({ entries, talk, shared, children }: LogProps) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  // The box itself comes with the event: a last one may arrive when the ref is empty already.
  const scrolled = ({ currentTarget }: preact.TargetedEvent<HTMLDivElement>) => {
    const { scrollHeight, scrollTop, clientHeight } = currentTarget;
    atEnd.current = scrollHeight - scrollTop - clientHeight < 80;
  };
  useEffect(() => {
    if (talk.said) atEnd.current = true;
  }, [talk.said]);
  useLayoutEffect(() => {
    if (atEnd.current) box.current!.scrollTop = box.current!.scrollHeight;
  });
  // Kept as they are while an answer streams in: a frame of it then costs the same however much is above.
  const turns = useMemo(() => {
    const last = entries.findLast((entry) => entry.role === "user")?.seq ?? 0;
    return entries.map((entry) => <Turn key={entry.seq} entry={entry} latest={entry.seq > last} {...shared} />);
  }, [entries, shared]);
  return (
    <div
      ref={box}
      class="chat-log"
      role="log"
      aria-live="off"
      aria-label="Conversation"
      tabIndex={0}
      onScroll={scrolled}
    >
      <div class="chat-column">
        {children}
        {turns}
        {talk.said && <Saying text={talk.said} role="user" />}
        {talk.answering !== null && <Saying text={talk.answering} role="assistant" state={talk.state} since={talk.since} />}
        <p class="unseen" aria-live="polite">
          {talk.heard}
        </p>
      </div>
    </div>
  );
}

/** What is on its way and not in the transcript yet. */
function Saying(props: { text: string; role: "user" | "assistant"; state?: string | undefined; since?: number }) {
  const { text, role, state, since } = props;
  const asking = state === "asking";
  const name = role === "user" ? "You, now" : "The answer";
  return (
    <article class={`turn by-${role}`} aria-label={name} aria-busy={asking ? "true" : undefined}>
      <div class="bubble said" dir="auto">
        {text || (asking ? "…" : "")}
        {asking && <span class="caret" aria-hidden="true" />}
      </div>
      {asking && since !== undefined && <Elapsed since={since} />}
      {state === "stopped" && <p class="turn-foot muted">Stopped.</p>}
    </article>
  );
}

/** How long the answer has been awaited. */
function Elapsed({ since }: { since: number }) {
  const [now, set] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <p class="turn-foot muted" role="timer" aria-label="Waiting for the answer">
      {Math.max(0, Math.floor((now - since) / 1_000))} s
    </p>
  );
}
