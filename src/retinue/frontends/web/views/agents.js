// The agents of the project: the problems of their files, and their instructions.
import { Chip, clean, count, Empty, getOfProject, html, Icon, link, Loading, of, Page, plural, tokenText, typed, useRequest, useState } from "../app/common.js";
import { Bar } from "../parts/chart.js";
import { Fold, Output } from "../parts/fold.js";

const TONES = { error: "bad", warning: "warn" };

// The lint findings for a file; empty until lint has run.
function useLint() {
	const [report] = useRequest(() => getOfProject("/v1/lint"), []);
	return (path) => (report ? report.findings.filter((each) => each.file === path) : []);
}

function Findings({ findings }) {
	if (!findings.length) return null;
	return html`<h2>Problems of its file</h2><ul class="problems">${findings.map(
		(each) => html`<li><${Chip} tone=${TONES[each.severity]}>${each.severity}<//> ${each.line && html`<code>line ${each.line}</code>`} ${each.reason} ${each.remedy}</li>`,
	)}</ul>`;
}

function Part({ part, all }) {
	const head = html`<b>${part.name}</b><${Bar} label="" title=${part.name} part=${part.tokens / all} text=${count(part.tokens)} />`;
	return html`<${Fold} kind="file" head=${head}><${Output} text=${part.text || part.description} /><//>`;
}

function PromptParts({ name }) {
	const [preview, problem] = useRequest(() => getOfProject(of("agents", name, "prompt")), [name]);
	if (!preview) return html`<${Loading} problem=${problem} />`;
	return html`<h2>What its model is told <small>${tokenText(preview.tokens.prefix)}s with every request, estimated</small></h2>
		${preview.notes.map((note) => html`<p class="about">${note}</p>`)}
		${preview.parts.map((part) => html`<${Part} part=${part} all=${preview.tokens.prefix} />`)}
		<h2>Tools <small>${preview.tools.length}</small></h2>
		${preview.tools.map((tool) => html`<${Part} part=${tool} all=${preview.tokens.prefix} />`)}`;
}

const Back = () => html`<a class="button plain" href=${link("agents")} aria-label="Back to the agents"><${Icon} name="back" /></a>`;

function Fields({ fates }) {
	return html`<h2>Fields of its file</h2><div class="scroll"><table class="fields"><tbody>
		${Object.entries(fates).map(([field, fate]) => html`<tr><td><code>${field}</code></td><td>${fate.fate}</td><td class="muted grow">${fate.why || fate.to}</td></tr>`)}
	</tbody></table></div>`;
}

function Agent({ name }) {
	const lint = useLint();
	// The main agent has no file.
	const request = useRequest(() => (name === "main" ? Promise.resolve({ name }) : getOfProject(of("agents", name))), [name]);
	const draw = (details) => html`
		${details.path && html`<p>${clean(details.description)}</p>
			<p class="about"><${Chip}>${details.source}<//><${Chip}>${details.dialect}<//><code>${details.path}</code></p>
			${details.shadowed_by && html`<p class="about bad">Not used: <code>${details.shadowed_by}</code> takes precedence.</p>`}
			<${Findings} findings=${lint(details.path)} />
			<${Fields} fates=${details.fates} />`}
		<${PromptParts} name=${name} />`;
	const tools = html`<a class="button primary" href=${link("start", name === "main" ? "" : name)}>Start</a>`;
	return html`<${Page} title=${html`<${Back} />${name}`} request=${request} tools=${tools} draw=${draw} />`;
}

function Row({ agent, problems }) {
	const off = !agent.enabled || agent.shadowed_by;
	return html`<a class=${"card agent" + (off ? " off" : "")} href=${link("agents", agent.name)}>
		<header><h2>${agent.name}</h2>
			${problems > 0 && html`<${Chip} tone="warn">${plural(problems, "problem")}<//>`}
			${agent.readonly && html`<${Chip}>read-only<//>`}${!agent.enabled && html`<${Chip}>off<//>`}${agent.shadowed_by && html`<${Chip}>replaced<//>`}
		</header>
		<p>${clean(agent.description)}</p>
		<p class="about"><span>${agent.source}</span><span>${agent.tools ? plural(agent.tools.length, "tool") : "all tools"}</span>${agent.model && html`<span>${[].concat(agent.model).join(", ")}</span>`}</p>
	</a>`;
}

export function Agents({ id }) {
	const [text, setText] = useState("");
	const request = useRequest(() => getOfProject("/v1/agents"), []);
	const lint = useLint();
	if (id) return html`<${Agent} key=${id} name=${id} />`;
	const draw = ({ agents, failed }) => {
		const shown = agents.filter((agent) => `${agent.name} ${agent.description}`.toLowerCase().includes(text.toLowerCase()));
		return html`<input type="search" placeholder="Filter" aria-label="Filter agents" value=${text} onInput=${typed(setText)} />
			${failed.map((file) => html`<div class="problem"><b><code>${file.path}${file.line ? ":" + file.line : ""}</code></b> ${file.reason}</div>`)}
			${!shown.length && html`<${Empty} title="No agent fits">Make one with <code>retinue agents new</code>.<//>`}
			<div class="cards">${shown.map((agent) => html`<${Row} key=${agent.path + agent.name} agent=${agent} problems=${lint(agent.path).length} />`)}</div>`;
	};
	const tools = html`<a class="button plain small" href=${link("agents", "main")}>The main agent</a>`;
	return html`<${Page} title="Agents" request=${request} sum=${(page) => page.agents.length} tools=${tools} draw=${draw} />`;
}
