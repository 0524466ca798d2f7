// Recto in pi: a compaction is the state of the work as Recto records it; no model is asked for a summary.
// Written by `recto plugin install pi`; `recto plugin uninstall pi` removes it.
import { spawn } from "node:child_process";

const PROGRAM = ["recto"]; // the command that starts Recto
const SECONDS = 30;

/** What Recto knows of a session, from pi's own file. A failure is an empty text: pi compacts by itself then. */
function record(session: string, file: string): Promise<string> {
	return new Promise((resolve) => {
		const asked = ["plugin", "record", "pi", "--session", session, "--file", file];
		const child = spawn(PROGRAM[0], [...PROGRAM.slice(1), ...asked], { stdio: ["ignore", "pipe", "ignore"] });
		const timer = setTimeout(() => child.kill(), SECONDS * 1000);
		let text = "";
		child.stdout.on("data", (chunk) => (text += chunk));
		child.on("error", () => resolve(""));
		child.on("close", (code) => {
			clearTimeout(timer);
			resolve(code === 0 ? text.trim() : "");
		});
	});
}

export default function (pi: any) {
	pi.on("session_before_compact", async (event: any, ctx: any) => {
		const file = ctx.sessionManager.getSessionFile();
		if (!file) return;
		const summary = await record(ctx.sessionManager.getSessionId(), file);
		if (!summary) return;
		const { firstKeptEntryId, tokensBefore } = event.preparation;
		return { compaction: { summary, firstKeptEntryId, tokensBefore } };
	});
}
