// Names that every view imports.
export * from "./html.js";
export * from "./address.js";
export * from "./api.js";
export * from "./clock.js";
export * from "./format.js";
export * from "./request.js";
export * from "./words.js";
export * from "../parts/status.js";
export * from "./keys.js";
export * from "./notices.js";
export * from "../parts/icons.js";
