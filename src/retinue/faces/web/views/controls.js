// Stepping in: say something to a run, stop it, or go on with one that has ended.
import { html, Icon, of, plural, post, say, typed, useAction, useKeys, useRef, useState } from "../app/common.js";
import { below, LIVE } from "../app/runs.js";

export function Controls({ row }) {
	const [text, setText] = useState("");
	const [busy, act] = useAction();
	const [asking, setAsking] = useState(false);
	const field = useRef();
	const live = LIVE.has(row.state);
	const under = below(row.id).filter((each) => LIVE.has(each.state)).length;
	const send = (verb, body) =>
		act(async () => {
			setAsking(false);
			const found = await post(of("runs", row.id, verb), body);
			if (found.text) say(found.text);
			setText("");
		});
	const submit = (event) => {
		event.preventDefault();
		const said = text.trim();
		if (live && said) send("steer", { message: said });
		if (!live) send("resume", said ? { prompt: said } : {});
	};
	const pressed = (event) => {
		if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
	};
	useKeys({ s: () => field.current.focus(), x: () => (live ? setAsking(true) : false) });
	if (asking) {
		return html`<div class="controls confirm" role="alertdialog" aria-label="Stop this run?">
			<span>It keeps what it has said, and can be resumed.</span>
			<button class="danger" disabled=${busy} autofocus onClick=${() => send("stop", { tree: false })}>Stop this run</button>
			${under > 0 && html`<button class="danger" disabled=${busy} onClick=${() => send("stop", { tree: true })}>Stop it and ${plural(under, "run")} below</button>`}
			<button class="plain" onClick=${() => setAsking(false)}>Keep it going</button>
		</div>`;
	}
	return html`<form class="controls" onSubmit=${submit}>
		<textarea ref=${field} rows="1" value=${text} onInput=${typed(setText)} onKeyDown=${pressed} aria-label="Message"
			placeholder=${live ? "Say something: it reads this after its current tool calls" : "Go on with it: say what next, or nothing"}></textarea>
		${live && html`<button class="primary" disabled=${busy || !text.trim()}><${Icon} name="send" /><span>Steer</span></button>`}
		${!live && html`<button class="primary" disabled=${busy}><${Icon} name="resume" /><span>Resume</span></button>`}
		${live && html`<button type="button" class="danger" onClick=${() => setAsking(true)}><${Icon} name="stop" /><span>Stop</span></button>`}
	</form>`;
}
