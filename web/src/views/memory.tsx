// What an agent remembers and what it might: proposals to approve or reject, memories, notes and checkpoints.
import { useState } from "preact/hooks";
import type { MemoryPage, ProposalPage } from "../answers";
import { Checkpoints } from "../memory/checkpoints";
import { whole } from "../format";
import { NotesOf } from "../memory/notes";
import { useAsked, useOn } from "../on";
import { ProposalCard } from "../memory/proposals";
import { Remembered } from "../memory/remembered";
import { Empty, Pager, Panel, Refusal, Tabs, Waiting } from "../widgets";

export function Memory() {
  const on = useOn();
  const agent = /^agent:([^:]+):/.exec(on.session)?.[1] ?? on.asker.agent;
  const tab = on.given.get("tab") ?? "proposals";
  const tabs = [
    ["proposals", "Proposals"],
    ["remembered", "Remembered"],
    ["notes", "Notes", on.now?.notes],
    ["checkpoints", "Checkpoints", on.now?.checkpoints],
  ] as const;
  const options = tabs.map(([name, title, count]) =>
    count === undefined ? ([name, title] as const) : ([name, title, count] as const),
  );
  return (
    <div class="stack">
      <Tabs label="Memory" value={tab} options={options} onChange={(chosen) => on.go("memory", { tab: chosen })} />
      {tab === "proposals" && <Proposals agent={agent} />}
      {tab === "remembered" && <Remembered agent={agent} />}
      {tab === "notes" && <NotesOf />}
      {tab === "checkpoints" && <Checkpoints />}
    </div>
  );
}

function Proposals({ agent }: { agent: string }) {
  const [after, go] = useState<string[]>([]);
  const { found, refused, loading } = useAsked<ProposalPage>("/memory/proposals", {
    agent,
    after: after.at(-1),
    limit: 10,
  });
  const known = useAsked<MemoryPage>("/memory", { agent, limit: 100 });
  const next = found?.next;
  return (
    <Panel title="Proposals" note="Nothing is remembered until exactly these bytes are approved.">
      <Refusal refused={refused} />
      {loading && !found && <Waiting kind="tall" />}
      {found && !found.proposals.length && (
        <Empty title="Nothing waits for a decision.">
          <p>What an agent or a review proposes to remember comes here first.</p>
        </Empty>
      )}
      <ol class="proposals" aria-label="Proposals">
        {found?.proposals.map((one) => (
          <ProposalCard key={one.id} one={one} agent={agent} known={known.found?.memories ?? []} />
        ))}
      </ol>
      {(after.length > 0 || next) && (
        <Pager
          says={`Page ${whole(after.length + 1)}`}
          newer="Before"
          older="More"
          onNewer={after.length ? () => go(after.slice(0, -1)) : undefined}
          onOlder={next ? () => go([...after, next]) : undefined}
        />
      )}
    </Panel>
  );
}
