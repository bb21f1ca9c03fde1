// What a view asks the server for, with the state of the request.
import { useEffect, useState } from "./html.js";

// Returns [document, problem, ask again]. `ask` is called when one of `inputs` changes; a late answer to an earlier
// question is dropped.
export function useRequest(ask, inputs) {
  const [state, setState] = useState([null, null]);
  const [round, setRound] = useState(0);
  useEffect(() => {
    let current = true;
    ask()
      .then((found) => current && setState([found, null]))
      .catch((problem) => current && setState(([known]) => [known, problem]));
    return () => (current = false);
  }, [...inputs, round]);
  return [...state, () => setRound((number) => number + 1)];
}
