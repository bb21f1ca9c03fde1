// Numbers and bars.
import { html } from "../app/html.js";

export function Numbers({ numbers }) {
	return html`<dl class="tiles">${numbers.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// A bar for a percentage, marked if it is above 100 %. `title` names the bar if its label is elsewhere.
export function Bar({ label, part, text, title = label }) {
	const share = Math.max(0, Math.min(1, part || 0));
	const tone = part >= 1 ? "bad" : part > 0.8 ? "warn" : "";
	return html`<div class=${`bar ${tone}`} role="meter" aria-label=${title} aria-valuenow=${Math.round(share * 100)}>
		<span class="name">${label}</span>
		<span class="track"><span class="fill" style=${{ width: share * 100 + "%" }}></span></span>
		<span class="value">${text}</span>
	</div>`;
}

const CHART_HEIGHT = 120;

// One column for each row: [name, value, text].
export function Columns({ rows, label }) {
	const largest = Math.max(...rows.map(([, value]) => value), 1e-9);
	const width = 100 / Math.max(rows.length, 14);
	return html`<figure class="columns">
		<svg role="img" aria-label=${label} viewBox=${`0 0 100 ${CHART_HEIGHT}`} preserveAspectRatio="none" height=${CHART_HEIGHT}>
			${rows.map(([name, value, text], index) => {
				const height = Math.max((value / largest) * (CHART_HEIGHT - 4), value ? 1 : 0);
				return html`<rect x=${index * width + width * 0.12} width=${width * 0.76} y=${CHART_HEIGHT - height} height=${height} rx="0.4"><title>${name}: ${text}</title></rect>`;
			})}
		</svg>
		<figcaption>${rows.length > 0 && html`<span>${rows[0][0]}</span><span>${rows.length > 1 ? rows[rows.length - 1][0] : ""}</span>`}</figcaption>
	</figure>`;
}
