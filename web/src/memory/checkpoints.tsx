// The checkpoints of a session, and what each of them holds.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Checkpoint, CheckpointListItem, CheckpointPage } from "../answers";
import { many, safe, when, whole, words } from "../format";
import { useAsked, useOn } from "../on";
import { Button, type Column, Dialog, Empty, Facts, Panel, Refusal, Said, Table, Waiting } from "../widgets";

export function Checkpoints() {
  const on = useOn();
  const [from, go] = useState<number[]>([]);
  const [open, look] = useState<number>();
  const path = on.now ? "/session/checkpoints" : "";
  const { found, refused, loading } = useAsked<CheckpointPage>(path, { session: on.session, from: from.at(-1) });
  const next = found?.next;
  return (
    <Panel title="Checkpoints" note="The state of the work; a new window begins with the newest.">
      <Refusal refused={refused} />
      {on.now && loading && !found && <Waiting kind="rows" />}
      {(!on.now || found?.checkpoints.length === 0) && <Empty title="No checkpoint was written in this session." />}
      {found && found.checkpoints.length > 0 && (
        <Table label="Checkpoints" columns={columns(look)} rows={found.checkpoints} id={(row) => row.version} />
      )}
      {(from.length > 0 || next) && (
        <nav class="pager" aria-label="Pages">
          <Button disabled={!from.length} onClick={() => go(from.slice(0, -1))}>
            Newer
          </Button>
          <span class="muted">Page {whole(from.length + 1)}</span>
          <Button disabled={!next} onClick={() => next && go([...from, next])}>
            Older
          </Button>
        </nav>
      )}
      {open !== undefined && <Detail version={open} onClose={() => look(undefined)} />}
    </Panel>
  );
}

const columns = (look: (version: number) => void): Column<CheckpointListItem>[] => [
  { title: "Version", show: (row) => whole(row.version), number: true },
  { title: "When", show: (row) => <span class="no-wrap">{when(row.ts)}</span> },
  { title: "Why", show: (row) => safe(row.reason) },
  { title: "Goal", show: (row) => safe(row.goal) },
  {
    title: "More",
    show: (row) => (
      <Button kind="quiet" label={`Details of checkpoint ${row.version}`} onClick={() => look(row.version)}>
        Details
      </Button>
    ),
  },
];

function Detail({ version, onClose }: { version: number; onClose: () => void }) {
  const { session } = useOn();
  const { found, refused } = useAsked<Checkpoint>("/session/checkpoint", { session, version });
  return (
    <Dialog title={`Checkpoint ${whole(version)}`} wide onClose={onClose}>
      <Refusal refused={refused} />
      {!found && !refused && <Waiting kind="tall" />}
      {found && <Whole found={found} />}
    </Dialog>
  );
}

type Item = { text: ComponentChildren; seq: number };

function Whole({ found }: { found: Checkpoint }) {
  const lists: Array<[string, Item[]]> = [
    ["Success criteria", found.success_criteria.map(said)],
    ["Constraints", found.constraints.map(said)],
    ["Subtasks", found.subtasks.map((one) => ({ text: `${words(one.status)}: ${safe(one.text)}`, seq: one.seq }))],
    ["Decisions", found.decisions.map((one) => ({ text: withWhy(one.decision, one.rationale), seq: one.seq }))],
    ["Open issues", found.open_issues.map((one) => ({ text: withWhy(one.error, one.reproduction), seq: one.seq }))],
    ["Promises", found.promises.map(said)],
    ["Questions", found.questions.map(said)],
    ["Learnings", found.learnings.map(said)],
    ["Notes", found.notes.map(said)],
    ["Files", found.files.map((path) => ({ text: <span class="code">{safe(path)}</span>, seq: 0 }))],
  ];
  return (
    <div class="stack">
      <Facts
        facts={[
          ["Goal", safe(found.goal) || "none"],
          ["Written because of", safe(found.reason)],
          ["Up to entry", whole(found.last)],
          ["Branch", safe(found.environment.branch) || "none"],
          ["Files changed", many(found.environment.dirty.length, "file")],
        ]}
      />
      {lists
        .filter(([, items]) => items.length)
        .map(([title, items]) => (
          <Listed key={title} title={title} items={items} />
        ))}
      {found.summary && <Said plain text={found.summary} />}
    </div>
  );
}

const said = ({ text, seq }: { text: string; seq: number }): Item => ({ text: safe(text), seq });
const withWhy = (text: string, why: string): string => safe(why ? `${text} (${why})` : text);

function Listed({ title, items }: { title: string; items: Item[] }) {
  const on = useOn();
  return (
    <section class="listed">
      <h3>{title}</h3>
      <ul>
        {items.slice(0, 100).map(({ text, seq }, at) => (
          <li key={at}>
            {text}
            {seq > 0 && (
              <>
                {" "}
                <a class="small" href={on.link("transcript", { seq })}>
                  entry {whole(seq)}
                </a>
              </>
            )}
          </li>
        ))}
        {items.length > 100 && <li class="muted">and {whole(items.length - 100)} more</li>}
      </ul>
    </section>
  );
}
