// How a session is, and where it is heading: what should be looked at, how measures move, and the turns they are of.
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Alert, Forecast, HealthReport, PressureReading, Trend, TurnHealth } from "../answers";
import { Chart, colour, shareAxis } from "../chart";
import { many, percent, safe, when, whole, words } from "../format";
import { useAsked, useOn } from "../on";
import { AsTable, Badge, Choice, type Column, Empty, Facts, Panel, Refusal, Table, Waiting, ZoneBadge } from "../widgets";

const TURNS = ["20", "50", "100", "200", "500"].map((count) => [count, `Last ${count} turns`] as const);
const SHARES = new Set(["utilization", "bloat", "prefix", "protected", "fidelity", "estimate_error"]);

export function Health() {
  const { session } = useOn();
  const [turns, choose] = useState("50");
  const { found, refused } = useAsked<HealthReport>("/session/health", { session, turns });
  return (
    <div class="stack">
      <div class="form narrow">
        <Choice label="Turns" value={turns} options={TURNS} onChange={choose} />
      </div>
      <Refusal refused={refused} />
      {!found && !refused && <Waiting kind="tall" />}
      {found && <Alerts alerts={found.alerts} failed={found.sinks_failed} />}
      {found && !found.turns.length && (
        <Panel title="Turns">
          <Empty title="No turn was measured yet.">
            <p>A turn is a prompt that got its answer; it appears here after the first answer.</p>
          </Empty>
        </Panel>
      )}
      {found && found.turns.length > 0 && <Measured found={found} />}
    </div>
  );
}

function Measured({ found }: { found: HealthReport }) {
  return (
    <>
      {found.forecast && found.reading && <Ahead forecast={found.forecast} reading={found.reading} />}
      <div class="charts">
        {CHARTS.map((chart) => (
          <OverTurns key={chart.title} {...chart} turns={found.turns} />
        ))}
      </div>
      <Panel title="Trends" note="How each measure moves over these turns: its newer half against its older one.">
        <Table label="Trend of each measure" columns={TRENDS} rows={found.trends} id={(row) => row.name} />
      </Panel>
      <Panel title="Turns" note="Newest first.">
        <Turns turns={found.turns} />
      </Panel>
    </>
  );
}

