// The items that wait for a person. The stream announces changes, and the page then requests the items.
import { computed, signal } from "./html.js";
import { getOfProject, of, post } from "./api.js";
import { say } from "./notices.js";

export const items = signal([]);
export const waiting = computed(() => items.value.length);

export async function load() {
	const inbox = await getOfProject("/v1/inbox");
	announce(inbox.items);
	items.value = inbox.items;
}

// Items by id until the stream announces their end. The list may lose them earlier.
const open = new Map();

function announce(newest) {
	const fresh = newest.filter((item) => !open.has(item.id));
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
	items.value = items.value.filter((other) => other.id !== id);
	if (!answering.has(id)) say(`“${item.title}”: ${answer}`);
}

// Each item is answered once. A second person is told who answered first.
export async function answer(item, choice, message) {
	answering.add(item.id);
	try {
		await post(of("inbox", item.id), { answer: choice, message });
		items.value = items.value.filter((other) => other.id !== item.id);
		say(`${choice}: ${item.title}`);
	} catch (problem) {
		answering.delete(item.id);
		say(problem.message, problem.remedy, true);
		if (problem.status === 409 || problem.status === 404) await load().catch(() => {});
	}
}
