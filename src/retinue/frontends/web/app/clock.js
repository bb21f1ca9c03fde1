// What time it is. It stands still while nobody looks.
import { signal } from "./html.js";

export const now = signal(Date.now() / 1000);

setInterval(() => {
	if (!document.hidden) now.value = Date.now() / 1000;
}, 1000);
