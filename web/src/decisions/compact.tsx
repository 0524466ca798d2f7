// Makes the prompt smaller now, on request; and what came of it.
import { useState } from "preact/hooks";
import type { CompactionResult, Compression } from "../answers";
import { many, percent, safe, whole } from "../format";
import { useOn } from "../on";
import { Button, Dialog, Facts, Field, Refusal, useDoing } from "../widgets";

export function Compact({ onClose }: { onClose: () => void }) {
  const on = useOn();
  const [focus, type] = useState("");
  const [done, setDone] = useState<CompactionResult>();
  const { busy, refused, run } = useDoing();
  const compact = async (event: Event) => {
    event.preventDefault();
    const went = await run(async () =>
      setDone(await on.api.post<CompactionResult>("/session/compact", { focus: focus.trim() }, { session: on.session })),
    );
    if (went) on.changed();
  };
  if (done) return <Outcome done={done} onClose={onClose} />;
  return (
    <Dialog title="Compact this session" onClose={onClose}>
      <form class="stack" onSubmit={compact}>
        <p>
          All but the newest messages are evicted now, and a checked summary replaces them. Restore undoes it.
        </p>
        <Field
          label="Focus"
          hint="What the summary should keep above all. It may stay empty."
          most={500}
          lines={3}
          value={focus}
          onInput={type}
        />
        <Refusal refused={refused} />
        <div class="actions">
          <Button submit kind="primary" needs="change" disabled={busy}>
            {busy ? "Compacting …" : "Compact"}
          </Button>
          <Button onClick={onClose}>Cancel</Button>
        </div>
      </form>
    </Dialog>
  );
}

function Outcome({ done, onClose }: { done: CompactionResult; onClose: () => void }) {
  const some = done.decisions.length > 0;
  const actions = (
    <Button kind="primary" onClick={onClose}>
      Done
    </Button>
  );
  return (
    <Dialog title={some ? "Compacted" : "Nothing was compacted"} onClose={onClose} actions={actions}>
      <div class="stack">
        <p role="status">
          {some
            ? `The prompt has ${many(done.tokens, "token")} now.`
            : `There was too little to be worth it. The prompt is as it was: ${many(done.tokens, "token")}.`}
        </p>
        {done.decisions.map((one) => (
          <p key={one.seq}>
            Decision {whole(one.seq)}: {safe(one.reason)}
          </p>
        ))}
        {done.compressions.map((one) => (
          <Facts key={one.seq} facts={written(one)} />
        ))}
      </div>
    </Dialog>
  );
}

const written = (one: Compression) =>
  [
    ["Written by", safe(one.engine)],
    ["From", many(one.tokens_from, "token")],
    ["To", many(one.tokens_to, "token")],
    ["Fidelity", one.fidelity === null ? "not scored" : percent(one.fidelity)],
    ["Taken out as invented", whole(one.invented)],
  ] as const;
