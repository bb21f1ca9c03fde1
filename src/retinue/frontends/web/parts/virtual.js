// A list of any length, of which only the visible rows are in the document.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../app/html.js";

const MARGIN = 8;

export function VirtualList({ count, height, draw, current = -1, label }) {
	const box = useRef();
	const [view, setView] = useState({ top: 0, size: 800 });
	const measure = () => box.current && setView({ top: box.current.scrollTop, size: box.current.clientHeight });
	useLayoutEffect(() => {
		measure();
		const watcher = new ResizeObserver(measure);
		watcher.observe(box.current);
		return () => watcher.disconnect();
	}, []);
	useEffect(() => {
		if (current < 0) return;
		const top = current * height;
		const { scrollTop, clientHeight } = box.current;
		if (top < scrollTop) box.current.scrollTop = top;
		else if (top + height > scrollTop + clientHeight) box.current.scrollTop = top + height - clientHeight;
	}, [current]);
	const first = Math.max(0, Math.floor(view.top / height) - MARGIN);
	const last = Math.min(count, Math.ceil((view.top + view.size) / height) + MARGIN);
	const rows = [];
	for (let index = first; index < last; index++) rows.push(draw(index));
	return html`<div class="virtual" ref=${box} onScroll=${measure} tabindex="0" role="tree" aria-label=${label}>
		<div style=${{ height: count * height + "px" }}>
			<div style=${{ transform: `translateY(${first * height}px)` }}>${rows}</div>
		</div>
	</div>`;
}
