// The page's side of worker.js: calls are promises, objects are handles.
import { params } from "./page.js";

class Handle {
	#send;

	constructor(send) {
		this.#send = send;
	}

	call(method, ...args) {
		return this.#send(method, args);
	}

	/** Needs no waiting for, and may fail: the worker went first. */
	free() {
		this.call("free").catch(() => {});
	}
}

/** What the page begins with; where there is only the CPU, at once what knows it. */
function first() {
	const onlyCpu = !navigator.gpu || params.get("device") === "cpu";
	return onlyCpu ? "all" : document.body.dataset.module;
}

/** Fires "fatal" (with `error`) when the worker died; then every call rejects until `restart()`. */
export class Engine extends EventTarget {
	#worker;
	#waiting = new Map();
	#next = 1;
	#error = null;
	#module;

	/** `module` is one of those in pkg: "gpu" is small and knows no CPU and no other page's work, "all" knows everything. */
	constructor(module = first()) {
		super();
		this.#module = module;
		this.restart();
	}

	get whole() {
		return this.#module === "all";
	}

	/** Starts the module that knows everything, if that is not what runs. */
	becomeWhole() {
		if (this.whole) return;
		this.#module = "all";
		this.restart();
	}

	get dead() {
		return this.#error !== null;
	}

	/** Itself, with a fresh worker if the last one died. */
	alive() {
		if (this.dead) this.restart();
		return this;
	}

	call(method, ...args) {
		return this.#send(this.#worker, { method, args });
	}

	async create(className, ...args) {
		const worker = this.#worker;
		const on = await this.#send(worker, { method: `new:${className}`, args });
		return new Handle((method, args) => this.#send(worker, { on, method, args }));
	}

	/** Ends the worker and all that is in it. */
	stop() {
		this.#die("The worker was stopped.");
	}

	restart() {
		this.#stop(new Error("The worker was started again."));
		this.#error = null;
		const worker = new Worker(new URL(`./worker.js?module=${this.#module}`, import.meta.url), { type: "module" });
		this.#worker = worker;
		worker.onmessage = ({ data: { id, value, error, fatal } }) => {
			if (worker !== this.#worker) return;
			if (fatal !== undefined) return this.#die(fatal);
			const { resolve, reject } = this.#waiting.get(id);
			this.#waiting.delete(id);
			if (error !== undefined) reject(new Error(error));
			else resolve(value);
		};
		worker.onerror = (event) => {
			event.preventDefault();
			if (worker === this.#worker) this.#die(event.message || "The files of the program could not be loaded.");
		};
	}

	#send(worker, message) {
		return new Promise((resolve, reject) => {
			if (this.#error) throw this.#error;
			if (worker !== this.#worker) throw new Error("The worker this object lived in is gone.");
			const id = this.#next++;
			this.#waiting.set(id, { resolve, reject });
			worker.postMessage({ id, ...message });
		});
	}

	#die(message) {
		const error = new Error(message);
		this.#stop(error);
		this.#error = error;
		this.dispatchEvent(Object.assign(new Event("fatal"), { error }));
	}

	#stop(error) {
		this.#worker?.terminate();
		this.#worker = null;
		for (const { reject } of this.#waiting.values()) reject(error);
		this.#waiting.clear();
	}
}
