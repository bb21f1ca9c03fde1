// The activities of each run of the tree over time.
import { clean, clock, duration, get, go, html, Loading, now, of, useEffect, useRef, useRequest, useState } from "../app/common.js";
import { add, LIVE, run } from "../app/runs.js";

const ROW = 30;
const KINDS = {
	queue: "In the queue",
	model: "Model",
	tool: "Tool",
	person: "Waits for a person",
	retry: "Tries again",
	limit: "Limit",
};
const ZOOMS = [1, 2, 4, 8, 16, 32];

// Joins spans that would be drawn on the same few pixels.
function merged(spans, left, scale) {
	const ends = {};
	return spans.filter((span) => {
		const end = (span.end - left) * scale;
		if (end - (ends[span.kind] ?? -9) < 0.7) return false;
		ends[span.kind] = end;
		return true;
	});
}

function Track({ spans, left, scale, width, choose, chosen }) {
	return html`<svg class="track" width=${width} height=${ROW}>
		${merged(spans, left, scale).map((span) => {
			const x = (span.start - left) * scale;
			const wide = Math.max((span.end - span.start) * scale, span.kind === "limit" ? 3 : 1.5);
			const tall = { model: 8, queue: 4, retry: 8, limit: ROW - 6 }[span.kind] || 14;
			const y = span.kind === "tool" || span.kind === "person" ? 13 : span.kind === "limit" ? 3 : 4;
			return html`<g class=${`span ${span.kind}${span.failed ? " failed" : ""}${span === chosen ? " chosen" : ""}`} onClick=${() => choose(span)} onMouseEnter=${() => choose(span)}>
				<rect x=${x} y=${y} width=${wide} height=${tall} rx="2" />
				${wide > 34 && tall === 14 && html`<text x=${x + 4} y=${y + 10.5}>${clip(span.label, wide)}</text>`}
			</g>`;
		})}
	</svg>`;
}

const clip = (text, wide) => text.slice(0, Math.floor((wide - 8) / 6));

function Axis({ left, right, scale, width }) {
	const steps = [0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 14400, 86400];
	const step = steps.find((each) => each * scale > 90) || 86400;
	const marks = [];
	for (let at = 0; at <= right - left; at += step) marks.push(at);
	return html`<svg class="axis" width=${width} height="22">
		${marks.map((at) => html`<g><line x1=${at * scale} x2=${at * scale} y1="16" y2="22" /><text x=${at * scale + 3} y="13">${at ? "+" + duration(at) : clock(left)}</text></g>`)}
	</svg>`;
}

export function Timeline({ row }) {
	const live = LIVE.has(row.state);
	const beat = live ? Math.floor(now.value / 3) : 0;
	const [timeline, problem] = useRequest(() => get(of("runs", row.id, "timeline")), [row.id, beat, row.state]);
	const [zoom, setZoom] = useState(0);
	const [chosen, choose] = useState(null);
	const [room, setRoom] = useState(600);
	const box = useRef();
	useEffect(() => {
		if (timeline && timeline.runs.some((each) => !run(each.run_id))) get(of("runs", row.id, "tree")).then((tree) => add(tree.runs)).catch(() => {});
		if (box.current) setRoom(box.current.clientWidth);
	}, [timeline]);
	if (!timeline) return html`<${Loading} problem=${problem} />`;
	const tracks = timeline.runs.map((each) => ({ ...each, spans: each.spans.map((span) => ({ ...span, end: span.end ?? now.value })) }));
	const all = tracks.flatMap((each) => each.spans);
	const left = Math.min(...all.map((span) => span.start), row.created_at);
	const right = Math.max(...all.map((span) => span.end), left + 0.5);
	const names = Math.min(220, room * 0.36);
	const width = Math.max((room - names - 4) * ZOOMS[zoom], 100);
	const scale = (width - 8) / (right - left);
	const cut = timeline.runs.some((each) => each.cut);
	return html`<div class="tab timeline">
		<div class="tools">
			<ul class="legend">${Object.entries(KINDS).map(([kind, title]) => html`<li><svg width="18" height="12"><g class=${`span ${kind}`}><rect x="0" y="1" width="18" height="10" rx="2" /></g></svg>${title}</li>`)}</ul>
			<div class="segments">
				<button aria-label="Zoom out" disabled=${zoom === 0} onClick=${() => setZoom(zoom - 1)}>−</button>
				<button onClick=${() => setZoom(0)}>Fit</button>
				<button aria-label="Zoom in" disabled=${zoom === ZOOMS.length - 1} onClick=${() => setZoom(zoom + 1)}>+</button>
			</div>
		</div>
		<div class="gantt" ref=${box}>
			<div class="labels" style=${{ width: names + "px" }}>
				<div class="corner">${duration(right - left)}</div>
				${tracks.map((each) => {
					const known = run(each.run_id) || { agent: each.run_id, depth: 0, description: "" };
					const depth = Math.max(0, known.depth - row.depth);
					return html`<button class="plain label" style=${{ paddingLeft: 4 + depth * 12 + "px" }} onClick=${() => go("run", each.run_id)}>
						${known.agent}<small>${clean(known.description)}</small></button>`;
				})}
			</div>
			<div class="tracks" tabindex="0" role="group" aria-label="Runs over time">
				<${Axis} left=${left} right=${right} scale=${scale} width=${width} />
				${tracks.map((each) => html`<${Track} key=${each.run_id} spans=${each.spans} left=${left} scale=${scale} width=${width} choose=${choose} chosen=${chosen} />`)}
			</div>
		</div>
		<p class="about chosen" aria-live="polite">
			${chosen ? html`<b>${KINDS[chosen.kind]}</b> ${clean(chosen.label)} <code>${clean(chosen.detail)}</code> ${duration(chosen.end - chosen.start)}, at ${clock(chosen.start)}` : "Point at a bar to read it."}
			${cut && " There is more than is drawn."}
		</p>
	</div>`;
}
