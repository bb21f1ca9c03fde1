// The events of the project as they happen. The connection comes back by itself after the last event that was heard, so
// that nothing is missed or comes twice. Events are handed on once for each picture.
import { batch, signal } from "./html.js";
import { project, signedIn } from "./api.js";

export const connection = signal("connecting"); // connecting, live, lost, resting

const listeners = new Set();
let source = null;
let last = 0;
let waiting = [];
let drawing = false;
let timer = 0;

// `hear(events)` gets lists of [number or null, event].
export function listen(hear) {
	listeners.add(hear);
	return () => listeners.delete(hear);
}

function hand() {
	drawing = false;
	const events = waiting;
	waiting = [];
	batch(() => listeners.forEach((hear) => hear(events)));
}

function take(message) {
	const number = message.lastEventId === "" || Number(message.lastEventId) <= last ? null : Number(message.lastEventId);
	const event = JSON.parse(message.data);
	// A delta repeats the id of the event before it: only a new id is a new event.
	if (number !== null) last = number;
	waiting.push([number, event]);
	if (drawing) return;
	drawing = true;
	// A page in the background is not drawn, but must still hear.
	if (document.hidden) setTimeout(hand, 250);
	else requestAnimationFrame(hand);
}

export function connect(after) {
	disconnect();
	last = after;
	open();
}

function open() {
	const params = new URLSearchParams({ after: last });
	if (project.value) params.set("project", project.value);
	source = new EventSource("/v1/events?" + params);
	source.onopen = () => (connection.value = "live");
	source.onmessage = take;
	source.onerror = again;
}

// The browser retries after a lost connection, but not after a refusal.
function again() {
	source.close();
	connection.value = "lost";
	clearTimeout(timer);
	if (signedIn.value) timer = setTimeout(open, 700);
}

// Browsers allow six connections to a server: a page that nobody looks at gives its own back after a while.
document.addEventListener("visibilitychange", () => {
	if (!source) return;
	clearTimeout(timer);
	if (document.hidden) timer = setTimeout(rest, 60000);
	else if (connection.value === "resting") open();
});

function rest() {
	source.close();
	connection.value = "resting";
}

export function disconnect() {
	clearTimeout(timer);
	if (source) source.close();
	source = null;
	connection.value = "connecting";
}
