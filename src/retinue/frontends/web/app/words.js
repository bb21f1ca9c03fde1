// The words and signs of the server, which all front ends show alike.
import { get } from "./api.js";
import { signal } from "./html.js";

export const words = signal({ states: {}, choices: {}, unit: "" });

export async function loadWords() {
	if (!words.value.unit) words.value = await get("/v1/words");
}
