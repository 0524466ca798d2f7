// The sessions of the key's tenant, by key: each with its title, size, last time, and a small curve of its last turns.
// A curve is asked for where it is seen, a few at a time, and kept until the session has grown.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { SessionListItem, SessionPage, Timeline } from "./answers";
import type { Api } from "./api";
import { Chart, colour } from "./chart";
import { many, percent, safe, when, whole } from "./format";
import { useOn } from "./on";
import { useWalk, type Walk, type Walking } from "./walking";
import { Badge, Button, Choice, Field, Refusal, Waiting, ZoneBadge } from "./widgets";

const SHOWN = 30;
const ASKED = 200;
const KINDS = [
  ["", "All kinds"],
  ["conversation", "Conversations"],
  ["memory", "Memory"],
] as const;

export function Sessions() {
  const { api, asker } = useOn();
  const [typed, type] = useState("");
  const [wanted, want] = useState("");
  const [kind, choose] = useState("");
  useEffect(() => {
    const settled = setTimeout(() => want(typed.trim().toLowerCase()), 250);
    return () => clearTimeout(settled);
  }, [typed]);
  const found = useWalk(
    JSON.stringify([wanted, kind]),
    useMemo(() => listing(api, wanted, kind), [api, wanted, kind]),
    !wanted && !kind,
  );
  return (
    <section class="sessions" aria-label="Sessions">
      <h2>Sessions</h2>
      <div class="sessions-find">
        <Field quiet type="search" label="Find a session" placeholder="Find a session" value={typed} onInput={type} />
        <Choice quiet label="Kind of session" value={kind} options={KINDS} onChange={choose} />
      </div>
      <Refusal refused={found.refused} />
      {found.busy && found.reached && (
        <p class="muted small" role="status">
          Looking past {safe(found.reached)} …{" "}
          <Button kind="quiet" label="Stop looking for sessions" onClick={found.cancel}>
            Stop
          </Button>
        </p>
      )}
      {found.busy && !found.rows.length && <Waiting kind="rows" />}
      {!found.busy && !found.refused && !found.rows.length && (
        <p class="muted small">
          {wanted || kind ? "No session is called like that." : "No session yet: say something in Chat."}
        </p>
      )}
      <ul class="sessions-list">
        {!wanted && !kind && !found.busy && !found.back && !found.rows.some((line) => line.session === asker.main) && (
          <Unbegun session={asker.main} />
        )}
        {found.rows.map((line) => (
          <Line key={line.session} line={line} />
        ))}
      </ul>
      <Pages back={found.back} forward={found.forward} />
    </section>
  );
}

function Pages({ back, forward }: Pick<Walking<SessionListItem, string>, "back" | "forward">) {
  if (!back && !forward) return null;
  return (
    <nav class="sessions-pages" aria-label="Pages of sessions">
      <Button kind="quiet" label="Sessions before" disabled={!back} onClick={back}>
        ← Before
      </Button>
      <Button kind="quiet" label="More sessions" disabled={!forward} onClick={forward}>
        More →
      </Button>
    </nav>
  );
}

function listing(api: Api, wanted: string, kind: string): Walk<SessionListItem, string> {
  const filtered = Boolean(wanted || kind);
  const fits = (line: SessionListItem) =>
    (!kind || line.kind === kind) && [line.title, line.session, line.agent, line.project].join("\n").toLowerCase().includes(wanted);
  return {
    most: SHOWN,
    at: (_, before) => before.session,
    ask: async (after, most, signal) => {
      const page = await api.get<SessionPage>("/sessions", { after, limit: filtered ? ASKED : most }, signal);
      return { rows: page.sessions.filter(fits), next: page.next };
    },
  };
}

/** The session that a question without any other goes to, before there is one. */
function Unbegun({ session }: { session: string }) {
  const on = useOn();
  return (
    <li>
      <a
        class="session-line"
        href={on.link("chat", { session })}
        aria-current={session === on.session ? "true" : undefined}
      >
        <span class="session-line-name">{safe(session)}</span>
        <span class="session-line-about">nothing said yet</span>
      </a>
    </li>
  );
}

