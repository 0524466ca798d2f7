// The recall inspector: what a question finds among everything that was ever said, and what each score is made of.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RecallHit, RecallResult } from "../answers";
import type { Refused } from "../api";
import { Chart, colour } from "../chart";
import { line, many, percent, safe, when, whole, words } from "../format";
import { Judge, Reasons } from "../judge";
import { asRefused, useOn } from "../on";
import { AsTable, Badge, Button, Choice, type Column, Empty, Field, Panel, Refusal, Said, Waiting } from "../widgets";

const SCOPES = [
  ["", "As the settings say"],
  ["session", "This session"],
  ["agent", "All of this agent"],
  ["tenant", "All of this tenant"],
] as const;
const MOST = [
  ["10", "10"],
  ["20", "20"],
  ["50", "50"],
] as const;
const COLOURS = ["history", "results", "memory", "tools", "yellow", "orange", "green", "system", "recalled", "red"];
const PARTS = ["words", "meaning", "date", "task"];

export function Recall() {
  const on = useOn();
  const asked = {
    query: on.given.get("q") ?? "",
    scope: on.given.get("scope") ?? "",
    most: on.given.get("most") ?? "10",
  };
  const { found, refused, loading } = useRecalled(asked.query, asked.scope, Number(asked.most) || 10);
  return (
    <div class="stack">
      <Asking {...asked} />
      <Refusal refused={refused} />
      {!asked.query && (
        <Empty title="Ask what was said.">
          <p>
            Recall searches all messages, in the prompt or not, and tells why it finds what it finds. Nothing is stored
            by looking.
          </p>
        </Empty>
      )}
      {asked.query && loading && !found && <Waiting kind="tall" />}
      {asked.query && found && <Hits found={found} />}
    </div>
  );
}

function Asking({ query, scope, most }: { query: string; scope: string; most: string }) {
  const on = useOn();
  const [q, type] = useState(query);
  useEffect(() => type(query), [query]);
  const go = (more: { q?: string; scope?: string; most?: string }) =>
    on.go("recall", { q: q.trim(), scope, most, ...more });
  const search = (event: Event) => {
    event.preventDefault();
    go({});
  };
  return (
    <form class="form" role="search" onSubmit={search}>
      <div class="grow">
        <Field label="Question" placeholder="Which database did we choose?" most={4_000} value={q} onInput={type} />
      </div>
      <Choice label="Scope" value={scope} options={SCOPES} onChange={(chosen) => go({ scope: chosen })} />
      <Choice label="Hits at most" value={most} options={MOST} onChange={(chosen) => go({ most: chosen })} />
      <Button submit kind="primary">
        Recall
      </Button>
    </form>
  );
}

function useRecalled(query: string, scope: string, most: number) {
  const { api, session, moment } = useOn();
  const [state, set] = useState<{ found?: RecallResult; refused?: Refused; loading: boolean }>({ loading: true });
  const key = JSON.stringify([query, scope, most]);
  const before = useRef(key);
  useEffect(() => {
    if (!query) return undefined;
    let gone = false;
    const same = before.current === key;
    before.current = key;
    set((was) => (same && was.found ? { found: was.found, loading: true } : { loading: true }));
    api
      .post<RecallResult>("/session/recall", { query, most, ...(scope ? { scope } : {}) }, { session })
      .then((found) => !gone && set({ found, loading: false }))
      .catch((error: unknown) => !gone && set({ refused: asRefused(error), loading: false }));
    return () => {
      gone = true;
    };
  }, [api, key, moment]);
  return state;
}

function Hits({ found }: { found: RecallResult }) {
  const parts = useMemo(() => partsOf(found.hits), [found]);
  const reach = useMemo(() => reachOf(found.hits), [found]);
  const columns: Column<RecallHit>[] = [
    { title: "Entry", show: (hit) => whole(hit.seq), number: true },
    { title: "Score", show: (hit) => hit.score.toFixed(3), number: true },
    { title: "Chance", show: (hit) => percent(hit.chance), number: true },
    ...parts.map((part) => ({
      title: words(safe(part)),
      show: (hit: RecallHit) => signed(hit.parts[part] ?? 0),
      number: true,
    })),
  ];
  return (
    <Panel title={many(found.hits.length, "hit")} note={searched(found)}>
      {found.notes.map((note) => (
        <p key={note} class="note-line">
          {safe(note)}
        </p>
      ))}
      {!found.hits.length && <Empty title="Nothing that was said answers this." />}
      {found.hits.length > 0 && (
        <>
          <Legend parts={parts} />
          <ol class="hits" aria-label="Hits">
            {found.hits.map((hit) => (
              <Hit key={hit.pointer} hit={hit} parts={parts} reach={reach} />
            ))}
          </ol>
          <AsTable
            title="All scores as a table"
            label="Scores of the hits"
            columns={columns}
            rows={found.hits}
            id={(hit) => hit.pointer}
          />
        </>
      )}
    </Panel>
  );
}

const searched = (found: RecallResult): string =>
  [
    `${many(found.searched, "message")} searched in the ${found.scope}`,
    found.behind ? `${whole(found.behind)} not indexed yet` : "",
    found.without_vectors ? `${whole(found.without_vectors)} by words alone` : "",
  ]
    .filter(Boolean)
    .join(" · ");

const signed = (value: number): string => (value > 0 ? "+" : "") + value.toFixed(3);

