// The only module that imports the libraries. All others import from here.
import { Component, h, render } from "../vendor/preact.mjs";
import htm from "../vendor/htm.mjs";

export const html = htm.bind(h);
export { render };
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.mjs";
export { batch, computed, effect, signal } from "../vendor/signals.mjs";

// Renders again only when one of its properties has changed.
export function memo(draw) {
	return class extends Component {
		shouldComponentUpdate(next) {
			return Object.keys({ ...this.props, ...next }).some((name) => next[name] !== this.props[name]);
		}
		render(props) {
			return draw(props);
		}
	};
}
