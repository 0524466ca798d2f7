// Two prompts of one session side by side, line by line: what only one of them holds, and what it costs in each.
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Comparison, DecisionPage, DecisionSummary, PromptLine } from "../answers";
import { many, percent, safe, whole, words } from "../format";
import { useAsked, useOn } from "../on";
import { Badge, Button, Choice, Empty, Field, Panel, Refusal, Said, Waiting } from "../widgets";

type Side = PromptLine["side"];

const SIDES: Record<Side, [sign: string, says: string]> = {
  both: ["=", "in both"],
  first: ["−", "only left"],
  second: ["+", "only right"],
  changed: ["~", "changed"],
};
const PAGE = 150;

export function Compare() {
  const on = useOn();
  const { session } = on;
  const last = on.now?.entries ?? 1;
  const { found: log, refused: unlogged } = useAsked<DecisionPage>("/session/decisions", { session, limit: 50 });
  const newest = log?.decisions[0];
  const given = (name: string) => {
    const seq = Number(on.given.get(name));
    return Number.isInteger(seq) && seq > 0 ? seq : undefined;
  };
  const first = given("first") ?? (log ? Math.max((newest?.seq ?? last) - 1, 1) : undefined);
  const second = given("second") ?? last;
  const ready = first !== undefined;
  const asked = useAsked<Comparison>(ready ? "/session/compare" : "", { session, first, second });
  const go = (more: { first?: number; second?: number }) => on.go("compare", { first, second, ...more });
  const fits = asked.found?.first === first && asked.found?.second === second ? asked.found : undefined;
  return (
    <div class="stack">
      <Refusal refused={unlogged} />
      <Panel title="Two moments" note="The prompt as it was after an entry.">
        <div class="pair">
          <Moment
            name="Left"
            seq={first}
            last={last}
            decisions={log?.decisions ?? []}
            onChange={(seq) => go({ first: seq })}
          />
          <Moment
            name="Right"
            seq={second}
            last={last}
            decisions={log?.decisions ?? []}
            onChange={(seq) => go({ second: seq })}
          />
        </div>
        {ready && (
          <p class="actions after">
            <Button onClick={() => go({ first: second, second: first })}>Swap sides</Button>
          </p>
        )}
      </Panel>
      <Refusal refused={asked.refused} />
      {!fits && !asked.refused && <Waiting kind="tall" />}
      {fits && <Compared comparison={fits} />}
    </div>
  );
}

interface MomentProps {
  name: "Left" | "Right";
  seq: number | undefined;
  last: number;
  decisions: DecisionSummary[];
  onChange: (seq: number) => void;
}

/** Which moment one side shows: one that has a name, or the number of any entry. */
function Moment({ name, seq, last, decisions, onChange }: MomentProps) {
  const [typed, type] = useState("");
  useEffect(() => type(seq === undefined ? "" : String(seq)), [seq]);
  const options = useMemo(() => momentsOf(decisions, last), [decisions, last]);
  const known = options.some(([value]) => value === String(seq));
  const jump = (event: Event) => {
    event.preventDefault();
    if (/^\d+$/.test(typed) && Number(typed) > 0) onChange(Number(typed));
  };
  return (
    <div class="form">
      <Choice
        label={`${name}: moment`}
        value={known ? String(seq) : ""}
        options={known ? options : [["", "After an entry"], ...options]}
        onChange={(chosen) => chosen && onChange(Number(chosen))}
      />
      <form class="form jump" onSubmit={jump}>
        <Field type="number" label={`${name}: after entry`} value={typed} onInput={type} />
        <Button submit label={`Show ${name.toLowerCase()} entry`}>
          Show
        </Button>
      </form>
    </div>
  );
}

function momentsOf(decisions: DecisionSummary[], last: number): Array<[string, string]> {
  const named = new Map<string, string>([[String(last), `Now (entry ${whole(last)})`]]);
  for (const one of decisions) {
    const what = `decision ${whole(one.seq)}, ${words(safe(one.kind))}`;
    for (const [seq, title] of [
      [one.seq, `After ${what}`],
      [one.seq - 1, `Before ${what}`],
    ] as const) {
      if (seq > 0 && !named.has(String(seq))) named.set(String(seq), title);
    }
  }
  return [...named];
}

