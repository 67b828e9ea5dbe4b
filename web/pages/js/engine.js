// The page's interface to the worker: calls return promises, objects are handles.
import { params } from "./page.js";

class Handle {
	#send;

	constructor(send) {
		this.#send = send;
	}

	call(method, ...args) {
		return this.#send(method, args);
	}

	/** Frees the object without waiting. Fails silently if the worker has already ended. */
	free() {
		this.call("free").catch(() => {});
	}
}

/** Returns the module that the page starts with: "all" if only the CPU can be used. */
function initialModule() {
	const { module } = document.body.dataset;
	const cpuOnly = !navigator.gpu || params.get("device") === "cpu";
	return cpuOnly && module === "gpu" ? "all" : module;
}

/**
 * Fires "fatal" (with `error`) when the worker fails. All calls are then rejected until
 * `restart()`.
 */
export class Engine extends EventTarget {
	#worker;
	#pending = new Map(); // calls without a response, by id
	#nextId = 1;
	#error = null;
	#module;

	/**
	 * `module` is a module in the folder pkg: "gpu" is small and has only the GPU backend and the
	 * digits network; "all" also has the CPU backend and the other demos; "text" has both backends and
	 * language models.
	 */
	constructor(module = initialModule()) {
		super();
		this.#module = module;
		this.restart();
	}

	get hasCpu() {
		return this.#module !== "gpu";
	}

	/** Restarts with the module "all", unless there is a CPU backend already. */
	useCpu() {
		if (this.hasCpu) return;
		this.#module = "all";
		this.restart();
	}

	get failed() {
		return this.#error !== null;
	}

	/** Restarts the worker if it failed. Returns this engine. */
	ensureRunning() {
		if (this.failed) this.restart();
		return this;
	}

	call(method, ...args) {
		return this.#send(this.#worker, { method, args });
	}

	async create(className, ...args) {
		const worker = this.#worker;
		const handle = await this.#send(worker, { method: `new:${className}`, args });
		return new Handle((method, args) => this.#send(worker, { handle, method, args }));
	}

	/** Ends the worker and frees everything in it. */
	stop() {
		this.#fail("The worker was stopped.");
	}

	restart() {
		this.#terminate(new Error("The worker was restarted."));
		this.#error = null;
		const worker = new Worker(new URL(`./worker.js?module=${this.#module}`, import.meta.url), {
			type: "module",
		});
		this.#worker = worker;
		worker.onmessage = ({ data: { id, value, error, fatal } }) => {
			if (worker !== this.#worker) return;
			if (fatal !== undefined) return this.#fail(fatal);
			const { resolve, reject } = this.#pending.get(id);
			this.#pending.delete(id);
			if (error !== undefined) reject(new Error(error));
			else resolve(value);
		};
		worker.onerror = (event) => {
			event.preventDefault();
			if (worker !== this.#worker) return;
			this.#fail(event.message || "The worker script could not be loaded. Reload the page.");
		};
	}

	#send(worker, request) {
		return new Promise((resolve, reject) => {
			if (this.#error) throw this.#error;
			if (worker !== this.#worker) throw new Error("The worker that held this object has ended.");
			const id = this.#nextId++;
			this.#pending.set(id, { resolve, reject });
			worker.postMessage({ id, ...request });
		});
	}

	#fail(message) {
		const error = new Error(message);
		this.#terminate(error);
		this.#error = error;
		this.dispatchEvent(Object.assign(new Event("fatal"), { error }));
	}

	#terminate(error) {
		this.#worker?.terminate();
		this.#worker = null;
		for (const { reject } of this.#pending.values()) reject(error);
		this.#pending.clear();
	}
}
