// One entry: what it says, where it is, which decisions evicted or shortened it and why, and what can be done.
import type { EntryDecision, EntryHistory } from "../answers";
import { Long, Pinned } from "../transcript/entry";
import { line, many, percent, safe, when, whole } from "../format";
import { useAsked, useOn } from "../on";
import { PinButton } from "../pin";
import { Restore } from "../restore";
import { Badge, Button, Dialog, Facts, PlaceBadge, Refusal, Waiting } from "../widgets";

export interface HistoryProps {
  seq: number;
  onClose: () => void;
  /** Shows the window after an entry. */
  onMove: (at: number) => void;
}

export function HistoryDialog({ seq, onClose, onMove }: HistoryProps) {
  const on = useOn();
  const { found, refused } = useAsked<EntryHistory>("/session/entry/history", { session: on.session, seq });
  const history = found?.entry.seq === seq ? found : undefined;
  const entry = history?.entry;
  return (
    <Dialog title={`Entry ${whole(seq)}`} wide onClose={onClose} actions={entry && <Actions history={history} />}>
      <Refusal refused={refused} />
      {!refused && !entry && <Waiting kind="tall" />}
      {entry && (
        <div class="stack">
          <p class="actions">
            <strong>{safe(entry.kind === "message" ? entry.role : entry.kind)}</strong>
            <PlaceBadge place={entry.place} />
            {entry.pinned && <Pinned />}
          </p>
          {history.decisions.map((one) => (
            <Decision key={one.decision.seq} made={one} onMove={onMove} />
          ))}
          {entry.place === "out" && !history.decisions.length && (
            <p class="muted">
              {history.more ? "No decision about it among the next 50,000 entries." : "No decision evicted it: the prompt cannot hold it, or begins after it."}
            </p>
          )}
          <div class="entry-part" tabIndex={0} role="region" aria-label="Text">
            <Long text={entry.text} plain />
            {entry.cut && <p class="muted small">It goes on: see the transcript.</p>}
          </div>
          <Facts
            facts={[
              ["Tokens", whole(entry.tokens)],
              ["Stored", when(entry.ts)],
            ]}
          />
        </div>
      )}
    </Dialog>
  );
}

function Decision({ made, onMove }: { made: EntryDecision; onMove: (at: number) => void }) {
  const { decision } = made;
  return (
    <div class="decision-line">
      <p>
        <Badge kind={made.action === "evicted" ? "place-out" : "place-trimmed"}>{made.action}</Badge> by{" "}
        <strong>{safe(decision.policy)}</strong> in decision {whole(decision.seq)}: {safe(decision.reason)}.
      </p>
      <p class="muted small">
        The prompt was {percent(made.utilization)} full ({whole(made.tokens_before)} tokens) and {whole(made.tokens_after)}{" "}
        afterwards; relief begins at {percent(made.ceiling)}. {many(decision.messages, "message")}, {when(decision.ts)}.
      </p>
      <p class="actions">
        <Restore seq={decision.seq} undone={decision.undone} />
        <Button kind="quiet" onClick={() => onMove(decision.seq - 1)}>
          Window before
        </Button>
        <Button kind="quiet" onClick={() => onMove(decision.seq)}>
          Window after
        </Button>
      </p>
    </div>
  );
}

function Actions({ history }: { history: EntryHistory }) {
  const on = useOn();
  const { entry } = history;
  if (entry.kind !== "message") return <a href={on.link("transcript", { seq: entry.seq })}>In the transcript</a>;
  return (
    <>
      <PinButton seq={entry.seq} pinned={entry.pinned} restores={entry.place === "out" || entry.place === "recalled"} />
      <a href={on.link("recall", { q: line(entry.text, 200) })}>Find similar</a>
      <a href={on.link("transcript", { seq: entry.seq })}>In the transcript</a>
    </>
  );
}
