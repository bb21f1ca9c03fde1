// Numbers, times and text as people read them.

// `retinue/core/format.py` has the rules; a test compares what both return.
import { words } from "./words.js";

// 12.3s, 1m 12s, 1h 5m
export function duration(seconds) {
	return seconds < 60 ? Math.max(seconds, 0).toFixed(1) + "s" : wait(seconds);
}

// 45s, 4m 30s: in whole seconds
export function wait(seconds) {
	const all = Math.max(Math.floor(seconds), 0);
	if (all < 60) return all + "s";
	const minutes = Math.floor(all / 60);
	const [large, unit, remainder, small] = minutes < 60 ? [minutes, "m", all % 60, "s"] : [Math.floor(minutes / 60), "h", minutes % 60, "m"];
	return large + unit + (remainder ? ` ${remainder}${small}` : "");
}

// Returns the elapsed time in its largest unit.
export const ago = (at, now) => wait(now - at).split(" ")[0];

export const clock = (at) => new Date(at * 1000).toLocaleTimeString();

export const moment = (at) => new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

// 950, 33.8k, 1.2M
export function count(number) {
	if (number < 1000) return String(Math.max(number, 0));
	return number < 999950 ? (number / 1000).toFixed(1) + "k" : (number / 1e6).toFixed(1) + "M";
}

// $1.24, $0.0042; empty for nothing
export function money(usd) {
	if (!usd || usd <= 0) return "";
	if (usd < 0.0001) return "<$0.0001";
	if (usd >= 1) return "$" + usd.toFixed(2);
	const [dollars, digits] = usd.toFixed(4).split(".");
	return `$${dollars}.${digits.slice(0, 2)}${digits.slice(2).replace(/0+$/, "")}`;
}

// Returns the cost, which is an estimate; empty if prices are unknown.
export function spent(usd) {
	if (usd === null || usd === undefined) return "–";
	return money(usd) ? (usd < 0.0001 ? "" : "~") + money(usd) : "$0";
}

// 33.8k token
export const tokenText = (number) => `${count(number)} ${words.value.unit}`;

export const tokens = (usage) => usage.input + usage.output + usage.cache_write;

export const cacheShare = (usage) => usage.cache_read / Math.max(usage.input + usage.cache_read + usage.cache_write, 1);

export const percent = (part) => Math.round(part * 100) + "%";

export const plural = (number, noun, nouns = noun + "s") => `${number} ${number === 1 ? noun : nouns}`;

// Removes escape sequences of terminals, and makes characters that reverse or hide text visible.
export function clean(text) {
	return String(text)
		.replace(/\x1b(\[[0-?]*[ -\/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-_])/g, "")
		.replace(/[\u202a-\u202e\u2066-\u2069\u200b-\u200f\u2060\ufeff]/g, (mark) => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase()}⟩`)
		.replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g, "\ufffd");
}

export const titleOf = (row) => firstLine(row.description || row.task);

export const firstLine = (text) => clean(text || "").trim().split("\n", 1)[0];
