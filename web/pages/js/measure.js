// Parts shared by the benchmark pages: a run that can be stopped, and its results table.
import { $, params, setState } from "./page.js";
import { clearNotice } from "./notice.js";
import { Device } from "./device.js";

/** Formats a value with three significant digits, including trailing zeros. */
export function formatMeasured(value) {
	return value.toLocaleString("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
}

export function formatDuration(seconds, format = formatMeasured) {
	if (seconds < 999.5e-6) return `${format(seconds * 1e6)} µs`;
	if (seconds < 0.9995) return `${format(seconds * 1e3)} ms`;
	return `${format(seconds)} s`;
}

/** A table with one row per size. Cells are filled as results arrive. */
export class Table {
	#body;

	constructor(body, names, columns) {
		this.#body = body;
		for (const name of names) {
			const row = body.insertRow();
			const header = document.createElement("th");
			header.scope = "row";
			header.textContent = name;
			row.append(header);
			for (let column = 0; column < columns; column += 1) row.insertCell();
		}
		this.clear();
	}

	set(row, column, text) {
		this.#body.rows[row].cells[1 + column].textContent = text;
	}

	clear() {
		for (const cell of this.#body.querySelectorAll("td")) cell.textContent = "–";
	}
}

/**
 * Runs `measure({useCpu, isStopped})` with the start button, the device picker and the page states.
 * `measure` returns true if it finished, false if it was stopped, and nothing if it reported an
 * error.
 */
export class Run {
	#measure;
	#stopRequested = false;
	#running = false;

	constructor(engine, measure) {
		this.#measure = measure;
		this.device = new Device(
			engine,
			() => {},
			(useCpu) => this.start(useCpu),
		);
		this.device.onChange(() => this.stop());
		$("start").onclick = () => (this.#running ? this.stop() : this.start());
		// Deferred until the page's script has stored this object.
		if (params.get("auto") === "1") queueMicrotask(() => this.start());
	}

	stop() {
		this.#stopRequested = true;
	}

	async start(useCpu = false) {
		if (this.#running) return;
		clearNotice();
		this.#running = true;
		this.#stopRequested = false;
		$("start").textContent = "Stop";
		$("progress").removeAttribute("value");
		try {
			setState("opening", "Opening device…");
			const finished = await this.#measure({ useCpu, isStopped: () => this.#stopRequested });
			if (finished) setState("done", "Benchmark complete.");
			else if (finished === false) setState("idle", "Stopped.");
		} catch (error) {
			this.device.fail(error);
		}
		this.#running = false;
		$("start").textContent = "Run benchmark";
		if (!$("progress").hasAttribute("value")) $("progress").value = 0;
	}

	showProgress(fraction, text) {
		setState("running", "Measuring…");
		$("progress").value = fraction;
		$("progress-text").textContent = text;
	}
}
