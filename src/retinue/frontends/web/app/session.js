// Signing in: a link contains a code that works once. The page removes the code from the address, and exchanges it for its own key.
import { signal } from "./html.js";
import { hasKey, keepKey, onNewKey, post, postAs, signedIn } from "./api.js";
import { link, replaceAddress } from "./address.js";

export const served = signal(null);
export const refusal = signal(null); // the reason why the last link did not sign in

async function enter(asking) {
	const session = await asking;
	keepKey(session);
	served.value = session;
	refusal.value = null;
	signedIn.value = true;
}

// `text` is a link as `retinue open` prints it, or the token of the server.
export async function signIn(text) {
	const code = codeIn(text);
	await enter(postAs(code ? `Code ${code}` : `Bearer ${text.trim()}`, "/v1/session", {}));
}

function codeIn(text) {
	const match = /#code=([\w.-]+)/.exec(text);
	return match ? match[1] : "";
}

// Signs in with the code of the address, otherwise with the key of an earlier visit.
export async function begin() {
	const hash = location.hash;
	if (codeIn(hash)) {
		const run = /&run=([\w-]+)/.exec(hash);
		replaceAddress(run ? link("run", run[1]) : link(""));
		try {
			return await signIn(hash);
		} catch (problem) {
			refusal.value = problem;
		}
	}
	if (!hasKey()) signedIn.value = false;
	else await enter(post("/v1/session", {}));
}

// A person may paste a link into the address of an open page. A sign-in in another tab also signs in this page.
addEventListener("hashchange", () => codeIn(location.hash) && begin().catch(() => {}));
onNewKey(() => signedIn.value || begin().catch(() => {}));
