// Dark or light, as the system is set, unless the person chose.
import { signal } from "./html.js";

const ORDER = ["auto", "dark", "light"];
export const theme = signal(localStorage.getItem("theme") || "auto");

export function applyTheme() {
	document.documentElement.dataset.theme = theme.value;
}

export function nextTheme() {
	theme.value = ORDER[(ORDER.indexOf(theme.value) + 1) % ORDER.length];
	localStorage.setItem("theme", theme.value);
	applyTheme();
}
