// The address names the current view, as in `#/run/ID/timeline`, so that the browser's back button works.
import { signal } from "./html.js";

function read() {
	const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
	const [view, id, tab] = path.split("/").map(decodeURIComponent);
	return { view: view || "", id: id || "", tab: tab || "", query: new URLSearchParams(query || "") };
}

export const address = signal(read());

addEventListener("hashchange", () => {
	address.value = read();
});

export function link(view, id = "", tab = "") {
	const parts = [view, id, tab].map(encodeURIComponent);
	while (parts.length && !parts[parts.length - 1]) parts.pop();
	return "#/" + parts.join("/");
}

export function go(view, id = "", tab = "") {
	location.hash = link(view, id, tab);
}

export function replaceAddress(hash) {
	history.replaceState(null, "", hash);
	address.value = read();
}
