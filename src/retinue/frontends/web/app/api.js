// Requests to the server. A refusal is a Problem with the message of the server.
import { signal } from "./html.js";

export const signedIn = signal(true);

// The id of the current project; empty for the one with which the server was started.
export const project = signal(sessionStorage.getItem("project") || "");

export class Problem extends Error {
	constructor(status, document) {
		super(document.detail || "The server did not answer.");
		this.status = status;
		this.remedy = document.remedy || "";
	}
}

// The key of this page. Browsers store it for this host and port only, and all tabs share it. It is no cookie, because a cookie would be sent to every port.
const KEY = "key";
const storedKey = () => localStorage.getItem(KEY) || "";

// This secret is never stored. From it the page makes the key for a server that was restarted after a crash.
let renewalSecret = "";

export function keepKey(session) {
	renewalSecret = session.renewal_secret;
	localStorage.setItem(KEY, session.key);
}

export const hasKey = () => storedKey() !== "";

// Calls `changed` when another tab has signed in.
export const onNewKey = (changed) => addEventListener("storage", (event) => event.key === KEY && event.newValue && changed());

async function fetchAs(authorization, path, options) {
	try {
		return await fetch(path, { cache: "no-store", credentials: "omit", ...options, headers: { ...options.headers, Authorization: authorization } });
	} catch (error) {
		if (error.name === "AbortError") throw error;
		throw new Problem(0, { detail: "The server does not answer.", remedy: "Is `retinue serve` still running?" });
	}
}

// Returns the response. If the server refuses the key, a newer key is tried once, if there is one.
export async function send(path, options = {}) {
	const key = storedKey();
	let response = await fetchAs("Bearer " + key, path, options);
	const newer = response.status === 401 && (await newerKey(key, response));
	if (newer) response = await fetchAs("Bearer " + newer, path, options);
	if (response.status === 401) signedIn.value = false;
	return response;
}

// Returns a newer key if another tab has signed in, or if the server was restarted after a crash. The secret is not sent: the key made
// from it is valid only for this host, this port and that start of the server.
async function newerKey(refused, response) {
	if (storedKey() !== refused) return storedKey();
	const start = /start="([\w-]+)"/.exec(response.headers.get("WWW-Authenticate") || "");
	if (!renewalSecret || !start || !crypto.subtle) return "";
	const bytes = (text) => new TextEncoder().encode(text);
	const secret = await crypto.subtle.importKey("raw", bytes(renewalSecret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
	const signature = await crypto.subtle.sign("HMAC", secret, bytes(["page", location.host, start[1]].join("\n")));
	const key = Array.from(new Uint8Array(signature), (byte) => byte.toString(16).padStart(2, "0")).join("");
	if (key === refused) return "";
	localStorage.setItem(KEY, key);
	return key;
}

async function read(response) {
	const document = await response.json().catch(() => ({}));
	if (response.ok) return document;
	throw new Problem(response.status, document);
}

function query(params) {
	const filled = Object.entries(params).filter(([, value]) => (value ?? "") !== "");
	return filled.length ? "?" + new URLSearchParams(filled) : "";
}

export const get = async (path, params = {}) => read(await send(path + query(params)));

// Adds the current project to the path of a list.
export const getOfProject = (path, params = {}) => get(path, { ...params, project: project.value });

const json = (body, headers) => ({ method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(body) });

export const post = async (path, body, headers = {}) => read(await send(path, json(body, headers)));

// Sends the token or a one-time code instead of the key.
export const postAs = async (authorization, path, body) => read(await fetchAs(authorization, path, json(body)));

// Returns the path of a route that contains an id.
export const of = (kind, id, part = "") => `/v1/${kind}/${encodeURIComponent(id)}${part && "/" + part}`;
