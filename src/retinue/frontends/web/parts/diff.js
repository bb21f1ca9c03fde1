// A unified diff, line by line. It keeps its signs, so that it is readable without colour.
import { clean, html, memo, useState } from "../app/common.js";

const MAX_FOLDED_LINES = 400;
const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)/;

export const looksLikeDiff = (text) => /^(---|\+\+\+|@@) /m.test(text || "");

function linesOf(text) {
	let old = 0;
	let fresh = 0;
	return clean(text).replace(/\n$/, "").split("\n").map((line) => {
		const hunk = HUNK.exec(line);
		if (hunk) {
			old = Number(hunk[1]);
			fresh = Number(hunk[2]);
			return { kind: "hunk", line };
		}
		if (/^(---|\+\+\+|diff |index |Index|new file|deleted file|similarity|rename)/.test(line)) return { kind: "head", line };
		if (line.startsWith("+")) return { kind: "add", line, after: fresh++ };
		if (line.startsWith("-")) return { kind: "cut", line, before: old++ };
		return { kind: "same", line, before: old++, after: fresh++ };
	});
}

export function counts(text) {
	const totals = { add: 0, cut: 0 };
	for (const { kind } of linesOf(text || "")) if (kind in totals) totals[kind]++;
	return totals;
}

export const Diff = memo(({ text }) => html`<${DiffLines} lines=${linesOf(text)} />`);

function DiffLines({ lines }) {
	const [expanded, setExpanded] = useState(false);
	const shown = expanded ? lines : lines.slice(0, MAX_FOLDED_LINES);
	return html`<div class="diff" role="group" aria-label="Changes">
		${shown.map(
			({ kind, line, before, after }) => html`<div class=${`line ${kind}`}>
				<span class="number">${before}</span><span class="number">${after}</span><span class="text">${line || " "}</span>
			</div>`,
		)}
		${shown.length < lines.length &&
		html`<button class="more" onClick=${() => setExpanded(true)}>Show ${lines.length - shown.length} more lines</button>`}
	</div>`;
}
