// Undoes a decision for good: what was evicted is in the prompt again, and stays.
import type { StoredEvent } from "./answers";
import { useOn } from "./on";
import { toast } from "./toasts";
import { Badge, Button, Refusal, useDoing } from "./widgets";

export function Restore({ seq, undone, onDone }: { seq: number; undone: boolean; onDone?: () => void }) {
  const on = useOn();
  const doing = useDoing();
  if (undone) return <Badge kind="undone">restored</Badge>;
  const restore = async () => {
    const { api, session } = on;
    let restored = 0;
    const done = await doing.run(async () => {
      restored = (await api.post<StoredEvent>("/session/restore", { decision: seq }, { session })).seq;
    });
    if (!done) return;
    toast(`Decision ${seq} restored`, () => api.post("/session/redo", { restored }, { session }));
    on.changed();
    onDone?.();
  };
  return (
    <>
      <Button needs="change" disabled={doing.busy} label={`Restore decision ${seq}`} onClick={restore}>
        Restore
      </Button>
      <Refusal refused={doing.refused} />
    </>
  );
}
