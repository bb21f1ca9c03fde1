// The page without a key, which explains how to sign in.
import { html, useState } from "../app/html.js";
import { refusal, signIn } from "../app/session.js";

export function SignInView() {
	const [problem, setProblem] = useState(null);
	const submit = (event) => {
		event.preventDefault();
		signIn(new FormData(event.target).get("link")).catch(setProblem);
	};
	const shown = problem || refusal.value;
	return html`<main class="sign-in"><form class="card" onSubmit=${submit}>
		<h1>Retinue</h1>
		<p>This browser is not signed in. In a terminal, in the folder of the project, run:</p>
		<pre>retinue open</pre>
		<p>It opens this page and prints a link, which signs in one browser, once, within ten minutes.</p>
		<label>Or paste the link here<input name="link" type="password" autocomplete="off" autofocus required /></label>
		${shown && html`<p class="problem" role="alert"><b>${shown.message}</b> ${shown.remedy || ""}</p>`}
		<button class="primary">Sign in</button>
	</form></main>`;
}
