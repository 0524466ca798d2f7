// The budget: what each component of the prompt uses, how it came to be so, and where the tokens go.
import { useMemo, useState } from "preact/hooks";
import type {
  ComponentUsage,
  DecisionPage,
  DecisionSummary,
  PromptPiece,
  PromptRun,
  Report,
  Timeline,
  TokenHolder,
} from "../answers";
import { Chart } from "../chart";
import { componentOf, holderName, treemap } from "../charts/treemap";
import { budgets, COMPONENTS, windowBar } from "../charts/window";
import { OverTime } from "../charts/over_time_panel";
import { dollars, line, many, percent, when, whole, words } from "../format";
import { useAsked, useOn } from "../on";
import { AsTable, Badge, Empty, Facts, Pager, Panel, Refusal, Table, Waiting } from "../widgets";

export function Budget() {
  const { session } = useOn();
  const [from, setFrom] = useState<number>();
  const report = useAsked<Report>("/session/context", { session });
  const timeline = useAsked<Timeline>("/session/timeline", { session, from });
  const decisions = useAsked<DecisionPage>("/session/decisions", { session, limit: 200 });
  const decided = useMemo(
    () => new Map<number, DecisionSummary>((decisions.found?.decisions ?? []).map((one) => [one.seq, one])),
    [decisions.found],
  );
  return (
    <div class="stack budget">
      <Refusal refused={report.refused} />
      {!report.found && report.loading && <Waiting kind="window" />}
      {report.found && <Now report={report.found} timeline={timeline.found} />}
      {report.found?.run && <Sent last={report.found.run} />}
      <OverTime asked={timeline} decided={decided} from={from} onFrom={setFrom} />
      {report.found && <Holders report={report.found} />}
    </div>
  );
}

function Now({ report, timeline }: { report: Report; timeline: Timeline | undefined }) {
  const { look } = useOn();
  const bar = useMemo(() => windowBar(report, timeline), [report, timeline, look]);
  const each = useMemo(() => budgets(report), [report, look]);
  const { cache, recalled, recalled_tokens } = report;
  const cached = cache && <Fact value={cache.prefix} of="token" and={`${percent(cache.share)}, estimated`} />;
  const parts = report.components.map((one) => `${COMPONENTS[one.component]} ${whole(one.used)}`).join(", ");
  return (
    <>
      <Panel
        title="What is in the window"
        note={`${whole(report.window)} tokens: ${whole(report.room)} for the prompt, the rest is the output reserve`}
      >
        <Chart kind="window-bar" option={bar} label={`The window by component: ${parts}`} />
        <Facts
          facts={[
            ["In the prompt", <Fact value={report.messages} of="message" />],
            ["Protected", <Fact value={report.protected_tokens} of="token" />],
            ["Evicted", <Fact value={report.left_messages} of="message" and={many(report.left_tokens, "token")} />],
            [
              "Tools left out",
              <Fact value={report.tools_left_out} of="tool" and={many(report.tools_left_out_tokens, "token")} />,
            ],
            ["Recalled", <Fact value={recalled.length} of="message" and={many(recalled_tokens, "token")} />],
            ["Cached", cached ?? "–"],
            ["Cost to send", cache ? dollars(cache.picodollars) : "–"],
          ]}
        />
      </Panel>
      <Panel title="Budget of each component">
        <Chart kind="budgets" option={each} label="What each component uses, and where it is warned about and ends" />
        <AsTable label="Components" columns={USAGE} rows={report.components} id={(one) => one.component} />
      </Panel>
    </>
  );
}

