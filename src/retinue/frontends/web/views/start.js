// Starts a run: its agent, its task and its limits.
import { clean, getOfProject, go, html, Icon, post, project, typed, useAction, useRequest, useState } from "../app/common.js";

function orderOf(form) {
	const fields = Object.fromEntries(new FormData(form));
	const order = { task: fields.task };
	if (fields.agent) order.agent = fields.agent;
	if (fields.model) order.model = fields.model;
	if (fields.usd) order.budget = { usd: Number(fields.usd) };
	if (fields.agent && fields.name) order.name = fields.name;
	if (fields.agent && fields.worktree) order.isolation = "worktree";
	if (project.value) order.project = project.value;
	return order;
}

export function Start({ id }) {
	const [agents] = useRequest(() => getOfProject("/v1/agents"), []);
	const [models] = useRequest(() => getOfProject("/v1/models"), []);
	const [agent, setAgent] = useState(id);
	const [busy, act] = useAction();
	// The same form sends the same key, so that a second click does not start a second run.
	const [key] = useState(() => crypto.randomUUID());
	const submit = (event) => {
		event.preventDefault();
		act(async () => go("run", (await post("/v1/runs", orderOf(event.target), { "Idempotency-Key": key })).id));
	};
	const usable = agents ? agents.agents.filter((each) => each.enabled && !each.shadowed_by) : [];
	const chosen = usable.find((each) => each.name === agent);
	const submitOnKey = (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.form.requestSubmit();
	return html`<section class="page narrow">
		<header class="head"><h1>Start a run</h1></header>
		<form class="start" onSubmit=${submit}>
			<label>Task<textarea name="task" rows="6" required autofocus onKeyDown=${submitOnKey} placeholder="What is to be done, and how does one see that it is?"></textarea></label>
			<label>Agent
				<select name="agent" value=${agent} onChange=${typed(setAgent)}>
					<option value="">main</option>${usable.map((each) => html`<option value=${each.name} selected=${each.name === agent}>${each.name}</option>`)}
				</select><small>${chosen ? clean(chosen.description) : "It talks to you and starts others."}</small></label>
			<div class="pair">
				<label>Model<input name="model" list="models" placeholder="as the agent and the settings say" />
					<datalist id="models">${models && models.models.map((each) => html`<option value=${each.model} />`)}</datalist></label>
				<label>Budget in USD, for it and all below<input name="usd" type="number" min="0" step="any" placeholder="no limit" /></label>
			</div>
			${agent && html`<div class="pair">
				<label>Name<input name="name" pattern="[A-Za-z0-9][A-Za-z0-9_\\-]*" placeholder="optional, to call it by" /></label>
				<label class="check"><input type="checkbox" name="worktree" /> work in a copy of the repository (worktree)</label>
			</div>`}
			<div class="row-end"><span class="muted">Ctrl+Enter</span><button class="primary" disabled=${busy}><${Icon} name="resume" /><span>Start</span></button></div>
		</form>
	</section>`;
}
