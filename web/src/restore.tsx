// Undoes a decision for good: what left is in the prompt again, and stays.
import { useOn } from "./on";
import { Badge, Button, Refusal, useDoing } from "./widgets";

export function Restore({ seq, undone, onDone }: { seq: number; undone: boolean; onDone?: () => void }) {
  const on = useOn();
  const doing = useDoing();
  if (undone) return <Badge kind="undone">restored</Badge>;
  const restore = async () => {
    const done = await doing.run(() => on.api.post("/session/restore", { decision: seq }, { session: on.session }));
    if (!done) return;
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
