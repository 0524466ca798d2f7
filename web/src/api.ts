// The gateway, as the page asks it: the inspection API, and a conversation whose answer comes in pieces.
// It knows how to ask; what the answers mean is not known here.

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

/** What Recto did for an answer, as its headers say. */
export interface Done {
  session: string;
  tokens: string;
  decisions: string;
  recall: string;
}

export class Api {
  constructor(private readonly key: string) {}

  get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    return this.asked<T>("GET", path, query, undefined, signal);
  }

  post<T>(path: string, body: unknown, query: Query = {}): Promise<T> {
    return this.asked<T>("POST", path, query, body);
  }

  delete<T>(path: string, query: Query = {}): Promise<T> {
    return this.asked<T>("DELETE", path, query);
  }

  async models(): Promise<string[]> {
    const answer = await fetch("/v1/models", { headers: this.headers() });
    if (!answer.ok) throw await refused(answer);
    const listed = (await answer.json()) as { data: Array<{ id: string }> };
    return listed.data.map((one) => one.id);
  }

  /** Says something in a session, whose history the gateway holds; tells each piece of the answer as it comes. */
  async say(
    session: string,
    text: string,
    model: string,
    piece: (text: string) => void,
    signal: AbortSignal,
  ): Promise<Done> {
    const answer = await fetch("/v1/chat/completions", {
      method: "POST",
      headers: { ...this.headers(), "content-type": "application/json", "x-recto-session-id": session },
      body: JSON.stringify({ model, stream: true, messages: [{ role: "user", content: text }] }),
      signal,
    });
    if (!answer.ok || !answer.body) throw await refused(answer);
    for await (const event of events(answer.body)) {
      const { error } = event;
      if (error) throw new Refused(502, error.code ?? "upstream", error.message ?? "the answer broke off");
      for (const choice of event.choices ?? []) if (choice.delta?.content) piece(choice.delta.content);
    }
    const header = (name: string) => answer.headers.get(`x-recto-${name}`) ?? "";
    return {
      session: header("session-id"),
      tokens: header("tokens"),
      decisions: header("decisions"),
      recall: header("recall"),
    };
  }

  private headers(): Record<string, string> {
    return { authorization: `Bearer ${this.key}` };
  }

  private async asked<T>(method: string, path: string, query: Query, body?: unknown, signal?: AbortSignal): Promise<T> {
    const given = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      if (value !== null && value !== undefined && value !== "") given.set(name, String(value));
    }
    const asks = given.size ? `?${given}` : "";
    const headers = body === undefined ? this.headers() : { ...this.headers(), "content-type": "application/json" };
    const sent = body === undefined ? undefined : JSON.stringify(body);
    const answer = await fetch(`/api/v1${path}${asks}`, { method, headers, body: sent, signal });
    if (!answer.ok) throw await refused(answer);
    return (await answer.json()) as T;
  }
}

interface StreamEvent {
  error?: { code?: string; message?: string };
  choices?: Array<{ delta?: { content?: string } }>;
}

async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<StreamEvent> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    let end: number;
    while ((end = rest.search(/\r?\n\r?\n/)) >= 0) {
      const event = rest.slice(0, end);
      rest = rest.slice(end).replace(/^\r?\n\r?\n/, "");
      const said = event
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart())
        .join("\n");
      if (said && said !== "[DONE]") yield JSON.parse(said) as StreamEvent;
    }
  }
}

async function refused(answer: Response): Promise<Refused> {
  try {
    const { error } = (await answer.json()) as { error: { code?: string; type?: string; message: string } };
    return new Refused(answer.status, error.code ?? error.type ?? "", error.message);
  } catch {
    return new Refused(answer.status, "", `the gateway answered ${answer.status} without saying why`);
  }
}
