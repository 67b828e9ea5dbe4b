// The drawing pad: strokes by pointer, cells by keyboard, made into 8x8 pixels like those of the data.

const SIDE = 8;
const FINE = 64; // the drawing is rendered at this size, then counted in blocks
const BLOCK = FINE / SIDE;
// Images of the data hold about this much ink, whatever the digit, and are hardly ever wider than this.
const INK = 0.305 * SIDE * SIDE;
const WIDEST = 0.75 * FINE;
const clamp = (value, most) => Math.max(0, Math.min(value, most));
const fine = new OffscreenCanvas(FINE, FINE).getContext("2d", { willReadFrequently: true });

export class Pad {
	#canvas;
	#preview;
	#say;
	#changed;
	#strokes = [];
	#cells = new Set();
	#cursor = null; // the keyboard's cell
	#last = 3; // where the keyboard was
	#pointer = null; // the one that draws

	/** `changed` is called as one draws, and at the end of a stroke. */
	constructor(canvas, preview, say, changed) {
		this.#canvas = canvas;
		this.#preview = preview.getContext("2d");
		this.#say = say;
		this.#changed = changed;
		canvas.onpointerdown = (event) => this.#down(event);
		canvas.onpointermove = (event) => this.#move(event);
		canvas.onpointerup = canvas.onpointercancel = (event) => this.#up(event);
		canvas.onkeydown = (event) => this.#key(event);
		canvas.onfocus = () => canvas.matches(":focus-visible") && this.#at(this.#last);
		canvas.onblur = () => this.#at(null);
		new ResizeObserver(() => this.#paint()).observe(canvas);
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
	}

	get drawing() {
		return this.#pointer !== null;
	}

	clear() {
		this.#strokes = [];
		this.#cells.clear();
		this.#update();
	}

	/** 64 values from 0 to 1, row by row; null when nothing is drawn. Also shown in the preview. */
	image() {
		const lines = [...this.#strokes, ...this.#edges()];
		// More ink with thicker strokes: halve the interval until it is as much as in the data.
		let pixels = null;
		for (let low = FINE / 20, high = FINE / 2.5, round = 0; lines.length && round < 7; round += 1) {
			const thickness = (low + high) / 2;
			pixels = count(lines, thickness);
			if (pixels.reduce((sum, value) => sum + value) < INK) low = thickness;
			else high = thickness;
		}
		const shown = this.#preview.createImageData(SIDE, SIDE);
		shown.data.forEach((_, at) => (shown.data[at] = at % 4 === 3 ? 255 : 255 * (pixels?.[at >> 2] ?? 0)));
		this.#preview.putImageData(shown, 0, 0);
		return pixels;
	}

	// Painted cells are strokes between the centres of neighbours, so that both ways of drawing look alike.
	#edges() {
		const centre = (cell) => [((cell % SIDE) + 0.5) / SIDE, (Math.floor(cell / SIDE) + 0.5) / SIDE];
		return [...this.#cells].flatMap((cell) =>
			[0, 1, SIDE - 1, SIDE, SIDE + 1]
				.map((step) => cell + step)
				.filter((other) => this.#cells.has(other) && Math.abs((other % SIDE) - (cell % SIDE)) <= 1)
				.map((other) => [centre(cell), centre(other)]),
		);
	}

	#down(event) {
		if (event.button || this.drawing) return;
		this.#canvas.setPointerCapture(event.pointerId);
		this.#cursor = null;
		this.#pointer = event.pointerId;
		this.#strokes.push([]);
		this.#move(event);
	}

	#move(event) {
		if (event.pointerId !== this.#pointer) return;
		const { left, top, width, height } = this.#canvas.getBoundingClientRect();
		for (const { clientX, clientY } of [...(event.getCoalescedEvents?.() ?? []), event]) {
			this.#strokes.at(-1).push([clamp((clientX - left) / width, 1), clamp((clientY - top) / height, 1)]);
		}
		this.#update();
	}

	#up(event) {
		if (event.pointerId !== this.#pointer) return;
		this.#pointer = null;
		this.#changed();
	}

	#key(event) {
		const { key } = event;
		const step = { ArrowUp: -SIDE, ArrowDown: SIDE, ArrowLeft: -1, ArrowRight: 1 }[key];
		const cell = this.#cursor ?? this.#last;
		if (step) {
			const next = cell + step;
			const stays = next < 0 || next >= SIDE * SIDE || Math.abs((next % SIDE) - (cell % SIDE)) > 1;
			this.#at(stays ? cell : next);
		} else if (key === " ") {
			if (!this.#cells.delete(cell)) this.#cells.add(cell);
			this.#at(cell);
			this.#changed();
		} else if (key === "Delete" || key === "Backspace") {
			this.clear();
			this.#say.textContent = "cleared";
		} else return;
		event.preventDefault();
	}

	#at(cell) {
		this.#cursor = cell;
		this.#paint();
		if (cell === null) return;
		this.#last = cell;
		const painted = this.#cells.has(cell) ? "painted" : "empty";
		this.#say.textContent = `row ${Math.floor(cell / SIDE) + 1}, column ${(cell % SIDE) + 1}, ${painted}`;
	}

