// The settings of the gateway, each with where its value comes from. They are changed in files, never here.
import { useState } from "preact/hooks";
import type { SettingItem, SettingList } from "../answers";
import { Field } from "../fields";
import { safe, whole } from "../format";
import { may, useAsked, useOn } from "../on";
import { Badge, Button, type Column, Empty, Panel, Refusal, Table, Waiting } from "../widgets";

const COLUMNS: readonly Column<SettingItem>[] = [
  { title: "Setting", show: (setting) => <code>{safe(setting.key)}</code> },
  { title: "Value", show: (setting) => <code>{safe(setting.value)}</code> },
  {
    title: "Source",
    show: (setting) => (
      <>
        <Badge kind={setting.origin === "default" ? "" : "zone-green"}>{setting.origin}</Badge> {safe(setting.where)}
      </>
    ),
  },
];

export function Settings() {
  const on = useOn();
  const allowed = may(on, "change");
  const { found, refused } = useAsked<SettingList>(allowed ? "/settings" : "");
  const [query, setQuery] = useState("");
  const [all, setAll] = useState(false);
  if (!allowed) return <Empty title="This key does not have the right “change”." />;
  if (found && !found.settings.length) return <Empty title="Settings are shown to keys without a tenant." />;
  const set = found?.settings.filter((setting) => setting.origin !== "default") ?? [];
  const rows = (all || query ? (found?.settings ?? []) : set).filter((setting) => setting.key.includes(query.trim()));
  const toggle = (
    <Button pressed={all} onClick={() => setAll(!all)}>
      {all ? "Only what is set" : `All ${whole(found?.settings.length ?? 0)}`}
    </Button>
  );
  return (
    <Panel title="Settings of the gateway" note="Change them in the settings file, then restart the gateway." actions={toggle}>
      <Refusal refused={refused} />
      <Field label="Find a setting" type="search" value={query} onInput={setQuery} />
      {!found && !refused && <Waiting kind="rows" />}
      {found && !rows.length && <p class="muted">{query ? "No setting has this name." : "Every setting has its default."}</p>}
      {rows.length > 0 && <Table label="Settings" columns={COLUMNS} rows={rows} id={(setting) => setting.key} />}
    </Panel>
  );
}
