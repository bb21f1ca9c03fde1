// One run: its live conversation and all its details.
import { clean, duration, get, go, html, Icon, link, Loading, now, of, plural, spent, Status, titleOf, tokens, tokenText, useEffect, useKeys, useMemo, useRequest } from "../app/common.js";
import { items } from "../app/inbox.js";
import { add, childrenByCall, run, tookOf, treeCosts, version } from "../app/runs.js";
import { RunStory } from "../app/story.js";
import { Entries, Following } from "../parts/conversation.js";
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

function useStory(id) {
	const story = useMemo(() => new RunStory(id), [id]);
	useEffect(() => () => story.close(), [story]);
	return story;
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
				<span>${tokenText(tokens(row.usage))}</span><span title="With all that it started">${spent(treeCosts.value.get(row.id))}</span>
				<code>${row.id.slice(0, 8)}</code>
			</p>
		</div>
	</header>`;
}

function Transcript({ story, row }) {
	const entries = story.entries.value;
	const asked = items.value.filter((item) => item.run_id === row.id);
	if (!story.loaded) return html`<${Loading} problem=${story.problem.value} />`;
	const last = entries[entries.length - 1];
	const mark = `${entries.length} ${last && (last.text || "").length} ${asked.length}`;
	const isQuiet = row.state === "running" && row.doing && !(last && last.open);
	return html`<${Following} mark=${mark} key=${row.id}>
		${story.earlier && html`<button class="more" onClick=${() => story.loadEarlier()}>Show earlier events</button>`}
		<${Entries} entries=${entries} started=${childrenByCall(row.id)} />
		${asked.map((item) => html`<${ItemCard} key=${item.id} item=${item} />`)}
		${isQuiet && html`<p class="entry note now live">● ${clean(row.doing)}</p>`}
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
	const story = useStory(row.id);
	const Tab = (TABS[tab] || TABS[""])[1];
	return html`<section class="run" data-run=${row.id} data-state=${row.state}>
		<${Head} row=${row} />
		<nav class="tabs" aria-label="About this run">
			${Object.entries(TABS).map(([name, [title]]) => html`<a href=${link("run", row.id, name)} aria-current=${tab === name ? "page" : undefined}>${title}</a>`)}
		</nav>
		<${Tab} row=${row} story=${story} />
		${Tab === Transcript && html`<${Controls} row=${row} />`}
	</section>`;
}
