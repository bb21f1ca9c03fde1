// The one place that knows the libraries: everything else imports from here.
import { h, render, Component, Fragment } from "../vendor/preact.mjs";
import htm from "../vendor/htm.mjs";

export const html = htm.bind(h);
export { h, render, Component, Fragment };
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.mjs";
export { signal, computed, effect, batch, useSignal, useComputed } from "../vendor/signals.mjs";

// Renders again only when one of its properties is another value than before.
export function memo(draw) {
  return class extends Component {
    shouldComponentUpdate(next) {
      const names = new Set([...Object.keys(next), ...Object.keys(this.props)]);
      for (const name of names) {
        if (next[name] !== this.props[name]) return true;
      }
      return false;
    }
    render(props) {
      return draw(props);
    }
  };
}
