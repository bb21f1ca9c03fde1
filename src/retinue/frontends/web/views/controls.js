// Controls: steer a run, move it to the background, stop it, or resume it.
import { html, Icon, of, plural, post, say, typed, useAction, useKeys, useRef, useState } from "../app/common.js";
import { below, LIVE } from "../app/runs.js";

const button = (icon, text, attributes) => html`<button title=${text} ...${attributes}><${Icon} name=${icon} /><span>${text}</span></button>`;

export function Controls({ row }) {
	const [text, setText] = useState("");
	const [busy, act] = useAction();
	const [asking, setAsking] = useState(false);
	const field = useRef();
	const live = LIVE.has(row.state);
	const waited = live && row.parent_id && !row.background;
	const under = below(row.id).filter((each) => LIVE.has(each.state)).length;
	const send = (verb, body) =>
		act(async () => {
			setAsking(false);
			const answer = await post(of("runs", row.id, verb), body);
			if (answer.text) say(answer.text);
			setText("");
		});
	const submit = (event) => {
		event.preventDefault();
		const message = text.trim();
		if (live && message) send("steer", { message });
		if (!live) send("resume", message ? { prompt: message } : {});
	};
	const pressed = (event) => {
		if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
	};
	const toBackground = () => send("background", {});
	useKeys({ s: () => field.current.focus(), x: () => (live ? setAsking(true) : false), b: () => (waited ? toBackground() : false) });
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
		${live ? button("send", "Steer", { class: "primary", disabled: busy || !text.trim() }) : button("resume", "Resume", { class: "primary", disabled: busy })}
		${waited && button("aside", "To background", { type: "button", class: "aside", disabled: busy, onClick: toBackground })}
		${live && button("stop", "Stop", { type: "button", class: "danger", onClick: () => setAsking(true) })}
	</form>`;
}
