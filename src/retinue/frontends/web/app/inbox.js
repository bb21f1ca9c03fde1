// What waits for a person. The stream says that something changed; the items are asked for.
import { computed, signal } from "./html.js";
import { getOfProject, of, post } from "./api.js";
import { say } from "./notices.js";

export const items = signal([]);
export const waiting = computed(() => items.value.length);

export async function load() {
	const found = await getOfProject("/v1/inbox");
	announce(found.items);
	items.value = found.items;
}

// Items by their ids until the stream says how they ended: the list may lose them before.
const open = new Map();

function announce(found) {
	const fresh = found.filter((item) => !open.has(item.id));
	for (const item of fresh) open.set(item.id, item);
	if (!document.hidden || !("Notification" in window) || Notification.permission !== "granted") return;
	for (const item of fresh) new Notification(`${item.agent} waits for you`, { body: item.title, tag: item.id });
}

const answering = new Set();

export function take(changes) {
	for (const change of changes) {
		if (change.inbox) load().catch(() => {});
		for (const [id, answer] of Object.entries(change.closed || {})) close(id, answer);
	}
}

function close(id, answer) {
	const item = open.get(id);
	if (!item || !open.delete(id)) return;
	items.value = items.value.filter((each) => each.id !== id);
	if (!answering.has(id)) say(`“${item.title}”: ${answer}`);
}

// Each item is answered once. Whoever comes second is told who was first.
export async function answer(item, choice, message) {
	answering.add(item.id);
	try {
		await post(of("inbox", item.id), { answer: choice, message });
		items.value = items.value.filter((each) => each.id !== item.id);
		say(`${choice}: ${item.title}`);
	} catch (problem) {
		answering.delete(item.id);
		say(problem.message, problem.remedy, true);
		if (problem.status === 409 || problem.status === 404) await load().catch(() => {});
	}
}
