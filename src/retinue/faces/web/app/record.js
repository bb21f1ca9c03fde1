// The conversation of one run: its newest events, older ones on demand, and what follows.
import { get, of } from "./api.js";
import { Conversation } from "./conversation.js";
import { signal } from "./html.js";
import { listen } from "./stream.js";

const PAGE = 400;

export class RunRecord {
	constructor(id) {
		this.id = id;
		this.version = signal(0);
		this.problem = signal(null);
		this.talk = new Conversation();
		this.events = []; // [number, event], in order
		this.before = null; // where older events begin
		this.early = []; // heard before the first page has come
		this.loaded = false;
		this.silence = listen((events) => this.hear(events));
		this.load();
	}

	async load() {
		try {
			const page = await get(of("runs", this.id, "history"), { limit: PAGE });
			this.keep(page, []);
			this.loaded = true;
			this.hear(this.early);
			this.early = [];
		} catch (problem) {
			this.problem.value = problem;
		}
		this.version.value++;
	}

	async loadOlder() {
		const page = await get(of("runs", this.id, "history"), { limit: PAGE, before: this.before });
		this.keep(page, this.events);
		this.version.value++;
	}

	keep(page, later) {
		this.events = [...page.events.map(({ number, event }) => [number, event]), ...later];
		this.before = page.before;
		this.talk = new Conversation();
		for (const [, event] of this.events) this.talk.take(event);
	}

	hear(events) {
		const own = events.filter(([, event]) => event.run_id === this.id);
		if (!own.length) return;
		if (!this.loaded) {
			this.early.push(...own);
			return;
		}
		for (const [number, event] of own) {
			const last = this.events.length ? this.events[this.events.length - 1][0] : 0;
			if (number !== null && number > last) this.events.push([number, event]);
			else if (event.type !== "run.interrupted") continue;
			this.talk.take(event);
		}
		this.version.value++;
	}

	close() {
		this.silence();
	}
}
