// The device picker, and the handling of device and worker failures that all pages share.
import { $, adapterName, params, setState } from "./page.js";
import { clearNotice, showNotice } from "./notice.js";

export class Device {
	#engine;
	#discard;
	#retry;
	#select = $("device");

	/**
	 * `discard` drops everything that is on the device. `retry(useCpu)` repeats the interrupted task
	 * after a failure.
	 */
	constructor(engine, discard, retry) {
		this.#engine = engine;
		this.#discard = discard;
		this.#retry = retry;
		const selector = params.get("device");
		if (selector && !this.#pick(selector)) {
			this.#select.add(new Option(selector, selector));
			this.#pick(selector);
		}
		engine.addEventListener("fatal", ({ error }) => this.fail(error));
	}

	/** Selects an option. Returns false if the list does not contain it. */
	#pick(selector) {
		const listed = [...this.#select.options].some(({ value }) => value === selector);
		if (listed) this.#select.value = selector;
		return listed;
	}

	onChange(action) {
		this.#select.onchange = action;
	}

	/** Opens the selected device. Resolves with {device, description, is_gpu}. */
	async open() {
		clearNotice();
		const { value } = this.#select;
		const engine = this.#engine.ensureRunning();
		if (value === "cpu" || !navigator.gpu) engine.useCpu();
		let info = await engine.call("open", value);
		if (!info.is_gpu && !engine.hasCpu) {
			engine.useCpu();
			info = await engine.call("open", value);
		}
		if (info.is_gpu && info.description.startsWith("unnamed")) {
			const adapter = await navigator.gpu.requestAdapter();
			info.description = info.description.replace(
				"unnamed adapter",
				adapterName(adapter?.info) || "unnamed adapter",
			);
		}
		$("device-name").textContent =
			info.description + (value === "auto" && !info.is_gpu ? " (no GPU found)" : "");
		return info;
	}

	fail(error) {
		if (document.body.dataset.state === "failed") return; // report only the first error
		setState("failed", "Stopped because of an error.");
		this.#discard();
		const retry = this.#engine.failed ? ["Restart", "restart"] : ["Reopen device", "reopen"];
		const useCpu = () => {
			this.#pick("cpu");
			this.#retry(true);
		};
		const buttons = [[...retry, () => this.#retry(false)]];
		if (this.#select.value !== "cpu") buttons.push(["Use CPU", "cpu", useCpu]);
		showNotice(error.message, buttons);
	}
}
