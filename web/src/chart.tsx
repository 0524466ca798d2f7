// A chart of ECharts in a box that fits its place. Tooltips are drawn as text, never as markup: what they say may come
// from a transcript.
import { BarChart, LineChart, TreemapChart } from "echarts/charts";
import {
  AriaComponent,
  DataZoomComponent,
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

use([
  AriaComponent,
  BarChart,
  CanvasRenderer,
  DataZoomComponent,
  GridComponent,
  LegendComponent,
  LineChart,
  MarkAreaComponent,
  MarkLineComponent,
  MarkPointComponent,
  TooltipComponent,
  TreemapChart,
]);

export interface ChartProps {
  option: EChartsCoreOption;
  /** What it shows, for who cannot see it. */
  label: string;
  /** A class of the style sheet, which gives its height. */
  kind: string;
  onClick?: (told: { name: string; dataIndex: number; seriesName?: string; data: unknown }) => void;
}

export function Chart({ option, label, kind, onClick }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<EChartsType>(undefined);
  const clicked = useRef(onClick);
  clicked.current = onClick;
  useEffect(() => {
    const made = init(box.current!, undefined, { renderer: "canvas" });
    chart.current = made;
    made.on("click", (told: unknown) => clicked.current?.(told as never));
    const watch = new ResizeObserver(() => made.resize());
    watch.observe(box.current!);
    return () => {
      watch.disconnect();
      made.dispose();
    };
  }, []);
  useEffect(() => {
    const tooltip = { renderMode: "richText", confine: true, ...(option.tooltip as object | undefined) };
    chart.current?.setOption({ animation: false, aria: { enabled: true }, ...option, tooltip }, { notMerge: true });
  }, [option]);
  return <div ref={box} class={`chart ${kind}`} role="img" aria-label={label} />;
}

/** A colour of the style sheet, as charts want it. */
export const colour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
