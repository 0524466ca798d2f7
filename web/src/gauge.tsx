// One line about the prompt: how full it is, in which zone, for how long, what was evicted and what came back.
import type { Report } from "./answers";
import { many, percent, whole } from "./format";
import { useAsked, useOn } from "./on";
import { ZoneBadge } from "./widgets";

export function Gauge() {
  const { session, now } = useOn();
  const report = useAsked<Report>(now ? "/session/context" : "", { session });
  if (!now) return <div class="gauge" />;
  const { tokens, room, utilization, zone, turn, turns_until_red } = now.reading;
  const recalled = report.found?.recalled.length ?? 0;
  const says = `${whole(tokens)} of ${whole(room)} tokens, ${percent(utilization)}, zone ${zone}`;
  return (
    <div class="gauge">
      <div
        class={`gauge-bar fill-${zone}`}
        role="meter"
        aria-label="Tokens in the prompt"
        aria-valuemin={0}
        aria-valuemax={room}
        aria-valuenow={tokens}
        aria-valuetext={says}
      >
        <span style={{ width: `${Math.min(utilization, 1) * 100}%` }} />
      </div>
      <p class="gauge-line">
        <span>
          <strong>{whole(tokens)}</strong> of {whole(room)} tokens · {percent(utilization)}
        </span>
        <ZoneBadge zone={zone} />
        <span>turn {whole(turn)}</span>
        {turns_until_red !== null && zone !== "red" && <span>{many(turns_until_red, "turn")} until red</span>}
        <span>{whole(now.left_messages)} evicted</span>
        <span>{whole(recalled)} recalled</span>
      </p>
    </div>
  );
}
