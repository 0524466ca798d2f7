// The decisions of a session: what was evicted or shortened, why, and how much that freed; each can be undone and
// done again. Beside it the audit: whatever was done, at whose word.
import { useMemo, useState } from "preact/hooks";
import type { Api } from "../api";
import type { AuditPage, DecisionPage, DecisionSummary, StoredEvent } from "../answers";
import { Audit } from "../decisions/audit";
import { Compact } from "../decisions/compact";
import { Messages } from "../decisions/messages";
import { many, safe, when, whole, words } from "../format";
import { useOn } from "../on";
import { Restore } from "../restore";
import { useWalk, type Walk } from "../walking";
import { Badge, Button, Empty, Pager, Panel, Refusal, Tabs, useDoing, Waiting } from "../widgets";

const TABS = [
  ["decisions", "Decisions"],
  ["audit", "Audit"],
] as const;
const PAGE = 25;

export function Decisions() {
  const on = useOn();
  const tab = on.given.get("tab") === "audit" ? "audit" : "decisions";
  const [compacting, compact] = useState(false);
  return (
    <div class="stack">
      <div class="bar-of-tabs">
        <Tabs
          label="What was done"
          value={tab}
          options={TABS}
          onChange={(chosen) => on.go("decisions", { tab: chosen })}
        />
        <Button needs="change" onClick={() => compact(true)}>
          Compact …
        </Button>
      </div>
      {tab === "audit" ? <Audit /> : <Log />}
      {compacting && <Compact onClose={() => compact(false)} />}
    </div>
  );
}

const listing = (api: Api, session: string): Walk<DecisionSummary, number> => ({
  most: PAGE,
  at: (row) => row.seq,
  ask: async (from, limit, signal) => {
    const page = await api.get<DecisionPage>("/session/decisions", { session, from, limit }, signal);
    return { rows: page.decisions, next: page.next };
  },
});

function Log() {
  const { api, session } = useOn();
  const found = useWalk(
    session,
    useMemo(() => listing(api, session), [api, session]),
  );
  return (
    <Panel title="Decisions" note="Newest first. Restore brings back what a decision evicted; nothing is ever lost.">
      <Refusal refused={found.refused} />
      {found.busy && !found.rows.length && <Waiting kind="tall" />}
      {found.busy && found.reached !== null && (
        <p class="muted" role="status">
          Looking: at entry {whole(found.reached)}{" "}
          <Button kind="quiet" onClick={found.cancel}>
            Stop
          </Button>
        </p>
      )}
      {!found.busy && !found.refused && !found.rows.length && (
        <Empty title={found.next === null ? "Nothing was evicted so far." : "No decision so far back."}>
          {found.next === null && (
            <p>When the prompt grows too large for its window, what is done about it is listed here.</p>
          )}
        </Empty>
      )}
      <ol class="decisions" aria-label="Decisions">
        {found.rows.map((one) => (
          <Line key={one.seq} one={one} />
        ))}
      </ol>
      {(found.back || found.forward) && (
        <Pager
          says={`Page ${found.before + 1}`}
          newer="Newer"
          older="Older"
          onNewer={found.back}
          onOlder={found.forward}
        />
      )}
    </Panel>
  );
}

function Line({ one }: { one: DecisionSummary }) {
  const on = useOn();
  const [open, show] = useState(false);
  return (
    <li class={one.undone ? "decision undone" : "decision"} aria-label={`Decision ${one.seq}`}>
      <Head one={one} />
      <p>{safe(one.reason)}</p>
      <div class="decision-foot">
        <span>
          <strong>{many(one.messages, "message")}</strong> evicted or shortened,{" "}
          <strong>{many(one.frees, "token")}</strong> freed
        </span>
        <span class="actions">
          <Button kind="quiet" label={`Messages of decision ${one.seq}`} pressed={open} onClick={() => show(!open)}>
            Messages
          </Button>
          <a class="button quiet" href={on.link("window", { at: one.seq })} aria-label={`Window after decision ${one.seq}`}>
            Window
          </a>
          <a
            class="button quiet"
            href={on.link("compare", { first: one.seq - 1, second: one.seq })}
            aria-label={`Compare before and after decision ${one.seq}`}
          >
            Compare
          </a>
          {one.undone ? <Redo seq={one.seq} /> : <Restore seq={one.seq} undone={false} />}
        </span>
      </div>
      {open && <Messages seq={one.seq} />}
    </li>
  );
}

function Head({ one }: { one: DecisionSummary }) {
  const on = useOn();
  const says = `Entry ${one.seq} in the transcript`;
  return (
    <div class="entry-head">
      <a class="entry-seq" href={on.link("transcript", { seq: one.seq })} aria-label={says}>
        {whole(one.seq)}
      </a>
      <strong>{words(safe(one.kind))}</strong>
      {one.policy && <Badge kind="policy">{safe(one.policy)}</Badge>}
      {one.undone && (
        <Badge kind="warning" sign="↶">
          undone
        </Badge>
      )}
      <span class="muted small entry-about">{when(one.ts)}</span>
    </div>
  );
}

/** Does again what was undone, by naming the entry that undid it, which the audit knows. */
function Redo({ seq }: { seq: number }) {
  const { api, session, changed } = useOn();
  const { busy, refused, run } = useDoing();
  const redo = async () => {
    const done = await run(async () => {
      const { lines } = await api.get<AuditPage>("/session/audit", { session, from: seq, limit: 1 });
      await api.post<StoredEvent>("/session/redo", { restored: lines[0]?.undone_by ?? seq }, { session });
    });
    if (done) changed();
  };
  return (
    <>
      <Button needs="change" disabled={busy} label={`Redo decision ${seq}`} onClick={redo}>
        Redo
      </Button>
      <Refusal refused={refused} />
    </>
  );
}
