// How a run stands: a sign and a word, so that it is readable without colour.
import { html } from "../app/html.js";

const STATES = {
	completed: ["ok", "✓", "done"],
	steered: ["ok", "✓", "wrapped up"],
	aborted: ["bad", "✕", "aborted"],
	stopped: ["idle", "■", "stopped"],
	timeout: ["bad", "◷", "timed out"],
	"over-budget": ["warn", "$", "over budget"],
	refused: ["bad", "✕", "refused"],
	error: ["bad", "✕", "failed"],
	queued: ["idle", "○", "queued"],
	starting: ["live", "◔", "starting"],
	running: ["live", "●", "working"],
	waiting: ["ask", "?", "needs you"],
	interrupted: ["warn", "⚡", "interrupted"],
};

export function statusOf(row) {
	const [tone, sign, word] = STATES[row.state === "ended" ? row.ended : row.state] || ["idle", "·", row.state];
	return { tone, sign, word };
}

export function Status({ row, short = false }) {
	const { tone, sign, word } = statusOf(row);
	return html`<span class=${`status ${tone}`} title=${word}>
		<span class="sign" aria-hidden="true">${sign}</span><span class=${short ? "hidden" : ""}>${word}</span>
	</span>`;
}

export const Chip = ({ tone = "", children }) => html`<span class=${`chip ${tone}`}>${children}</span>`;

export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2><p>${children}</p></div>`;

// A choice of one of a few: `options` are names with titles.
export function Segments({ options, value, choose, label }) {
	return html`<div class="segments" role="group" aria-label=${label}>
		${Object.entries(options).map(([name, title]) => html`<button aria-pressed=${value === name} onClick=${() => choose(name)}>${title}</button>`)}
	</div>`;
}

// A whole view that is one document of the server: `[found, problem]` is its request, `draw` shows it.
export function Page({ title, request: [found, problem], sum, tools, draw }) {
	return html`<section class="page">
		<header class="head"><h1>${title}</h1>${found && sum && html`<span class="sum">${sum(found)}</span>`}${tools}</header>
		${found ? draw(found) : html`<${Loading} problem=${problem} />`}
	</section>`;
}

// What a request that is under way, or was refused, looks like.
export function Loading({ problem }) {
	if (!problem) return html`<div class="loading" role="status">Loading…</div>`;
	return html`<div class="problem" role="alert"><b>${problem.message}</b> ${problem.remedy}</div>`;
}
