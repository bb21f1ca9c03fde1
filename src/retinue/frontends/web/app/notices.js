// Short messages about actions and refusals. They disappear after a while; refusals stay longer.
import { html, signal } from "./html.js";

const notices = signal([]);
let number = 0;

export function say(text, detail = "", bad = false) {
	const notice = { id: ++number, text, detail, bad };
	notices.value = [...notices.value.slice(-3), notice];
	setTimeout(() => drop(notice), bad ? 15000 : 8000);
}

export const sayProblem = (problem) => say(problem.message, problem.remedy, true);

function drop(notice) {
	notices.value = notices.value.filter((other) => other !== notice);
}

export function Notices() {
	return html`<div class="notices" role="status" aria-live="polite">
		${notices.value.map(
			(notice) => html`<div class=${"notice" + (notice.bad ? " bad" : "")} key=${notice.id}>
				<div>${notice.text}${notice.detail && html`<small>${notice.detail}</small>`}</div>
				<button class="plain" aria-label="Dismiss" onClick=${() => drop(notice)}>×</button>
			</div>`,
		)}
	</div>`;
}
