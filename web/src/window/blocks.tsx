// The prompt as it is sent, block by block: what it says, what it costs, and why it is there.
import { useState } from "preact/hooks";
import type { PromptBlock, RecalledQuote, WindowView } from "../answers";
import { line, many, safe, whole } from "../format";
import { Judge, Reasons } from "../judge";
import { Badge, Button, Said } from "../widgets";

const KINDS: Record<PromptBlock["what"], string> = {
  tools: "Tool definitions",
  instructions: "System text",
  message: "",
  placeholder: "Placeholder result",
  marker: "Notice of evicted messages",
  record: "Working record",
  notes: "Notes",
  summary: "Summary",
  recalled: "Recalled",
  handoff: "Handoff",
  frame: "Format overhead",
};
const REASONS: Record<PromptBlock["reason"], [chip: string, says: string]> = {
  system: ["system prompt", "Protected: system text is never evicted"],
  task: ["task", "Protected: the task of the session"],
  pinned: ["pinned", "Kept in the prompt by hand"],
  question: ["current question", "Protected: it is being answered"],
  answered: ["replied to", "Protected: the current question answers it"],
  unanswered: ["latest step", "Protected: the model has not answered it yet"],
  recent: ["recent", "Protected: one of the newest messages"],
  tool: ["protected tool", "Protected by a setting: calls and results of this tool stay"],
  kind: ["protected kind", "Protected by a setting: messages of this kind stay"],
  marked: ["protected", "Protected: it carries the protecting mark"],
  fits: ["fits", "May be evicted when the prompt is too full"],
  written: ["written by Recto", "No message of the session"],
  client: ["with every request", "The client or the format adds it to every request"],
};
const LINES = 320;

export interface BlocksProps {
  view: WindowView;
  onOpen: (seq: number) => void;
  /** The entries whose curves should stand out. */
  onPoint: (seqs: readonly number[]) => void;
}

export function Blocks({ view, onOpen, onPoint }: BlocksProps) {
  return (
    <ol class="blocks" aria-label="The prompt, in order">
      {view.blocks.map((block, place) => (
        <Block key={block.seq === null ? `${block.what} ${place}` : block.seq} block={block} onOpen={onOpen} onPoint={onPoint} />
      ))}
      {view.more > 0 && <li class="muted small">{many(view.more, "older message")} of the prompt not shown here.</li>}
    </ol>
  );
}

function Block({ block, onOpen, onPoint }: { block: PromptBlock } & Omit<BlocksProps, "view">) {
  const [all, show] = useState(false);
  const { seq } = block;
  const [chip, says] = REASONS[block.reason];
  const trimmed = block.stored_tokens > block.tokens;
  const long = block.text.length > LINES;
  const text = all || !long ? block.text : block.text.slice(0, LINES);
  const point = () => onPoint(block.sources);
  return (
    <li
      class={`block block-${block.what} role-${block.role}${trimmed ? " trimmed" : ""}`}
      data-block={seq ?? block.what}
      onPointerEnter={point}
    >
      <div class="block-head">
        <strong>{KINDS[block.what] || safe(block.role)}</strong>
        {seq !== null && (
          <Button kind="quiet" label={`Open entry ${seq}`} onClick={() => onOpen(seq)}>
            {whole(seq)}
          </Button>
        )}
        <Badge kind={`reason reason-${block.reason}`} says={says}>
          {chip}
        </Badge>
        {trimmed && (
          <Badge kind="place-trimmed" sign="◐" says="A shorter form of it is in the prompt">
            trimmed from {whole(block.stored_tokens)}
          </Badge>
        )}
        <span class="muted small block-tokens">{many(block.tokens, "token")}</span>
      </div>
      {block.quotes.length > 0 ? (
        <ul class="quotes" aria-label="Quotations">
          {block.quotes.map((quote) => (
            <Quote key={quote.pointer} quote={quote} onOpen={onOpen} />
          ))}
        </ul>
      ) : (
        text && <Said plain text={text + (!all && long ? " …" : "")} />
      )}
      <div class="block-more">
        {long && block.quotes.length === 0 && (
          <Button kind="quiet" onClick={() => show(!all)}>
            {all ? "Show less" : "Show more"}
          </Button>
        )}
      </div>
    </li>
  );
}

/** A quotation as it was sent, why it was recalled, and what one thinks of it. */
function Quote({ quote, onOpen }: { quote: RecalledQuote; onOpen: (seq: number) => void }) {
  const { seq } = quote;
  return (
    <li class="quote">
      <p class="muted small">
        {seq === null ? (
          <span>{line(quote.pointer, 80)}</span>
        ) : (
          <Button kind="quiet" onClick={() => onOpen(seq)}>
            <span aria-hidden="true">↺</span> from entry {whole(seq)}
          </Button>
        )}{" "}
        {safe(quote.heading)}
      </p>
      <blockquote>
        <Said plain text={quote.text} />
      </blockquote>
      <Reasons reasons={quote.reasons} />
      {quote.reasons.length > 0 && <Judge pointer={quote.pointer} seq={seq} question={quote.question} verdict={quote.verdict} />}
    </li>
  );
}
