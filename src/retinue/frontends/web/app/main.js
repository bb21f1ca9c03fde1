// The page: signs in, follows the events, and shows the view of the address.
import { address, computed, effect, go, html, Icon, link, Notices, project, render, replaceAddress, sayProblem, signedIn, useKeys, useState } from "./common.js";
import * as inbox from "./inbox.js";
import * as runs from "./runs.js";
import { begin, served } from "./session.js";
import { connect, connection, disconnect } from "./stream.js";
import { loadWords } from "./words.js";
import { applyTheme, nextTheme, theme } from "./theme.js";
import { Agents } from "../views/agents.js";
import { Cost } from "../views/cost.js";
import { Fleet } from "../views/fleet.js";
import { Help } from "../views/help.js";
import { Projects, Schedules, Search } from "../views/lists.js";
import { RunView } from "../views/run.js";
import { SignInView } from "../views/signin.js";
import { Start } from "../views/start.js";
import { Waiting } from "../views/waiting.js";

const VIEWS = {
	waiting: ["Waiting", "Waiting for you", Waiting],
	fleet: ["Fleet", "Fleet", Fleet],
	cost: ["Cost", "Cost", Cost],
	agents: ["Agents", "Agents", Agents],
	schedules: ["Times", "Schedules", Schedules],
	projects: ["Projects", "Projects", Projects],
};
const OTHERS = { start: Start, search: Search };

const view = computed(() => {
	const { view: name } = address.value;
	if (name === "run" || name in VIEWS || name in OTHERS) return name;
	return inbox.waiting.value ? "waiting" : "fleet";
});

function Nav() {
	const current = view.value === "run" ? "fleet" : view.value;
	return html`<nav class="nav" aria-label="Views">
		<a class="brand" href=${link("")}><svg viewBox="0 0 32 32" aria-hidden="true"><use href="/static/icon.svg#mark" /></svg><b>Retinue</b></a>
		<a class="button primary new" href=${link("start")} aria-label="Start a run"><${Icon} name="start" /><span>Start a run</span></a>
		${Object.entries(VIEWS).map(
			([name, [short, title]]) => html`<a class="place" href=${link(name)} aria-current=${current === name ? "page" : undefined}>
				<${Icon} name=${name} /><span class="long">${title}</span><span class="short">${short}</span>
				${name === "waiting" && inbox.waiting.value > 0 && html`<span class="badge ask">${inbox.waiting}</span>`}
				${name === "fleet" && runs.liveCount.value > 0 && html`<span class="badge">${runs.liveCount}</span>`}
			</a>`,
		)}
	</nav>`;
}

const STATES = { live: ["●", "Live"], connecting: ["○", "Connecting"], lost: ["✕", "Connection lost: trying again"], resting: ["○", "Resting"] };

function Bar({ help }) {
	const [sign, word] = STATES[connection.value];
	const cwd = (served.value && served.value.cwd) || "";
	const search = (event) => (event.preventDefault(), replaceAddress(link("search") + "?q=" + encodeURIComponent(new FormData(event.target).get("q"))));
	return html`<header class="bar">
		<a class="project" href=${link("projects")} title=${cwd}><${Icon} name="projects" /><b>${project.value ? project.value.replace(/-[0-9a-f]+$/, "") : cwd.split("/").pop()}</b></a>
		<form role="search" onSubmit=${search}><${Icon} name="search" /><input name="q" type="search" id="search" placeholder="Search everything that was said and done" aria-label="Search" /></form>
		<span class=${`connection ${connection.value}`} role="status" title=${word}><span aria-hidden="true">${sign}</span> <span class="word">${word}</span></span>
		<button class="plain" title=${`Colours: ${theme.value}`} aria-label="Change colours" onClick=${nextTheme}><${Icon} name="theme" /></button>
		<button class="plain keys" aria-label="Keys" onClick=${help}>?</button>
	</header>`;
}

function Main() {
	const name = view.value;
	const { id, tab } = address.value;
	if (name === "run" || name === "fleet") {
		return html`<main class=${"split" + (name === "run" ? " open" : "")}><${Fleet} selected=${name === "run" ? id : ""} />
			${name === "run" ? html`<${RunView} key=${id} id=${id} tab=${tab} />` : html`<div class="nothing">Choose a run to see what it says and does.</div>`}</main>`;
	}
	const View = name in VIEWS ? VIEWS[name][2] : OTHERS[name];
	return html`<main><${View} key=${name} id=${id} /></main>`;
}

function App() {
	const [help, setHelp] = useState(false);
	useKeys({
		"?": () => setHelp(!help),
		Escape: () => (help ? setHelp(false) : false),
		"/": () => document.getElementById("search").focus(),
		n: () => go("start"),
		...Object.fromEntries(Object.keys(VIEWS).map((name, index) => [index + 1, () => go(name)])),
	});
	if (!signedIn.value) return html`<${SignInView} />`;
	return html`<${Nav} /><div class="body"><${Bar} help=${() => setHelp(true)} /><${Notices} /><${Main} /></div>
		${help && html`<${Help} close=${() => setHelp(false)} />`}`;
}

// Reads the project, then follows it from the event at which it was read.
async function follow() {
	disconnect();
	try {
		const [cursor] = await Promise.all([runs.load(), inbox.load(), loadWords()]);
		connect(cursor, (changes) => (runs.take(changes), inbox.take(changes)));
	} catch (problem) {
		if (signedIn.value) sayProblem(problem);
		if (problem.status === 0) setTimeout(follow, 1000);
	}
}

effect(() => {
	const waiting = inbox.waiting.value;
	document.title = (waiting ? `(${waiting}) ` : "") + "Retinue";
});

// Waiting items are requested even then.
setInterval(() => connection.value === "resting" && inbox.load().catch(() => {}), 20000);
applyTheme();
effect(() => {
	project.value;
	if (signedIn.value && served.value) follow();
	else disconnect();
});
begin().catch((problem) => problem.status === 0 && sayProblem(problem));
render(html`<${App} />`, document.body);
