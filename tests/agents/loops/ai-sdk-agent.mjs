// A tool loop of the Vercel AI SDK with one tool: ai-sdk-agent.mjs chat|responses|anthropic MODEL BASE_URL HISTORY TASK.
// The conversation is stored in HISTORY in the SDK's message format, and the next call continues it.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [api, model, baseURL, historyFile, task] = process.argv.slice(2);
const apiKey = process.env.RECTO_KEY;
const provider = api === "anthropic" ? createAnthropic({ baseURL, apiKey }) : createOpenAI({ baseURL, apiKey });
const bash = tool({
  description: "Runs a command in the shell and returns what it prints.",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => execFileSync("bash", ["-c", command], { encoding: "utf8" }),
});
const history = existsSync(historyFile) ? JSON.parse(readFileSync(historyFile, "utf8")) : [];
const messages = [...history, { role: "user", content: task }];
const result = streamText({
  model: api === "anthropic" ? provider(model) : provider[api](model),
  messages,
  tools: { bash },
  stopWhen: stepCountIs(1000),
  maxOutputTokens: 4000,
  maxRetries: 0,
  onError: ({ error }) => {
    console.error(error);
    process.exit(1);
  },
});
const text = await result.text;
writeFileSync(historyFile, JSON.stringify([...messages, ...(await result.responseMessages)]));
console.log(text);
