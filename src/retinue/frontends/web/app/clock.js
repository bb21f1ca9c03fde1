// The current time. The clock stops while the page is hidden.
import { signal } from "./html.js";

export const now = signal(Date.now() / 1000);

setInterval(() => {
	if (!document.hidden) now.value = Date.now() / 1000;
}, 1000);
