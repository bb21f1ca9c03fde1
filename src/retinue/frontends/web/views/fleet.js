// The fleet: every run of the project as a tree, with its current activity.
import { address, ago, clean, count, duration, Empty, go, html, Loading, markOf, memo, now, plural, sayProblem, Segments, spent, Status, titleOf, tokens, typed, useKeys, useState } from "../app/common.js";
import { DONE, flatten, LIVE, loaded, loadMore, olderCursor, tookOf, treeCosts, version } from "../app/runs.js";
import { VirtualList } from "../parts/virtual.js";

const ROW = 52;
const TITLES = { all: "All", live: "Working", ask: "Needs you", bad: "Failed", ok: "Done" };

// A waiting run is also a working one. A run that a person stopped is neither failed nor done.
const FILTERS = {
	live: (row) => LIVE.has(row.state),
	ask: (row) => row.state === "waiting",
	bad: (row) => row.state === "interrupted" || (row.state === "ended" && !DONE.has(row.ended) && row.ended !== "stopped"),
	ok: (row) => DONE.has(row.ended),
};

function fits(row, words) {
	const text = `${row.agent} ${row.name || ""} ${row.description} ${row.task} ${row.model} ${row.id}`.toLowerCase();
	return words.every((word) => text.includes(word));
}

const Row = memo(({ row, cost, depth, below, folded, selected, current, time, fold }) => {
	const line = row.doing || (row.error ? `${markOf(row)[2]}: ${row.error}` : `${plural(row.turns, "turn")}, ${plural(row.tool_uses, "tool use")}`);
	return html`<a class=${"row" + (selected ? " selected" : "") + (current ? " current" : "")} href=${"#/run/" + row.id}
			role="treeitem" aria-level=${depth + 1} aria-selected=${selected} aria-expanded=${below ? !folded : undefined} data-run=${row.id}>
		<span class="indent" style=${{ width: Math.min(depth, 8) * 16 + "px" }}></span>
		<button class=${"twist"} tabindex="-1" aria-label=${folded ? "Unfold" : "Fold"} disabled=${!below} onClick=${fold}>
			${below ? (folded ? "▸" : "▾") : ""}
		</button>
		<span class="what">
			<span class="first"><b>${row.name ? "@" + row.name : row.agent}</b><span class="title">${titleOf(row)}</span></span>
			<span class="second"><${Status} row=${row} /><span class=${"doing" + (row.doing ? " now" : "")}>${clean(line)}</span></span>
		</span>
		<span class="numbers"><span>${duration(tookOf(row, time))}</span><span>${spent(cost)} · ${count(tokens(row.usage))}</span></span>
		<time class="age">${ago(row.created_at, time)}</time>
	</a>`;
});

export function Fleet({ selected }) {
	const [filter, setFilter] = useState("all");
	const [text, setText] = useState("");
	const [folded, setFolded] = useState(new Set());
	const [current, setCurrent] = useState(-1);
	version.value;
	const words = text.toLowerCase().split(/\s+/).filter(Boolean);
	const all = filter === "all";
	const matches = all && !words.length ? null : (row) => (all || FILTERS[filter](row)) && fits(row, words);
	const rows = flatten(matches, folded);
	const fold = (id) => {
		const next = new Set(folded);
		if (!next.delete(id)) next.add(id);
		setFolded(next);
	};
	const at = current >= 0 ? current : rows.findIndex(({ row }) => row.id === selected);
	const move = (step) => setCurrent(Math.max(0, Math.min(rows.length - 1, at + step)));
	const here = rows[at] && rows[at].row;
	useKeys({
		j: () => move(1),
		k: () => move(-1),
		ArrowDown: () => move(1),
		ArrowUp: () => move(-1),
		ArrowLeft: () => here && !folded.has(here.id) && fold(here.id),
		ArrowRight: () => here && folded.has(here.id) && fold(here.id),
		Enter: () => (here ? go("run", here.id, address.value.tab) : false),
	});
	const draw = (index) => {
		const { row, depth, below } = rows[index];
		const unfold = (event) => (event.preventDefault(), event.stopPropagation(), fold(row.id));
		const fresh = LIVE.has(row.state) || now.value - row.created_at < 120;
		const time = fresh ? now.value : Math.floor(now.value / 60) * 60;
		return html`<${Row} key=${row.id} row=${row} cost=${treeCosts.value.get(row.id)} depth=${depth} below=${below} folded=${folded.has(row.id)} selected=${row.id === selected}
			current=${index === current} time=${time} fold=${unfold} />`;
	};
	return html`<section class="fleet">
		<header class="head"><h1>Fleet</h1><span class="sum">${plural(rows.length, "run")}</span></header>
		<div class="tools">
			<input type="search" placeholder="Filter by agent, task, model…" aria-label="Filter runs" value=${text} onInput=${typed(setText)} />
			<${Segments} options=${TITLES} value=${filter} choose=${setFilter} label="Which runs" />
		</div>
		${!loaded.value && html`<${Loading} />`}
		${loaded.value && !rows.length && html`<${Empty} title=${matches ? "No run fits" : "No runs yet"}>
			${matches ? "Change the filter or the words." : "Start one with the button, or with `retinue` in a terminal."}<//>`}
		${rows.length > 0 && html`<${VirtualList} count=${rows.length} height=${ROW} draw=${draw} current=${current} label="Runs" />`}
		${olderCursor.value && html`<button class="more" onClick=${() => loadMore().catch(sayProblem)}>Load older runs</button>`}
	</section>`;
}