function Compared({ comparison }: { comparison: Comparison }) {
  const [all, showAll] = useState(false);
  const [most, show] = useState(PAGE);
  useEffect(() => show(PAGE), [comparison]);
  const differ = comparison.lines.filter((line) => line.side !== "both");
  const lines = all ? comparison.lines : differ;
  const toggle = (
    <Button pressed={all} onClick={() => showAll(!all)}>
      Show what both hold
    </Button>
  );
  return (
    <Panel title="Side by side" note={countsOf(comparison)} actions={toggle}>
      <div class="compare" role="table" aria-label="Two prompts side by side">
        <div class="compare-row compare-heads" role="row">
          <div role="columnheader">Line</div>
          <Total
            name="Left"
            seq={comparison.first}
            tokens={comparison.first_tokens}
            messages={comparison.first_messages}
            room={comparison.room}
          />
          <Total
            name="Right"
            seq={comparison.second}
            tokens={comparison.second_tokens}
            messages={comparison.second_messages}
            room={comparison.room}
          />
        </div>
        {lines.slice(0, most).map((line, at) => (
          <Row key={`${line.seq} ${line.what} ${at}`} line={line} />
        ))}
      </div>
      {!lines.length && <Empty title="Both prompts are the same." />}
      {lines.length > most && (
        <Button onClick={() => show(most + PAGE)}>Show {whole(lines.length - most)} more lines</Button>
      )}
      {comparison.more && <p class="muted small">The prompts are long: lines that both hold alike were left out.</p>}
    </Panel>
  );
}

const countsOf = ({ lines }: Comparison): string =>
  (["first", "second", "changed", "both"] as const)
    .map((side) => `${whole(lines.filter((line) => line.side === side).length)} ${SIDES[side][1]}`)
    .join(" · ");

function Total(props: { name: string; seq: number; tokens: number; messages: number; room: number }) {
  const { name, seq, tokens, messages, room } = props;
  return (
    <div role="columnheader">
      <strong>{name}</strong> <span class="muted">after entry {whole(seq)}</span>
      <br />
      <span class="total">{many(tokens, "token")}</span>{" "}
      <span class="muted">
        of {whole(room)} ({percent(tokens / Math.max(room, 1))}), {many(messages, "message")}
      </span>
    </div>
  );
}

function Row({ line }: { line: PromptLine }) {
  const on = useOn();
  const [sign, says] = SIDES[line.side];
  return (
    <div class={`compare-row side-${line.side}`} role="row">
      <div role="rowheader" class="compare-line">
        {line.seq !== null ? (
          <a class="entry-seq" href={on.link("transcript", { seq: line.seq })}>
            {whole(line.seq)}
          </a>
        ) : (
          <span class="entry-seq muted">{line.what}</span>
        )}
        <span>{safe(line.role)}</span>
        <Badge kind={`side-${line.side}`} sign={sign}>
          {says}
        </Badge>
      </div>
      <Cell side="Left" tokens={line.first_tokens} line={line} text={line.side !== "changed"} />
      <Cell side="Right" tokens={line.second_tokens} line={line} text />
    </div>
  );
}

/** One side of a line. Where it changed, the text is that of the right; the left tells what it cost. */
function Cell({ side, tokens, line, text }: { side: string; tokens: number | null; line: PromptLine; text: boolean }) {
  if (tokens === null) {
    return (
      <div role="cell" class="compare-cell absent">
        <span class="muted">
          <span class="compare-side">{side}: </span>not in it
        </span>
      </div>
    );
  }
  return (
    <div role="cell" class="compare-cell">
      <span class="muted small">
        <span class="compare-side">{side}: </span>
        {many(tokens, "token")}
      </span>
      {text ? (
        <Said plain text={line.text + (line.cut ? " …" : "")} />
      ) : (
        <p class="muted small">It was here in another form.</p>
      )}
    </div>
  );
}
