// The device picker, and what every page does when a device or the worker fails.
import { $, adapterName, params, setState } from "./page.js";
import { clearNotice, showNotice } from "./notice.js";

export class Device {
	#engine;
	#drop;
	#again;
	#select = $("device");

	/** `drop` forgets what lived on the device; `again(cpu)` goes on with what had been asked for. */
	constructor(engine, drop, again) {
		this.#engine = engine;
		this.#drop = drop;
		this.#again = again;
		const word = params.get("device");
		if (word && !this.#pick(word)) {
			this.#select.add(new Option(word, word));
			this.#pick(word);
		}
		engine.addEventListener("fatal", ({ error }) => this.fail(error));
	}

	// A word that is not in the list is left out.
	#pick(word) {
		const known = [...this.#select.options].some(({ value }) => value === word);
		if (known) this.#select.value = word;
		return known;
	}

	onChange(action) {
		this.#select.onchange = action;
	}

	/** Resolves with {device, description, gpu}. */
	async open() {
		clearNotice();
		const { value } = this.#select;
		const engine = this.#engine.alive();
		if (value === "cpu" || !navigator.gpu) engine.becomeWhole();
		let info = await engine.call("open", value);
		if (!info.gpu && !engine.whole) {
			engine.becomeWhole();
			info = await engine.call("open", value);
		}
		if (info.gpu && info.description.startsWith("unnamed")) {
			const adapter = await navigator.gpu.requestAdapter();
			info.description = info.description.replace("unnamed adapter", adapterName(adapter?.info) || "unnamed adapter");
		}
		$("device-name").textContent = info.description + (value === "auto" && !info.gpu ? " (no GPU was found)" : "");
		return info;
	}

	fail(error) {
		if (document.body.dataset.state === "failed") return; // the first failure knows the cause
		setState("failed", "Stopped.");
		this.#drop();
		const again = this.#engine.dead ? ["Start it again", "restart"] : ["Open the device again", "reopen"];
		const cpu = () => {
			this.#pick("cpu");
			this.#again(true);
		};
		const buttons = [[...again, () => this.#again(false)]];
		if (this.#select.value !== "cpu") buttons.push(["Use the CPU", "cpu", cpu]);
		showNotice(error.message, buttons);
	}
}
