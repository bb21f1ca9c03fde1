// A small subset of Markdown as elements. Text of models may be hostile: no images, no HTML, and links only to http,
// https and mail addresses, each with its host.
import { html, memo } from "../app/html.js";
import { clean } from "../app/format.js";

const MOST = 60000; // text after this is shown unformatted
const DEEPEST = 8;
const LONGEST = 5000; // of a paragraph, because the time of patterns grows with its square

export const Markdown = memo(({ text }) => {
	const all = clean(text);
	return html`<div class="prose">${blocks(all.slice(0, MOST).split("\n"))}${all.length > MOST && html`<pre>${all.slice(MOST)}</pre>`}</div>`;
});

const FENCE = /^\s*(```+|~~~+)\s*([\w+-]*)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const BULLET = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const TABLE = /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/;

function blocks(lines, depth = 0) {
	// This is deeper than any real nesting.
	if (depth > DEEPEST) return [lines.join("\n")];
	const found = [];
	let place = 0;
	while (place < lines.length) {
		const line = lines[place];
		const take = BLOCKS.find((each) => each.fits(line, lines[place + 1] || ""));
		if (!line.trim()) place++;
		else if (take) place = take.read(lines, place, found, depth + 1);
		else place = paragraph(lines, place, found);
	}
	return found;
}

const BLOCKS = [
	{ fits: (line) => FENCE.test(line), read: fence },
	{ fits: (line) => HEADING.test(line), read: heading },
	{ fits: (line) => RULE.test(line), read: (lines, place, found) => (found.push(html`<hr />`), place + 1) },
	{ fits: (line) => /^\s*>/.test(line), read: quote },
	{ fits: (line) => BULLET.test(line), read: list },
	{ fits: (line, next) => line.includes("|") && next.length < 999 && TABLE.test(next), read: table },
];

function fence(lines, place, found) {
	const mark = FENCE.exec(lines[place])[1];
	const inside = [];
	for (place++; place < lines.length && !lines[place].trim().startsWith(mark); place++) inside.push(lines[place]);
	found.push(html`<pre class="code"><code>${inside.join("\n")}</code></pre>`);
	return place + 1;
}

function heading(lines, place, found) {
	const [, marks, text] = HEADING.exec(lines[place]);
	const Tag = "h" + Math.min(marks.length + 2, 6);
	found.push(html`<${Tag}>${inline(text)}<//>`);
	return place + 1;
}

function quote(lines, place, found, depth) {
	const inside = [];
	for (; place < lines.length && /^\s*>/.test(lines[place]); place++) inside.push(lines[place].replace(/^\s*> ?/, ""));
	found.push(html`<blockquote>${blocks(inside, depth)}</blockquote>`);
	return place;
}

function list(lines, place, found, depth) {
	const indent = BULLET.exec(lines[place])[1].length;
	const ordered = /\d/.test(BULLET.exec(lines[place])[2]);
	const first = parseInt(BULLET.exec(lines[place])[2], 10);
	const items = [];
	while (place < lines.length) {
		const mark = BULLET.exec(lines[place]);
		if (mark && mark[1].length <= indent + 1) {
			if (mark[1].length < indent) break;
			items.push([mark[3]]);
		} else if (/^\s+\S/.test(lines[place]) && items.length) {
			items[items.length - 1].push(lines[place].slice(Math.min(indent + 2, lines[place].search(/\S/))));
		} else break;
		place++;
	}
	const drawn = items.map((item) => html`<li>${item.length > 1 ? blocks(item, depth) : inline(item[0])}</li>`);
	found.push(ordered ? html`<ol start=${first}>${drawn}</ol>` : html`<ul>${drawn}</ul>`);
	return place;
}

function cells(line) {
	return line.trim().replace(/^\||\|$/g, "").split("|", 50).map((cell) => cell.trim());
}

function table(lines, place, found) {
	const head = cells(lines[place]);
	const rows = [];
	for (place += 2; place < lines.length && lines[place].includes("|"); place++) rows.push(cells(lines[place]));
	found.push(html`<div class="scroll"><table>
		<thead><tr>${head.map((cell) => html`<th>${inline(cell)}</th>`)}</tr></thead>
		<tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${inline(cell)}</td>`)}</tr>`)}</tbody>
	</table></div>`);
	return place;
}

function paragraph(lines, place, found) {
	const inside = [lines[place++]];
	while (place < lines.length && lines[place].trim() && !BLOCKS.some((each) => each.fits(lines[place], lines[place + 1] || ""))) {
		inside.push(lines[place++]);
	}
	found.push(html`<p>${inline(inside.join("\n"))}</p>`);
	return place;
}

const INLINE = /(`+)(.+?)\1(?!`)|\*\*(?=\S)(.+?)\*\*|(?<![\w*])\*(?=\S)([^*\n]+?)\*(?!\w)|(?<!\w)_(?=\S)([^_\n]+?)_(?!\w)|\[([^[\]\n]*)\]\(\s*<?([^)\s>]*)>?[^)\n]*\)|(https?:\/\/[^\s<>()"'`]+[^\s<>()"'`.,;:!?])/s;

export function inline(text, depth = 0) {
	const found = [];
	while (text) {
		const match = depth < DEEPEST && text.length < LONGEST ? INLINE.exec(text) : null;
		if (!match) {
			found.push(text);
			break;
		}
		if (match.index) found.push(text.slice(0, match.index));
		const [whole, , code, strong, star, underscore, label, target, bare] = match;
		if (code !== undefined) found.push(html`<code>${code.trim() ? code.replace(/^ (.*) $/s, "$1") : code}</code>`);
		else if (strong !== undefined) found.push(html`<strong>${inline(strong, depth + 1)}</strong>`);
		else if (star !== undefined || underscore !== undefined) found.push(html`<em>${inline(star || underscore, depth + 1)}</em>`);
		else found.push(anchor(target === undefined ? bare : target, label, whole));
		text = text.slice(match.index + whole.length);
	}
	return found;
}

function anchor(target, label, whole) {
	let url;
	try {
		url = new URL(target);
	} catch {
		return whole;
	}
	if (!["http:", "https:", "mailto:"].includes(url.protocol)) return whole;
	const place = url.host || url.pathname;
	const host = label && label !== target ? html` <small class="host">(${place})</small>` : "";
	return html`<a href=${url.href} title=${url.href} target="_blank" rel="noopener noreferrer nofollow">${label || target}</a>${host}`;
}
