// Schedules, projects and search results, one list each.
import { address, ago, Chip, clean, Empty, get, getOfProject, go, html, link, moment, now, Page, plural, project, useRequest, wait } from "../app/common.js";

function Job({ job }) {
	return html`<article class=${"card" + (job.enabled ? "" : " off")}>
		<header><h2>${job.name}</h2>${!job.enabled && html`<${Chip}>off<//>`}${job.last_error && html`<${Chip} tone="bad">failed<//>`}</header>
		<p>${clean(job.prompt)}</p>
		<p class="about"><b>${job.agent}</b><span>${job.schedule}</span>${job.zone && html`<span>${job.zone}</span>`}</p>
		<p class="about">
			<span>${job.next_at ? `next in ${wait(job.next_at - now.value)} (${moment(job.next_at)})` : "nothing is due any more"}</span>
			${job.last_run_id && html`<a href=${link("run", job.last_run_id)}>last run ${ago(job.last_at, now.value)}</a>`}
			<span>${plural(job.runs, "run")}</span>${job.skipped > 0 && html`<span>${job.skipped} passed over</span>`}
		</p>
		${job.last_error && html`<p class="about bad">${clean(job.last_error)}</p>`}
	</article>`;
}

export function Schedules() {
	const request = useRequest(() => getOfProject("/v1/schedules"), [Math.floor(now.value / 30)]);
	const draw = ({ jobs }) =>
		html`${!jobs.length && html`<${Empty} title="Nothing is scheduled">Add one with <code>retinue schedule add</code>.<//>`}
			<div class="cards">${jobs.map((job) => html`<${Job} job=${job} />`)}</div>`;
	return html`<${Page} title="Schedules" request=${request} sum=${(page) => page.jobs.length} draw=${draw} />`;
}

export function showProject(id, current) {
	project.value = current ? "" : id;
	sessionStorage.setItem("project", project.value);
	go("fleet");
}

function ProjectCard({ each }) {
	const shown = project.value ? project.value === each.id : each.current;
	return html`<button class=${"card project" + (shown ? " current" : "")} onClick=${() => showProject(each.id, each.current)}>
		<header><h2>${each.cwd.split("/").pop()}</h2>${each.current && html`<${Chip}>served here<//>`}${shown && html`<${Chip} tone="live">shown<//>`}</header>
		<p class="about"><code>${each.cwd}</code></p>
		<p class="about"><span>${plural(each.runs, "run")}</span>${each.live > 0 && html`<${Chip} tone="live">● ${each.live} working<//>`}
			${each.waiting > 0 && html`<${Chip} tone="ask">? ${each.waiting} waiting for you<//>`}${each.updated_at && html`<span>${ago(each.updated_at, now.value)} ago</span>`}</p>
	</button>`;
}

export function Projects() {
	const request = useRequest(() => get("/v1/projects"), [Math.floor(now.value / 10)]);
	const draw = ({ projects }) => html`<div class="cards">${projects.map((each) => html`<${ProjectCard} each=${each} />`)}</div>`;
	return html`<${Page} title="Projects" request=${request} sum=${(page) => page.projects.length} draw=${draw} />`;
}

// An excerpt is a piece of a JSON document. The text with the words is shown without quotes and escapes.
function Excerpt({ text, words }) {
	const match = Math.max(text.toLowerCase().indexOf(words.toLowerCase()), 0);
	const before = text.slice(0, match).match(/(?:[^"\\]|\\.)*$/s)[0];
	const after = text.slice(match).match(/^(?:[^"\\]|\\.)*/s)[0];
	const plain = clean((before + after).replace(/\\[nt]/g, " ").replace(/\\(["\\])/g, "$1"));
	const start = plain.toLowerCase().indexOf(words.toLowerCase());
	const end = start < 0 ? 0 : start + words.length;
	return html`<p class="excerpt">…${plain.slice(0, Math.max(start, 0))}<mark>${plain.slice(Math.max(start, 0), end)}</mark>${plain.slice(end)}…</p>`;
}

function Hit({ hit, words }) {
	return html`<a class="card hit" href=${link("run", hit.run_id)}>
		<p class="about"><b>${hit.agent}</b><${Chip}>${hit.type.split(".")[0]}<//><span>${ago(hit.at, now.value)} ago</span></p>
		<${Excerpt} text=${hit.excerpt} words=${words} /></a>`;
}

// The runs that read or wrote a file, for a search for file:PATH.
function TouchingRuns({ path }) {
	const request = useRequest(() => getOfProject("/v1/runs", { touched: path }), [path]);
	const card = (row) => html`<a class="card hit" href=${link("run", row.id)}>
		<p class="about"><b>${row.agent}</b><span>${ago(row.created_at, now.value)} ago</span></p>
		<p class="excerpt">${clean(row.task)}</p></a>`;
	const draw = ({ runs }) => (runs.length ? runs.map(card) : html`<${Empty} title="No run read or wrote this file">${clean(path)}<//>`);
	return html`<${Page} title="Search" request=${request} sum=${({ runs }) => runs.length} draw=${draw} />`;
}

export function Search() {
	const words = address.value.query.get("q") || "";
	const touched = words.startsWith("file:") ? words.slice(5).trim() : "";
	if (touched) return html`<${TouchingRuns} path=${touched} />`;
	const ask = () => (words.trim() ? getOfProject("/v1/search", { q: words }) : Promise.resolve({ hits: [] }));
	const draw = ({ hits }) =>
		hits.length
			? hits.map((hit) => html`<${Hit} hit=${hit} words=${words} />`)
			: html`<${Empty} title="Nothing found">Tasks, messages, answers, calls and results are searched.<//>`;
	const sum = ({ hits }) => (hits.length === 50 ? "the newest 50" : hits.length);
	return html`<${Page} title="Search" request=${useRequest(ask, [words])} sum=${sum} draw=${draw} />`;
}
