// The window as one stacked bar: what each component holds, what is free, and the reserve kept for the answer.
import type { ComponentUsage, Report, Timeline } from "../answers";
import { type ChartOption, colour, dress } from "../chart";
import { whole } from "../format";

/** The parts of the context window by name. */
export const COMPONENTS: Record<ComponentUsage["component"], string> = {
  system: "System",
  tools: "Tools",
  history: "History",
  results: "Tool results",
  memory: "Memory",
  reserve: "Output reserve",
};

/** What is part of the prompt. */
export const held = (report: Report): ComponentUsage[] => report.components.filter((one) => one.component !== "reserve");

/** The components, and the notice of evicted messages, which is none of them. */
const segments = (report: Report) => [
  ...held(report).map((one) => ({
    name: COMPONENTS[one.component],
    shade: one.component as string,
    used: one.used,
    about: `${whole(one.used)} tokens, at most ${whole(one.hard)}`,
  })),
  {
    name: "Eviction notice",
    shade: "marker",
    used: report.marker_tokens,
    about: `${whole(report.marker_tokens)} tokens for the notice of evicted messages, notes and summary`,
  },
];

/** What is behind the bar, named in the legend alone: both areas may be narrower than their names. */
const BEHIND = [
  { name: "Free", shade: "free", used: 0, about: "" },
  { name: COMPONENTS.reserve, shade: "reserve", used: 0, about: "" },
];

/** Zones may begin close to each other: yellow is named left of its line, red right of it, orange above both. */
const LABEL = {
  yellow: { align: "right" },
  orange: { align: "center", distance: 19 },
  red: { align: "left" },
} as const;

export function windowBar(report: Report, zones: Timeline | undefined): ChartOption {
  const { text, axis, tooltip, legend } = dress();
  const part = (from: number, to: number, shade: string) => [
    { xAxis: from, itemStyle: { color: colour(shade) } },
    { xAxis: to },
  ];
  const begins = zones && (["yellow", "orange", "red"] as const).map((zone) => ({ zone, at: zones[zone] }));
  const marks = {
    symbol: "none",
    silent: true,
    data: (begins ?? []).map(({ zone, at }) => ({
      xAxis: at * report.room,
      lineStyle: { color: colour(zone), type: "dashed", width: 1.5 },
      label: { ...text, color: colour(zone), formatter: zone, position: "end", ...LABEL[zone] },
    })),
  };
  const areas = {
    silent: true,
    data: [part(report.tokens, report.room, "free"), part(report.room, report.window, "reserve")],
  };
  return {
    grid: { left: 4, right: 14, top: 88, bottom: 4, containLabel: true },
    legend: { ...legend, top: 0, left: 0, selectedMode: false },
    tooltip: { ...tooltip, trigger: "item" },
    xAxis: { type: "value", max: report.window, ...axis, splitLine: { show: false } },
    yAxis: { type: "category", data: ["window"], show: false },
    series: [...segments(report).filter((one) => one.used > 0), ...BEHIND].map((one, place) => ({
      name: one.name,
      type: "bar",
      stack: "window",
      barWidth: "72%",
      data: [one.used],
      itemStyle: { color: colour(one.shade), borderColor: colour("sheet"), borderWidth: one.used ? 1 : 0 },
      tooltip: { formatter: () => `${one.name}\n${one.about}` },
      ...(place === 0 ? { markArea: areas, markLine: marks } : {}),
    })),
  };
}

/** Each component beside what it may use: a bar, a mark where it is warned about, and one where it ends. */
export function budgets(report: Report): ChartOption {
  const { axis, tooltip, legend } = dress();
  const parts = report.components;
  const mark = (name: string, shade: string, at: (one: ComponentUsage) => number, height: number) => ({
    name,
    type: "line",
    symbol: "rect",
    symbolSize: [3, height],
    lineStyle: { opacity: 0 },
    itemStyle: { color: colour(shade) },
    data: parts.map((one) => [at(one), COMPONENTS[one.component]]),
  });
  const tell = (place: number) => {
    const one = parts[place]!;
    const begins = `${COMPONENTS[one.component]}: ${one.level}\n${whole(one.used)} tokens used`;
    return `${begins}\nwarned at ${whole(one.soft)}, at most ${whole(one.hard)}`;
  };
  return {
    grid: { left: 4, right: 14, top: 34, bottom: 4, containLabel: true },
    legend: { ...legend, top: 0, left: 0, selectedMode: false },
    tooltip: { ...tooltip, formatter: (item: { dataIndex: number }) => tell(item.dataIndex) },
    xAxis: { type: "value", ...axis },
    yAxis: { type: "category", inverse: true, data: parts.map((one) => COMPONENTS[one.component]), ...axis },
    series: [
      {
        name: "used",
        type: "bar",
        barWidth: 12,
        itemStyle: { color: colour("edge"), borderRadius: 3 },
        data: parts.map((one) => ({ value: one.used, itemStyle: { color: colour(one.component) } })),
      },
      mark("warned at", "yellow", (one) => one.soft, 16),
      mark("at most", "red", (one) => one.hard, 22),
    ],
  };
}