/** The parts that occur, the usual ones first. */
function partsOf(hits: RecallHit[]): string[] {
  const found = new Set(hits.flatMap((hit) => Object.keys(hit.parts)));
  const place = (part: string) => (PARTS.includes(part) ? PARTS.indexOf(part) : PARTS.length);
  return [...found].sort((one, two) => place(one) - place(two) || one.localeCompare(two));
}

/** How far the bars reach to either side, so that all have one scale. */
function reachOf(hits: RecallHit[]): [number, number] {
  const side = (hit: RecallHit, sign: 1 | -1) =>
    Object.values(hit.parts).reduce((sum, value) => (value * sign > 0 ? sum + value : sum), 0);
  return [Math.min(0, ...hits.map((hit) => side(hit, -1))), Math.max(0.001, ...hits.map((hit) => side(hit, 1)))];
}

const colourOf = (parts: string[], part: string): string => COLOURS[parts.indexOf(part) % COLOURS.length]!;

function Legend({ parts }: { parts: string[] }) {
  return (
    <ul class="legend" aria-label="Parts of a score">
      {parts.map((part) => (
        <li key={part}>
          <span class={`swatch fill-of-${colourOf(parts, part)}`} aria-hidden="true" /> {words(safe(part))}
        </li>
      ))}
    </ul>
  );
}

function Hit({ hit, parts, reach }: { hit: RecallHit; parts: string[]; reach: [number, number] }) {
  const on = useOn();
  const open = (seq: number) => on.link("transcript", { session: hit.session, seq });
  return (
    <li class="hit">
      <HitHead hit={hit} open={open} />
      <Said plain text={hit.text + (hit.cut ? " …" : "")} />
      {hit.note && <p class="muted small">{line(hit.note, 300)}</p>}
      {(hit.supersedes.length > 0 || hit.context.length > 0) && <Related hit={hit} open={open} />}
      <Reasons reasons={hit.reasons} />
      <Judge pointer={hit.pointer} seq={hit.session === on.session ? hit.seq : null} verdict={hit.verdict} />
      <Bar hit={hit} parts={parts} reach={reach} />
      <p class="hit-parts small muted">
        {parts
          .filter((part) => hit.parts[part])
          .map((part) => `${words(safe(part))} ${signed(hit.parts[part]!)}`)
          .join(" · ")}
      </p>
    </li>
  );
}

function HitHead({ hit, open }: { hit: RecallHit; open: (seq: number) => string }) {
  const on = useOn();
  return (
    <div class="entry-head">
      <a class="entry-seq" href={open(hit.seq)} aria-label={`Open entry ${hit.seq} in the transcript`}>
        {whole(hit.seq)}
      </a>
      <strong>{safe(hit.role)}</strong>
      {hit.in_prompt ? (
        <Badge kind="place-in" sign="●">
          in the prompt
        </Badge>
      ) : (
        <Badge kind="place-out" sign="○">
          not in the prompt
        </Badge>
      )}
      {hit.marks.map((mark) => (
        <Badge key={mark} kind="mark">
          {safe(mark)}
        </Badge>
      ))}
      {hit.superseded_by !== null && (
        <Badge kind="warning" sign="↷">
          superseded by <a href={open(hit.superseded_by)}>{whole(hit.superseded_by)}</a>
        </Badge>
      )}
      <span class="muted small entry-about">
        {hit.session !== on.session && `${safe(hit.session)} · `}
        {(hit.agent || hit.project) && `${[hit.agent, hit.project].filter(Boolean).map(safe).join(" in ")} · `}
        {when(hit.ts)}
      </span>
      <span class="hit-score">
        <strong>{hit.score.toFixed(2)}</strong> <span class="muted">score</span> ·{" "}
        <strong>{percent(hit.chance)}</strong> <span class="muted">chance</span>
      </span>
    </div>
  );
}

function Related({ hit, open }: { hit: RecallHit; open: (seq: number) => string }) {
  const links = (seqs: number[]) =>
    seqs.map((seq) => (
      <>
        {" "}
        <a href={open(seq)}>{whole(seq)}</a>
      </>
    ));
  return (
    <p class="muted small">
      {hit.supersedes.length > 0 && <>Supersedes{links(hit.supersedes)}. </>}
      {hit.context.length > 0 && <>Belongs with{links(hit.context)}.</>}
    </p>
  );
}

/** The parts of one score beside each other; drawn once it is seen. */
function Bar({ hit, parts, reach }: { hit: RecallHit; parts: string[]; reach: [number, number] }) {
  const { look } = useOn();
  const box = useRef<HTMLDivElement>(null);
  const [seen, see] = useState(false);
  useEffect(() => {
    const watch = new IntersectionObserver(([one]) => one?.isIntersecting && see(true));
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  const option = useMemo(
    () => ({
      grid: { left: 0, right: 0, top: 2, bottom: 2 },
      tooltip: {
        trigger: "item",
        formatter: (item: { seriesName: string; value: number }) => `${item.seriesName} ${signed(item.value)}`,
      },
      xAxis: { type: "value", show: false, min: reach[0], max: reach[1] },
      yAxis: { type: "category", show: false, data: [""] },
      series: parts
        .filter((part) => hit.parts[part])
        .map((part) => ({
          type: "bar",
          name: words(safe(part)),
          stack: "score",
          barWidth: 12,
          itemStyle: { color: colour(colourOf(parts, part)) },
          data: [hit.parts[part]],
        })),
    }),
    [hit, parts, reach, look],
  );
  return (
    <div ref={box} class="hit-bar">
      {seen && (
        <Chart
          kind="bar"
          option={option}
          label={`What the score ${hit.score.toFixed(2)} of entry ${hit.seq} is made of`}
        />
      )}
    </div>
  );
}
