// A recalled message one can judge: why it was recalled, in words, and whether it helped.
import type { RecallHit } from "./answers";
import { safe } from "./format";
import { useOn } from "./on";
import { PinButton } from "./pin";
import { toast } from "./toasts";
import { Button, Refusal, useDoing } from "./widgets";

type Verdict = NonNullable<RecallHit["verdict"]>;

export interface JudgeProps {
  pointer: string;
  /** Its entry; nothing for one of another session, which cannot be pinned here. */
  seq: number | null;
  /** The user message it was quoted for; nothing for a search. */
  question?: number;
  verdict: Verdict | null;
}

export function Reasons({ reasons }: { reasons: readonly string[] }) {
  if (!reasons.length) return null;
  return (
    <p class="small reasons">
      <span class="muted">Recalled because it</span> {reasons.map(safe).map(asClause).join(", and it ")}.
    </p>
  );
}

/** "close in meaning" is no sentence after "it". */
const asClause = (reason: string): string => (/^(close|from) /.test(reason) ? `is ${reason}` : reason);

export function Judge({ pointer, seq, question, verdict }: JudgeProps) {
  const on = useOn();
  const { busy, refused, run } = useDoing();
  const name = seq === null ? "the quotation" : `entry ${seq}`;
  const store = (what: Verdict) =>
    on.api.post("/session/recall/judge", { pointer, verdict: what, ...(question ? { question } : {}) }, { session: on.session });
  const judge = async (what: Verdict) => {
    const now = verdict === what ? "withdrawn" : what;
    if (!(await run(() => store(now)))) return;
    const says = { helpful: "judged helpful", not_helpful: "judged not helpful", withdrawn: "no longer judged" }[now];
    toast(`${name[0]!.toUpperCase()}${name.slice(1)} ${says}`, () => store(verdict ?? "withdrawn"));
    on.changed();
  };
  return (
    <div class="actions judge">
      {seq !== null && <PinButton seq={seq} pinned={false} />}
      <Button kind="quiet" needs="change" disabled={busy} pressed={verdict === "helpful"} label={`Helpful: ${name}`} onClick={() => judge("helpful")}>
        <span aria-hidden="true">▲</span> Helpful
      </Button>
      <Button kind="quiet" needs="change" disabled={busy} pressed={verdict === "not_helpful"} label={`Not helpful: ${name}`} onClick={() => judge("not_helpful")}>
        <span aria-hidden="true">▼</span> Not helpful
      </Button>
      <Refusal refused={refused} />
    </div>
  );
}
