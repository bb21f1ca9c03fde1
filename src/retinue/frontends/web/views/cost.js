// The usage of runs by agent, model, tree and day.
import { cacheShare, count, Empty, firstLine, getOfProject, html, link, money, Page, percent, Segments, spent, tokens, tokenText, useRequest, useState } from "../app/common.js";
import { Bar, Columns, Numbers } from "../parts/chart.js";

const BY = { agent: "Agent", model: "Model", tree: "Tree", day: "Day" };
const SINCE = { "1 d": "24 hours", "7 d": "7 days", "30 d": "30 days", all: "All" };


function Line({ row, by, most, budget }) {
	const name = by === "tree" ? html`<a href=${link("run", row.key)}><b>${row.agent}</b> ${firstLine(row.task)}</a>` : row.key || "(none)";
	const value = most.cost ? (row.cost_usd || 0) / most.cost : tokens(row) / Math.max(most.tokens, 1);
	return html`<tr>
		<td class="name">${name}<span class="share"><span style=${{ width: value * 100 + "%" }}></span></span></td>
		<td class="n">${spent(row.cost_usd)}${row.unpriced_runs > 0 && html`<small>+${row.unpriced_runs}?</small>`}</td>
		<td class="n">${row.runs}</td><td class="n wide">${row.turns}</td>
		<td class="n">${count(tokens(row))}</td><td class="n wide">${percent(cacheShare(row))}</td>
		${budget !== undefined && html`<td>${budget && budget.usd ? html`<${Bar} label="" part=${(row.cost_usd || 0) / budget.usd} text=${`of ${money(budget.usd)}`} />` : ""}</td>`}
	</tr>`;
}

function Days({ daily: { rows, total } }) {
	const priced = total.cost_usd !== null;
	const columns = rows.map((row) => [row.key, priced ? row.cost_usd || 0 : tokens(row), priced ? spent(row.cost_usd) : tokenText(tokens(row))]).reverse();
	return html`<h2>${priced ? "Cost" : "Tokens"} of each day</h2><${Columns} rows=${columns} label="By day" />`;
}

export function Cost() {
	const [by, setBy] = useState("agent");
	const [days, setDays] = useState("all");
	const since = days === "all" ? 0 : Math.floor(Date.now() / 1000) - parseInt(days, 10) * 86400;
	const request = useRequest(() => getOfProject("/v1/cost", { by, since }), [by, days]);
	const [daily] = useRequest(() => getOfProject("/v1/cost", { by: "day", since }), [days]);
	const draw = ({ by: shown, rows, total, budgets }) => {
		const most = { cost: Math.max(0, ...rows.map((row) => row.cost_usd || 0)), tokens: Math.max(0, ...rows.map(tokens)) };
		const isTree = shown === "tree";
		return html`<${Numbers} numbers=${[
				["Cost", spent(total.cost_usd)],
				["Runs", total.runs],
				["New input", count(total.input)],
				["Output", count(total.output)],
				["From cache", percent(cacheShare(total))],
				["Without a price", total.unpriced_runs],
			]} />
			${daily && daily.rows.length > 0 && html`<${Days} daily=${daily} />`}
			<${Segments} options=${BY} value=${by} choose=${setBy} label="By what" />
			${!rows.length && html`<${Empty} title="Nothing was used">Runs that were active in this time appear here.<//>`}
			${rows.length > 0 && html`<div class="scroll"><table class="sums">
				<thead><tr><th>${BY[shown]}</th><th class="n">Cost</th><th class="n">Runs</th><th class="n wide">Turns</th><th class="n">Tokens</th><th class="n wide">From cache</th>${isTree && html`<th>Budget</th>`}</tr></thead>
				<tbody>${rows.slice(0, 300).map((row) => html`<${Line} key=${row.key} row=${row} by=${shown} most=${most} budget=${isTree ? budgets[row.key] || null : undefined} />`)}</tbody>
			</table></div>`}`;
	};
	const tools = html`<${Segments} options=${SINCE} value=${days} choose=${setDays} label="Since when" />`;
	return html`<${Page} title="Cost" request=${request} tools=${tools} draw=${draw} />`;
}
