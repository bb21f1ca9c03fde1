// Icons as paths in a square of 16.
import { html } from "../app/html.js";

const PATHS = {
	waiting: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM8 4.5v4M8 11v.5",
	fleet: "M3 3h4M3 3v10h4M3 8h4M9.5 3h4M9.5 8h4M9.5 13h4",
	cost: "M2.5 13.5v-5M6.2 13.5v-9M9.9 13.5v-6M13.5 13.5v-11",
	agents: "M8 8a2.8 2.8 0 1 0 0-5.6A2.8 2.8 0 0 0 8 8zM2.8 13.6c.5-2.6 2.6-3.9 5.2-3.9s4.7 1.3 5.2 3.9",
	schedules: "M8 1.8a6.2 6.2 0 1 0 0 12.4 6.2 6.2 0 0 0 0-12.4zM8 4.6V8l2.5 1.6",
	projects: "M1.8 4.2h4.5l1.4 1.7h6.5v7.5H1.8z",
	start: "M8 3v10M3 8h10",
	search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 14 14",
	back: "M9.8 3 4.8 8l5 5",
	stop: "M4 4h8v8H4z",
	resume: "M4.5 3v10l8-5z",
	aside: "M2 4.5h7M2 8h5M2 11.5h7M10.5 5l3 3-3 3",
	send: "M2 8l12-5.5L10.5 14 7.5 9z",
	theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
