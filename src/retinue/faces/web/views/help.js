// The keys.
import { html } from "../app/html.js";

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
	["y  r  a  A  n", "allow once, this run, this agent, always; deny"],
	["Esc", "back"],
];

export function Help({ close }) {
	return html`<div class="overlay" onClick=${close}>
		<div class="card help" role="dialog" aria-label="Keys" onClick=${(event) => event.stopPropagation()}>
			<header><h2>Keys</h2><button class="plain" aria-label="Close" onClick=${close}>×</button></header>
			<dl>${KEYS.map(([key, does]) => html`<dt>${key.split("  ").map((each) => html`<kbd>${each}</kbd> `)}</dt><dd>${does}</dd>`)}</dl>
		</div>
	</div>`;
}
