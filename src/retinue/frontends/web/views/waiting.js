// The view "Waiting for you": every item that a run needs from the person to continue.
import { Empty, html, plural, useKeys, useState, words } from "../app/common.js";
import { answer, items } from "../app/inbox.js";
import { liveCount } from "../app/runs.js";
import { ItemCard } from "../parts/item.js";

function AskForNotices() {
	const [state, setState] = useState("Notification" in window ? Notification.permission : "denied");
	if (state !== "default") return null;
	return html`<button class="plain small" onClick=${async () => setState(await Notification.requestPermission())}>
		Notify me
	</button>`;
}

export function Waiting() {
	const [position, setPosition] = useState(0);
	const shown = items.value;
	const current = Math.min(position, shown.length - 1);
	const move = (step) => setPosition(Math.max(0, Math.min(shown.length - 1, current + step)));
	const keys = { j: () => move(1), k: () => move(-1) };
	for (const [choice, { key }] of Object.entries(words.value.choices)) {
		keys[key] = () => {
			const item = shown[current];
			if (!item || !item.options.includes(choice)) return false;
			answer(item, choice, "");
		};
	}
	useKeys(keys);
	return html`<section class="page narrow">
		<header class="head"><h1>Waiting for you</h1><${AskForNotices} /></header>
		${shown.length === 0 &&
		html`<${Empty} title="Nothing waits for you">
			${liveCount.value ? `${plural(liveCount.value, "run is", "runs are")} working.` : "No run is working."}
		<//>`}
		${shown.map((item, number) => html`<${ItemCard} key=${item.id} item=${item} current=${number === current && shown.length > 1} />`)}
	</section>`;
}
