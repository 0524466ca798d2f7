// Keeps a message in the prompt, or lets it be evicted again.
import { useOn } from "./on";
import { toast } from "./toasts";
import { Button, Refusal, useDoing } from "./widgets";

/** Pins and unpins, each with an undo. */
export function usePins(): { pin: (seq: number) => Promise<unknown>; unpin: (seq: number) => Promise<unknown> } {
  const { api, session } = useOn();
  const pin = (seq: number) => api.post("/session/pins", { entries: [seq] }, { session });
  const unpin = (seq: number) => api.delete("/session/pins", { session, seq });
  return { pin, unpin };
}

export function PinButton({ seq, pinned, restores }: { seq: number; pinned: boolean; restores?: boolean }) {
  const on = useOn();
  const { pin, unpin } = usePins();
  const { busy, refused, run } = useDoing();
  const turn = async () => {
    if (!(await run(() => (pinned ? unpin(seq) : pin(seq))))) return;
    const says = pinned ? `Entry ${seq} unpinned` : restores ? `Entry ${seq} restored and pinned` : `Entry ${seq} pinned`;
    toast(says, () => (pinned ? pin(seq) : unpin(seq)));
    on.changed();
  };
  const does = restores ? "Restore only this:" : pinned ? "Unpin" : "Pin";
  return (
    <>
      <Button
        kind={restores ? "primary" : "quiet"}
        needs="change"
        disabled={busy}
        label={`${does} entry ${seq}`}
        onClick={turn}
      >
        {restores ? "Restore only this" : does}
      </Button>
      <Refusal refused={refused} />
    </>
  );
}
