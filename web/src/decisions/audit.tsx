// The audit of a session: every change as its entry tells it, with what it is about and who asked for it.
import { useMemo, useState } from "preact/hooks";
import type { AuditLine, AuditPage } from "../answers";
import type { Api } from "../api";
import { dollars, line, safe, short, when, whole, words } from "../format";
import { useOn } from "../on";
import { useWalk, type Walk } from "../walking";
import { Button, Choice, type Column, Dialog, Empty, Facts, Pager, Panel, Refusal, Table, Waiting } from "../widgets";

const TOPICS = [
  ["", "All but bookkeeping"],
  ...[
    "decision",
    "undo",
    "pin",
    "memory",
    "continuity",
    "recall",
    "pressure",
    "failure",
    "session",
    "note",
    "bookkeeping",
  ].map((topic) => [topic, topic[0]!.toUpperCase() + topic.slice(1)] as const),
] as const;
const PAGE = 40;

const listing = (api: Api, session: string, kind: string): Walk<AuditLine, number> => ({
  most: PAGE,
  at: (row) => row.seq,
  ask: async (from, limit, signal) => {
    const page = await api.get<AuditPage>("/session/audit", { session, from, limit, kind }, signal);
    return { rows: page.lines, next: page.next };
  },
});

export function Audit() {
  const on = useOn();
  const { api, session } = on;
  const [topic, choose] = useState("");
  const [open, show] = useState<AuditLine>();
  const found = useWalk(
    JSON.stringify([session, topic]),
    useMemo(() => listing(api, session, topic), [api, session, topic]),
  );
  const filter = <Choice quiet label="Topic" value={topic} options={TOPICS} onChange={choose} />;
  return (
    <Panel title="Audit" note="Who did what, newest first." actions={filter}>
      <Refusal refused={found.refused} />
      {found.busy && !found.rows.length && <Waiting kind="tall" />}
      {!found.busy && !found.refused && !found.rows.length && <Empty title="Nothing of this kind was done." />}
      {found.rows.length > 0 && (
        <Table label="Audit" columns={columns(on.link, show)} rows={found.rows} id={(row) => row.seq} />
      )}
      {(found.back || found.forward) && (
        <Pager
          says={`Page ${found.before + 1}`}
          newer="Newer"
          older="Older"
          onNewer={found.back}
          onOlder={found.forward}
        />
      )}
      {open && <Detail line={open} onClose={() => show(undefined)} />}
    </Panel>
  );
}

const columns = (
  link: (view: string, given: { seq: number }) => string,
  show: (line: AuditLine) => void,
): Column<AuditLine>[] => [
  { title: "Entry", show: (row) => <a href={link("transcript", { seq: row.seq })}>{whole(row.seq)}</a>, number: true },
  { title: "When", show: (row) => <span class="no-wrap">{when(row.ts)}</span> },
  { title: "What", show: (row) => <strong class="no-wrap">{words(safe(row.kind))}</strong> },
  { title: "By", show: (row) => safe(row.by) || <span class="muted">{safe(row.surface)}</span> },
  { title: "Policy and reason", show: (row) => <Why row={row} /> },
  {
    title: "More",
    show: (row) => (
      <Button kind="quiet" label={`Details of entry ${row.seq}`} onClick={() => show(row)}>
        Details
      </Button>
    ),
  },
];

function Why({ row }: { row: AuditLine }) {
  const about = [entriesOf(row), tokensOf(row), row.undone_by === null ? "" : `undone by ${whole(row.undone_by)}`];
  return (
    <>
      {row.policy && <>{safe(row.policy)}: </>}
      {line(row.reason, 160)}
      <span class="muted small audit-about">{about.filter(Boolean).join(" · ")}</span>
    </>
  );
}

const entriesOf = (row: AuditLine): string => {
  const shown = ranges(row.entries.concat(row.shrunk));
  return shown && `${row.messages === 1 ? "entry" : "entries"} ${shown}`;
};

function ranges(pairs: number[][]): string {
  const shown = pairs
    .slice(0, 3)
    .map(([first, last]) => (first === last ? whole(first!) : `${whole(first!)}–${whole(last!)}`));
  return shown.join(", ") + (pairs.length > 3 ? ", …" : "");
}

const tokensOf = (row: AuditLine): string =>
  row.tokens_before !== null && row.tokens_after !== null
    ? `${whole(row.tokens_before)} → ${whole(row.tokens_after)} tokens`
    : "";

function Detail({ line: one, onClose }: { line: AuditLine; onClose: () => void }) {
  const more = Object.entries(one.details);
  return (
    <Dialog title={`Entry ${whole(one.seq)}: ${words(safe(one.kind))}`} wide onClose={onClose}>
      <Facts
        facts={[
          ["Topic", one.topic],
          ["When", when(one.ts)],
          ["Surface", safe(one.surface) || "none"],
          ["Asked for by", safe(one.by) || "not recorded"],
          ["Policy", safe(one.policy) || "none"],
          ["Entries", whole(one.messages)],
          ["Freed", one.freed === null ? "nothing" : whole(one.freed)],
          ["Cost", one.picodollars === null ? "none" : dollars(one.picodollars)],
        ]}
      />
      {one.reason && <p>{safe(one.reason)}</p>}
      <p class="small">{[entriesOf(one), tokensOf(one)].filter(Boolean).join(" · ")}</p>
      <Table
        label="Details"
        columns={[
          { title: "Detail", show: ([name]: (typeof more)[0]) => words(safe(name)) },
          {
            title: "Value",
            show: ([, value]: (typeof more)[0]) => <span class="code">{safe(short(String(value), 400))}</span>,
          },
        ]}
        rows={more}
        id={([name]) => name}
        empty="Its kind tells nothing else."
      />
      <p class="small muted">
        Hash <span class="code">{safe(one.hash)}</span>
      </p>
    </Dialog>
  );
}
