// The window: on the left the whole transcript, on the right the prompt as it is sent; at any moment of the session.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { WindowView } from "../answers";
import { many, percent, whole } from "../format";
import { useOn } from "../on";
import { useWindowAt } from "../window/at";
import { Blocks } from "../window/blocks";
import { HistoryDialog } from "../window/entry_history";
import { Legend, Minimap, placeOf, SpanTable } from "../window/minimap";
import { Scrubber } from "../window/scrubber";
import { Refusal, Waiting, ZoneBadge } from "../widgets";

const REST = 400;

export function Window() {
  const on = useOn();
  const given = Number(on.given.get("at"));
  const asked = Number.isInteger(given) && given > 0 ? given : undefined;
  const [at, move] = useState(asked);
  const [open, show] = useState<number>();
  const { view, refused, loading } = useWindowAt(at);
  useEffect(() => move(asked), [on.given]);
  useEffect(() => {
    // The address follows once the scrubber rests, and leaves no trail of steps behind it.
    const timer = setTimeout(() => history.replaceState(null, "", on.link("window", { at })), REST);
    return () => clearTimeout(timer);
  }, [at]);
  // The same nodes until another window is fetched: while the scrubber moves, only the scrubber is drawn.
  const shown = useMemo(
    () =>
      view && (
        <>
          <Summary view={view} />
          <Fill view={view} />
          <Sides view={view} onOpen={show} />
          <Legend />
          <SpanTable view={view} onOpen={show} />
        </>
      ),
    [view],
  );
  const last = Math.max(view?.last ?? 1, on.now?.entries ?? 1);
  return (
    <div class="stack window-view" data-at={view?.at}>
      <Scrubber at={at} last={last} settled={!loading} onMove={move} />
      <Refusal refused={refused} />
      {!view && loading && <Waiting kind="window" />}
      {shown}
      {open !== undefined && (
        <HistoryDialog
          seq={open}
          onClose={() => show(undefined)}
          onMove={(seq) => {
            show(undefined);
            move(seq > 0 ? seq : 1);
          }}
        />
      )}
    </div>
  );
}

function Summary({ view }: { view: WindowView }) {
  return (
    <p class="window-says">
      <strong>Turn {whole(view.turn)}</strong> · {whole(view.tokens)} of {many(view.room, "token")} (
      {percent(view.utilization)}) <ZoneBadge zone={view.zone} /> · {many(view.messages, "message")} in the prompt ·{" "}
      {whole(view.evicted)} evicted
      {view.counted !== view.tokens && <span class="muted small">· {whole(view.counted)} by our own count</span>}
    </p>
  );
}

/** The prompt as one bar, block by block, with what is free. */
function Fill({ view }: { view: WindowView }) {
  const room = Math.max(view.room, view.tokens, 1);
  let from = 0;
  return (
    <svg class="fill" viewBox="0 0 1000 14" preserveAspectRatio="none" role="img" aria-label={`${percent(view.utilization)} of the input budget is used`}>
      <rect class="fill-free" x={0} y={0} width={1000} height={14} />
      {view.blocks.map((block, place) => {
        const x = (from / room) * 1000;
        from += block.tokens;
        const kind = block.what === "message" ? `role-${block.role}` : `block-${block.what}`;
        return <rect key={place} class={`fill-part ${kind}`} x={x} y={0} width={Math.max((block.tokens / room) * 1000 - 0.6, 0.4)} height={14} />;
      })}
    </svg>
  );
}

/** Transcript and prompt beside each other, with a curve from each recalled block to its sources. */
function Sides({ view, onOpen }: { view: WindowView; onOpen: (seq: number) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const [pointed, point] = useState<readonly number[]>([]);
  const [curves, draw] = useState<Curve[]>([]);
  useLayoutEffect(() => {
    const sides = box.current!;
    const quotes = view.blocks.some((block) => block.sources.length); // without any, nothing has to be measured
    const again = () => draw((before) => (quotes || before.length ? curvesOf(sides, view) : before));
    again();
    const list = sides.querySelector(".blocks-side");
    list?.addEventListener("scroll", again, { passive: true });
    const size = new ResizeObserver(again);
    size.observe(sides);
    return () => {
      list?.removeEventListener("scroll", again);
      size.disconnect();
    };
  }, [view]);
  const blocks = useMemo(() => <Blocks view={view} onOpen={onOpen} onPoint={point} />, [view]);
  return (
    <div ref={box} class="sides">
      <Minimap view={view} marked={pointed[0]} onOpen={onOpen} />
      <svg class="curves" aria-hidden="true">
        {curves.map(({ seq, path }) => (
          <path key={seq} class={pointed.includes(seq) ? "curve pointed" : "curve"} d={path} />
        ))}
      </svg>
      <div class="blocks-side" tabIndex={0} role="region" aria-label="The prompt">
        {blocks}
      </div>
    </div>
  );
}

interface Curve {
  seq: number;
  path: string;
}

function curvesOf(sides: HTMLElement, view: WindowView): Curve[] {
  const map = sides.querySelector(".minimap")!.getBoundingClientRect();
  const gap = sides.querySelector(".curves")!.getBoundingClientRect();
  const found: Curve[] = [];
  for (const block of view.blocks) {
    if (!block.sources.length) continue;
    const shown = sides.querySelector(`[data-block="${block.what}"]`)?.getBoundingClientRect();
    if (!shown) continue;
    const to = Math.min(Math.max(shown.top + 16, gap.top), gap.bottom) - gap.top;
    for (const seq of block.sources) {
      const from = map.top + placeOf(seq, view.last) * map.height - gap.top;
      const middle = gap.width / 2;
      found.push({ seq, path: `M0 ${from} C${middle} ${from} ${middle} ${to} ${gap.width} ${to}` });
    }
  }
  return found;
}
