// The engine of the experiments, which is loaded with the first measurement that needs it.
import { Engine } from "../engine.js";
import { params } from "../page.js";

let engine;

/** Resolves with an engine, and the device that it opened: {device, description, is_gpu}. */
export async function openEngine() {
	engine ??= new Engine("all");
	const info = await engine.ensureRunning().call("open", params.get("device") ?? "auto");
	return { engine, ...info };
}