	#update() {
		this.#paint();
		this.#changed();
	}

	#paint() {
		const canvas = this.#canvas;
		const size = Math.round(canvas.clientWidth * devicePixelRatio);
		const cell = size / SIDE;
		canvas.width = canvas.height = size;
		const style = getComputedStyle(canvas);
		const c = canvas.getContext("2d");
		const boxes = (name, cells, method) => {
			c.fillStyle = c.strokeStyle = style.getPropertyValue(name);
			for (const at of cells) c[method]((at % SIDE) * cell, Math.floor(at / SIDE) * cell, cell, cell);
		};
		boxes("--line", Array(SIDE * SIDE).keys(), "strokeRect");
		boxes("--text", this.#cells, "fillRect");
		trace(c, this.#strokes, cell, ([x, y]) => [x * size, y * size]);
		c.lineWidth = 3 * devicePixelRatio;
		boxes("--orange", this.#cursor === null ? [] : [this.#cursor], "strokeRect");
	}
}

function trace(c, lines, thickness, place) {
	c.lineWidth = thickness;
	c.lineCap = c.lineJoin = "round";
	c.beginPath();
	for (const line of lines) {
		const [x, y] = place(line[0]);
		c.moveTo(x + 0.01, y); // a dot has a length, else it may not be drawn
		for (const point of line) c.lineTo(...place(point));
	}
	c.stroke();
}

/** The lines at the data's size and place, as high as the image and in its middle: ink per block. */
function count(lines, thickness) {
	const points = lines.flat();
	const [x, y] = [0, 1].map((which) => {
		let [low, high] = [Infinity, -Infinity];
		for (const point of points) {
			low = Math.min(low, point[which]);
			high = Math.max(high, point[which]);
		}
		return { middle: (low + high) / 2, length: high - low };
	});
	// A dot is not blown up to fill the image; a wide drawing is made narrower, not lower.
	const down = (FINE - thickness) / Math.max(y.length, 0.25);
	const across = Math.min(down, (WIDEST - thickness / 2) / Math.max(x.length, 0.05));
	fine.clearRect(0, 0, FINE, FINE);
	trace(fine, lines, thickness, (point) => [
		FINE / 2 + (point[0] - x.middle) * across,
		FINE / 2 + (point[1] - y.middle) * down,
	]);
	const { data } = fine.getImageData(0, 0, FINE, FINE);
	const pixels = new Float32Array(SIDE * SIDE);
	for (let at = 0; at < FINE * FINE; at += 1) {
		const block = Math.floor(at / FINE / BLOCK) * SIDE + Math.floor((at % FINE) / BLOCK);
		pixels[block] += data[4 * at + 3] / 255 / (BLOCK * BLOCK);
	}
	return pixels;
}
