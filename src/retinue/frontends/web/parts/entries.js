// The entries of a conversation as elements.
import { Chip, classOf, clean, clock, duration, html, link, MarkedWord, memo, Status } from "../app/common.js";
import { Diff, looksLikeDiff } from "./diff.js";
import { Fold, Output } from "./fold.js";
import { Markdown } from "./markdown.js";

function Said({ entry }) {
	const head = html`<b>${entry.title}</b>${entry.source && html`<span>from ${entry.source}</span>`}<time>${clock(entry.at)}</time>`;
	if (entry.folded) return html`<${Fold} kind="entry said" head=${head}><${Output} text=${entry.text} /><//>`;
	return html`<article class="entry said"><header>${head}</header><div class="plain-text">${clean(entry.text)}</div></article>`;
}

function Answer({ entry }) {
	return html`<article class=${"entry answer" + (entry.open ? " draft" : "")} aria-busy=${entry.open}><${Markdown} text=${entry.text || ""} /></article>`;
}

function Thought({ entry }) {
	if (entry.open) return html`<article class="entry answer draft" aria-busy="true"><p class="thinking-now">${clean((entry.text || "").slice(-300))}</p></article>`;
	return html`<${Fold} kind="entry thinking" head=${html`<span>Thinking</span>`}><${Markdown} text=${entry.text} /><//>`;
}

const Note = ({ entry }) => html`<p class=${`entry note ${classOf(entry.tone)}`}>${clean(entry.text)}<time>${clock(entry.at)}</time></p>`;

const Todos = ({ entry }) => html`<pre class="entry note">${clean(entry.text)}</pre>`;

function Arguments({ call }) {
	const entries = Object.entries(call.arguments || {});
	if (call.broken) return html`<${Output} text=${call.broken} />`;
	return html`<dl class="given">
		${entries.map(([name, value]) => html`<dt>${name}</dt><dd><${Output} text=${typeof value === "string" ? value : JSON.stringify(value, null, 2)} /></dd>`)}
	</dl>`;
}

function Result({ entry }) {
	if (entry.result === undefined) return null;
	if (looksLikeDiff(entry.result)) return html`<${Diff} text=${entry.result} />`;
	return html`<${Output} text=${entry.result || "(no output)"} />`;
}

function Call({ entry, child }) {
	const [sign, tone, word] = entry.mark;
	const head = html`<span class=${`sign ${classOf(tone)}`} title=${word}>${sign}</span>
		<b class="tool">${entry.call.name}</b>
		<span class="line">${clean(entry.line || "")}</span>
		${entry.asks && html`<${Chip} tone="ask">${word}<//>`}
		${entry.exit_code > 0 && html`<${Chip} tone="bad">exit ${entry.exit_code}<//>`}
		${entry.duration_ms >= 1000 && html`<span class="took">${duration(entry.duration_ms / 1000)}</span>`}`;
	return html`<${Fold} kind="entry call" head=${head}>
			${entry.approval && html`<p class="about">Answered: ${entry.approval}</p>`}
			${entry.detail && entry.detail.map((text) => html`<p class="about bad">Denied: ${text}</p>`)}
			<${Arguments} call=${entry.call} />
			<${Result} entry=${entry} />
		<//>
		${child && html`<a class="child" href=${link("run", child.id)}><${Status} row=${child} short />${child.agent}
			<span>${child.description || clean(child.task)}</span></a>`}`;
}

const End = ({ entry }) => html`<footer class="entry end">
		<${MarkedWord} mark=${entry.mark} />
		<span>${entry.text}</span>
		${entry.detail && entry.detail.map((text) => html`<p class="about">${clean(text)}</p>`)}
	</footer>`;

const KINDS = { task: Said, message: Said, answer: Answer, thinking: Thought, note: Note, call: Call, todos: Todos, ended: End };

export const Entry = memo(({ entry, child }) => html`<${KINDS[entry.kind]} entry=${entry} child=${child} />`);
