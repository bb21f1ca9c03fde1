// One item that waits for a person, with its answers.
import { Chip, clean, html, link, markOf, now, typed, useAction, useState, wait, words } from "../app/common.js";
import { answer } from "../app/inbox.js";
import { Diff, looksLikeDiff } from "./diff.js";
import { Output } from "./fold.js";

const RISKS = { low: "idle", medium: "warn", high: "bad" };

function Subject({ item }) {
	const { tool, arguments: callArguments } = item.payload;
	if (looksLikeDiff(item.detail)) return html`<${Diff} text=${item.detail} />`;
	if (item.detail) return html`<${Output} text=${item.detail} />`;
	if (!tool) return null;
	const isCommand = typeof callArguments.command === "string" && Object.keys(callArguments).length === 1;
	return html`<${Output} text=${isCommand ? callArguments.command : JSON.stringify(callArguments, null, 2)} />`;
}

export function ItemCard({ item, current }) {
	const [message, setMessage] = useState("");
	const [busy, act] = useAction();
	const isQuestion = item.kind === "question";
	const canGive = isQuestion && (message.trim() || item.payload.skip);
	const give = (choice) => act(() => answer(item, choice, isQuestion ? "" : message));
	return html`<article class=${"card item" + (current ? " current" : "")} data-item=${item.id}>
		<header>
			<h2>${clean(item.title)}</h2>
			<${Chip} tone="ask">${markOf({ state: "waiting" })[2]} ${wait(now.value - item.created_at)}<//>
		</header>
		<p class="about">
			<a href=${link("run", item.run_id)}>${item.agent}</a>
			${item.description && html`<span>${clean(item.description)}</span>`}
			${item.kind === "approval" && html`<${Chip} tone=${RISKS[item.risk]}>${item.risk} risk<//>`}
			${item.interrupted && html`<${Chip} tone="warn">the answer counts when it is resumed<//>`}
			${item.expires_at && html`<span>${item.default} in ${wait(item.expires_at - now.value)}</span>`}
		</p>
		<${Subject} item=${item} />
		${item.reason && html`<p class="why"><b>Why you are asked:</b> ${clean(item.reason)}${item.rule && html` “Always” writes the rule <code>${item.rule}</code>.`}</p>`}
		<form class="answers" onSubmit=${(event) => (event.preventDefault(), canGive && give(message.trim()))}>
			<div class="options">
				${item.options.map((option) => {
					const { key, short, label } = words.value.choices[option] || { short: option };
					const tone = option === "deny" ? "danger" : option === "allow" ? "primary" : "";
					return html`<button type="button" class=${tone} disabled=${busy} title=${label} data-answer=${option} onClick=${() => give(option)}>
						${short}${key && html`<kbd>${key}</kbd>`}
					</button>`;
				})}
			</div>
			<div class="words">
				<input value=${message} onInput=${typed(setMessage)} aria-label="Your words"
					placeholder=${isQuestion ? "Or answer in your own words" : "Words for the agent, with a denial"} />
				${isQuestion && html`<button class="primary" disabled=${busy || !canGive}>Answer</button>`}
			</div>
		</form>
	</article>`;
}
