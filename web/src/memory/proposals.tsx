// One proposal for memory: the exact bytes it would have, where they come from, what they repeat or contradict; and
// the decision about it, which is bound to the bytes that are shown.
import { useEffect, useState } from "preact/hooks";
import type { ApprovalResult, MemoryFlag, MemoryListItem, Proposal, StoredEvent } from "../answers";
import { percent, safe, when, words } from "../format";
import { useOn } from "../on";
import { Pointer } from "./pointer";
import { toast } from "../toasts";
import { Badge, Button, Dialog, Field, Refusal, Said, useDoing } from "../widgets";

const ACTIONS: Record<Proposal["action"], string> = {
  keep: "Remember something new",
  merge: "Make one of several",
  edit: "Take over an edit",
  retire: "Retire a memory",
};

/** The SHA-256 of the bytes of a text, as they are here; nothing before it is known, or where a browser refuses. */
function useDigest(text: string): string | undefined {
  const [digest, set] = useState<string>();
  useEffect(() => {
    let gone = false;
    set(undefined);
    crypto.subtle?.digest("SHA-256", new TextEncoder().encode(text)).then((made) => {
      const bytes = [...new Uint8Array(made)];
      if (!gone) set(bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(""));
    });
    return () => {
      gone = true;
    };
  }, [text]);
  return digest;
}

function hindered(one: Proposal, digest: string | undefined): string {
  if (!globalThis.crypto?.subtle) return "This browser computes digests only over HTTPS or on this machine.";
  if (!digest) return "The digest of the text is being computed.";
  return digest === one.digest ? "" : "The text that is shown is not the one that was proposed.";
}

export function ProposalCard({ one, agent, known }: { one: Proposal; agent: string; known: MemoryListItem[] }) {
  const on = useOn();
  const [rejecting, reject] = useState(false);
  const { busy, refused, run } = useDoing();
  const digest = useDigest(one.text);
  const why = hindered(one, digest);
  const approve = async () => {
    const body = { proposal: one.id, digest };
    if (!(await run(() => on.api.post<ApprovalResult>("/memory/proposals/approve", body, { agent })))) return;
    const undo = () => on.api.post("/memory/proposals/undo", { proposal: one.id }, { agent });
    toast(`Approved: ${one.memory.title}`, undo);
    on.changed();
  };
  const title = safe(one.memory.title);
  return (
    <li class="proposal" aria-label={`Proposal: ${title}`}>
      <Head one={one} />
      {one.why && <p>{safe(one.why)}</p>}
      {one.flags.map((flag) => (
        <Flagged key={flag.kind + flag.id} flag={flag} known={known} />
      ))}
      <div class="exact" role="region" tabIndex={0} aria-label={`Exact text of the proposal: ${title}`}>
        <Said text={one.text} />
      </div>
      <Origin one={one} digest={digest} />
      <Refusal refused={refused} />
      <div class="actions">
        <Button
          kind="primary"
          needs="change"
          disabled={busy || Boolean(why)}
          why={why}
          label={`Approve: ${title}`}
          onClick={approve}
        >
          Approve
        </Button>
        <Button kind="danger" needs="change" disabled={busy} label={`Reject: ${title}`} onClick={() => reject(true)}>
          Reject …
        </Button>
      </div>
      {rejecting && <Rejecting one={one} agent={agent} onClose={() => reject(false)} />}
    </li>
  );
}

function Head({ one }: { one: Proposal }) {
  return (
    <div class="entry-head">
      <strong>{safe(one.memory.title)}</strong>
      <Badge kind="policy">{safe(one.memory.kind)}</Badge>
      {one.memory.critical && (
        <Badge kind="warning" sign="!">
          critical
        </Badge>
      )}
      <span class="muted small entry-about">
        {ACTIONS[one.action]} · by {safe(one.by)} · {when(one.ts)}
      </span>
    </div>
  );
}

function Origin({ one, digest }: { one: Proposal; digest: string | undefined }) {
  return (
    <>
      <p class="small muted">
        Source: <Pointer pointer={one.pointer} />
        {one.memory.sources.length > 0 && <>, learnt from </>}
        {one.memory.sources.map((source) => (
          <span key={source}>
            <Pointer pointer={source} />{" "}
          </span>
        ))}
      </p>
      <p class="small muted digest">
        SHA-256 of this text <span class="code">{digest ?? "…"}</span>
      </p>
    </>
  );
}

function Flagged({ flag, known }: { flag: MemoryFlag; known: MemoryListItem[] }) {
  const other = known.find((line) => line.memory.id === flag.id)?.memory;
  return (
    <div class={`flagged ${flag.kind}`}>
      <Badge kind={flag.kind === "conflict" ? "bad" : "warning"} sign={flag.kind === "conflict" ? "≠" : "≈"}>
        {flag.kind}
      </Badge>{" "}
      with {other ? <q>{safe(other.text)}</q> : <span class="code">{safe(flag.id)}</span>}{" "}
      <span class="muted small">({percent(flag.score)} alike)</span>
    </div>
  );
}

function Rejecting({ one, agent, onClose }: { one: Proposal; agent: string; onClose: () => void }) {
  const on = useOn();
  const [reason, type] = useState("");
  const { busy, refused, run } = useDoing();
  const reject = async (event: Event) => {
    event.preventDefault();
    const body = { proposal: one.id, reason: reason.trim() };
    if (await run(() => on.api.post<StoredEvent>("/memory/proposals/reject", body, { agent }))) {
      onClose();
      on.changed();
    }
  };
  return (
    <Dialog title="Reject a proposal" onClose={onClose}>
      <form class="stack" onSubmit={reject}>
        <p>
          “{safe(one.memory.title)}” ({words(one.action)}) is rejected for good; the reason is kept.
        </p>
        <Field label="Reason" most={500} lines={3} value={reason} onInput={type} />
        <Refusal refused={refused} />
        <div class="actions">
          <Button submit kind="danger" needs="change" disabled={busy}>
            Reject
          </Button>
          <Button onClick={onClose}>Cancel</Button>
        </div>
      </form>
    </Dialog>
  );
}
