// What runs have used: by agent, model, tree and day.
import { html, useState } from "../app/html.js";
import { link } from "../app/address.js";
import { getOfProject, project } from "../app/api.js";
import { count, firstLine, money } from "../app/format.js";
import { useRequest } from "../app/request.js";
import { Bar, Columns, Numbers } from "../parts/chart.js";
import { Empty, Loading, Segments } from "../parts/status.js";

const BY = { agent: "Agent", model: "Model", tree: "Tree", day: "Day" };
const SINCE = { "1 d": "24 hours", "7 d": "7 days", "30 d": "30 days", all: "All" };

const used = (row) => row.input + row.output + row.cache_write;
const share = (row) => row.cache_read / Math.max(row.input + row.cache_read + row.cache_write, 1);

function Line({ row, by, most, budget }) {
  const name = by === "tree" ? html`<a href=${link("run", row.key)}><b>${row.agent}</b> ${firstLine(row.task)}</a>` : row.key || "(none)";
  const value = most.cost ? (row.cost_usd || 0) / most.cost : used(row) / Math.max(most.tokens, 1);
  return html`<tr>
    <td class="name">${name}<span class="share"><span style=${{ width: value * 100 + "%" }}></span></span></td>
    <td class="n">${money(row.cost_usd)}${row.unpriced_runs > 0 && html`<small title="runs without a known price">+${row.unpriced_runs}?</small>`}</td>
    <td class="n">${row.runs}</td><td class="n wide">${row.turns}</td>
    <td class="n">${count(used(row))}</td><td class="n wide">${Math.round(share(row) * 100)}%</td>
    ${budget !== undefined && html`<td>${budget && budget.usd ? html`<${Bar} label="" part=${(row.cost_usd || 0) / budget.usd} text=${`of ${money(budget.usd)}`} />` : ""}</td>`}
  </tr>`;
}

export function Cost() {
  const [by, setBy] = useState("agent");
  const [days, setDays] = useState("all");
  const since = days === "all" ? 0 : Math.floor(Date.now() / 1000) - parseInt(days, 10) * 86400;
  const [found, problem] = useRequest(() => getOfProject("/v1/cost", { by, since }), [by, days, project.value]);
  const [daily] = useRequest(() => getOfProject("/v1/cost", { by: "day", since }), [days, project.value]);
  if (!found) return html`<section class="page"><${Loading} problem=${problem} /></section>`;
  const { rows, total, budgets } = found;
  const most = { cost: Math.max(0, ...rows.map((row) => row.cost_usd || 0)), tokens: Math.max(0, ...rows.map(used)) };
  const priced = daily && daily.total.cost_usd;
  const columns = daily ? [...daily.rows].reverse().map((row) => [row.key, priced ? row.cost_usd || 0 : used(row), priced ? money(row.cost_usd) : count(used(row)) + " tokens"]) : [];
  return html`<section class="page">
    <header class="head"><h1>Cost</h1>
      <${Segments} options=${SINCE} value=${days} choose=${setDays} label="Since when" />
    </header>
    <${Numbers} numbers=${[
      ["Cost", money(total.cost_usd)],
      ["Runs", total.runs],
      ["New input", count(total.input)],
      ["Output", count(total.output)],
      ["From cache", Math.round(share(total) * 100) + "%"],
      ["Without a price", total.unpriced_runs],
    ]} />
    ${columns.length > 0 && html`<h2>${priced ? "Cost" : "Tokens"} of each day</h2><${Columns} rows=${columns} label="By day" />`}
    <${Segments} options=${BY} value=${by} choose=${setBy} label="By what" />
    ${!rows.length && html`<${Empty} title="Nothing was used">Runs that were active in this time appear here.<//>`}
    ${rows.length > 0 && html`<div class="scroll"><table class="sums">
      <thead><tr><th>${BY[found.by]}</th><th class="n">Cost</th><th class="n">Runs</th><th class="n wide">Turns</th><th class="n">Tokens</th><th class="n wide">From cache</th>${found.by === "tree" && html`<th>Budget</th>`}</tr></thead>
      <tbody>${rows.slice(0, 300).map((row) => html`<${Line} key=${row.key} row=${row} by=${found.by} most=${most} budget=${found.by === "tree" ? budgets[row.key] || null : undefined} />`)}</tbody>
    </table></div>`}
  </section>`;
}
