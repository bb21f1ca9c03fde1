// The current state of all runs of the project: read once, then replaced when they change.
import { computed, signal } from "./html.js";
import { getOfProject } from "./api.js";

export const DONE = new Set(["completed", "steered"]);
export const LIVE = new Set(["queued", "starting", "running", "waiting"]);

const rows = new Map();
export const version = signal(0); // incremented with every change of any run
export const more = signal(null); // the cursor of older runs
export const loaded = signal(false);

export const run = (id) => rows.get(id);
// Returns the duration of a run, up to now if it has not ended.
export const tookOf = (row, time) => Math.max((row.ended_at || (LIVE.has(row.state) ? time : row.updated_at)) - (row.started_at || row.created_at), 0);

export const liveCount = computed(() => {
	version.value;
	let found = 0;
	for (const row of rows.values()) if (LIVE.has(row.state)) found++;
	return found;
});

// The cost of each run with all its descendants, by id, for runs with known prices.
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
	put(found);
	loaded.value = true;
	return found.cursor;
}

export async function loadMore() {
	put(await getOfProject("/v1/runs", { limit: 1000, before: more.value }));
}

// Loads a run that is older than the list, with its tree.
export function add(some) {
	for (const row of some) if (!rows.has(row.id)) rows.set(row.id, row);
	version.value++;
}

function put(found) {
	for (const row of found.runs) rows.set(row.id, row);
	more.value = found.next;
	version.value++;
}

// Returns the runs as a list in which children follow their parents. A run that is not `wanted` is included only as a parent.
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
		// The newest tree is first; runs in a tree are in the order of their start.
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

// The children of a run, by the call that started them.
export function childrenByCall(parent) {
	const found = new Map();
	for (const row of rows.values()) if (row.parent_id === parent && row.call_id) found.set(row.call_id, row);
	return found;
}

export function take(changes) {
	for (const change of changes) for (const row of change.runs) rows.set(row.id, row);
	version.value++;
}
