// The whole transcript as a strip: one line for each entry, from the oldest at the top, coloured by where it is.
import { useEffect, useRef } from "preact/hooks";
import type { EntrySpan, WindowView } from "../answers";
import { whole } from "../format";
import { colour } from "../chart";
import { useOn } from "../on";
import { AsTable, Button } from "../widgets";

type Place = EntrySpan["place"];

export const PLACES: Record<Place, [label: string, says: string]> = {
  in: ["In the prompt", "In the prompt, and may be evicted"],
  protected: ["Protected", "In the prompt, and is not evicted"],
  pinned: ["Pinned", "Kept in the prompt by hand"],
  trimmed: ["Trimmed", "In the prompt in a shorter form"],
  recalled: ["Recalled", "Evicted, and quoted in the prompt"],
  summarized: ["Summarised", "Evicted; a summary in the prompt covers it"],
  evicted: ["Evicted", "Not in the prompt; it stays in the transcript"],
  event: ["Event", "No message: decisions, usage, notes"],
};
/** What is drawn over what: a recalled line must be seen among thousands of evicted ones. */
const ORDER: Place[] = ["event", "evicted", "summarized", "in", "protected", "trimmed", "pinned", "recalled"];
const THIN = 2;

export interface MinimapProps {
  view: WindowView;
  /** An entry that is marked. */
  marked: number | undefined;
  onOpen: (seq: number) => void;
}

export function Minimap({ view, marked, onOpen }: MinimapProps) {
  const { look } = useOn();
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const draw = () => canvas.current && paint(canvas.current, view, marked);
    draw();
    const size = new ResizeObserver(draw);
    size.observe(canvas.current!);
    return () => size.disconnect();
  }, [view, marked, look]);
  const clicked = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const seq = Math.ceil(((event.clientY - box.top) / box.height) * view.last);
    onOpen(Math.min(Math.max(seq, 1), view.at));
  };
  return <canvas ref={canvas} class="minimap" aria-hidden="true" onClick={clicked} />;
}

/** Where an entry is drawn, from the top of the strip, as a share of its height. */
export const placeOf = (seq: number, last: number): number => (seq - 0.5) / Math.max(last, 1);

function paint(canvas: HTMLCanvasElement, view: WindowView, marked: number | undefined): void {
  const scale = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const drawing = canvas.getContext("2d");
  if (!drawing || !width) return;
  drawing.scale(scale, scale);
  const row = height / Math.max(view.last, 1);
  for (const place of ORDER) {
    drawing.fillStyle = colour(`place-${place}`);
    for (const span of view.spans) {
      if (span.place !== place) continue;
      const high = Math.max((span.last - span.first + 1) * row, place === "event" ? row : THIN);
      drawing.fillRect(0, (span.first - 1) * row, width, high - (row > 3 ? 1 : 0));
    }
  }
  drawing.fillStyle = colour("paper");
  drawing.fillRect(0, view.at * row, width, height);
  drawing.fillStyle = colour("ink");
  drawing.fillRect(0, Math.min(view.at * row, height - THIN), width, THIN);
  if (marked !== undefined) drawing.fillRect(width - 8, placeOf(marked, view.last) * height - 3, 8, 6);
}

export function Legend() {
  return (
    <ul class="legend" aria-label="Colours of the transcript">
      {ORDER.toReversed().map((place) => (
        <li key={place} title={PLACES[place][1]}>
          <span class={`swatch swatch-${place}`} aria-hidden="true" /> {PLACES[place][0]}
        </li>
      ))}
    </ul>
  );
}

export function SpanTable({ view, onOpen }: { view: WindowView; onOpen: (seq: number) => void }) {
  const columns = [
    {
      title: "Entries",
      show: (span: EntrySpan) => (
        <Button kind="quiet" label={`Open entry ${span.first}`} onClick={() => onOpen(span.first)}>
          {span.first === span.last ? whole(span.first) : `${whole(span.first)}–${whole(span.last)}`}
        </Button>
      ),
    },
    { title: "Where", show: (span: EntrySpan) => PLACES[span.place][0] },
    { title: "Means", show: (span: EntrySpan) => PLACES[span.place][1] },
  ];
  const rows = view.spans.filter((span) => span.place !== "event").slice(-400).reverse();
  return (
    <AsTable title="The transcript as a table" label="Where entries are" columns={columns} rows={rows} id={(span) => span.first} />
  );
}
