// Numbers, times and text as people read them.

const pair = (seconds, size, unit, smaller, small) => {
	const rest = Math.floor((seconds % size) / smaller);
	return Math.floor(seconds / size) + unit + (rest ? ` ${rest}${small}` : "");
};

// 4.2s, 3m 10s, 2h 5m
export function duration(seconds) {
	if (seconds < 10) return Math.max(seconds, 0).toFixed(1) + "s";
	if (seconds < 60) return Math.round(seconds) + "s";
	if (seconds < 3600) return pair(seconds, 60, "m", 1, "s");
	if (seconds < 86400) return pair(seconds, 3600, "h", 60, "m");
	return pair(seconds, 86400, "d", 3600, "h");
}

export function ago(at, now) {
	const passed = now - at;
	if (passed < 5) return "now";
	if (passed < 60) return Math.floor(passed) + "s";
	return duration(passed).split(" ")[0];
}

export const clock = (at) => new Date(at * 1000).toLocaleTimeString();

export const moment = (at) => new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

export function count(number) {
	if (number < 1000) return String(number);
	if (number < 10000) return (number / 1000).toFixed(1) + "k";
	if (number < 1e6) return Math.round(number / 1000) + "k";
	return (number / 1e6).toFixed(1) + "M";
}

export function money(usd) {
	if (usd === null || usd === undefined) return "–";
	if (usd === 0) return "$0";
	return usd < 0.1 ? "$" + usd.toFixed(4) : "$" + usd.toFixed(2);
}

// What was spent: prices are estimates.
export const spent = (usd) => (usd ? "~" + money(usd) : money(usd));

export const tokens = (usage) => usage.input + usage.output + usage.cache_write;

export const cacheShare = (usage) => usage.cache_read / Math.max(usage.input + usage.cache_read + usage.cache_write, 1);

export const percent = (part) => Math.round(part * 100) + "%";

export const plural = (number, noun, nouns = noun + "s") => `${number} ${number === 1 ? noun : nouns}`;

// Escape sequences of terminals go; marks that reverse or hide text become visible.
export function clean(text) {
	return String(text)
		.replace(/\x1b(\[[0-?]*[ -\/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-_])/g, "")
		.replace(/[\u202a-\u202e\u2066-\u2069\u200b-\u200f\u2060\ufeff]/g, (mark) => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase()}⟩`)
		.replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g, "\ufffd");
}

export const titleOf = (row) => firstLine(row.description || row.task);

export const firstLine = (text) => clean(text || "").trim().split("\n", 1)[0];

// A call as one short line: the argument that says most, then the others.
const MAIN = ["command", "path", "pattern", "query", "url", "description", "prompt", "question"];
export function callLine(call) {
	const given = call.arguments || {};
	const name = MAIN.find((each) => typeof given[each] === "string");
	const value = name ? given[name] : Object.keys(given).length ? JSON.stringify(given) : "";
	return firstLine(value).slice(0, 200);
}

export const textOf = (content) =>
	(content || [])
		.map((part) => (part.type === "text" ? part.text : `[${part.type}${part.name ? " " + part.name : ""}]`))
		.join("\n");
