// The stream of documents from the server. A lost connection is restored automatically. Documents are passed on once per animation frame.
import { batch, signal } from "./html.js";
import { project, Problem, send, signedIn } from "./api.js";

export const connection = signal("connecting"); // of the project: connecting, live, lost, resting

const RETRY_MS = 700;
const streams = new Set();

class Stream {
	// `address` returns the path for each connection. `take` gets lists of documents, `tell` the state, and `refused` the problem from the server.
	constructor(address, { take, tell = () => {}, refused = () => {}, patience }) {
		Object.assign(this, { address, take, tell, refused, patience, waiting: [], last: null, source: null, timer: 0 });
		streams.add(this);
		this.open();
	}

	// It does not use EventSource, which cannot send the key.
	async open() {
		const own = (this.source = new AbortController());
		this.tell("connecting");
		try {
			const response = await send(this.address(this.last), { signal: own.signal });
			if (response.ok && this.source === own) {
				this.tell("live");
				await this.read(response.body, own);
			} else if (response.status === 404) {
				this.refused(new Problem(response.status, await response.json()));
				return;
			}
		} catch {
			// The connection was lost, or the page closed it.
		}
		if (this.source === own && !own.signal.aborted) this.again();
	}

	async read(body, own) {
		const reader = body.pipeThrough(new TextDecoderStream()).getReader();
		let unfinished = "";
		for (;;) {
			const { done, value } = await reader.read();
			if (done || this.source !== own) return;
			const messages = (unfinished + value).split("\n\n");
			unfinished = messages.pop();
			messages.forEach((message) => this.readMessage(message));
		}
	}

	// Parses server-sent events as our server writes them, with each field on one line. Comments and named messages are not documents.
	readMessage(text) {
		const fields = {};
		for (const line of text.split("\n")) {
			const colon = line.indexOf(": ");
			fields[line.slice(0, colon)] = line.slice(colon + 2);
		}
		if (!fields.data || fields.event) return;
		if (fields.id) this.last = Number(fields.id);
		this.waiting.push(JSON.parse(fields.data));
		if (this.waiting.length > 1) return;
		// A page in the background is not drawn, but must still process documents.
		if (document.hidden) setTimeout(() => this.hand(), 250);
		else requestAnimationFrame(() => this.hand());
	}

	hand() {
		const documents = this.waiting;
		this.waiting = [];
		if (this.source) batch(() => this.take(documents));
	}

	again() {
		this.source.abort();
		this.tell("lost");
		clearTimeout(this.timer);
		if (signedIn.value) this.timer = setTimeout(() => this.open(), RETRY_MS);
	}

	// Browsers allow six connections to a server, so a hidden page closes its connection after a while.
	look() {
		clearTimeout(this.timer);
		if (document.hidden) this.timer = setTimeout(() => this.rest(), this.patience);
		else if (this.source.signal.aborted) this.open();
	}

	rest() {
		this.source.abort();
		this.tell("resting");
	}

	close() {
		clearTimeout(this.timer);
		this.source.abort();
		this.source = null;
		streams.delete(this);
	}
}

document.addEventListener("visibilitychange", () => streams.forEach((stream) => stream.look()));

let current = null;

// Follows the project after the event with the number `after`.
export function connect(after, take) {
	disconnect();
	const address = (last) => "/v1/changes?" + new URLSearchParams({ after: last ?? after, ...(project.value && { project: project.value }) });
	current = new Stream(address, { take, tell: (state) => (connection.value = state), patience: 60000 });
}

export function disconnect() {
	if (current) current.close();
	current = null;
	connection.value = "connecting";
}

// Follows the stream of one path, which starts from its beginning with each connection.
export const followPath = (address, take, refused) => new Stream(address, { take, refused, patience: 3000 });
