// Recto in OpenClaw: the context engine. Every history fits, and the transcript of OpenClaw is never rewritten.
// Written by `recto plugin install openclaw`; `recto plugin uninstall openclaw` removes it.
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"

const PROGRAM = ["recto"] // the command that starts Recto
const SECONDS = 30
const CHARS_PER_TOKEN = 4
const TOOLS_SHARE = 0.1 // of the budget: OpenClaw does not count the schemas of tools

/** A process of Recto that answers requests in order, one line each. */
class Recto {
  #waiting = []
  #process = null

  ask(request) {
    return new Promise((resolve, reject) => {
      const child = (this.#process ??= this.#start())
      const timer = setTimeout(() => child.kill(), SECONDS * 1000)
      this.#waiting.push((line) => {
        clearTimeout(timer)
        const answer = line === null ? { error: "Recto has ended, or did not answer" } : JSON.parse(line)
        if (answer.error) reject(new Error(answer.error))
        else resolve(answer)
      })
      child.stdin.write(JSON.stringify(request) + "\n")
    })
  }

  #start() {
    const child = spawn(PROGRAM[0], [...PROGRAM.slice(1), "plugin", "engine", "openclaw"], {
      stdio: ["pipe", "pipe", "ignore"],
    })
    const end = () => {
      if (this.#process === child) this.#process = null
      for (const answer of this.#waiting.splice(0)) answer(null)
    }
    child.on("error", end)
    child.on("close", end)
    child.stdin.on("error", () => {})
    createInterface({ input: child.stdout }).on("line", (line) => this.#waiting.shift()?.(line))
    child.unref() // an idle process does not hold up OpenClaw's end
    for (const pipe of [child.stdin, child.stdout]) pipe.unref?.()
    return child
  }
}

const textOf = (content) =>
  typeof content === "string"
    ? content
    : (content ?? [])
        .filter((part) => part.type === "text")
        .map((part) => part.text)
        .join("\n")

/** The id of a call without what OpenClaw removes from it once the call is history. */
const plainId = (id) => id.replace(/[^A-Za-z0-9]/g, "") || id

/** A message of OpenClaw in OpenAI's chat format. */
function chatOf(message) {
  const text = textOf(message.content)
  if (message.role === "assistant") {
    const calls = message.content.filter((part) => part.type === "toolCall")
    const made = calls.map(({ id, name, arguments: given }) => ({
      id: plainId(id),
      type: "function",
      function: { name, arguments: JSON.stringify(given ?? {}) },
    }))
    return { role: "assistant", content: text, ...(made.length ? { tool_calls: made } : {}) }
  }
  if (message.role === "toolResult") return { role: "tool", tool_call_id: plainId(message.toolCallId), content: text }
  const images = Array.isArray(message.content) ? message.content.filter((part) => part.type === "image") : []
  const pictures = images.map(({ data, mimeType }) => ({
    type: "image_url",
    image_url: { url: `data:${mimeType};base64,${data}` },
  }))
  const words = text || message.summary || (pictures.length ? "" : JSON.stringify(message.content ?? ""))
  return { role: "user", content: pictures.length ? [{ type: "text", text: words }, ...pictures] : words }
}

/** A message that Recto wrote or changed, as OpenClaw has them. */
function messageOf(chat, messages) {
  const timestamp = messages[0]?.timestamp ?? 0
  const content = [{ type: "text", text: textOf(chat.content) }]
  const made = messages.flatMap((message) => (message.role === "assistant" ? message.content : []))
  const callOf = (id) => made.find((part) => part.type === "toolCall" && plainId(part.id) === id)
  if (chat.role === "tool") {
    const { id: toolCallId, name: toolName } = callOf(chat.tool_call_id) ?? { id: chat.tool_call_id, name: "tool" }
    return { role: "toolResult", toolCallId, toolName, content, isError: false, timestamp }
  }
  if (chat.role !== "assistant") return { role: "user", content, timestamp }
  const like = messages.find((message) => message.role === "assistant")
  const calls = (chat.tool_calls ?? []).map((call) => ({
    type: "toolCall",
    id: callOf(call.id)?.id ?? call.id,
    name: call.function.name,
    arguments: JSON.parse(call.function.arguments || "{}"),
  }))
  return { ...like, content: [...(content[0].text ? content : []), ...calls], timestamp }
}

const recto = new Recto()
const assembled = new Map() // by session: the history that was given last, what was made of it, and its budget

function engine() {
  const stored = async ({ sessionId, messages }) => {
    await recto.ask({ op: "stored", session: sessionId, messages: messages.map(chatOf) })
  }
  return {
    info: {
      id: "recto",
      name: "Recto",
      ownsCompaction: true,
      acceptedHostParams: ["runtimeSettings", "prompt"],
      transcriptSemantics: {
        currentTurnFence: "before-current-turn-entry-v1",
        turnAdvancementIdempotency: "atomic-idempotent-v1",
      },
    },

    async ingest({ sessionId, message }) {
      await stored({ sessionId, messages: [message] })
      return { ingested: true }
    },

    async commitTurn({ sessionId, advancementKey, messages }) {
      const request = { op: "stored", session: sessionId, key: advancementKey, messages: messages.map(chatOf) }
      const { stored: count } = await recto.ask(request)
      return { status: count ? "committed" : "duplicate" }
    },

    async assemble({ sessionId, messages, tokenBudget, model, prompt, runtimeSettings }) {
      const known = assembled.get(sessionId)
      const chats = messages.map(chatOf)
      // Between the steps of a turn OpenClaw passes what was assembled before it, and a budget that includes system text.
      const again = known?.prompt === prompt && known?.view === JSON.stringify(chats)
      const history = again ? known.history : messages
      const pending = again ? Math.max(0, (runtimeSettings?.limits?.promptTokenBudget ?? tokenBudget) - tokenBudget) : 0
      const budget = again ? Math.max(known.budget - pending, known.budget / 4) : tokenBudget
      const request = {
        op: "fit",
        session: sessionId,
        model,
        window: budget && Math.ceil(budget * (1 - TOOLS_SHARE)),
        answer: 1,
        messages: again ? history.map(chatOf) : chats,
      }
      const { messages: sent, places } = await recto.ask(request)
      const view = sent.map((chat, at) => (places[at] === null ? messageOf(chat, history) : history[places[at]]))
      const made = JSON.stringify(view.map(chatOf))
      assembled.set(sessionId, { history, prompt, view: made, budget: again ? known.budget : budget })
      return { messages: view, estimatedTokens: Math.ceil(made.length / CHARS_PER_TOKEN) }
    },

    async compact({ sessionId, customInstructions }) {
      const { evicted } = await recto.ask({ op: "compact", session: sessionId, focus: customInstructions ?? "" })
      return { ok: true, compacted: evicted > 0 }
    },
  }
}

export default {
  id: "recto",
  name: "Recto",
  register(api) {
    api.registerContextEngine("recto", engine)
  },
}
