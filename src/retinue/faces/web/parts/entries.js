// The entries of a conversation as they are drawn.
import { callLine, Chip, clean, clock, duration, html, link, memo, plural, Status } from "../app/common.js";
import { Diff, looksLikeDiff } from "./diff.js";
import { Fold, Output } from "./fold.js";
import { Markdown } from "./markdown.js";

const ORIGINS = { task: "Task", steer: "Said to it", "follow-up": "Said to it", "wrap-up": "Asked to wrap up" };

const SIGNS = { pending: ["·", ""], running: ["●", "live"], finished: ["✓", "ok"], failed: ["✕", "bad"], denied: ["⊘", "bad"] };

function Said({ entry }) {
	const { origin = "task", by, text } = entry;
	const head = html`<b>${ORIGINS[origin] || origin}</b>${by && html`<span>from ${by}</span>`}<time>${clock(entry.at)}</time>`;
	if (["notification", "context", "summary"].includes(origin)) {
		return html`<${Fold} kind="entry said" head=${head}><${Output} text=${text} /><//>`;
	}
	return html`<article class="entry said"><header>${head}</header><div class="plain-text">${clean(text)}</div></article>`;
}

const Answer = ({ entry }) => html`<article class="entry answer"><${Markdown} text=${entry.text} /></article>`;

const Thought = ({ entry }) =>
	html`<${Fold} kind="entry thinking" head=${html`<span>Thinking</span>`}><${Markdown} text=${entry.text} /><//>`;

const Note = ({ entry }) => html`<p class=${`entry note ${entry.tone}`}>${clean(entry.text)}<time>${clock(entry.at)}</time></p>`;

function Given({ call }) {
	const given = Object.entries(call.arguments || {});
	if (call.broken) return html`<${Output} text=${call.broken} />`;
	return html`<dl class="given">
		${given.map(([name, value]) => html`<dt>${name}</dt><dd><${Output} text=${typeof value === "string" ? value : JSON.stringify(value, null, 2)} /></dd>`)}
	</dl>`;
}

function Result({ entry }) {
	if (entry.result === undefined) return null;
	if (looksLikeDiff(entry.result)) return html`<${Diff} text=${entry.result} />`;
	return html`<${Output} text=${entry.result || "(no output)"} />`;
}

function Call({ entry, child }) {
	const [sign, tone] = SIGNS[entry.state];
	const head = html`<span class=${`sign ${tone}`} title=${entry.state}>${sign}</span>
		<b class="tool">${entry.call.name}</b>
		<span class="line">${callLine(entry.call)}</span>
		${entry.asks && html`<${Chip} tone="ask">needs you<//>`}
		${entry.effect && entry.effect.exit_code > 0 && html`<${Chip} tone="bad">exit ${entry.effect.exit_code}<//>`}
		${entry.took >= 1 && html`<span class="took">${duration(entry.took)}</span>`}`;
	return html`<${Fold} kind=${`entry call ${entry.state}`} head=${head}>
			${entry.answered && html`<p class="about">Answered: ${entry.answered}</p>`}
			${entry.effect && entry.effect.denied && html`<p class="about bad">Denied: ${entry.effect.denied}</p>`}
			<${Given} call=${entry.call} />
			<${Result} entry=${entry} />
		<//>
		${child && html`<a class="child" href=${link("run", child.id)}><${Status} row=${child} short />${child.agent}
			<span>${child.description || clean(child.task)}</span></a>`}`;
}

function End({ entry }) {
	const { outcome } = entry;
	const row = { state: "ended", ended: outcome.ended };
	return html`<footer class="entry end">
		<${Status} row=${row} />
		<span>${plural(outcome.turns, "turn")}, ${plural(outcome.tool_uses, "call")}, ${duration(outcome.duration_ms / 1000)}</span>
		${outcome.failure && html`<p class="about bad">${outcome.failure.message} ${outcome.failure.remedy}</p>`}
		${outcome.notes && outcome.notes.map((note) => html`<p class="about">${clean(note)}</p>`)}
	</footer>`;
}

const KINDS = { task: Said, said: Said, answer: Answer, thinking: Thought, note: Note, call: Call, end: End };

export const Entry = memo(({ entry, child }) => html`<${KINDS[entry.kind]} entry=${entry} child=${child} />`);
