// What can be done to a session as a whole: rename, fork, export, erase; and a new one.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ExportPage, ForkedSession } from "./answers";
import type { Api } from "./api";
import { NewSession } from "./chat/new_session";
import { many, safe } from "./format";
import { hindrance, may, type On, useOn } from "./on";
import { Button, Dialog, Field, Refusal, useDoing } from "./widgets";

type Action = "rename" | "fork" | "export" | "erase";
const MOST_TITLE = 120;
const PART = 500;

export function SessionMenu() {
  const on = useOn();
  const [open, setOpen] = useState(false);
  const [action, act] = useState<Action>();
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!open) return undefined;
    box.current?.querySelector<HTMLElement>("button")?.focus();
    const outside = (event: Event) => !box.current?.parentElement?.contains(event.target as Node) && setOpen(false);
    const escape = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      setOpen(false);
      button.current?.focus();
    };
    addEventListener("pointerdown", outside);
    addEventListener("keydown", escape);
    return () => {
      removeEventListener("pointerdown", outside);
      removeEventListener("keydown", escape);
    };
  }, [open]);
  const choose = (chosen: Action) => () => {
    button.current?.focus(); // a dialog gives the focus back to where it was
    setOpen(false);
    act(chosen);
  };
  const close = () => act(undefined);
  const whole = on.now?.kind === "conversation";
  const not = on.now ? "This session holds the decisions about memory." : "Nothing was said in this session yet.";
  const why = (right: "change" | "erase") => (whole ? hindrance(on, right) : not);
  return (
    <div class="session-menu">
      <button
        ref={button}
        type="button"
        class="button quiet"
        aria-expanded={open ? "true" : "false"}
        onClick={() => setOpen(!open)}
      >
        Session <span aria-hidden="true">▾</span>
      </button>
      {open && (
        <div ref={box} class="session-menu-items" role="group" aria-label="Session actions">
          <Button kind="quiet" disabled={Boolean(why("change"))} why={why("change")} onClick={choose("rename")}>
            Rename
          </Button>
          <Button kind="quiet" disabled={Boolean(why("change"))} why={why("change")} onClick={choose("fork")}>
            Fork
          </Button>
          <Button kind="quiet" disabled={!on.now} why={not} onClick={choose("export")}>
            Export
          </Button>
          <Button kind="danger" disabled={Boolean(why("erase"))} why={why("erase")} onClick={choose("erase")}>
            Erase
          </Button>
          {may(on, "ask") && <NewSession />}
        </div>
      )}
      {action === "rename" && <Rename onClose={close} />}
      {action === "fork" && <Fork onClose={close} />}
      {action === "export" && <Export onClose={close} />}
      {action === "erase" && <Erase onClose={close} />}
    </div>
  );
}

const named = (on: On): string => on.now?.title || on.session;

function Rename({ onClose }: { onClose: () => void }) {
  const on = useOn();
  const [title, setTitle] = useState(on.now?.title ?? "");
  const doing = useDoing();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!title.trim()) return;
    if (!(await doing.run(() => on.api.post("/session/rename", { title }, { session: on.session })))) return;
    on.changed();
    onClose();
  };
  return (
    <Dialog title="Rename session" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <Field
          label="Title"
          value={title}
          onInput={setTitle}
          most={MOST_TITLE}
          hint={`The key stays ${safe(on.session)}; earlier titles stay in the transcript.`}
        />
        <Refusal refused={doing.refused} />
        <div class="actions">
          <Button submit kind="primary" disabled={!title.trim() || doing.busy}>
            Rename
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Fork({ onClose }: { onClose: () => void }) {
  const on = useOn();
  const [name, setName] = useState(`${on.session}-fork`);
  const [title, setTitle] = useState(`${named(on).slice(0, MOST_TITLE - 7)} (fork)`);
  const doing = useDoing();
  const submit = async (event: Event) => {
    event.preventDefault();
    let made: ForkedSession | undefined;
    const does = async () => {
      made = await on.api.post<ForkedSession>("/session/fork", { name, title }, { session: on.session });
    };
    if (!(await doing.run(does)) || !made) return;
    onClose();
    on.changed();
    on.go(on.view, { session: made.session });
  };
  return (
    <Dialog title="Fork session" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <p>A fork begins as a copy of this session, with the same window. What happens in one does not touch the other.</p>
        <Field label="Title of the copy" value={title} onInput={setTitle} most={MOST_TITLE} />
        <Field label="Key of the copy" value={name} onInput={setName} most={256} />
        <Refusal refused={doing.refused} />
        <div class="actions">
          <Button submit kind="primary" disabled={!name.trim() || doing.busy}>
            Fork
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** The session as Recto's JSONL, part by part; `seen` is called with how many entries there are by now. */
async function exported(api: Api, session: string, seen: (entries: number) => void): Promise<Blob> {
  const lines: string[] = [];
  let from: number | null = 1;
  let through: number | undefined;
  while (from !== null) {
    const part: ExportPage = await api.get<ExportPage>("/session/export", { session, from, through, limit: PART });
    for (const line of part.lines) lines.push(`${line}\n`);
    from = part.next;
    through = part.through;
    seen(lines.length - 1);
  }
  return new Blob(lines, { type: "application/jsonl" });
}

function Export({ onClose }: { onClose: () => void }) {
  const on = useOn();
  const [seen, setSeen] = useState(0);
  const doing = useDoing();
  const download = async () => {
    const done = await doing.run(async () => {
      const address = URL.createObjectURL(await exported(on.api, on.session, setSeen));
      const link = document.createElement("a");
      link.href = address;
      link.download = `${on.session.replace(/[^\w.-]+/g, "-")}.jsonl`;
      link.click();
      URL.revokeObjectURL(address);
    });
    if (done) onClose();
  };
  return (
    <Dialog title="Export session" onClose={onClose}>
      <div class="stack">
        <p>
          A file with every entry of {safe(named(on))}, losslessly, as JSON lines. <code>recto import</code> reads it.
        </p>
        <p class="muted small" role="status">
          {doing.busy && `${many(seen, "entry", "entries")} of ${many(on.now?.entries ?? 0, "entry", "entries")} …`}
        </p>
        <Refusal refused={doing.refused} />
        <div class="actions">
          <Button kind="primary" disabled={doing.busy} onClick={download}>
            Download
          </Button>
        </div>
      </div>
    </Dialog>
  );
}

function Erase({ onClose }: { onClose: () => void }) {
  const on = useOn();
  const [typed, type] = useState("");
  const [reason, setReason] = useState("");
  const doing = useDoing();
  const sure = typed === on.session && reason.trim() !== "";
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!sure) return;
    const body = { confirm: typed, reason };
    if (!(await doing.run(() => on.api.post("/session/erase", body, { session: on.session })))) return;
    onClose();
    on.go("window", { session: on.asker.main }); // looking at the erased session again would only be refused
  };
  return (
    <Dialog title="Erase session" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <p>
          This removes <strong>{safe(named(on))}</strong> with its {many(on.now?.entries ?? 0, "entry", "entries")}: the
          transcript, its recall index and its checkpoints. <strong>It cannot be undone.</strong> Approved memory stays, and
          so does a record of who erased it and why.
        </p>
        <Field label={`Type ${safe(on.session)} to confirm`} value={typed} onInput={type} most={256} />
        <Field label="Reason" value={reason} onInput={setReason} most={500} hint="It is kept in the record." />
        <Refusal refused={doing.refused} />
        <div class="actions">
          <Button submit kind="danger" disabled={!sure || doing.busy} why="Type the key of the session, and a reason.">
            Erase for good
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
