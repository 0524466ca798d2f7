// Where something is said: Enter sends, Shift and Enter begin a new line, Esc stops the answer.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { safe } from "../format";
import { hindrance, may, useOn } from "../on";
import { Button, Choice } from "../widgets";
import type { Conversation } from "./conversation";

export function Composer({ talk, extra }: { talk: Conversation; extra: ComponentChildren }) {
  const on = useOn();
  const id = useId();
  const [text, setText] = useState("");
  const [model, setModel] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  const models = useModels();
  const why = hindrance(on, "ask");
  const asking = talk.state === "asking";
  const usual = on.now?.model || on.asker.model;
  const chosen = model || usual;
  useEffect(() => {
    if (!asking) return undefined;
    const escape = (event: KeyboardEvent) => event.key === "Escape" && talk.stop();
    addEventListener("keydown", escape);
    return () => removeEventListener("keydown", escape);
  }, [asking]);
  const send = async () => {
    const said = text.trim();
    if (!said || why || asking) return;
    setText("");
    box.current?.focus();
    const back = await talk.say(said, chosen);
    if (back) setText((now) => now || back);
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void send();
  };
  const submitted = (event: Event) => {
    event.preventDefault();
    void send();
  };
  return (
    <form class="composer" onSubmit={submitted}>
      <label class="unseen" for={id}>
        Message
      </label>
      <textarea
        ref={box}
        id={id}
        rows={2}
        value={text}
        readOnly={Boolean(why)}
        placeholder={why || "Say something…"}
        aria-describedby={`${id}-keys`}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={pressed}
      />
      <div class="composer-row">
        <Choice
          quiet
          label="Model"
          value={chosen}
          options={listed(models, chosen, usual)}
          onChange={setModel}
          disabled={Boolean(why)}
        />
        {extra}
        <span id={`${id}-keys`} class="muted small keys">
          {why || "Enter sends · Shift+Enter new line · Esc stops"}
        </span>
        {asking ? (
          <Button kind="danger" onClick={talk.stop}>
            Stop
          </Button>
        ) : (
          <Button submit kind="primary" needs="ask" disabled={!text.trim()}>
            Send
          </Button>
        )}
      </div>
    </form>
  );
}

const listed = (models: readonly string[], ...also: string[]): [string, string][] =>
  [...new Set([...also, ...models])].filter(Boolean).map((name) => [name, safe(name)]);

function useModels(): readonly string[] {
  const on = useOn();
  const [models, set] = useState<readonly string[]>([]);
  useEffect(() => {
    if (may(on, "ask")) on.api.models().then(set, () => undefined); // the usual model is there in any case
  }, [on.api]);
  return models;
}