function Alerts({ alerts, failed }: { alerts: Alert[]; failed: number }) {
  return (
    <Panel title="Alerts" note={alerts.length ? many(alerts.length, "alert") : "Nothing needs to be looked at."}>
      {failed > 0 && (
        <p class="note-line">An alert exporter failed {many(failed, "time")}; the gateway's log has the error.</p>
      )}
      {alerts.length > 0 && (
        <ul class="alerts" aria-label="Alerts">
          {alerts.map((one) => (
            <li key={one.name} class={`alert grade-${one.grade}`}>
              <div class="entry-head">
                <Badge kind={one.grade === "critical" ? "bad" : "warning"} sign={one.grade === "critical" ? "■" : "▲"}>
                  {one.grade}
                </Badge>
                <strong>{words(one.name)}</strong>
                <span class="muted small entry-about">
                  since turn {whole(one.turn)} · {when(one.ts)}
                </span>
              </div>
              <p>{safe(one.says)}</p>
              <p>
                <strong>What to do:</strong> {safe(one.action)}
              </p>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Ahead({ forecast, reading }: { forecast: Forecast; reading: PressureReading }) {
  const turns = (count: number | null) =>
    count === null ? "not at this pace" : count === 0 ? "now" : `in ${many(count, "turn")}`;
  return (
    <Panel title="Forecast" note="At the pace of the last turns.">
      <Facts
        facts={[
          ["Prompt", `${whole(reading.tokens)} of ${whole(reading.room)}`],
          ["Zone", <ZoneBadge zone={reading.zone} />],
          ["Turn", whole(reading.turn)],
          ["Pace", `${whole(Math.round(forecast.pace))} tokens a turn`],
          ["Red", turns(forecast.until_red)],
          ["Full if nothing is evicted", turns(forecast.until_full)],
        ]}
      />
    </Panel>
  );
}

interface Curve {
  name: string;
  of: (turn: TurnHealth) => number | null;
  /** A colour of the style sheet. */
  colour: string;
  bar?: boolean;
}

interface Drawn {
  title: string;
  note: string;
  share: boolean;
  curves: Curve[];
  /** What is said where no turn has any of it. */
  empty: string;
}

const CHARTS: readonly Drawn[] = [
  {
    title: "Utilization",
    note: "The share of the input budget that is used, and the share that is protected.",
    share: true,
    curves: [
      { name: "Utilization", of: (turn) => turn.utilization, colour: "history" },
      { name: "Protected", of: (turn) => turn.protected, colour: "system" },
    ],
    empty: "",
  },
  {
    title: "Prefix",
    note: "The share of the prompt, from its beginning, that did not change since the last turn.",
    share: true,
    curves: [{ name: "Prefix", of: (turn) => turn.prefix, colour: "results" }],
    empty: "",
  },
  {
    title: "Cache",
    note: "Prompt tokens read from and written to the provider's cache, as it reports them.",
    share: false,
    curves: [
      { name: "Read", of: (turn) => turn.cache_read || null, colour: "results", bar: true },
      { name: "Written", of: (turn) => turn.cache_write || null, colour: "memory", bar: true },
    ],
    empty: "The provider reports no cache.",
  },
  {
    title: "Recall",
    note: "Questions for which something was recalled, and for which nothing was.",
    share: false,
    curves: [
      { name: "Hits", of: (turn) => turn.recall_hits || null, colour: "recalled", bar: true },
      { name: "Misses", of: (turn) => turn.recall_misses || null, colour: "orange", bar: true },
    ],
    empty: "Nothing was recalled in these turns.",
  },
  {
    title: "Regret",
    note: "Evicted messages that were needed again soon after.",
    share: false,
    curves: [{ name: "Regret", of: (turn) => turn.regret || null, colour: "red", bar: true }],
    empty: "No evicted message was needed again.",
  },
  {
    title: "Fidelity",
    note: "The lowest score of a summary against the messages it covers.",
    share: true,
    curves: [{ name: "Fidelity", of: (turn) => turn.fidelity, colour: "green" }],
    empty: "Nothing was summarised in these turns.",
  },
  {
    title: "Estimate error",
    note: "How far the provider's token count differs from ours.",
    share: true,
    curves: [{ name: "Estimate error", of: (turn) => turn.estimate_error, colour: "orange" }],
    empty: "The provider reports no token count.",
  },
];

function OverTurns({ title, note, share, curves, empty, turns }: Drawn & { turns: TurnHealth[] }) {
  const { look } = useOn();
  const shown = (value: number | null): string => (value === null ? "–" : share ? percent(value, 1) : whole(value));
  const option = useMemo(() => optionOf(curves, turns, share, shown), [curves, turns, share, look]);
  const columns: Column<TurnHealth>[] = [
    { title: "Turn", show: (turn) => whole(turn.turn), number: true },
    ...curves.map((curve) => ({ title: curve.name, show: (turn: TurnHealth) => shown(curve.of(turn)), number: true })),
  ];
  const some = turns.some((turn) => curves.some((curve) => curve.of(turn) !== null));
  return (
    <Panel title={title} note={note}>
      {some ? (
        <>
          <Chart kind="over-turns" option={option} label={`${title} over ${many(turns.length, "turn")}`} />
          <AsTable label={title} columns={columns} rows={turns} id={(turn) => turn.turn} />
        </>
      ) : (
        <Empty title={empty} />
      )}
    </Panel>
  );
}

function optionOf(curves: Curve[], turns: TurnHealth[], share: boolean, shown: (value: number | null) => string) {
  const muted = { color: colour("muted") };
  const lines = { lineStyle: { color: colour("line") } };
  const shares = share ? shareAxis(curves.flatMap((curve) => turns.map(curve.of))) : undefined;
  return {
    grid: { left: 8, right: 12, top: curves.length > 1 ? 28 : 12, bottom: 4, containLabel: true },
    legend: curves.length > 1 ? { top: 0, left: 0, itemHeight: 10, textStyle: { color: colour("ink") } } : undefined,
    tooltip: {
      trigger: "axis",
      valueFormatter: (value: number | null | undefined) => shown(value ?? null),
      backgroundColor: colour("sheet"),
      borderColor: colour("line"),
      textStyle: { color: colour("ink") },
    },
    xAxis: {
      type: "category",
      data: turns.map((turn) => whole(turn.turn)),
      axisLabel: { ...muted, hideOverlap: true },
      axisLine: lines,
      axisTick: { show: false },
    },
    yAxis: {
      type: "value",
      minInterval: shares?.minInterval ?? 1,
      axisLabel: { ...muted, hideOverlap: true, formatter: shares?.label ?? whole },
      splitLine: lines,
    },
    series: curves.map((curve) => ({
      type: curve.bar ? "bar" : "line",
      name: curve.name,
      stack: curve.bar ? "all" : undefined,
      data: turns.map(curve.of),
      showSymbol: turns.length < 3 || turns.filter((turn) => curve.of(turn) !== null).length < 3,
      connectNulls: true,
      itemStyle: { color: colour(curve.colour) },
      lineStyle: { width: 2 },
    })),
  };
}

const formatted = (name: string, value: number | null): string => {
  if (value === null) return "–";
  return SHARES.has(name) ? percent(value, 1) : value.toLocaleString("en", { maximumFractionDigits: 2 });
};

const ARROWS: Record<Trend["direction"], string> = { rising: "↗", falling: "↘", steady: "→" };

function Direction({ trend }: { trend: Trend }): ComponentChildren {
  return (
    <Badge kind={trend.worse ? "warning" : "plain"} sign={ARROWS[trend.direction]}>
      {trend.direction}
      {trend.worse && ", worse"}
    </Badge>
  );
}

const TRENDS: Column<Trend>[] = [
  { title: "Measure", show: (row) => words(row.name) },
  { title: "Now", show: (row) => formatted(row.name, row.now), number: true },
  {
    title: "Change",
    show: (row) => (row.delta !== null && row.delta > 0 ? "+" : "") + formatted(row.name, row.delta),
    number: true,
  },
  { title: "Direction", show: (row) => <Direction trend={row} /> },
];

function Turns({ turns }: { turns: TurnHealth[] }) {
  const on = useOn();
  const number = (title: string, of: (turn: TurnHealth) => string): Column<TurnHealth> => ({
    title,
    show: of,
    number: true,
  });
  const columns: Column<TurnHealth>[] = [
    {
      title: "Turn",
      show: (turn) => <a href={on.link("transcript", { seq: turn.seq })}>{whole(turn.turn)}</a>,
      number: true,
    },
    { title: "When", show: (turn) => <span class="no-wrap">{when(turn.ts)}</span> },
    number("Tokens", (turn) => whole(turn.tokens)),
    number("Utilization", (turn) => percent(turn.utilization)),
    number("Evicted", (turn) => whole(turn.evicted)),
    number("Freed", (turn) => whole(turn.freed)),
    number("Added", (turn) => whole(turn.burn)),
    number("Tool results", (turn) => percent(turn.bloat)),
    number("Prefix", (turn) => percent(turn.prefix)),
    number("Recalled", (turn) => whole(turn.recall_hits)),
    number("Regret", (turn) => whole(turn.regret)),
    number("Not indexed", (turn) => whole(turn.index_lag)),
    { title: "Model", show: (turn) => safe(turn.model) },
  ];
  return (
    <Table
      label="Measures of each turn"
      columns={columns}
      rows={useMemo(() => turns.toReversed().slice(0, 100), [turns])}
      id={(turn) => turn.turn}
    />
  );
}
