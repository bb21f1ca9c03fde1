// The words and signs of states from the server, which are the same in all front ends.
import { get } from "./api.js";
import { signal } from "./html.js";

export const words = signal({ states: {}, choices: {}, unit: "" });

export async function loadWords() {
	if (!words.value.unit) words.value = await get("/v1/words");
}