function Line({ line }: { line: SessionListItem }) {
  const on = useOn();
  const { box, curve } = useCurve(line);
  return (
    <li>
      <a
        ref={box}
        class="session-line"
        href={on.link(on.view, { session: line.session })}
        aria-current={line.session === on.session ? "true" : undefined}
      >
        <span class="session-line-name" title={safe(line.title || line.session)}>
          {safe(line.title || line.session)}
        </span>
        {line.title && (
          <span class="session-line-key" title={safe(line.session)}>
            {safe(line.session)}
          </span>
        )}
        {line.agent && (
          <span class="session-line-key" title={safe(line.project || line.agent)}>
            {safe(line.agent)}
            {line.project && ` in ${safe(folder(line.project))}`}
          </span>
        )}
        <span class="session-line-about">
          <span>{many(line.entries, "entry", "entries")}</span>
          {line.kind === "memory" && <Badge kind="kind-memory">memory</Badge>}
        </span>
        <span class="session-line-curve">{curve && curve.points.length > 1 && <Curve curve={curve} />}</span>
        <time class="session-line-when">{when(line.last_ts).slice(0, 16)}</time>
        <span class="session-line-zone">{curve && curve.points.length > 0 && <ZoneBadge zone={curve.zone} />}</span>
      </a>
    </li>
  );
}

/** The last name of a path; the whole path is its title. */
function folder(path: string): string {
  return path.split(/[\\/]/).filter(Boolean).at(-1) ?? path;
}

function Curve({ curve }: { curve: Timeline }) {
  const { look } = useOn();
  const option = useMemo(() => {
    const line = colour("accent");
    return {
      grid: { left: 1, right: 1, top: 2, bottom: 2 },
      tooltip: { show: false },
      xAxis: { type: "category", show: false, boundaryGap: false },
      yAxis: { type: "value", show: false, min: 0, max: 1 },
      series: [
        {
          type: "line",
          data: curve.points.map((point) => point.utilization),
          showSymbol: false,
          silent: true,
          lineStyle: { width: 1.5, color: line },
          areaStyle: { color: line, opacity: 0.12 },
          markLine: {
            silent: true,
            symbol: "none",
            label: { show: false },
            lineStyle: { color: colour("red"), width: 1, type: "dotted" },
            data: [{ yAxis: curve.red }],
          },
        },
      ],
    };
  }, [curve, look]);
  const turns = whole(curve.points.length);
  const says = `Input budget used over the last ${turns} turns; now ${percent(curve.utilization)}`;
  return <Chart kind="spark" option={option} label={says} />;
}

interface Kept {
  entries: number;
  curve: Promise<Timeline>;
}

/** The curves that are known, by gateway and key; and how many are being asked for. */
const curves = new WeakMap<Api, Map<string, Kept>>();
const MOST_KEPT = 500;
const AT_ONCE = 2;
const waiting: Array<() => void> = [];
let under_way = 0;

async function inTurn<T>(does: () => Promise<T>): Promise<T> {
  if (under_way >= AT_ONCE) await new Promise<void>((go) => waiting.push(go));
  under_way++;
  try {
    return await does();
  } finally {
    under_way--;
    waiting.shift()?.();
  }
}

function curveOf(api: Api, line: SessionListItem): Promise<Timeline> {
  const known = curves.get(api) ?? new Map<string, Kept>();
  curves.set(api, known);
  const kept = known.get(line.session);
  if (kept?.entries === line.entries) return kept.curve;
  const curve = inTurn(() => api.get<Timeline>("/session/timeline", { session: line.session, limit: 200 }));
  curve.catch(() => known.delete(line.session));
  known.set(line.session, { entries: line.entries, curve });
  if (known.size > MOST_KEPT) known.delete(known.keys().next().value!);
  return curve;
}

/** The curve of a session, once its line is seen. */
function useCurve(line: SessionListItem) {
  const { api } = useOn();
  const box = useRef<HTMLAnchorElement>(null);
  const [curve, set] = useState<Timeline>();
  useEffect(() => {
    if (line.kind === "memory") return undefined; // no request uses it
    let gone = false;
    const watch = new IntersectionObserver(([seen]) => {
      if (!seen?.isIntersecting) return;
      watch.disconnect();
      curveOf(api, line)
        .then((found) => !gone && set(found))
        .catch(() => {}); // a line without a curve says all that is known
    });
    watch.observe(box.current!);
    return () => {
      gone = true;
      watch.disconnect();
    };
  }, [api, line.session, line.entries]);
  return { box, curve };
}
