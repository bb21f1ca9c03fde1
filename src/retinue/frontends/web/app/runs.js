// The current state of all runs of the project: read once, then replaced when they change.
import { computed, signal } from "./html.js";
import { getOfProject } from "./api.js";

export const DONE = new Set(["completed", "steered"]);
export const LIVE = new Set(["queued", "starting", "running", "waiting"]);

const rows = new Map();
export const version = signal(0); // incremented with every change of any run
export const olderCursor = signal(null);
export const loaded = signal(false);

export const run = (id) => rows.get(id);
// Returns the duration of a run, up to now if it has not ended.
export const tookOf = (row, time) => Math.max((row.ended_at || (LIVE.has(row.state) ? time : row.updated_at)) - (row.started_at || row.created_at), 0);

export const liveCount = computed(() => {
	version.value;
	let count = 0;
	for (const row of rows.values()) if (LIVE.has(row.state)) count++;
	return count;
});

// The cost of each run with all its descendants, by id, for runs with known prices.
export const treeCosts = computed(() => {
	version.value;
	const costs = new Map();
	for (const row of rows.values()) {
		const cost = row.usage.cost_usd;
		if (cost === null) continue;
		for (let ancestor = row; ancestor; ancestor = rows.get(ancestor.parent_id)) costs.set(ancestor.id, (costs.get(ancestor.id) || 0) + cost);
	}
	return costs;
});

export async function load() {
	const page = await getOfProject("/v1/runs", { limit: 1000 });
	rows.clear();
	put(page);
	loaded.value = true;
	return page.cursor;
}

export async function loadMore() {
	put(await getOfProject("/v1/runs", { limit: 1000, before: olderCursor.value }));
}

// Loads a run that is older than the list, with its tree.
export function add(some) {
	for (const row of some) if (!rows.has(row.id)) rows.set(row.id, row);
	version.value++;
}

function put(page) {
	for (const row of page.runs) rows.set(row.id, row);
	olderCursor.value = page.next;
	version.value++;
}

// Returns the runs as a list in which children follow their parents. A run that `matches` rejects is included only as an ancestor of another.
export function flatten(matches, folded) {
	const children = new Map();
	const shown = new Set();
	for (const row of rows.values()) {
		const parent = rows.has(row.parent_id) ? row.parent_id : "";
		if (!children.has(parent)) children.set(parent, []);
		children.get(parent).push(row);
		if (matches && matches(row)) for (let ancestor = row; ancestor && !shown.has(ancestor.id); ancestor = rows.get(ancestor.parent_id)) shown.add(ancestor.id);
	}
	const list = [];
	const walk = (parent, depth) => {
		const some = children.get(parent) || [];
		// The newest tree is first; runs in a tree are in the order of their start.
		some.sort((a, b) => (parent === "" ? b.created_at - a.created_at : a.created_at - b.created_at));
		for (const row of some) {
			if (matches && !shown.has(row.id)) continue;
			const below = (children.get(row.id) || []).length;
			list.push({ row, depth, below });
			if (!folded.has(row.id)) walk(row.id, depth + 1);
		}
	};
	walk("", 0);
	return list;
}

export function below(id) {
	const descendants = [];
	const waiting = [id];
	while (waiting.length) {
		const parent = waiting.pop();
		for (const row of rows.values()) if (row.parent_id === parent) waiting.push(row.id), descendants.push(row);
	}
	return descendants;
}

// The children of a run, by the call that started them.
export function childrenByCall(parent) {
	const children = new Map();
	for (const row of rows.values()) if (row.parent_id === parent && row.call_id) children.set(row.call_id, row);
	return children;
}

export function take(changes) {
	for (const change of changes) for (const row of change.runs) rows.set(row.id, row);
	version.value++;
}
