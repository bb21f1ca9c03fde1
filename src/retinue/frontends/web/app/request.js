// What a view asks the server for, with the state of the request.
import { useEffect, useState } from "./html.js";
import { sayProblem } from "./notices.js";

// Returns [document, problem]. `ask` is called when one of `inputs` changes; a late answer is dropped.
export function useRequest(ask, inputs) {
	const [state, setState] = useState([null, null]);
	useEffect(() => {
		let current = true;
		ask()
			.then((found) => current && setState([found, null]))
			.catch((problem) => current && setState(([known]) => [known, problem]));
		return () => (current = false);
	}, inputs);
	return state;
}

// Returns [busy, act]: `act(work)` does something that the server may refuse, and says so.
export function useAction() {
	const [busy, setBusy] = useState(false);
	const act = async (work) => {
		setBusy(true);
		await work().catch(sayProblem);
		setBusy(false);
	};
	return [busy, act];
}
