// The panel with tokens over time: the chart, its table, and a dialog for each decision.
import { useMemo, useState } from "preact/hooks";
import type { DecisionPage, DecisionSummary, Timeline, TurnPoint } from "../answers";
import { Chart } from "../chart";
import { many, safe, when, whole, words } from "../format";
import { type Asked, useAsked, useOn } from "../on";
import { Restore } from "../restore";
import { AsTable, Badge, Button, Dialog, Empty, Facts, Panel, Refusal, Waiting, ZoneBadge } from "../widgets";
import { marksOf, overTime } from "./over_time";

const PAGE = 2_000;

export interface OverTimeProps {
  asked: Asked<Timeline>;
  decided: ReadonlyMap<number, DecisionSummary>;
  /** The entry it begins with; nothing for the newest ones. */
  from: number | undefined;
  onFrom: (from: number | undefined) => void;
}

export function OverTime({ asked, decided, from, onFrom }: OverTimeProps) {
  const { look, now } = useOn();
  const [open, setOpen] = useState<number>();
  const timeline = asked.found;
  const option = useMemo(() => timeline && overTime(timeline, decided), [timeline, decided, look]);
  const clicked = (event: { name: string; seriesName?: string }) => {
    if (event.seriesName === "decision") setOpen(Number(event.name));
  };
  const first = timeline?.points[0]?.first ?? 1;
  const earlier = first > 1 ? () => onFrom(Math.max(1, first - PAGE)) : undefined;
  const next = from === undefined ? null : (timeline?.next ?? null);
  const atEnd = next !== null && next + PAGE > (now?.entries ?? 0);
  const later = next === null ? undefined : () => onFrom(atEnd ? undefined : next);
  const actions = (earlier || later) && (
    <>
      <Button disabled={!earlier} onClick={earlier}>
        Earlier
      </Button>
      <Button disabled={!later} onClick={later}>
        Later
      </Button>
    </>
  );
  return (
    <Panel
      title="Tokens over time"
      note="At the end of each turn, and the peak in it; a mark for each decision"
      actions={actions}
    >
      <Refusal refused={asked.refused} />
      {!timeline && asked.loading && <Waiting kind="over-time" />}
      {timeline && !timeline.points.length && <Empty title="No turn yet." />}
      {timeline && option && timeline.points.length > 0 && (
        <>
          <Chart kind="over-time" option={option} onClick={clicked} label={label(timeline)} />
          <Marks timeline={timeline} decided={decided} onOpen={setOpen} />
          <AsTable
            title="Turns as a table"
            label="Turns"
            columns={COLUMNS}
            rows={[...timeline.points].reverse().slice(0, 200)}
            id={(point) => point.first}
          />
        </>
      )}
      {open !== undefined && <DecisionDialog seq={open} onClose={() => setOpen(undefined)} />}
    </Panel>
  );
}

function label(timeline: Timeline): string {
  const turns = many(timeline.points.length, "turn");
  return `Tokens of the prompt over ${turns}, with ${many(marksOf(timeline).length, "decision")}`;
}

const COLUMNS = [
  { title: "Turn", number: true, show: (point: TurnPoint) => whole(point.turn) },
  { title: "Entries", show: (point: TurnPoint) => `${point.first}–${point.last}` },
  { title: "Tokens", number: true, show: (point: TurnPoint) => whole(point.tokens) },
  { title: "Peak", number: true, show: (point: TurnPoint) => whole(point.peak) },
  { title: "Zone", show: (point: TurnPoint) => <ZoneBadge zone={point.zone} /> },
  { title: "Messages in", number: true, show: (point: TurnPoint) => whole(point.messages) },
  { title: "Had left", number: true, show: (point: TurnPoint) => whole(point.left) },
  { title: "Recalled", number: true, show: (point: TurnPoint) => whole(point.recalled) },
];

interface MarksProps {
  timeline: Timeline;
  decided: ReadonlyMap<number, DecisionSummary>;
  onOpen: (seq: number) => void;
}

/** The decisions of the chart, for the keyboard and for who cannot see it; the newest first. */
function Marks({ timeline, decided, onOpen }: MarksProps) {
  const marks = marksOf(timeline).reverse().slice(0, 100);
  const columns = [
    {
      title: "Decision",
      show: ({ mark }: (typeof marks)[number]) => (
        <Button kind="quiet" label={`Open decision ${mark.seq}`} onClick={() => onOpen(mark.seq)}>
          {mark.seq}
        </Button>
      ),
    },
    { title: "Turn", number: true, show: ({ point }: (typeof marks)[number]) => whole(point.turn) },
    { title: "What", show: ({ mark }: (typeof marks)[number]) => words(safe(mark.kind)) },
    { title: "Tokens", number: true, show: ({ mark }: (typeof marks)[number]) => whole(mark.frees) },
    {
      title: "Why",
      show: ({ mark }: (typeof marks)[number]) => (
        <>
          {safe(decided.get(mark.seq)?.reason ?? "")}{" "}
          {decided.get(mark.seq)?.undone && <Badge kind="undone">restored</Badge>}
        </>
      ),
    },
  ];
  return (
    <AsTable
      title={`Decisions as a table (${whole(marks.length)})`}
      label="Decisions"
      columns={columns}
      rows={marks}
      id={({ mark }) => mark.seq}
      empty="No decision yet: everything fits."
    />
  );
}

/** One decision: what was evicted, why, and the way back. */
function DecisionDialog({ seq, onClose }: { seq: number; onClose: () => void }) {
  const on = useOn();
  const asked = useAsked<DecisionPage>("/session/decisions", { session: on.session, from: seq, limit: 1 });
  const one = asked.found?.decisions.find((decision) => decision.seq === seq);
  const undoing = asked.found && !one;
  const title = undoing ? `Entry ${seq}` : `Decision ${seq}`;
  return (
    <Dialog title={title} onClose={onClose} actions={one && <Restore seq={seq} undone={one.undone} />}>
      <Refusal refused={asked.refused} />
      {!asked.found && asked.loading && <Waiting />}
      {undoing && (
        <p>
          A decision was undone here: the evicted messages are in the prompt again.{" "}
          <a href={on.link("decisions")}>Decisions</a> has them all, and the way to do it again.
        </p>
      )}
      {one && (
        <>
          <p>
            <strong>
              {many(one.messages, "message")} left the prompt, {whole(one.frees)} tokens
            </strong>
          </p>
          <p>{safe(one.reason)}</p>
          <Facts
            facts={[
              ["Kind", words(safe(one.kind))],
              ["Policy", safe(one.policy)],
              ["When", when(one.ts)],
            ]}
          />
          <p class="muted small">
            Nothing was deleted: every message stays in the transcript, and recall can bring it back. Restore undoes the
            decision for good.
          </p>
        </>
      )}
      <p>
        <a href={on.link("transcript", { seq })}>Entry {seq} in the transcript</a>
      </p>
    </Dialog>
  );
}
