// AG-UI's own client: two runs in one thread. Prints one JSON document: what it was told, and what it warned of.
import { HttpAgent } from "@ag-ui/client";

const [url, token] = process.argv.slice(2);
const warnings = [];
console.warn = console.error = (...words) => warnings.push(words.join(" "));
const agent = new HttpAgent({ url, threadId: "t1", headers: { Authorization: `Bearer ${token}` } });
const runs = [];
for (const [place, content] of ["First", "Second"].entries()) {
	agent.addMessage({ id: `m${place}`, role: "user", content });
	const events = [];
	const { result } = await agent.runAgent({ runId: `r${place}` }, { onEvent: ({ event }) => void events.push(event.type) });
	runs.push({ result, events, said: agent.messages.at(-1).content });
}
console.log(JSON.stringify({ runs, warnings }));
