// The way in: a key, kept for this tab alone, and why one was refused.
import { useState } from "preact/hooks";
import type { Refused } from "./api";
import { safe } from "./format";
import { keep, kept } from "./kept";
import { Button, Field } from "./widgets";

const KEPT = "recto.key";
export const keptKey = (): string => kept(() => sessionStorage, KEPT);
export const keepKey = (key: string): void => keep(() => sessionStorage, KEPT, key);

const LOGIN_ERRORS: Record<number, [what: string, todo: string]> = {
  0: ["The gateway does not answer.", "Check that recto serve is running and that the address is right."],
  401: [
    "This key is not valid here.",
    "Copy it again from where it was printed: recto serve --key prints it in the page's address, recto keys add prints it once. It may also have expired or been revoked.",
  ],
  403: [
    "This key may not open the page.",
    "It needs the right to read: make one on the gateway's machine with recto keys add NAME --right read.",
  ],
  429: ["Too many attempts.", "Wait a minute, then try again."],
};

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
          <p class="muted">What is in the prompt, what was evicted and recalled, and where the tokens go.</p>
        </div>
        <Field
          label="Key"
          type="password"
          value={key}
          onInput={set}
          placeholder="rk-…"
          hint="It is kept for this tab only and forgotten when the tab is closed."
        />
        <LoginError refused={refused} />
        <Button submit kind="primary" disabled={busy || !key.trim()}>
          {busy ? "Logging in…" : "Log in"}
        </Button>
        <p class="muted small">
          No key yet? <code>recto serve --key</code> prints the page's address with a key in it when it starts. For a
          gateway that runs already, <code>recto keys add me --right ask --right read --right change</code> on its machine
          makes a key and prints it once.
        </p>
      </form>
    </main>
  );
}

/** Why the key was refused, and what to do about it. */
function LoginError({ refused }: { refused: Refused | undefined }) {
  if (!refused) return null;
  const [what, todo] = LOGIN_ERRORS[refused.status] ?? [`The gateway answered: ${safe(refused.message)}`, "Try again, or look into the gateway's log."];
  return (
    <div class="refusal" role="alert">
      <strong>{what}</strong> <span>{todo}</span>
    </div>
  );
}
