// Signing in: the token from the address becomes a cookie, and leaves the address at once.
import { signal } from "./html.js";
import { post, signedIn } from "./api.js";
import { link, replaceAddress } from "./address.js";

export const served = signal(null);

export async function signIn(token) {
	served.value = await post("/v1/session", {}, token ? { Authorization: `Bearer ${token}` } : {});
	signedIn.value = true;
}

// The token of an address as `retinue serve` prints it, or of what someone has pasted.
export function tokenIn(text) {
	const found = /[#&]token=([\w-]+)/.exec(text);
	if (found) return found[1];
	return /^[\w-]{20,}$/.test(text.trim()) ? text.trim() : "";
}

export async function begin() {
	const hash = location.hash;
	const token = tokenIn(hash);
	if (token) {
		const run = /&run=([\w-]+)/.exec(hash);
		replaceAddress(run ? link("run", run[1]) : link(""));
	}
	await signIn(token);
}
