// The events of the project as they happen. The connection comes back by itself after the last event that was heard, so
// that nothing is missed or comes twice. Events are handed on once for each picture.
import { batch, signal } from "./html.js";
import { project, send, signedIn } from "./api.js";

export const connection = signal("connecting"); // connecting, live, lost, resting

const listeners = new Set();
let source = null; // the AbortController of the request
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

function take(number, event) {
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

// Not by EventSource, which cannot send the key.
async function open() {
	const own = (source = new AbortController());
	const params = new URLSearchParams({ after: last });
	if (project.value) params.set("project", project.value);
	try {
		const response = await send("/v1/events?" + params, { signal: own.signal });
		if (response.ok && source === own) {
			connection.value = "live";
			await readEvents(response.body, own);
		}
	} catch {
		// The connection is lost, or nobody wants it any more.
	}
	if (source === own && !own.signal.aborted) again();
}

async function readEvents(body, own) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	let unfinished = "";
	for (;;) {
		const { done, value } = await reader.read();
		if (done || source !== own) return;
		const messages = (unfinished + value).split("\n\n");
		unfinished = messages.pop();
		messages.forEach(readMessage);
	}
}

// Server-sent events as our server writes them: each field is one line. Comments and messages with a name are no events of the log.
function readMessage(text) {
	const fields = {};
	for (const line of text.split("\n")) {
		const colon = line.indexOf(": ");
		fields[line.slice(0, colon)] = line.slice(colon + 2);
	}
	if (fields.data && !fields.event) take(fields.id ? Number(fields.id) : null, JSON.parse(fields.data));
}

function again() {
	source.abort();
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
	source.abort();
	connection.value = "resting";
}

export function disconnect() {
	clearTimeout(timer);
	if (source) source.abort();
	source = null;
	connection.value = "connecting";
}
