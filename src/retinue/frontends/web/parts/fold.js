// A text that may be long: it shows the beginning, and all of it on demand.
import { clean, html, useState } from "../app/common.js";

const PREVIEW_LINES = 24;
const PREVIEW_CHARACTERS = 4000;

export function Output({ text }) {
	const [expanded, setExpanded] = useState(false);
	const all = clean(text);
	const lines = all.split("\n");
	let shown = all;
	if (!expanded) shown = lines.slice(0, PREVIEW_LINES).join("\n").slice(0, PREVIEW_CHARACTERS);
	const hidden = all.length - shown.length;
	return html`<div class="output">
		<pre>${shown}</pre>
		${hidden > 0 && html`<button class="more" onClick=${() => setExpanded(true)}>Show all (${lines.length} lines)</button>`}
	</div>`;
}

// A heading that opens and closes the content below it.
export function Fold({ head, children, open = false, kind = "" }) {
	const [shown, setShown] = useState(open);
	return html`<details class=${`fold ${kind}`} open=${shown} onToggle=${(event) => setShown(event.currentTarget.open)}>
		<summary>${head}</summary>
		${shown && html`<div class="inside">${children}</div>`}
	</details>`;
}
