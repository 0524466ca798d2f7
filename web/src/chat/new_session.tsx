// Begins a session: a name is all it takes; it is there once something is said in it.
import { useState } from "preact/hooks";
import { may, useOn } from "../on";
import { Button, Dialog, Field } from "../widgets";

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

export function NewSession() {
  const on = useOn();
  const [open, setOpen] = useState(false);
  const [name, setName] = useState("");
  const allowed = may(on, "ask");
  const good = NAME.test(name);
  const begin = (event: Event) => {
    event.preventDefault();
    if (!good) return;
    setOpen(false);
    setName("");
    on.go("chat", { session: `agent:${on.asker.agent}:${name}` });
  };
  return (
    <>
      <Button disabled={!allowed} why="This key does not have the right “ask”." onClick={() => setOpen(true)}>
        New session
      </Button>
      {open && (
        <Dialog title="New session" onClose={() => setOpen(false)}>
          <form class="stack" onSubmit={begin}>
            <Field
              label="Name"
              value={name}
              onInput={setName}
              most={64}
              placeholder="release-notes"
              hint={`Letters, digits, dots, dashes and underscores. It becomes agent:${on.asker.agent}:${name || "…"}`}
            />
            <div class="actions">
              <Button submit kind="primary" disabled={!good}>
                Begin
              </Button>
            </div>
          </form>
        </Dialog>
      )}
    </>
  );
}
