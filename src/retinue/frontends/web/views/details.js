// Details of a run: effects, changed files, prompt and cost.
import { cacheShare, Chip, clean, count, Empty, get, html, link, Loading, money, of, percent, spent, tokens, useRequest, useState } from "../app/common.js";
import { Bar, Numbers } from "../parts/chart.js";
import { counts, Diff } from "../parts/diff.js";
import { Fold, Output } from "../parts/fold.js";

const TONES = { finished: "ok", failed: "bad", denied: "warn", unknown: "warn", running: "live" };

// A document of the server about one aspect of the run, requested again when the run has made progress.
function Part({ row, part, tree, draw }) {
	const [all, setAll] = useState(tree);
	const ask = () => get(of("runs", row.id, part), { tree: all });
	const [found, problem] = useRequest(ask, [row.id, all, row.turns, row.tool_uses, row.state]);
	return html`<div class="tab">
		${tree !== undefined && html`<label class="check"><input type="checkbox" checked=${all} onChange=${(event) => setAll(event.target.checked)} /> with all runs below it</label>`}
		${found ? draw(found, all) : html`<${Loading} problem=${problem} />`}
	</div>`;
}

function CallRow({ call, cwd }) {
	const short = (path) => (path.startsWith(cwd + "/") ? path.slice(cwd.length + 1) : path);
	return html`<tr>
		<td><${Chip} tone=${TONES[call.status]}>${call.status}<//></td>
		<td><b>${call.tool}</b></td>
		<td class="grow">
			${call.command && html`<code>${clean(call.command)}</code>`}
			${call.exit_code !== null && html`<${Chip} tone=${call.exit_code ? "bad" : "ok"}>exit ${call.exit_code}<//>`}
			${call.writes.map((file) => html`<div>${file.status} <code>${short(file.path)}</code></div>`)}
			${call.reads.map((path) => html`<div>read <code>${short(path)}</code></div>`)}
			${call.hosts.map((host) => html`<div>reached <code>${host}</code></div>`)}
			${call.denied && html`<div class="bad">denied: ${call.denied}</div>`}
		</td>
		<td class="muted">${call.approval || call.allowed || ""}</td>
	</tr>`;
}

export function Effects({ row }) {
	const draw = ({ runs }, all) => {
		const busy = runs.filter((each) => each.turns.length);
		if (!busy.length) return html`<${Empty} title="Nothing yet">Files, commands, hosts and denials: what the tools did, not what the agent says.<//>`;
		return busy.map(
			(each) => html`${all && html`<h2><a href=${link("run", each.run_id)}>${each.agent}</a></h2>`}
				${each.turns.map((turn) => html`<${all ? "h3" : "h2"}>Turn ${turn.turn}<//><div class="scroll"><table class="effects"><tbody>
					${turn.calls.map((call) => html`<${CallRow} call=${call} cwd=${row.cwd} />`)}</tbody></table></div>`)}`,
		);
	};
	return html`<${Part} row=${row} part="effects" tree=${false} draw=${draw} />`;
}

function File({ file, open }) {
	const { add, cut } = counts(file.diff);
	const head = html`<${Chip}>${file.status}<//><code>${file.path}</code><span class="ok">+${add}</span><span class="bad">−${cut}</span>`;
	return html`<${Fold} kind="file" head=${head} open=${open}>
		${file.note && html`<p class="about">${file.note}</p>`}${file.diff && html`<${Diff} text=${file.diff} />`}
	<//>`;
}

export function Changes({ row }) {
	const draw = ({ branch, files }) => html`
		${branch && html`<p class="about">Its commits are on <code>${branch}</code>.</p>`}
		${!files.length && html`<${Empty} title="No file was changed">What this run writes appears here as a diff.<//>`}
		${files.map((file) => html`<${File} key=${file.path} file=${file} open=${files.length < 6} />`)}`;
	return html`<${Part} row=${row} part="diff" tree=${true} draw=${draw} />`;
}

export function Prompt({ row }) {
	const draw = (found) => html`
		<h2>Task${found.asked_by && html` <small>from ${found.asked_by}</small>`}</h2>
		<${Output} text=${found.task} />
		<h2>Prompt of the agent</h2>
		<${Output} text=${found.prompt || "(none of its own)"} />
		<p><a href=${link("agents", row.agent)}>The whole system prompt of ${row.agent}, with token counts</a></p>
		<h2>Tools</h2>
		<p class="chips">${found.tools.map((tool) => html`<${Chip}>${tool}<//>`)}</p>
		${found.unknown_effects.length > 0 && html`<h2>Nobody knows what these did: its process died</h2>
			<ul>${found.unknown_effects.map((call) => html`<li><code>${clean(call)}</code></li>`)}</ul>`}`;
	return html`<${Part} row=${row} draw=${draw} />`;
}

const UNITS = { usd: money, tokens: count };

function spentOf(kind, found) {
	if (kind === "usd") return found.spent.cost_usd;
	if (kind === "tokens") return tokens(found.spent);
	return null;
}

function Limit({ kind, limit, found }) {
	const used = spentOf(kind, found);
	const show = UNITS[kind] || String;
	if (used === null) return html`<p class="about">${kind}: ${show(limit)}</p>`;
	return html`<${Bar} label=${kind} part=${used / limit} text=${`${show(used)} of ${show(limit)}`} />`;
}

export function RunCost({ row, story }) {
	const draw = (found) => {
		const { budget, spent: usage } = found;
		const limits = Object.entries(budget);
		return html`<${Numbers} numbers=${[
				["Whole tree", spent(usage.cost_usd)],
				["This run", spent(row.usage.cost_usd)],
				["New input", count(usage.input)],
				["Output", count(usage.output)],
				["From cache", percent(cacheShare(usage))],
				["In context now", story.context ? count(story.context) : "–"],
			]} />
			<h2>Budget</h2>
			${!limits.length && html`<p class="about">None of its own. Those above it and of the settings hold.</p>`}
			${limits.map(([kind, limit]) => html`<${Limit} kind=${kind} limit=${limit} found=${found} />`)}`;
	};
	return html`<${Part} row=${row} draw=${draw} />`;
}
