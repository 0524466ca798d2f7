// What is written and chosen: fields, choices, tabs. They know how things look, and nothing of sessions.
import { useId } from "preact/hooks";
import { whole } from "./format";

export interface FieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  type?: "text" | "search" | "password" | "number";
  placeholder?: string;
  hint?: string;
  /** Whether the label is heard but not seen. */
  quiet?: boolean;
  lines?: number;
  most?: number;
}

export function Field({ label, value, onInput, type = "text", placeholder, hint, quiet, lines, most }: FieldProps) {
  const id = useId();
  const shared = {
    id,
    value,
    placeholder,
    maxLength: most,
    autocomplete: "off" as const,
    spellcheck: false,
    "aria-describedby": hint ? `${id}-hint` : undefined,
    onInput: (event: Event) => onInput((event.currentTarget as HTMLInputElement).value),
  };
  return (
    <div class="field">
      <label for={id} class={quiet ? "unseen" : undefined}>
        {label}
      </label>
      {lines ? <textarea rows={lines} {...shared} /> : <input type={type as "text"} {...shared} />}
      {hint && (
        <p id={`${id}-hint`} class="muted small">
          {hint}
        </p>
      )}
    </div>
  );
}

export interface ChoiceProps {
  label: string;
  value: string;
  options: readonly (readonly [value: string, title: string])[];
  onChange: (value: string) => void;
  quiet?: boolean;
  disabled?: boolean;
}

export function Choice({ label, value, options, onChange, quiet, disabled }: ChoiceProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id} class={quiet ? "unseen" : undefined}>
        {label}
      </label>
      <select id={id} value={value} disabled={disabled} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([given, title]) => (
          <option key={given} value={given}>
            {title}
          </option>
        ))}
      </select>
    </div>
  );
}

export interface TabsProps {
  label: string;
  value: string;
  options: readonly (readonly [value: string, title: string, count?: number])[];
  onChange: (value: string) => void;
}

/** One of a few, beside each other; arrow keys move between them. */
export function Tabs({ label, value, options, onChange }: TabsProps) {
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const at = options.findIndex(([given]) => given === value);
    onChange(options[(at + step + options.length) % options.length]![0]);
    const list = event.currentTarget as HTMLElement;
    requestAnimationFrame(() => list.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {options.map(([given, title, count]) => (
        <button
          key={given}
          type="button"
          role="tab"
          aria-selected={given === value ? "true" : "false"}
          tabIndex={given === value ? 0 : -1}
          onClick={() => onChange(given)}
        >
          {title}
          {count !== undefined && <span class="count"> {whole(count)}</span>}
        </button>
      ))}
    </div>
  );
}
