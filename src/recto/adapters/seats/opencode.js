// Recto in opencode: a compaction keeps the state of the work as Recto records it, whatever the summary says.
// Written by `recto plugin install opencode`; `recto plugin uninstall opencode` removes it.
import { spawn } from "node:child_process"

const PROGRAM = ["recto"] // the command that starts Recto
const SECONDS = 30

/** What Recto knows of a session. Messages go to its standard input; a failure is an empty text, never an error. */
function record(session, messages) {
  return new Promise((resolve) => {
    const child = spawn(PROGRAM[0], [...PROGRAM.slice(1), "plugin", "record", "opencode", "--session", session], {
      stdio: ["pipe", "pipe", "ignore"],
    })
    const timer = setTimeout(() => child.kill(), SECONDS * 1000)
    let text = ""
    child.stdout.on("data", (chunk) => (text += chunk))
    child.stdin.on("error", () => {})
    child.on("error", () => resolve(""))
    child.on("close", (code) => {
      clearTimeout(timer)
      resolve(code === 0 ? text.trim() : "")
    })
    for (const message of messages) child.stdin.write(JSON.stringify(message) + "\n")
    child.stdin.end()
  })
}

export const Recto = async ({ client }) => {
  const records = new Map() // by session; empty where Recto knows nothing of it
  return {
    "experimental.session.compacting": async (input, output) => {
      const listed = await client.session.messages({ path: { id: input.sessionID } })
      const text = await record(input.sessionID, listed.data ?? [])
      records.set(input.sessionID, text)
      if (text) output.context.push(`Keep every fact of this record of the work:\n${text}`)
    },
    "experimental.chat.messages.transform": async (_input, output) => {
      const summary = output.messages.findLast((message) => message.info.summary && message.info.role === "assistant")
      if (!summary) return
      const session = summary.info.sessionID
      if (!records.has(session)) records.set(session, await record(session, []))
      const text = records.get(session)
      const place = summary.parts.findLast((part) => part.type === "text")
      if (text && place && !place.text.includes(text)) place.text += `\n\n${text}`
    },
  }
}
