// Where the tokens go, as a treemap: components, and in them the largest holders.
import type { ComponentUsage, Report, TokenHolder } from "../answers";
import { type ChartOption, chartText, colour, dress } from "../chart";
import { percent, safe, whole } from "../format";
import { COMPONENTS, held } from "./window";

/** What a holder is called. */
export function holderName(one: TokenHolder): string {
  if (one.seq === null) return words(one.what);
  const tools = one.tools.filter(Boolean).map(safe).join(", ");
  return `${one.seq} ${safe(one.role)}${tools ? `: ${tools}` : ""}`;
}

const words = (what: string): string => (what === "frame" ? "frame around messages" : safe(what));

/** Which component a holder counts for. */
export function componentOf(one: TokenHolder): ComponentUsage["component"] | "" {
  if (one.what === "tools") return "tools";
  if (one.seq === null) return "";
  if (one.role === "tool") return "results";
  return one.role === "system" || one.role === "developer" ? "system" : "history";
}

export function treemap(report: Report): ChartOption {
  const { tooltip, text } = dress();
  const written = { ...text, color: colour("on-accent") };
  const parts = held(report).filter((one) => one.used > 0);
  return {
    tooltip: { ...tooltip, formatter: (item: { data?: { says?: string } }) => item.data?.says ?? "" },
    series: [
      {
        type: "treemap",
        roam: false,
        nodeClick: false,
        breadcrumb: { show: false },
        left: 0,
        right: 0,
        top: 0,
        bottom: 0,
        upperLabel: { ...written, show: true, height: 26, fontWeight: 600, padding: [0, 8] },
        label: { ...written, position: "insideTopLeft", distance: 7, lineHeight: 16, overflow: "truncate" },
        levels: [
          { itemStyle: { gapWidth: 4, borderWidth: 0, borderColor: colour("sheet") }, upperLabel: { show: false } },
          { itemStyle: { gapWidth: 1, borderWidth: 1 } },
        ],
        data: parts.map((part) => branch(report, part)),
      },
    ],
  };
}

const tell = (one: TokenHolder): string =>
  `${holderName(one)}\n${whole(one.tokens)} tokens, ${percent(one.share, 1)} of the prompt, ${one.condition}`;

function branch(report: Report, part: ComponentUsage): object {
  const shade = colour(part.component);
  const leaves = report.largest.filter((one) => componentOf(one) === part.component);
  const rest = leaves.reduce((left, one) => left - one.tokens, part.used); // a space in the picture, never a number
  const leaf = { color: shade, borderColor: colour("sheet") };
  const says = `${COMPONENTS[part.component]}\n${whole(part.used)} tokens`;
  return {
    name: `${COMPONENTS[part.component]}: ${whole(part.used)}`,
    value: part.used,
    says,
    itemStyle: { color: shade, borderColor: shade },
    children: [
      ...leaves.map((one) => ({
        name: chartText(holderName(one)),
        value: one.tokens,
        seq: one.seq,
        says: chartText(tell(one)),
        label: { formatter: `{b}\n${whole(one.tokens)}` },
        itemStyle: leaf,
      })),
      ...(rest > 0 ? [{ name: "smaller ones", value: rest, says: `smaller ones of ${says}`, itemStyle: leaf }] : []),
    ],
  };
}
