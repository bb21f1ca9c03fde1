// A conversation on the screen.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../app/common.js";
import { Entry } from "./entries.js";

export function Entries({ entries, started }) {
	return html`${entries.map((entry) => html`<${Entry} key=${entry.id} entry=${entry} child=${entry.call && started.get(entry.call.id)} />`)}`;
}

// Scrolls to new entries at the end, unless the person has scrolled up.
export function Following({ mark, children }) {
	const box = useRef();
	const [away, setAway] = useState(false);
	const stuck = useRef(true);
	const down = () => box.current && box.current.scrollTo({ top: box.current.scrollHeight });
	useLayoutEffect(() => {
		if (stuck.current) down();
	}, [mark]);
	useEffect(() => {
		// Unfolding changes the height without a new entry.
		const watcher = new ResizeObserver(() => stuck.current && down());
		watcher.observe(box.current.firstChild);
		return () => watcher.disconnect();
	}, []);
	const look = () => {
		const { scrollTop, scrollHeight, clientHeight } = box.current;
		stuck.current = scrollHeight - scrollTop - clientHeight < 80;
		if (away === stuck.current) setAway(!stuck.current);
	};
	return html`<div class="following">
		<div class="scroller" ref=${box} onScroll=${look} tabindex="0" role="log" aria-label="Conversation"><div class="column">${children}</div></div>
		${away && html`<button class="to-end" onClick=${() => ((stuck.current = true), down())}>↓ Newest</button>`}
	</div>`;
}
