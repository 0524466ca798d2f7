// The messages of a decision: what it evicted, and what it shortened, before and after.
import type { DecidedMessage, DecisionView } from "../answers";
import { many, percent, safe, whole, words } from "../format";
import { useAsked, useOn } from "../on";
import { Badge, Refusal, Said, Waiting } from "../widgets";

export function Messages({ seq }: { seq: number }) {
  const { session } = useOn();
  const { found, refused } = useAsked<DecisionView>("/session/decision", { session, seq });
  if (refused) return <Refusal refused={refused} />;
  if (!found) return <Waiting kind="rows" />;
  return (
    <div class="stack">
      <p class="muted small">
        The prompt was {percent(found.utilization)} full: {whole(found.tokens_before)} of {many(found.room, "token")}, and{" "}
        {whole(found.tokens_after)} afterwards. Relief begins at {percent(found.ceiling)}.
      </p>
      {found.summary && (
        <details>
          <summary>The summary that replaces them</summary>
          <Said plain text={found.summary} />
        </details>
      )}
      <ol class="decided" aria-label={`Messages of decision ${seq}`}>
        {found.messages.map((one) => (
          <Message key={one.seq} one={one} />
        ))}
      </ol>
      {found.more > 0 && <p class="muted small">{many(found.more, "more message")}.</p>}
    </div>
  );
}

function Message({ one }: { one: DecidedMessage }) {
  const on = useOn();
  const scores = Object.entries(one.scores);
  return (
    <li class="decided-message">
      <div class="entry-head">
        <a class="entry-seq" href={on.link("transcript", { seq: one.seq })} aria-label={`Entry ${one.seq} in the transcript`}>
          {whole(one.seq)}
        </a>
        <strong>{safe(one.role)}</strong>
        <Badge kind={one.action === "evicted" ? "place-out" : "place-trimmed"}>{one.action}</Badge>
        <span class="muted small entry-about">
          {one.action === "evicted" ? many(one.tokens, "token") : `${whole(one.tokens)} → ${many(one.shorter_tokens, "token")}`}
        </span>
      </div>
      <Said plain text={one.text + (one.cut ? " …" : "")} />
      {one.shorter && (
        <div class="shorter">
          <span class="muted small">In the prompt instead:</span>
          <Said plain text={one.shorter} />
        </div>
      )}
      {scores.length > 0 && (
        <p class="muted small">Weighed: {scores.map(([part, value]) => `${words(safe(part))} ${value.toFixed(2)}`).join(", ")}</p>
      )}
    </li>
  );
}
