// Go on from the moment that is shown, as a new run: with other words, and with the files of then.
import { html, useState } from "../app/html.js";
import { go } from "../app/address.js";
import { of, post } from "../app/api.js";
import { say, sayProblem } from "../app/notices.js";

export function Fork({ id, seq }) {
  const [text, setText] = useState("");
  const [back, setBack] = useState(true);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const edit = text.trim() || null;
      const found = await post(of("runs", id, "fork"), { at: seq, edit, keep_files: !back });
      say(`Forked at event ${seq}.`);
      go("run", found.id);
    } catch (problem) {
      sayProblem(problem);
      setBusy(false);
    }
  };
  return html`<form class="controls fork" onSubmit=${submit}>
    <textarea rows="1" value=${text} onInput=${(event) => setText(event.target.value)} aria-label="Words of the fork"
      placeholder="Go on from here as a new run: say what instead, or nothing"></textarea>
    <label><input type="checkbox" checked=${back} onChange=${(event) => setBack(event.target.checked)} /> files as they were then</label>
    <button class="primary" disabled=${busy || !seq}>Fork at event ${seq}</button>
  </form>`;
}
