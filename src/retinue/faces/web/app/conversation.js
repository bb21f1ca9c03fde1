// The conversation of a run, made of its events: the same whether it is live or looked back at.
import { textOf } from "./format.js";

export class Conversation {
	constructor() {
		this.entries = [];
		this.calls = new Map();
		this.context = 0;
		this.seq = 0; // of its last event
	}

	take(event) {
		this.seq = event.seq;
		const act = TAKES[event.type];
		if (act) act(this, event);
		return this;
	}

	add(event, kind, fields) {
		const entry = { id: `${event.seq}.${this.entries.length}`, at: event.at, seq: event.seq, kind, ...fields };
		this.entries.push(entry);
		return entry;
	}

	// Entries are replaced, never changed: what is drawn is compared by identity.
	change(callId, fields) {
		const place = this.calls.get(callId);
		if (place === undefined) return;
		this.entries[place] = { ...this.entries[place], ...fields };
	}

	note(event, text, tone = "") {
		this.add(event, "note", { text, tone });
	}
}

function takeAnswer(talk, event) {
	for (const part of event.message.content) {
		if (part.type === "text" && part.text.trim()) talk.add(event, "answer", { text: part.text });
		if (part.type === "thinking" && part.text) talk.add(event, "thinking", { text: part.text });
		if (part.type === "tool_call") {
			talk.calls.set(part.id, talk.entries.length);
			talk.add(event, "call", { call: part, state: "pending" });
		}
	}
	if (event.message.failure) talk.note(event, `${event.message.failure.message} ${event.message.failure.remedy || ""}`, "bad");
}

function takeCall(talk, event) {
	if (!talk.calls.has(event.call.id)) {
		// The message that holds the call is on an earlier page.
		talk.calls.set(event.call.id, talk.entries.length);
		talk.add(event, "call", { call: event.call, state: "pending" });
	}
	talk.change(event.call.id, { state: "running" });
}

function takeResult(talk, event) {
	const state = event.effect && event.effect.denied ? "denied" : event.result.is_error ? "failed" : "finished";
	const fields = { state, result: textOf(event.result.content), effect: event.effect, took: event.duration_ms / 1000 };
	talk.change(event.call_id, fields);
}

function takeMessage(talk, event) {
	const { origin } = event.message;
	const text = textOf(event.message.content);
	const first = talk.entries[0];
	if (origin === "task" && first && first.kind === "task") return;
	talk.add(event, "said", { origin, text });
}

const TAKES = {
	"run.created": (talk, event) => talk.add(event, "task", { text: event.task, by: event.options.asked && event.options.asked.by }),
	"run.resumed": (talk, event) => talk.note(event, event.prompt ? `Resumed: ${event.prompt}` : "Resumed.", "strong"),
	"run.interrupted": (talk, event) => talk.note(event, event.detail, "warn"),
	"message.added": takeMessage,
	"turn.ended": (talk, event) => (talk.context = event.context_tokens),
	"assistant.ended": takeAnswer,
	"tool.started": takeCall,
	"tool.ended": takeResult,
	"inbox.opened": (talk, event) => talk.change(event.call_id, { asks: event.title, answered: null }),
	"inbox.closed": (talk, event) =>
		talk.change(event.call_id, { asks: null, answered: `${event.choice || event.state} by ${event.by || "nobody"}` }),
	"model.retrying": (talk, event) => talk.note(event, `${event.failure.message} Trying again in ${event.delay.toFixed(1)}s.`, "warn"),
	"limit.reached": (talk, event) => talk.note(event, `Limit: ${event.detail}`, "warn"),
	"run.warned": (talk, event) => talk.note(event, event.text),
	"run.mode_changed": (talk, event) =>
		talk.note(event, `${event.cause === "plan" ? "The plan was approved: the" : "The"} permission mode is ${event.mode} now.`),
	"run.moved": (talk, event) => talk.note(event, "It was moved to the background."),
	"run.compacted": (talk, event) =>
		talk.note(event, `The conversation was shortened: ${event.tokens_before} to ${event.tokens_after} tokens.`),
	"run.undone": (talk, event) => talk.note(event, `Files were put back: ${[...event.restored, ...event.removed].join(", ")}`),
	"run.rewound": (talk, event) => talk.note(event, `A person went back to event ${event.to}.`),
	"run.ended": (talk, event) => talk.add(event, "end", { outcome: event.outcome }),
};
