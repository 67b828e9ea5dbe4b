// What Race and Transfer share: a run that can be stopped, and its table.
import { $, params, setState } from "./page.js";
import { clearNotice } from "./notice.js";
import { Device } from "./device.js";

/** Three digits, also where the last ones are zeros. */
export function measured(value) {
	return value.toLocaleString("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
}

export function duration(seconds, form = measured) {
	if (seconds < 999.5e-6) return `${form(seconds * 1e6)} µs`;
	if (seconds < 0.9995) return `${form(seconds * 1e3)} ms`;
	return `${form(seconds)} s`;
}

/** One row per size, its cells to be filled as they are measured. */
export class Table {
	#body;

	constructor(body, names, columns) {
		this.#body = body;
		for (const name of names) {
			const row = body.insertRow();
			const head = document.createElement("th");
			head.scope = "row";
			head.textContent = name;
			row.append(head);
			for (let cell = 0; cell < columns; cell += 1) row.insertCell();
		}
		this.wipe();
	}

	set(row, column, text) {
		this.#body.rows[row].cells[1 + column].textContent = text;
	}

	wipe() {
		for (const cell of this.#body.querySelectorAll("td")) cell.textContent = "–";
	}
}

/** The start button, the device and the states around `measure({cpu, stopped})`, which tells whether it got to the end. */
export class Run {
	#measure;
	#wanted = false;
	#busy = false;

	constructor(engine, measure) {
		this.#measure = measure;
		this.device = new Device(engine, () => {}, (cpu) => this.start(cpu));
		this.device.onChange(() => this.stop());
		$("start").onclick = () => (this.#busy ? this.stop() : this.start());
		if (params.get("auto") === "1") queueMicrotask(() => this.start()); // when the page has its Run
	}

	stop() {
		this.#wanted = false;
	}

	async start(cpu = false) {
		if (this.#busy) return;
		clearNotice();
		this.#busy = this.#wanted = true;
		$("start").textContent = "Stop";
		$("progress").removeAttribute("value");
		try {
			setState("opening", "Opening the device …");
			const whole = await this.#measure({ cpu, stopped: () => !this.#wanted });
			if (whole) setState("done", "Done.");
			else if (whole === false) setState("idle", "Stopped.");
		} catch (error) {
			this.device.fail(error);
		}
		this.#busy = false;
		$("start").textContent = "Start";
		if (!$("progress").hasAttribute("value")) $("progress").value = 0;
	}

	progress(share, now) {
		setState("running", "Measuring.");
		$("progress").value = share;
		$("now").textContent = now;
	}
}
