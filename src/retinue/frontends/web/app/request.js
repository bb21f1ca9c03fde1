// Requests of a view to the server, with their state.
import { useEffect, useState } from "./html.js";
import { sayProblem } from "./notices.js";

// Returns [document, problem]. `ask` is called when one of `inputs` changes; a late answer is dropped.
export function useRequest(ask, inputs) {
	const [state, setState] = useState([null, null]);
	useEffect(() => {
		let current = true;
		ask()
			.then((result) => current && setState([result, null]))
			.catch((problem) => current && setState(([previous]) => [previous, problem]));
		return () => (current = false);
	}, inputs);
	return state;
}

// Returns [busy, act]: `act(work)` performs an action and shows a refusal of the server.
export function useAction() {
	const [busy, setBusy] = useState(false);
	const act = async (work) => {
		setBusy(true);
		await work().catch(sayProblem);
		setBusy(false);
	};
	return [busy, act];
}
