// A chart of ECharts in a box that fits its place. Tooltips are drawn as text, never as markup: what they say may come
// from a transcript.
import { BarChart, LineChart, TreemapChart } from "echarts/charts";
import {
  DataZoomSliderComponent,
  GridComponent,
  LegendComponent,
  MarkAreaComponent,
  MarkLineComponent,
  MarkPointComponent,
  TooltipComponent,
} from "echarts/components";
import { type EChartsCoreOption, type EChartsType, init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { useEffect, useRef } from "preact/hooks";
import { percent, safe } from "./format";

use([
  BarChart,
  CanvasRenderer,
  DataZoomSliderComponent,
  GridComponent,
  LegendComponent,
  LineChart,
  MarkAreaComponent,
  MarkLineComponent,
  MarkPointComponent,
  TooltipComponent,
  TreemapChart,
]);

export type ChartOption = EChartsCoreOption;

/** Foreign text in a chart: it has nothing unseen in it, and its braces style nothing. */
export const chartText = (text: string): string => safe(text).replaceAll("{", "｛").replaceAll("}", "｝");

export interface ChartProps {
  option: EChartsCoreOption;
  /** What it shows, for who cannot see it. */
  label: string;
  /** A class of the style sheet, which gives its height. */
  kind: string;
  onClick?: (event: { name: string; dataIndex: number; seriesName?: string; data: unknown }) => void;
}

export function Chart({ option, label, kind, onClick }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<EChartsType>(undefined);
  const clicked = useRef(onClick);
  clicked.current = onClick;
  useEffect(() => {
    const made = init(box.current!, undefined, { renderer: "canvas" });
    chart.current = made;
    made.on("click", (event: unknown) => clicked.current?.(event as never));
    const watch = new ResizeObserver(() => made.resize());
    watch.observe(box.current!);
    return () => {
      watch.disconnect();
      made.dispose();
    };
  }, []);
  useEffect(() => {
    const textStyle = { fontFamily: getComputedStyle(document.body).fontFamily };
    const tooltip = { renderMode: "richText", confine: true, ...(option.tooltip as object | undefined) };
    const drawn = { animation: false, textStyle, ...option, tooltip, dataZoom: zoomed(chart.current!, option) };
    chart.current!.setOption(drawn, { notMerge: true });
  }, [option]);
  return <div ref={box} class={`chart ${kind}`} role="img" aria-label={label} />;
}

/** The zoom that the reader chose stays where the chart is drawn again. */
function zoomed(chart: EChartsType, option: ChartOption): object[] {
  const wanted = (option.dataZoom ?? []) as object[];
  const before = ((chart.getOption() as ChartOption | undefined)?.dataZoom ?? []) as { start?: number; end?: number }[];
  return wanted.map((one, place) => ({ ...one, start: before[place]?.start, end: before[place]?.end }));
}

let probe: HTMLElement | undefined;

/** A colour of the style sheet, as charts want it: what it is now, dark or light. */
export function colour(name: string): string {
  if (!probe) {
    probe = document.createElement("span");
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** An axis of shares whose labels all differ: its steps are never smaller than what its labels show. */
export function shareAxis(values: readonly (number | null)[]): { minInterval: number; label: (value: number) => string } {
  const known = values.filter((value) => value !== null);
  const span = known.length ? Math.max(0, ...known) - Math.min(0, ...known) : 1;
  const digits = span > 0 && span < 0.05 ? 1 : 0;
  return { minInterval: 10 ** -(2 + digits), label: (value) => percent(value, digits) };
}

/** How axes, legends and tooltips of all charts look. */
export function dress(): { text: object; axis: object; tooltip: object; legend: object } {
  const text = { color: colour("muted"), fontFamily: getComputedStyle(document.body).fontFamily, fontSize: 12 };
  const axis = {
    axisLabel: { ...text, hideOverlap: true },
    nameTextStyle: text,
    axisLine: { lineStyle: { color: colour("line") } },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: colour("line") } },
  };
  const tooltip = {
    backgroundColor: colour("sheet"),
    borderColor: colour("edge"),
    borderWidth: 1,
    padding: [8, 10],
    textStyle: { ...text, color: colour("ink"), lineHeight: 18 },
  };
  return { text, axis, tooltip, legend: { textStyle: text, itemWidth: 12, itemHeight: 12, icon: "roundRect" } };
}
