// A small subset of Markdown as elements. Text of models may be hostile: no images, no HTML, and links only to http,
// https and mail addresses, each with its host.
import { html, memo } from "../app/html.js";
import { clean } from "../app/format.js";

const MAX_FORMATTED_CHARACTERS = 60000; // text after this is shown unformatted
const MAX_NESTING = 8;
const MAX_PARAGRAPH_CHARACTERS = 5000; // the time of patterns grows with the square of the length

export const Markdown = memo(({ text }) => {
	const all = clean(text);
	return html`<div class="prose">${blocks(all.slice(0, MAX_FORMATTED_CHARACTERS).split("\n"))}${all.length > MAX_FORMATTED_CHARACTERS && html`<pre>${all.slice(MAX_FORMATTED_CHARACTERS)}</pre>`}</div>`;
});

const FENCE = /^\s*(```+|~~~+)\s*([\w+-]*)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const BULLET = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
const TABLE = /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/;

function blocks(lines, depth = 0) {
	// This is deeper than any real nesting.
	if (depth > MAX_NESTING) return [lines.join("\n")];
	const elements = [];
	let index = 0;
	while (index < lines.length) {
		const line = lines[index];
		const block = BLOCKS.find((candidate) => candidate.fits(line, lines[index + 1] || ""));
		if (!line.trim()) index++;
		else if (block) index = block.read(lines, index, elements, depth + 1);
		else index = paragraph(lines, index, elements);
	}
	return elements;
}

const BLOCKS = [
	{ fits: (line) => FENCE.test(line), read: fence },
	{ fits: (line) => HEADING.test(line), read: heading },
	{ fits: (line) => RULE.test(line), read: (lines, index, elements) => (elements.push(html`<hr />`), index + 1) },
	{ fits: (line) => /^\s*>/.test(line), read: quote },
	{ fits: (line) => BULLET.test(line), read: list },
	{ fits: (line, next) => line.includes("|") && next.length < 999 && TABLE.test(next), read: table },
];

function fence(lines, index, elements) {
	const mark = FENCE.exec(lines[index])[1];
	const inside = [];
	for (index++; index < lines.length && !lines[index].trim().startsWith(mark); index++) inside.push(lines[index]);
	elements.push(html`<pre class="code"><code>${inside.join("\n")}</code></pre>`);
	return index + 1;
}

function heading(lines, index, elements) {
	const [, marks, text] = HEADING.exec(lines[index]);
	const Tag = "h" + Math.min(marks.length + 2, 6);
	elements.push(html`<${Tag}>${inline(text)}<//>`);
	return index + 1;
}

function quote(lines, index, elements, depth) {
	const inside = [];
	for (; index < lines.length && /^\s*>/.test(lines[index]); index++) inside.push(lines[index].replace(/^\s*> ?/, ""));
	elements.push(html`<blockquote>${blocks(inside, depth)}</blockquote>`);
	return index;
}

function list(lines, index, elements, depth) {
	const indent = BULLET.exec(lines[index])[1].length;
	const ordered = /\d/.test(BULLET.exec(lines[index])[2]);
	const first = parseInt(BULLET.exec(lines[index])[2], 10);
	const items = [];
	while (index < lines.length) {
		const mark = BULLET.exec(lines[index]);
		if (mark && mark[1].length <= indent + 1) {
			if (mark[1].length < indent) break;
			items.push([mark[3]]);
		} else if (/^\s+\S/.test(lines[index]) && items.length) {
			items[items.length - 1].push(lines[index].slice(Math.min(indent + 2, lines[index].search(/\S/))));
		} else break;
		index++;
	}
	const drawn = items.map((item) => html`<li>${item.length > 1 ? blocks(item, depth) : inline(item[0])}</li>`);
	elements.push(ordered ? html`<ol start=${first}>${drawn}</ol>` : html`<ul>${drawn}</ul>`);
	return index;
}

function cells(line) {
	return line.trim().replace(/^\||\|$/g, "").split("|", 50).map((cell) => cell.trim());
}

function table(lines, index, elements) {
	const head = cells(lines[index]);
	const rows = [];
	for (index += 2; index < lines.length && lines[index].includes("|"); index++) rows.push(cells(lines[index]));
	elements.push(html`<div class="scroll"><table>
		<thead><tr>${head.map((cell) => html`<th>${inline(cell)}</th>`)}</tr></thead>
		<tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${inline(cell)}</td>`)}</tr>`)}</tbody>
	</table></div>`);
	return index;
}

function paragraph(lines, index, elements) {
	const inside = [lines[index++]];
	while (index < lines.length && lines[index].trim() && !BLOCKS.some((block) => block.fits(lines[index], lines[index + 1] || ""))) {
		inside.push(lines[index++]);
	}
	elements.push(html`<p>${inline(inside.join("\n"))}</p>`);
	return index;
}

const INLINE = /(`+)(.+?)\1(?!`)|\*\*(?=\S)(.+?)\*\*|(?<![\w*])\*(?=\S)([^*\n]+?)\*(?!\w)|(?<!\w)_(?=\S)([^_\n]+?)_(?!\w)|\[([^[\]\n]*)\]\(\s*<?([^)\s>]*)>?[^)\n]*\)|(https?:\/\/[^\s<>()"'`]+[^\s<>()"'`.,;:!?])/s;

export function inline(text, depth = 0) {
	const elements = [];
	while (text) {
		const match = depth < MAX_NESTING && text.length < MAX_PARAGRAPH_CHARACTERS ? INLINE.exec(text) : null;
		if (!match) {
			elements.push(text);
			break;
		}
		if (match.index) elements.push(text.slice(0, match.index));
		const [source, , code, strong, star, underscore, label, target, bare] = match;
		if (code !== undefined) elements.push(html`<code>${code.trim() ? code.replace(/^ (.*) $/s, "$1") : code}</code>`);
		else if (strong !== undefined) elements.push(html`<strong>${inline(strong, depth + 1)}</strong>`);
		else if (star !== undefined || underscore !== undefined) elements.push(html`<em>${inline(star || underscore, depth + 1)}</em>`);
		else elements.push(anchor(target === undefined ? bare : target, label, source));
		text = text.slice(match.index + source.length);
	}
	return elements;
}

function anchor(target, label, source) {
	let url;
	try {
		url = new URL(target);
	} catch {
		return source;
	}
	if (!["http:", "https:", "mailto:"].includes(url.protocol)) return source;
	const address = url.host || url.pathname;
	const host = label && label !== target ? html` <small class="host">(${address})</small>` : "";
	return html`<a href=${url.href} title=${url.href} target="_blank" rel="noopener noreferrer nofollow">${label || target}</a>${host}`;
}
