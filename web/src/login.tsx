// The way in: a key, kept for this tab alone, and why one was refused.
import { useState } from "preact/hooks";
import type { Refused } from "./api";
import { keep, kept } from "./kept";
import { Button, Field, Refusal } from "./widgets";

const KEPT = "recto.key";
export const keptKey = (): string => kept(() => sessionStorage, KEPT);
export const keepKey = (key: string): void => keep(() => sessionStorage, KEPT, key);

export interface LoginProps {
  refused: Refused | undefined;
  busy: boolean;
  onKey: (key: string) => void;
}

export function Login({ refused, busy, onKey }: LoginProps) {
  const [key, set] = useState("");
  const send = (event: Event) => {
    event.preventDefault();
    if (key.trim() && !busy) onKey(key.trim());
  };
  return (
    <main class="login">
      <form class="login-sheet" onSubmit={send}>
        <p class="wordmark">
          <img src="/web/icon.svg" alt="" width="32" height="32" /> Recto
        </p>
        <div>
          <h1>See what the model sees</h1>
          <p class="muted">What is in the window, what left, what came back, and where the tokens go.</p>
        </div>
        <Field
          label="Key"
          type="password"
          value={key}
          onInput={set}
          placeholder="rk-…"
          hint="It is kept for this tab only and forgotten when the tab is closed."
        />
        <Refusal refused={refused} />
        <Button submit kind="primary" disabled={busy || !key.trim()}>
          {busy ? "Logging in…" : "Log in"}
        </Button>
        <p class="muted small">
          No key yet? On the gateway's machine,{" "}
          <code>recto keys add me --right ask --right read --right change</code> makes one and shows it once.
        </p>
      </form>
    </main>
  );
}