/** The last prompt as it was sent, piece by piece, and any before it. */
function Sent({ last }: { last: PromptRun }) {
  const { session } = useOn();
  const [wanted, setWanted] = useState<number>();
  const asked = useAsked<Report>(wanted === undefined ? "" : "/session/context", { session, run: wanted });
  const run = wanted === undefined ? last : (asked.found?.run ?? last);
  const { previous } = run;
  return (
    <Panel
      title="What was sent"
      note={`Run ${run.seq}, ${when(run.ts)}: ${many(run.tokens, "token")}, output reserve ${whole(run.reserve)}.`}
    >
      <Refusal refused={asked.refused} />
      {run.pieces.length ? (
        <Table label="Pieces of the prompt" columns={PIECES} rows={run.pieces.map((one) => ({ ...one, of: run.tokens }))} id={(one) => `${one.kind} ${one.name}`} />
      ) : (
        <Empty title="What it was made of was not stored." />
      )}
      <Pager
        says={run.seq === last.seq ? "the last run" : `run ${run.seq}`}
        newer="Last run"
        older="Run before"
        onNewer={run.seq === last.seq ? undefined : () => setWanted(undefined)}
        onOlder={previous === null ? undefined : () => setWanted(previous)}
      />
    </Panel>
  );
}

type Piece = PromptPiece & { of: number };

const PIECES = [
  { title: "Piece", show: (one: Piece) => words(one.kind) },
  { title: "Name", show: (one: Piece) => line(one.name, 60) },
  { title: "Tokens", number: true, show: (one: Piece) => whole(one.tokens) },
  { title: "Share", number: true, show: (one: Piece) => percent(one.tokens / Math.max(one.of, 1), 1) },
  { title: "Of the file", number: true, show: (one: Piece) => (one.raw === null ? "" : whole(one.raw)) },
];

function Fact({ value, of, and }: { value: number; of: string; and?: string }) {
  return (
    <>
      {many(value, of)}
      {and && <span class="muted small"> {and}</span>}
    </>
  );
}

const USAGE = [
  { title: "Component", show: (one: ComponentUsage) => COMPONENTS[one.component] },
  { title: "Used", number: true, show: (one: ComponentUsage) => whole(one.used) },
  { title: "Warned at", number: true, show: (one: ComponentUsage) => whole(one.soft) },
  { title: "At most", number: true, show: (one: ComponentUsage) => whole(one.hard) },
  { title: "Level", show: (one: ComponentUsage) => <Badge kind={one.level}>{one.level}</Badge> },
  { title: "Per turn", number: true, show: (one: ComponentUsage) => whole(Math.round(one.burn)) },
  { title: "Turns left", number: true, show: (one: ComponentUsage) => (one.turns_left === null ? "–" : whole(one.turns_left)) },
];

function Holders({ report }: { report: Report }) {
  const on = useOn();
  const option = useMemo(() => treemap(report), [report, on.look]);
  const open = (clicked: { data: unknown }) => {
    const { seq } = (clicked.data ?? {}) as { seq?: number | null };
    if (typeof seq === "number") on.go("transcript", { seq });
  };
  if (!report.largest.length) return <Empty title="Nothing holds tokens yet." />;
  const columns = [
    { title: "Holder", show: (one: TokenHolder) => <Name one={one} /> },
    {
      title: "Component",
      show: (one: TokenHolder) => {
        const component = componentOf(one);
        return component && COMPONENTS[component];
      },
    },
    { title: "Tokens", number: true, show: (one: TokenHolder) => whole(one.tokens) },
    { title: "Share", number: true, show: (one: TokenHolder) => percent(one.share, 1) },
    { title: "Is", show: (one: TokenHolder) => one.condition },
  ];
  return (
    <Panel title="Where the tokens go" note="Components, and in them the largest holders; each opens its entry.">
      <Chart kind="treemap" option={option} label="Tokens of the prompt by component and holder" onClick={open} />
      <AsTable
        title="Largest holders as a table"
        label="Largest holders"
        columns={columns}
        rows={report.largest}
        id={(one) => one.seq ?? one.what}
      />
    </Panel>
  );
}

function Name({ one }: { one: TokenHolder }) {
  const on = useOn();
  if (one.seq === null) return <>{holderName(one)}</>;
  return <a href={on.link("transcript", { seq: one.seq })}>{holderName(one)}</a>;
}
