// The keys of the gateway: what each may do, its limits, and what it has used today. Secrets are never shown.
import type { KeyItem, KeyList } from "../answers";
import { safe, when, whole } from "../format";
import { may, useAsked, useOn } from "../on";
import { Badge, type Column, Empty, Panel, Refusal, Table, Waiting } from "../widgets";

const COLUMNS: readonly Column<KeyItem>[] = [
  { title: "Name", show: (key) => safe(key.name) },
  { title: "Id", show: (key) => <code>{safe(key.id)}</code> },
  { title: "Rights", show: (key) => key.rights.join(", ") },
  { title: "Agent", show: (key) => safe(key.agent) },
  { title: "Limits", show: (key) => limits(key) || "none" },
  { title: "New windows", show: (key) => (key.new_windows === null ? "as set" : key.new_windows ? "on" : "off") },
  { title: "Used today", show: (key) => used(key) },
  { title: "State", show: (key) => <Badge kind={key.state === "live" ? "zone-green" : "zone-red"}>{state(key)}</Badge> },
];

const dollars = (amount: number): string => `$${amount.toFixed(2)}`;

function limits(key: KeyItem): string {
  return [
    key.requests_per_minute && `${whole(key.requests_per_minute)} requests a minute`,
    key.concurrency && `${whole(key.concurrency)} at once`,
    key.tokens_per_day && `${whole(key.tokens_per_day)} tokens a day`,
    key.dollars_per_day && `${dollars(key.dollars_per_day)} a day`,
  ]
    .filter(Boolean)
    .join(", ");
}

function used(key: KeyItem): string {
  if (!key.tokens_per_day && !key.dollars_per_day) return "not counted";
  return `${whole(key.tokens_today)} tokens, ${dollars(key.dollars_today)}`;
}

const state = (key: KeyItem): string =>
  key.state === "live" && key.expires ? `until ${when(key.expires).slice(0, 10)}` : key.state;

export function Keys() {
  const on = useOn();
  const allowed = may(on, "change");
  const { found, refused } = useAsked<KeyList>(allowed ? "/keys" : "");
  if (!allowed) return <Empty title="This key does not have the right “change”." />;
  return (
    <Panel title="Keys of the gateway" note="Use is counted for keys with a daily limit. recto keys adds, limits and revokes keys.">
      <Refusal refused={refused} />
      {!found && !refused && <Waiting kind="rows" />}
      {found && (
        <Table label="Keys" columns={COLUMNS} rows={found.keys} id={(key) => key.id} empty="No key is stored; yours is temporary." />
      )}
    </Panel>
  );
}
