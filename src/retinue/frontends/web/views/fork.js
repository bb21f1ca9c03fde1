// Continues from the displayed event as a new run.
import { go, html, of, post, say, typed, useAction, useState } from "../app/common.js";

export function Fork({ id, seq }) {
	const [text, setText] = useState("");
	const [back, setBack] = useState(true);
	const [busy, act] = useAction();
	const fork = async () => {
		const newRun = await post(of("runs", id, "fork"), { at: seq, edit: text.trim() || null, keep_files: !back });
		say(`Forked at event ${seq}.`);
		go("run", newRun.id);
	};
	const submit = (event) => (event.preventDefault(), act(fork));
	return html`<form class="controls fork" onSubmit=${submit}>
		<textarea rows="1" value=${text} onInput=${typed(setText)} aria-label="Words of the fork"
			placeholder="Go on from here as a new run: say what instead, or nothing"></textarea>
		<label><input type="checkbox" checked=${back} onChange=${(event) => setBack(event.target.checked)} /> files as they were then</label>
		<button class="primary" disabled=${busy || !seq}>Fork at event ${seq}</button>
	</form>`;
}
