// What was written down in a session, and a place to write down more.
import { useState } from "preact/hooks";
import type { Note, NoteList, StoredEvent } from "../answers";
import { safe, whole, words } from "../format";
import { useAsked, useOn } from "../on";
import { Badge, Button, Choice, Dialog, Empty, Field, Panel, Refusal, Said, useDoing, Waiting } from "../widgets";

const KINDS: readonly Note["kind"][] = ["task_progress", "decisions", "bugs", "constraints", "learnings", "misc"];

export function NotesOf() {
  const on = useOn();
  const [writing, write] = useState(false);
  const { found, refused, loading } = useAsked<NoteList>(on.now ? "/session/notes" : "", { session: on.session });
  const actions = (
    <Button needs="change" disabled={!on.now} onClick={() => write(true)}>
      Write a note …
    </Button>
  );
  return (
    <Panel
      title="Notes"
      note="Written while working; they are in the prompt once messages are evicted."
      actions={actions}
    >
      <Refusal refused={refused} />
      {on.now && loading && !found && <Waiting kind="rows" />}
      {(!on.now || found?.notes.length === 0) && <Empty title="Nothing was written down in this session." />}
      <ol class="notes" aria-label="Notes">
        {found?.notes.toReversed().map((note) => (
          <li key={note.seq} class="note">
            <div class="entry-head">
              <a class="entry-seq" href={on.link("transcript", { seq: note.seq })}>
                {whole(note.seq)}
              </a>
              <strong>{words(safe(note.kind))}</strong>
              {note.critical && (
                <Badge kind="warning" sign="!">
                  critical
                </Badge>
              )}
            </div>
            <Said plain text={note.text} />
          </li>
        ))}
      </ol>
      {writing && <Writing onClose={() => write(false)} />}
    </Panel>
  );
}

function Writing({ onClose }: { onClose: () => void }) {
  const on = useOn();
  const [kind, choose] = useState<string>("misc");
  const [text, type] = useState("");
  const [critical, mark] = useState(false);
  const { busy, refused, run } = useDoing();
  const write = async (event: Event) => {
    event.preventDefault();
    const note = { kind, text: text.trim(), critical };
    if (await run(() => on.api.post<StoredEvent>("/session/notes", note, { session: on.session }))) {
      onClose();
      on.changed();
    }
  };
  return (
    <Dialog title="Write a note" onClose={onClose}>
      <form class="stack" onSubmit={write}>
        <Choice label="About" value={kind} options={KINDS.map((one) => [one, words(one)] as const)} onChange={choose} />
        <Field label="Note" lines={4} value={text} onInput={type} />
        <label class="check">
          <input type="checkbox" checked={critical} onChange={(event) => mark(event.currentTarget.checked)} /> Critical:
          shown before all others
        </label>
        <Refusal refused={refused} />
        <div class="actions">
          <Button submit kind="primary" needs="change" disabled={busy || !text.trim()}>
            Write
          </Button>
          <Button onClick={onClose}>Cancel</Button>
        </div>
      </form>
    </Dialog>
  );
}
