// One run: what it says and does as it happens, and everything else that is known of it.
import { clean, count, duration, get, go, html, Icon, link, Loading, now, of, plural, sayProblem, spent, Status, titleOf, tokens, useEffect, useKeys, useMemo, useRequest } from "../app/common.js";
import { items } from "../app/inbox.js";
import { RunRecord } from "../app/record.js";
import { add, childrenByCall, LIVE, partial, run, tookOf, treeCosts, version } from "../app/runs.js";
import { Draft, Entries, Following } from "../parts/conversation.js";
import { ItemCard } from "../parts/item.js";
import { Controls } from "./controls.js";
import { Changes, Effects, Prompt, RunCost } from "./details.js";
import { LookBack } from "./lookback.js";
import { Timeline } from "./timeline.js";

const TABS = {
	"": ["Transcript", Transcript],
	timeline: ["Timeline", Timeline],
	lookback: ["Look back", LookBack],
	effects: ["Effects", Effects],
	changes: ["Changes", Changes],
	prompt: ["Prompt", Prompt],
	cost: ["Cost", RunCost],
};

function useRecord(id) {
	const record = useMemo(() => new RunRecord(id), [id]);
	useEffect(() => () => record.close(), [record]);
	return record;
}

function Head({ row }) {
	const parent = row.parent_id && run(row.parent_id);
	return html`<header class="run-head">
		<a class="button plain back" href=${link("fleet")} aria-label="Back to the fleet"><${Icon} name="back" /></a>
		<div class="names">
			<h1>${row.name ? "@" + row.name : row.agent}<span>${titleOf(row)}</span></h1>
			<p class="about">
				<${Status} row=${row} />
				${parent && html`<a href=${link("run", parent.id)}>under ${parent.name || parent.agent}</a>`}
				<span>${row.model}</span><span>${duration(tookOf(row, now.value))}</span><span>${plural(row.turns, "turn")}</span>
				<span>${count(tokens(row.usage))} tokens</span><span title="With all that it started">${spent(treeCosts.value.get(row.id))}</span>
				<code>${row.id.slice(0, 8)}</code>
			</p>
		</div>
	</header>`;
}

function Transcript({ record, row }) {
	const version = record.version.value;
	const draft = partial(row.id);
	const asked = items.value.filter((item) => item.run_id === row.id);
	if (!record.loaded) return html`<${Loading} problem=${record.problem.value} />`;
	const started = childrenByCall(row.id);
	const mark = `${version} ${draft.text.length} ${draft.thinking.length} ${asked.length}`;
	return html`<${Following} mark=${mark} key=${row.id}>
		${record.before && html`<button class="more" onClick=${() => record.loadOlder().catch(sayProblem)}>Show earlier events</button>`}
		<${Entries} entries=${record.talk.entries} started=${started} />
		${LIVE.has(row.state) && html`<${Draft} partial=${draft} />`}
		${row.state === "interrupted" && draft.text && html`<${Draft} partial=${draft} />`}
		${asked.map((item) => html`<${ItemCard} key=${item.id} item=${item} />`)}
		${row.state === "running" && !draft.text && row.doing && html`<p class="entry note now live">● ${clean(row.doing)}</p>`}
	<//>`;
}

export function RunView({ id, tab }) {
	version.value;
	const known = run(id);
	const [, problem] = useRequest(() => (known ? Promise.resolve(null) : get(of("runs", id, "tree")).then((found) => add(found.runs))), [id]);
	const names = Object.keys(TABS);
	const step = (by) => go("run", id, names[(names.indexOf(tab) + by + names.length) % names.length]);
	useKeys({ "]": () => step(1), "[": () => step(-1), Escape: () => go("fleet") });
	if (!known) return html`<section class="run"><${Loading} problem=${problem} /></section>`;
	return html`<${KnownRun} key=${id} row=${known} tab=${tab} />`;
}

function KnownRun({ row, tab }) {
	const record = useRecord(row.id);
	record.version.value;
	const Tab = (TABS[tab] || TABS[""])[1];
	return html`<section class="run" data-run=${row.id} data-state=${row.state}>
		<${Head} row=${row} />
		<nav class="tabs" aria-label="About this run">
			${Object.entries(TABS).map(([name, [title]]) => html`<a href=${link("run", row.id, name)} aria-current=${tab === name ? "page" : undefined}>${title}</a>`)}
		</nav>
		<${Tab} row=${row} record=${record} />
		${Tab === Transcript && html`<${Controls} row=${row} />`}
	</section>`;
}
