// Look back: a slider over the events of a tree.
import { clean, clock, count, duration, get, html, Loading, of, spent, Status, titleOf, tokens, useEffect, useKeys, useMemo, useState } from "../app/common.js";
import { Conversation } from "../app/conversation.js";
import { Entries } from "../parts/conversation.js";
import { apply, run } from "../app/runs.js";
import { Fork } from "./fork.js";

const MOST = 20000;

async function readAll(id, heard) {
	let after = 0;
	const events = [];
	while (after !== null && events.length < MOST) {
		const page = await get(of("runs", id, "history"), { after, tree: true, limit: 1000 });
		events.push(...page.events.map(({ event }) => event));
		after = page.after;
		heard([...events], after !== null && events.length >= MOST);
	}
}

// How every run of the tree stood after the first `length` events.
function standAt(events, length) {
	const runs = new Map();
	for (let place = 0; place < length; place++) apply(runs, events[place]);
	return [...runs.values()];
}

export function LookBack({ row }) {
	const [events, setEvents] = useState([]);
	const [cut, setCut] = useState(false);
	const [problem, setProblem] = useState(null);
	const [place, setPlace] = useState(null);
	const [chosen, setChosen] = useState(row.id);
	useEffect(() => {
		let current = true;
		const heard = (found, more) => current && (setEvents(found), setCut(more));
		readAll(row.id, heard).catch((found) => current && setProblem(found));
		return () => (current = false);
	}, [row.id]);
	const at = place === null ? events.length : Math.min(place, events.length);
	const move = (step) => setPlace(Math.max(1, Math.min(events.length, at + step)));
	useKeys({ ArrowLeft: () => move(-1), ArrowRight: () => move(1), PageUp: () => move(-50), PageDown: () => move(50) });
	const stand = useMemo(() => standAt(events, at), [events, at]);
	const talk = useMemo(() => {
		const found = new Conversation();
		for (let number = 0; number < at; number++) if (events[number].run_id === chosen) found.take(events[number]);
		return found;
	}, [events, at, chosen]);
	if (!events.length) return html`<${Loading} problem=${problem} />`;
	const event = events[at - 1];
	const spoke = run(event.run_id) || { agent: event.run_id };
	return html`<div class="tab lookback">
		<div class="scrub">
			<button class="plain" aria-label="One event back" onClick=${() => move(-1)}>‹</button>
			<input type="range" min="1" max=${events.length} value=${at} aria-label="Event" onInput=${(input) => setPlace(Number(input.target.value))} />
			<button class="plain" aria-label="One event on" onClick=${() => move(1)}>›</button>
		</div>
		<p class="about moment" data-event=${at}>
			<b>${at} of ${events.length}</b><span>${clock(event.at)}, +${duration(event.at - events[0].at)}</span>
			<span><code>${event.type}</code> of ${spoke.agent}</span>${cut && html`<span>Later events are not loaded.</span>`}
		</p>
		<div class="stand">
			<ul class="runs" aria-label="Runs at that moment">
				${stand.map(
					(each) => html`<li><button class="plain" aria-pressed=${each.id === chosen} style=${{ paddingLeft: 8 + (each.depth - stand[0].depth) * 14 + "px" }} onClick=${() => setChosen(each.id)}>
						<span class="first"><b>${each.agent}</b> <span>${titleOf(each)}</span></span>
						<span class="second"><${Status} row=${each} /> <span>${clean(each.doing) || `${count(tokens(each.usage))} tokens, ${spent(each.usage.cost_usd)}`}</span></span>
					</button></li>`,
				)}
			</ul>
			<div class="past column" aria-label="Conversation at that moment"><${Entries} entries=${talk.entries} started=${new Map()} /></div>
		</div>
		<${Fork} id=${chosen} seq=${talk.seq} />
	</div>`;
}
