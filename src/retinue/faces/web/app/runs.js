// All runs of the project as they stand: read once, then kept current by events.
import { computed, signal } from "./html.js";
import { getOfProject } from "./api.js";
import { callLine } from "./format.js";

export const LIVE = new Set(["queued", "starting", "running", "waiting"]);

const rows = new Map();
const partials = new Map();
export const version = signal(0); // grows with every change of any run
export const more = signal(null); // where older runs begin
export const loaded = signal(false);

export const run = (id) => rows.get(id);
// How long it took, or takes until now.
export const tookOf = (row, time) => Math.max((row.ended_at || (LIVE.has(row.state) ? time : row.updated_at)) - (row.started_at || row.created_at), 0);
export const partial = (id) => partials.get(id) || { text: "", thinking: "" };

export const liveCount = computed(() => {
	version.value;
	let found = 0;
	for (const row of rows.values()) if (LIVE.has(row.state)) found++;
	return found;
});

// What each run and all below it cost, by its id, of those whose price is known.
export const treeCosts = computed(() => {
	version.value;
	const found = new Map();
	for (const row of rows.values()) {
		const cost = row.usage.cost_usd;
		if (cost === null) continue;
		for (let each = row; each; each = rows.get(each.parent_id)) found.set(each.id, (found.get(each.id) || 0) + cost);
	}
	return found;
});

export async function load() {
	const found = await getOfProject("/v1/runs", { limit: 1000 });
	rows.clear();
	partials.clear();
	put(found);
	loaded.value = true;
	return found.cursor;
}

export async function loadMore() {
	put(await getOfProject("/v1/runs", { limit: 1000, before: more.value }));
}

// A run that is older than what the list has, with those around it.
export function add(some) {
	for (const row of some) if (!rows.has(row.id)) rows.set(row.id, row);
	version.value++;
}

function put(found) {
	for (const row of found.runs) rows.set(row.id, row);
	more.value = found.next;
	version.value++;
}

// The runs as a list in which children follow their parents. Of those that are not `wanted`, only parents are shown.
export function flatten(wanted, folded) {
	const children = new Map();
	const shown = new Set();
	for (const row of rows.values()) {
		const parent = rows.has(row.parent_id) ? row.parent_id : "";
		if (!children.has(parent)) children.set(parent, []);
		children.get(parent).push(row);
		if (wanted && wanted(row)) for (let each = row; each && !shown.has(each.id); each = rows.get(each.parent_id)) shown.add(each.id);
	}
	const found = [];
	const walk = (parent, depth) => {
		const some = children.get(parent) || [];
		// Trees newest first, the runs in a tree in the order in which they were started.
		some.sort((a, b) => (parent === "" ? b.created_at - a.created_at : a.created_at - b.created_at));
		for (const row of some) {
			if (wanted && !shown.has(row.id)) continue;
			const below = (children.get(row.id) || []).length;
			found.push({ row, depth, below });
			if (!folded.has(row.id)) walk(row.id, depth + 1);
		}
	};
	walk("", 0);
	return found;
}

export function below(id) {
	const found = [];
	const waiting = [id];
	while (waiting.length) {
		const parent = waiting.pop();
		for (const row of rows.values()) if (row.parent_id === parent) waiting.push(row.id), found.push(row);
	}
	return found;
}

// The runs that a run has started, by the call with which it did.
export function childrenByCall(parent) {
	const found = new Map();
	for (const row of rows.values()) if (row.parent_id === parent && row.call_id) found.set(row.call_id, row);
	return found;
}

// Events that make streamed text whole or void.
const VOIDS = new Set(["turn.started", "model.retrying", "assistant.ended", "run.resumed", "run.ended"]);

export function hear(events) {
	for (const [, event] of events) {
		const id = event.run_id;
		if (event.type.endsWith(".delta") || event.type.endsWith(".partial")) hearText(id, event);
		else if (VOIDS.has(event.type)) partials.delete(id);
		apply(rows, event);
	}
	version.value++;
}

// Let one event change the run in `some` that it is about.
export function apply(some, event) {
	const row = event.type === "run.created" ? create(event) : some.get(event.run_id);
	const change = row && CHANGES[event.type];
	if (change) some.set(row.id, { ...row, ...change(event, row), updated_at: event.at });
}

function hearText(id, event) {
	const [kind, how] = event.type.split(".");
	const known = partial(id);
	partials.set(id, { ...known, [kind]: how === "partial" ? event.text : known[kind] + event.text });
}

function create(event) {
	const { agent, task, model, cwd, depth, options, run_id, parent_id, root_id, at } = event;
	const usage = { input: 0, output: 0, cache_read: 0, cache_write: 0, cost_usd: null };
	return {
		id: run_id, parent_id, root_id, depth, agent, cwd, model, task: task.slice(0, 500), usage,
		name: options.name || null, description: options.description || "", call_id: options.call_id || null, background: !!options.background, doing: "",
		state: "queued", ended: null, error: null, pid: null, created_at: at, started_at: null, ended_at: null,
		updated_at: at, turns: 0, tool_uses: 0, compactions: 0,
	};
}

const CHANGES = {
	"run.created": () => ({}),
	"run.started": (event, row) => ({ state: "running", model: event.model, started_at: row.started_at || event.at }),
	"run.resumed": () => ({ state: "running", ended: null, error: null, ended_at: null, doing: "" }),
	"turn.started": () => ({ state: "running", doing: "" }),
	"text.delta": () => ({ doing: "writing" }),
	"text.partial": () => ({ doing: "writing" }),
	"thinking.delta": () => ({ doing: "thinking" }),
	"model.retrying": (event) => ({ doing: event.failure.message }),
	"assistant.ended": (event, row) => ({ doing: "", model: event.message.model || row.model }),
	"tool.started": (event) => ({ doing: `${event.call.name} ${callLine(event.call)}` }),
	"tool.ended": (event, row) => ({ doing: "", tool_uses: row.tool_uses + 1 }),
	"turn.ended": (event, row) => ({ turns: row.turns + 1, usage: event.total }),
	"inbox.opened": (event) => ({ state: "waiting", doing: event.title }),
	"inbox.closed": () => ({ state: "running", doing: "" }),
	"run.moved": () => ({ background: true }),
	"run.compacted": (event, row) => ({ compactions: row.compactions + 1 }),
	"run.interrupted": () => ({ state: "interrupted", doing: "" }),
	"run.ended": ({ outcome, at }, row) => ({
		state: "ended", ended: outcome.ended, error: outcome.failure ? outcome.failure.kind : null, ended_at: at, doing: "",
		usage: outcome.usage, turns: Math.max(row.turns, outcome.turns), tool_uses: Math.max(row.tool_uses, outcome.tool_uses),
	}),
};
