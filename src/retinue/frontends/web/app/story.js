// The conversation of one run from the server: its newest entries, older ones on demand, and every change.
import { of } from "./api.js";
import { signal } from "./html.js";
import { followPath } from "./stream.js";

const PAGE = 400;

export class RunStory {
	constructor(id) {
		this.id = id;
		this.entries = signal([]);
		this.problem = signal(null);
		this.entriesById = new Map();
		this.limit = PAGE;
		this.open();
	}

	open() {
		const address = () => `${of("runs", this.id, "story")}?limit=${this.limit}`;
		this.stream = followPath(address, (changes) => this.take(changes), (problem) => (this.problem.value = problem));
	}

	take(changes) {
		for (const change of changes) {
			if (change.first) {
				this.entriesById = new Map();
				this.earlier = change.earlier;
				this.loaded = true;
			}
			for (const entry of change.entries || []) this.entriesById.set(entry.id, entry);
			// Entries are replaced, never changed, because drawing compares them by identity.
			for (const [id, text] of Object.entries(change.added || {})) {
				const entry = this.entriesById.get(Number(id));
				if (entry) this.entriesById.set(entry.id, { ...entry, text: (entry.text || "") + text });
			}
			for (const id of change.removed || []) this.entriesById.delete(id);
			this.context = change.context || this.context;
		}
		this.entries.value = [...this.entriesById.values()];
	}

	loadEarlier() {
		this.limit += PAGE;
		this.close();
		this.open();
	}

	close() {
		this.stream.close();
	}
}
