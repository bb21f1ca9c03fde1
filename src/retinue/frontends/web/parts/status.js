// The status of a run: a sign and a word, so that it is readable without colour.
import { html } from "../app/html.js";
import { words } from "../app/words.js";

const CLASSES = { dim: "idle", accent: "live", success: "ok", warning: "warn", error: "bad" };

export const classOf = (tone) => CLASSES[tone] || "";

// [sign, tone, word], as every front end shows them
export const markOf = (row) => words.value.states[row.state === "ended" ? row.ended : row.state] || ["·", "dim", row.state];

export function Status({ row, short = false }) {
	return html`<${MarkedWord} mark=${markOf(row)} short=${short} />`;
}

export function MarkedWord({ mark: [sign, tone, word], short = false }) {
	return html`<span class=${`status ${classOf(tone)}`} title=${word}>
		<span class="sign" aria-hidden="true">${sign}</span><span class=${short ? "hidden" : ""}>${word}</span>
	</span>`;
}

export const Chip = ({ tone = "", children }) => html`<span class=${`chip ${tone}`}>${children}</span>`;

export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2><p>${children}</p></div>`;

// A choice of one option: `options` are names with titles.
export function Segments({ options, value, choose, label }) {
	return html`<div class="segments" role="group" aria-label=${label}>
		${Object.entries(options).map(([name, title]) => html`<button aria-pressed=${value === name} onClick=${() => choose(name)}>${title}</button>`)}
	</div>`;
}

// A view of one document from the server: `[result, problem]` is its request, and `draw` shows the document.
export function Page({ title, request: [result, problem], sum, tools, draw }) {
	return html`<section class="page">
		<header class="head"><h1>${title}</h1>${result && sum && html`<span class="sum">${sum(result)}</span>`}${tools}</header>
		${result ? draw(result) : html`<${Loading} problem=${problem} />`}
	</section>`;
}

// Shows a request that is running or was refused.
export function Loading({ problem }) {
	if (!problem) return html`<div class="loading" role="status">Loading…</div>`;
	return html`<div class="problem" role="alert"><b>${problem.message}</b> ${problem.remedy}</div>`;
}
