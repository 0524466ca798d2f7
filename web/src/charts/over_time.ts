// Tokens over time, turn by turn, with the zones behind them and a mark for each decision.
import type { DecisionMark, DecisionSummary, Timeline, TurnPoint } from "../answers";
import { type ChartOption, chartText, colour, dress } from "../chart";
import { many, whole, words } from "../format";

const MANY = 60;

export interface Marked {
  mark: DecisionMark;
  point: TurnPoint;
}

export const marksOf = (timeline: Timeline): Marked[] =>
  timeline.points.flatMap((point) => point.decisions.map((mark) => ({ mark, point })));

/** What was evicted, and why, as far as it is known. */
export function tellMark(mark: DecisionMark, decided: DecisionSummary | undefined): string {
  if (mark.kind === "restored") return `entry ${mark.seq}: a decision was undone`;
  const freed = `${words(mark.kind)}, ${whole(mark.frees)} tokens`;
  if (!decided) return `entry ${mark.seq}: ${freed}`;
  const undone = decided.undone ? " (restored since)" : "";
  return `entry ${mark.seq}: ${many(decided.messages, "message")} evicted${undone}, ${freed}\n  ${decided.reason}`;
}

export function overTime(timeline: Timeline, decided: ReadonlyMap<number, DecisionSummary>): ChartOption {
  const { text, axis, tooltip, legend } = dress();
  const points = timeline.points;
  const long = points.length > MANY;
  const marks = marksOf(timeline);
  const curve = (name: string, shade: string, at: (point: TurnPoint) => number, more: object) => ({
    name,
    type: "line",
    showSymbol: false,
    itemStyle: { color: colour(shade) },
    data: points.map((point) => [point.turn, at(point)]),
    ...more,
  });
  return {
    grid: { left: 4, right: 12, top: 38, bottom: long ? 46 : 24, containLabel: true },
    legend: { ...legend, top: 0, left: 0, selectedMode: false },
    tooltip: {
      ...tooltip,
      trigger: "axis",
      axisPointer: { type: "line", lineStyle: { color: colour("edge") } },
      formatter: (items: Array<{ value: [number, number] }>) => {
        const point = points.find((one) => one.turn === items[0]?.value[0]);
        return point ? chartText(tellPoint(point, decided)) : "";
      },
    },
    xAxis: {
      type: "value",
      min: points[0]?.turn,
      max: points.at(-1)?.turn,
      minInterval: 1,
      name: "turn",
      nameLocation: "middle",
      nameGap: 24,
      ...axis,
      splitLine: { show: false },
    },
    yAxis: {
      type: "value",
      max: (range: { max: number }) => round(Math.max(timeline.room, range.max)),
      ...axis,
      splitLine: { show: false },
    },
    dataZoom: long ? [{ type: "slider", height: 16, bottom: 4, textStyle: text }] : [],
    series: [
      curve("tokens", "accent", (point) => point.tokens, {
        lineStyle: { width: 2, color: colour("accent") },
        markArea: { silent: true, data: bands(timeline) },
      }),
      curve("peak", "edge", (point) => point.peak, {
        lineStyle: { width: 1, type: "dashed", color: colour("edge") },
      }),
      curve("recalled", "recalled", (point) => point.recalled, {
        lineStyle: { width: 1, color: colour("recalled") },
        areaStyle: { color: colour("recalled"), opacity: 0.25 },
      }),
      {
        name: "decision",
        type: "line",
        symbol: "pin",
        symbolSize: 18,
        showAllSymbol: true,
        lineStyle: { opacity: 0 },
        itemStyle: { color: colour("orange"), borderColor: colour("sheet"), borderWidth: 1 },
        data: marks.map(({ mark, point }) => ({
          value: [point.turn, point.peak],
          name: String(mark.seq),
          symbol: mark.kind === "restored" ? "diamond" : "pin",
          itemStyle: { color: colour(mark.kind === "restored" ? "accent" : "orange") },
        })),
      },
    ],
  };
}

/** Up to a number that is easy to read on an axis. */
function round(tokens: number): number {
  const step = Math.max(10 ** Math.floor(Math.log10(tokens)) / 5, 1);
  return Math.ceil(tokens / step) * step;
}

function bands(timeline: Timeline): object[] {
  const { room, yellow, orange, red } = timeline;
  const { text } = dress();
  const band = (zone: string, from: number, to: number) => [
    {
      yAxis: from * room,
      itemStyle: { color: colour(`${zone}-soft`), opacity: 0.55 },
      name: zone,
      label: { ...text, color: colour(zone), position: "insideTopRight", distance: 4 },
    },
    { yAxis: to * room },
  ];
  return [band("green", 0, yellow), band("yellow", yellow, orange), band("orange", orange, red), band("red", red, 1)];
}

function tellPoint(point: TurnPoint, decided: ReadonlyMap<number, DecisionSummary>): string {
  return [
    `turn ${whole(point.turn)}, entries ${point.first} to ${point.last}`,
    `${whole(point.tokens)} tokens, zone ${point.zone}; ${whole(point.peak)} at most`,
    `${many(point.messages, "message")} in, ${whole(point.left)} evicted, ${whole(point.recalled)} tokens recalled`,
    ...point.decisions.map((mark) => tellMark(mark, decided.get(mark.seq))),
  ].join("\n");
}
