// Moves through a session in time: any entry, turn after turn, or by itself.
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import type { Timeline, TurnPoint } from "../answers";
import { many, whole } from "../format";
import { useAsked, useOn } from "../on";
import { useShortcut } from "../shortcuts";
import { Button } from "../widgets";

const EACH = 900;
const PAGE = 2_000;

export interface ScrubberProps {
  /** The entry that is shown; nothing for now. */
  at: number | undefined;
  last: number;
  /** Whether what is shown is what was asked for. */
  settled: boolean;
  onMove: (at: number | undefined) => void;
}

export function Scrubber({ at, last, settled, onMove }: ScrubberProps) {
  const { session } = useOn();
  const [playing, play] = useState(false);
  const here = at ?? last;
  const from = Math.max(1, Math.floor((here - 1) / PAGE) * PAGE + 1);
  const turns = useAsked<Timeline>("/session/timeline", { session, from }).found?.points ?? [];
  const stops = useMemo(() => turns.map((point) => point.last), [turns]);
  const before = stops.findLast((seq) => seq < here) ?? (from > 1 ? from - 1 : undefined);
  const after = stops.find((seq) => seq > here) ?? (here < last ? Math.min(from + PAGE, last) : undefined);
  const move = (seq: number | undefined) => onMove(seq === undefined || seq >= last ? undefined : seq);
  useShortcut("[", "Turn before", useCallback(() => before !== undefined && move(before), [before, last]));
  useShortcut("]", "Turn after", useCallback(() => after !== undefined && move(after), [after, last]));
  useEffect(() => {
    if (!playing || !settled) return undefined;
    if (at === undefined) {
      play(false);
      return undefined;
    }
    const timer = window.setTimeout(() => move(after), EACH);
    return () => clearTimeout(timer);
  }, [playing, settled, at, after]);
  const start = () => {
    if (!playing && at === undefined) move(stops[0] ?? 1);
    play(!playing);
  };
  const turn = turns.find((point) => point.first <= here && here <= point.last);
  return (
    <div class="scrubber" role="group" aria-label="Time">
      <Button label="Turn before" disabled={before === undefined} onClick={() => move(before)}>
        ◀
      </Button>
      <Button label={playing ? "Pause" : "Play turn after turn"} pressed={playing} onClick={start}>
        {playing ? "❚❚" : "▶"}
      </Button>
      <Button label="Turn after" disabled={after === undefined} onClick={() => move(after)}>
        ▶|
      </Button>
      <div class="scrubber-line">
        <Marks turns={turns} last={last} />
        <input
          type="range"
          min={1}
          max={Math.max(last, 1)}
          value={here}
          aria-label="Entry"
          aria-valuetext={at === undefined ? "now" : `after entry ${here}`}
          onInput={(event) => {
            play(false);
            move(Number(event.currentTarget.value));
          }}
        />
      </div>
      <Button pressed={at === undefined} onClick={() => move(undefined)}>
        Now
      </Button>
      <p class="muted small scrubber-says" role="status">
        {at === undefined ? "What would be sent next" : `After entry ${whole(here)}`}
        {turn && turn.decisions.length > 0 && ` · ${many(turn.decisions.length, "decision")} in this turn`}
      </p>
    </div>
  );
}

/** A mark for each decision. */
function Marks({ turns, last }: { turns: readonly TurnPoint[]; last: number }) {
  const marks = turns.flatMap((point) => point.decisions);
  return (
    <svg class="scrubber-marks" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">
      {marks.map((mark) => (
        <rect key={mark.seq} class={`mark-${mark.kind}`} x={(mark.seq / Math.max(last, 1)) * 1000} y={0} width={2} height={10} />
      ))}
    </svg>
  );
}
