// Requests to the server. A refusal is a Problem with the server's own words.
import { signal } from "./html.js";

export const signedIn = signal(true);

// The id of the project that is shown; empty for the one that was served.
export const project = signal(sessionStorage.getItem("project") || "");

export class Problem extends Error {
	constructor(status, document) {
		super(document.detail || "The server did not answer.");
		this.status = status;
		this.remedy = document.remedy || "";
	}
}

async function ask(path, options) {
	let response;
	try {
		response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
	} catch {
		throw new Problem(0, { detail: "The server does not answer.", remedy: "Is `retinue serve` still running?" });
	}
	const document = await response.json().catch(() => ({}));
	if (response.ok) return document;
	if (response.status === 401) signedIn.value = false;
	throw new Problem(response.status, document);
}

function query(params) {
	const given = Object.entries(params).filter(([, value]) => (value ?? "") !== "");
	return given.length ? "?" + new URLSearchParams(given) : "";
}

export const get = (path, params = {}) => ask(path + query(params), {});

// For lists of a project: the one that is shown is asked.
export const getOfProject = (path, params = {}) => get(path, { ...params, project: project.value });

export function post(path, body, headers = {}) {
	const sent = { "Content-Type": "application/json", "X-Retinue": "1", ...headers };
	return ask(path, { method: "POST", headers: sent, body: JSON.stringify(body) });
}

// The path of a route with an id in it.
export const of = (kind, id, part = "") => `/v1/${kind}/${encodeURIComponent(id)}${part && "/" + part}`;
