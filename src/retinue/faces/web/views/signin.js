// Without the token of the server there is nothing to see.
import { html, useState } from "../app/html.js";
import { signIn, tokenIn } from "../app/session.js";

export function SignInView({ entered }) {
	const [problem, setProblem] = useState(null);
	const submit = async (event) => {
		event.preventDefault();
		const token = tokenIn(new FormData(event.target).get("address"));
		if (!token) return setProblem({ message: "This is no address of a server with its token." });
		try {
			await signIn(token);
			entered();
		} catch (found) {
			setProblem(found);
		}
	};
	return html`<main class="sign-in"><form class="card" onSubmit=${submit}>
		<h1>Retinue</h1>
		<p>Open the address that <code>retinue open</code> prints, or paste it here: it holds the token of this server.</p>
		<label>Address or token<input name="address" type="password" autocomplete="off" autofocus required /></label>
		${problem && html`<p class="problem" role="alert"><b>${problem.message}</b> ${problem.remedy || ""}</p>`}
		<button class="primary">Sign in</button>
	</form></main>`;
}
