// Parts shared by the training pages: a network on its device, one task at a time, and recovery
// from failures.
import { $, setState, setText } from "./page.js";
import { clearNotice, showNotice } from "./notice.js";
import { Engine } from "./engine.js";
import { Device } from "./device.js";

const CALL_SECONDS = 0.15; // target duration of a training call to the worker

export class Learning {
	network = null;
	/** Whether the current task should continue. `pause` clears it. */
	running = false;
	/** The task that a recovery repeats. */
	retryTask;
	engine = new Engine();
	#page;
	#queuedTask = null;
	#queue = Promise.resolve();

	/**
	 * `page` provides the tasks `train` and `reset`, `create(info)`, which creates a network on an
	 * open device, `update()`, which shows the current state, and optionally `onDrop()`.
	 */
	constructor(page) {
		this.#page = page;
		this.retryTask = page.train;
		this.device = new Device(
			this.engine,
			() => this.dropNetwork(),
			() => this.schedule(this.retryTask),
		);
		$("start").onclick = () => (this.running ? this.pause() : this.schedule(page.train));
		$("reset").onclick = () => this.schedule(page.reset);
	}

	pause() {
		if (!this.running) return;
		this.running = false;
		setText("status", "Pausing…");
	}

	/**
	 * Pauses the current task and runs `task` after it. A task that is already queued is not queued
	 * again.
	 */
	schedule(task) {
		this.pause();
		this.retryTask = task;
		if (task === this.#queuedTask) return;
		this.#queuedTask = task;
		this.#queue = this.#queue
			.then(() => {
				if (this.#queuedTask === task) this.#queuedTask = null;
				return task();
			})
			.catch((error) => this.device.fail(error));
	}

	setState(state, text) {
		setState(state, text);
		this.#page.update();
	}

	/** Frees the network and ends the current task. */
	dropNetwork() {
		this.network?.free();
		this.network = null;
		this.running = false;
		this.#page.onDrop?.();
		this.#page.update();
	}

	/** Opens the device and creates the network, unless there is one. */
	async ensureNetwork() {
		if (this.network) return;
		this.setState("opening", "Opening device…");
		const info = await this.device.open();
		this.setState("compiling", "Creating network…");
		this.network = await this.#page.create(info);
	}

	/** Returns the steps for the next call, given the steps and the duration of the last one. */
	nextStepCount(steps, seconds) {
		const fitting = Math.round((CALL_SECONDS * steps) / Math.max(seconds, 1e-4));
		return Math.max(1, Math.min(fitting, 4 * steps));
	}

	/** Stops training if the loss is not finite. Returns whether it did. */
	stopIfDiverged(loss) {
		if (Number.isFinite(loss)) return false;
		this.running = false;
		showNotice("The loss is not finite. Reset the network and train with a lower learning rate.", [
			["Reset", "reset", () => this.schedule(this.#page.reset)],
		]);
		return true;
	}

	/** Drops the network for a reset by the user. A later recovery starts training anew. */
	resetNetwork() {
		this.retryTask = this.#page.train;
		clearNotice();
		this.dropNetwork();
	}

	/** Updates the start button and the progress bar, which is indeterminate during preparation. */
	updateControls(startLabel, progress) {
		setText("start", this.running ? "Pause" : startLabel);
		const preparing = ["opening", "compiling"].includes(document.body.dataset.state);
		if (preparing) $("progress").removeAttribute("value");
		else $("progress").value = progress;
	}
}

/** Connects the learning rate field and its slider and keeps the value within its bounds. */
export function bindLearningRate(onChange) {
	const [field, slider] = [$("learning-rate"), $("learning-rate-slider")];
	const updateSlider = () => {
		slider.value = Math.log10(field.value);
		slider.ariaValueText = field.value;
	};
	field.onchange = () => {
		const [entered, low, high] = [field.valueAsNumber, Number(field.min), Number(field.max)];
		const clamped = Math.min(Math.max(entered || Number(field.defaultValue), low), high);
		if (clamped !== entered) {
			field.value = clamped;
			setText(
				"status",
				`The learning rate must be between ${low} and ${high}. It was set to ${clamped}.`,
			);
		}
		updateSlider();
		onChange();
	};
	slider.oninput = () => {
		field.value = Number((10 ** slider.value).toPrecision(2));
		updateSlider();
		onChange();
	};
	updateSlider();
}
