// The table of keys.
import { html } from "../app/html.js";
import { words } from "../app/words.js";

const KEYS = [
	["1 … 6", "the views"],
	["n", "start a run"],
	["/", "search"],
	["j  k", "down and up in a list"],
	["Enter", "open the run"],
	["← →", "fold and unfold; one event back and on"],
	["[  ]", "the parts of a run"],
	["s", "say something to the run"],
	["x", "stop the run (asks first)"],
	["b", "let its parent go on without it"],
	["Esc", "back"],
];

const keys = () => [...KEYS, ...Object.values(words.value.choices).map(({ key, label }) => [key, label])];

export function Help({ close }) {
	return html`<div class="overlay" onClick=${close}>
		<div class="card help" role="dialog" aria-label="Keys" onClick=${(event) => event.stopPropagation()}>
			<header><h2>Keys</h2><button class="plain" aria-label="Close" onClick=${close}>×</button></header>
			<dl>${keys().map(([key, does]) => html`<dt>${key.split("  ").map((each) => html`<kbd>${each}</kbd> `)}</dt><dd>${does}</dd>`)}</dl>
		</div>
	</div>`;
}
