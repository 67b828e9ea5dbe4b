// What pages that train share: a network on its device, one task at a time, and how to go on after a failure.
import { $, say, setState } from "./page.js";
import { clearNotice, showNotice } from "./notice.js";
import { Engine } from "./engine.js";
import { Device } from "./device.js";

const CALL = 0.15; // seconds that a call to the worker should take

export class Learning {
	net = null;
	/** Whether a task that goes on and on should. */
	running = false;
	/** What a recovery goes on with. */
	again;
	engine = new Engine();
	#page;
	#waiting = null;
	#last = Promise.resolve();

	/** `page` has the tasks `train` and `reset`, `create(info)`, which makes a network on an open device, `dropped()` and `show()`. */
	constructor(page) {
		this.#page = page;
		this.again = page.train;
		this.device = new Device(this.engine, () => this.drop(), () => this.act(this.again));
		$("start").onclick = () => (this.running ? this.pause() : this.act(page.train));
		$("reset").onclick = () => this.act(page.reset);
	}

	pause() {
		if (!this.running) return;
		this.running = false;
		say("status", "Pausing …");
	}

	/** One thing at a time: a new one pauses the training and waits for what is under way. The same one does not wait twice. */
	act(task) {
		this.pause();
		this.again = task;
		if (task === this.#waiting) return;
		this.#waiting = task;
		this.#last = this.#last
			.then(() => {
				if (this.#waiting === task) this.#waiting = null;
				return task();
			})
			.catch((error) => this.device.fail(error));
	}

	state(name, text) {
		setState(name, text);
		this.#page.show();
	}

	drop() {
		this.net?.free();
		this.net = null;
		this.running = false;
		this.#page.dropped?.();
		this.#page.show();
	}

	async ready() {
		if (this.net) return;
		this.state("opening", "Opening the device …");
		const info = await this.device.open();
		this.state("compiling", "Preparing the network …");
		this.net = await this.#page.create(info);
	}

	/** The steps of the next call, after one of so many that took so many seconds. */
	paced(steps, seconds) {
		return Math.max(1, Math.min(Math.round((CALL * steps) / Math.max(seconds, 1e-4)), 4 * steps));
	}

	/** Stops where the loss is no longer a number; tells whether it did. */
	diverged(loss) {
		if (Number.isFinite(loss)) return false;
		this.running = false;
		showNotice("The loss is no longer a number: the learning rate is too high. Lower it, then start over.", [
			["Start over", "reset", () => this.act(this.#page.reset)],
		]);
		return true;
	}

	/** Forgets the network, at the user's word. */
	forget() {
		this.again = this.#page.train;
		clearNotice();
		this.drop();
	}

	/** The label of the button, and the progress of what can tell it. */
	show(label, share) {
		say("start", this.running ? "Pause" : label);
		if (["opening", "compiling"].includes(document.body.dataset.state)) $("progress").removeAttribute("value");
		else $("progress").value = share;
	}
}

/** The learning rate's field and its slider, kept within their bounds. `changed` hears of a new one. */
export function rateField(changed) {
	const [field, slider] = [$("rate"), $("rate-slider")];
	const slide = () => {
		slider.value = Math.log10(field.value);
		slider.ariaValueText = field.value;
	};
	field.onchange = () => {
		const [given, low, high] = [field.valueAsNumber, Number(field.min), Number(field.max)];
		const within = Math.min(Math.max(given || Number(field.defaultValue), low), high);
		if (within !== given) {
			field.value = within;
			say("status", `The learning rate lies between ${low} and ${high}: it is ${within} now.`);
		}
		slide();
		changed();
	};
	slider.oninput = () => {
		field.value = Number((10 ** slider.value).toPrecision(2));
		slide();
		changed();
	};
	slide();
}
