// What an agent remembers: each memory with how much it still counts, and who approved it.
import { useState } from "preact/hooks";
import type { MemoryListItem, MemoryPage } from "../answers";
import { many, percent, safe, when, whole } from "../format";
import { useAsked } from "../on";
import { Pointer } from "./pointer";
import { Badge, Button, type Column, Dialog, Empty, Facts, Pager, Panel, Refusal, Said, Table, Waiting } from "../widgets";

export function Remembered({ agent }: { agent: string }) {
  const [retired, show] = useState(false);
  const [after, go] = useState<string[]>([]);
  const [open, look] = useState<MemoryListItem>();
  const { found, refused, loading } = useAsked<MemoryPage>("/memory", {
    agent,
    retired,
    after: after.at(-1),
    limit: 50,
  });
  const turn = () => {
    show(!retired);
    go([]);
  };
  const actions = (
    <Button pressed={retired} onClick={turn}>
      With what was retired
    </Button>
  );
  const next = found?.next;
  return (
    <Panel title="Remembered" note={`Approved memories of the agent ${safe(agent)}.`} actions={actions}>
      <Refusal refused={refused} />
      {loading && !found && <Waiting kind="rows" />}
      {found && !found.memories.length && <Empty title="Nothing is remembered yet." />}
      {found && found.memories.length > 0 && (
        <Table label="Memories" columns={columns(look)} rows={found.memories} id={(row) => row.memory.id} />
      )}
      {(after.length > 0 || next) && (
        <Pager
          says={`Page ${whole(after.length + 1)}`}
          newer="Before"
          older="More"
          onNewer={after.length ? () => go(after.slice(0, -1)) : undefined}
          onOlder={next ? () => go([...after, next]) : undefined}
        />
      )}
      {open && <Detail line={open} onClose={() => look(undefined)} />}
    </Panel>
  );
}

const columns = (look: (line: MemoryListItem) => void): Column<MemoryListItem>[] => [
  { title: "Memory", show: (row) => safe(row.memory.title) },
  { title: "Kind", show: (row) => safe(row.memory.kind) },
  {
    title: "Strength",
    show: (row) => (
      <span class="strength">
        <meter min={0} max={1} value={row.strength} aria-label={`Strength ${percent(row.strength)}`} />{" "}
        {percent(row.strength)}
      </span>
    ),
  },
  { title: "Used", show: (row) => whole(row.memory.hits), number: true },
  { title: "Approved by", show: (row) => safe(row.approved_by) },
  { title: "State", show: (row) => <State row={row} /> },
  {
    title: "More",
    show: (row) => (
      <Button kind="quiet" label={`Details of: ${safe(row.memory.title)}`} onClick={() => look(row)}>
        Details
      </Button>
    ),
  },
];

function State({ row }: { row: MemoryListItem }) {
  return (
    <>
      <Badge kind={row.memory.state === "approved" ? "ok" : "plain"}>{row.memory.state}</Badge>{" "}
      {row.edited && (
        <Badge kind="warning" sign="✎">
          edited
        </Badge>
      )}
      {row.memory.critical && (
        <Badge kind="warning" sign="!">
          critical
        </Badge>
      )}
    </>
  );
}

function Detail({ line, onClose }: { line: MemoryListItem; onClose: () => void }) {
  const { memory } = line;
  return (
    <Dialog title={safe(memory.title)} wide onClose={onClose}>
      <Facts
        facts={[
          ["Kind", safe(memory.kind)],
          ["Strength", percent(line.strength)],
          ["Half-life", memory.evergreen ? "does not age" : `${whole(memory.half_life_days)} days`],
          ["Used", many(memory.hits, "time")],
          ["Mistakes prevented", whole(memory.prevented)],
          ["Last applied", memory.last_applied ? when(memory.last_applied) : "never"],
          ["Approved", line.approved ? when(line.approved) : "not known"],
          ["Approved by", safe(line.approved_by) || "not known"],
          ["Tags", safe(memory.tags.join(", ")) || "none"],
        ]}
      />
      <Said plain text={memory.text} />
      {line.retired && <p>Retired: {safe(line.retired)}</p>}
      <p class="small muted">
        Learnt from{" "}
        {memory.sources.length
          ? memory.sources.map((source) => (
              <span key={source}>
                <Pointer pointer={source} />{" "}
              </span>
            ))
          : "no entry"}
      </p>
      <p class="small muted">
        Id <span class="code">{safe(memory.id)}</span>
      </p>
    </Dialog>
  );
}
