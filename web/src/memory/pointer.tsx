// A pointer to an entry, as a link into its transcript.
import { safe, whole } from "../format";
import { useOn } from "../on";

export function Pointer({ pointer }: { pointer: string }) {
  const on = useOn();
  const found = /^recto:\/\/(.+)\/(\d+)$/s.exec(pointer);
  if (!found) return <span class="code">{safe(pointer)}</span>;
  const session = named(found[1]!);
  const seq = Number(found[2]);
  return (
    <a href={on.link("transcript", { session, seq })}>
      entry {whole(seq)}
      {session !== on.session && ` of ${safe(session)}`}
    </a>
  );
}

/** Pointers hold a session as addresses hold names. */
function named(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
