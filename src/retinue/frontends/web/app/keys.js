// Keys of the current view. No key acts while the person types.
import { useEffect } from "./html.js";

const bound = [];

function typing(target) {
	return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

addEventListener("keydown", (event) => {
	if (event.ctrlKey || event.metaKey || event.altKey) return;
	if (event.key === "Escape" && typing(event.target)) return event.target.blur();
	if (typing(event.target)) return;
	// The newest view gets the key first.
	for (let index = bound.length - 1; index >= 0; index--) {
		const act = bound[index][event.key];
		if (act && act(event) !== false) return event.preventDefault();
	}
});

// For input fields: passes the typed text to `set`.
export const typed = (set) => (event) => set(event.target.value);

export function useKeys(keys) {
	useEffect(() => {
		bound.push(keys);
		return () => bound.splice(bound.indexOf(keys), 1);
	});
}
