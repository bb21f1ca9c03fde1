// History: a slider over the events of a tree.
import { clean, clock, duration, get, html, Loading, of, spent, Status, titleOf, tokens, tokenText, useEffect, useKeys, useRequest, useState } from "../app/common.js";
import { Entries } from "../parts/conversation.js";
import { run } from "../app/runs.js";
import { Fork } from "./fork.js";

const SETTLE_MS = 60;

// Returns the value after it has been stable for a moment, because a slider passes many values.
function useSettled(value) {
	const [settled, settle] = useState(value);
	useEffect(() => {
		const timer = setTimeout(() => settle(value), SETTLE_MS);
		return () => clearTimeout(timer);
	}, [value]);
	return settled;
}

export function LookBack({ row }) {
	const [place, setPlace] = useState(null);
	const [chosen, setChosen] = useState(row.id);
	const settled = useSettled(place);
	const [moment, problem] = useRequest(() => get(of("runs", row.id, "moment"), { place: settled, run: chosen }), [row.id, settled, chosen]);
	const count = moment ? moment.count : 0;
	const at = place === null ? count : Math.min(place, count);
	const move = (step) => setPlace(Math.max(1, Math.min(count, at + step)));
	useKeys({ ArrowLeft: () => move(-1), ArrowRight: () => move(1), PageUp: () => move(-50), PageDown: () => move(50) });
	if (!moment) return html`<${Loading} problem=${problem} />`;
	const spoke = run(moment.run_id) || { agent: moment.run_id };
	return html`<div class="tab lookback">
		<div class="scrub">
			<button class="plain" aria-label="One event back" onClick=${() => move(-1)}>‹</button>
			<input type="range" min="1" max=${count} value=${at} aria-label="Event" onInput=${(input) => setPlace(Number(input.target.value))} />
			<button class="plain" aria-label="One event on" onClick=${() => move(1)}>›</button>
		</div>
		<p class="about moment" data-event=${moment.place}>
			<b>${moment.place} of ${count}</b><span>${clock(moment.at)}, +${duration(moment.at - moment.began)}</span>
			<span><code>${moment.type}</code> of ${spoke.agent}</span>${moment.cut && html`<span>Later events are not loaded.</span>`}
		</p>
		<div class="stand">
			<ul class="runs" aria-label="Runs at that moment">
				${moment.runs.map(
					(each) => html`<li><button class="plain" aria-pressed=${each.id === chosen} style=${{ paddingLeft: 8 + (each.depth - moment.runs[0].depth) * 14 + "px" }} onClick=${() => setChosen(each.id)}>
						<span class="first"><b>${each.agent}</b> <span>${titleOf(each)}</span></span>
						<span class="second"><${Status} row=${each} /> <span>${clean(each.doing) || `${tokenText(tokens(each.usage))}, ${spent(each.usage.cost_usd)}`}</span></span>
					</button></li>`,
				)}
			</ul>
			<div class="past column" aria-label="Conversation at that moment"><${Entries} entries=${moment.entries} started=${new Map()} /></div>
		</div>
		<${Fork} id=${chosen} seq=${moment.seq} />
	</div>`;
}
