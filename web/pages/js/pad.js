// The drawing pad: strokes by pointer, cells by keyboard, or a picture, converted to an 8x8 image like
// the training images.

const SIDE = 8;
const RASTER_SIDE = 64; // the drawing is rasterised at this size, then averaged in blocks
const BLOCK = RASTER_SIDE / SIDE;
const TARGET_INK = 0.305 * SIDE * SIDE; // mean sum of the pixels of a training image
const MAX_WIDTH = 0.75 * RASTER_SIDE; // few training images are wider
const clamp = (value, max) => Math.max(0, Math.min(value, max));
const raster = new OffscreenCanvas(RASTER_SIDE, RASTER_SIDE).getContext("2d", {
	willReadFrequently: true,
});

export class Pad {
	#canvas;
	#preview;
	#status;
	#onChange;
	#strokes = [];
	#cells = new Set();
	#picture = null;
	#cursor = null; // cell of the keyboard cursor, while visible
	#lastCursor = 3;
	#pointer = null; // id of the drawing pointer

	/** `onChange` is called during a stroke, at its end, and after keyboard input. */
	constructor(canvas, preview, status, onChange) {
		this.#canvas = canvas;
		this.#preview = preview.getContext("2d");
		this.#status = status;
		this.#onChange = onChange;
		canvas.onpointerdown = (event) => this.#startStroke(event);
		canvas.onpointermove = (event) => this.#extendStroke(event);
		canvas.onpointerup = canvas.onpointercancel = (event) => this.#endStroke(event);
		canvas.onkeydown = (event) => this.#handleKey(event);
		canvas.onfocus = () => canvas.matches(":focus-visible") && this.#moveCursor(this.#lastCursor);
		canvas.onblur = () => this.#moveCursor(null);
		new ResizeObserver(() => this.#paint()).observe(canvas);
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
	}

	get isDrawing() {
		return this.#pointer !== null;
	}

	clear() {
		this.show(null);
	}

	/** Shows a picture in place of the drawing: a dark digit on a light background, or the other way round. */
	show(picture) {
		this.#pointer = null; // ends a stroke
		this.#strokes = [];
		this.#cells.clear();
		this.#picture = picture;
		this.#update();
	}

	/**
	 * Returns 64 values from 0 to 1 in row-major order, or null if nothing is drawn. Also updates the
	 * preview.
	 */
	image() {
		const lines = [...this.#strokes, ...this.#cellLines()];
		let pixels = this.#picture && inkOf(this.#picture);
		// Ink grows with the stroke thickness: bisect the thickness that gives the target.
		let [low, high] = [RASTER_SIDE / 20, RASTER_SIDE / 2.5];
		for (let round = 0; lines.length && round < 7; round += 1) {
			const thickness = (low + high) / 2;
			pixels = rasterise(lines, thickness);
			if (pixels.reduce((sum, value) => sum + value) < TARGET_INK) low = thickness;
			else high = thickness;
		}
		const preview = this.#preview.createImageData(SIDE, SIDE);
		preview.data.forEach((_, index) => {
			preview.data[index] = index % 4 === 3 ? 255 : 255 * (pixels?.[index >> 2] ?? 0);
		});
		this.#preview.putImageData(preview, 0, 0);
		return pixels;
	}

	// Connects the centres of neighbouring cells, so that they look like strokes.
	#cellLines() {
		const centre = (cell) => [((cell % SIDE) + 0.5) / SIDE, (Math.floor(cell / SIDE) + 0.5) / SIDE];
		return [...this.#cells].flatMap((cell) =>
			[0, 1, SIDE - 1, SIDE, SIDE + 1]
				.map((offset) => cell + offset)
				.filter((other) => this.#cells.has(other) && Math.abs((other % SIDE) - (cell % SIDE)) <= 1)
				.map((other) => [centre(cell), centre(other)]),
		);
	}

	#startStroke(event) {
		if (event.button || this.isDrawing) return;
		this.#canvas.setPointerCapture(event.pointerId);
		this.#cursor = this.#picture = null;
		this.#pointer = event.pointerId;
		this.#strokes.push([]);
		this.#extendStroke(event);
	}

	#extendStroke(event) {
		if (event.pointerId !== this.#pointer) return;
		const { left, top, width, height } = this.#canvas.getBoundingClientRect();
		for (const { clientX, clientY } of [...(event.getCoalescedEvents?.() ?? []), event]) {
			this.#strokes
				.at(-1)
				.push([clamp((clientX - left) / width, 1), clamp((clientY - top) / height, 1)]);
		}
		this.#update();
	}

	#endStroke(event) {
		if (event.pointerId !== this.#pointer) return;
		this.#pointer = null;
		this.#onChange();
	}

	#handleKey(event) {
		const { key } = event;
		const offset = { ArrowUp: -SIDE, ArrowDown: SIDE, ArrowLeft: -1, ArrowRight: 1 }[key];
		const cell = this.#cursor ?? this.#lastCursor;
		if (offset) {
			const target = cell + offset;
			const outside =
				target < 0 || target >= SIDE * SIDE || Math.abs((target % SIDE) - (cell % SIDE)) > 1;
			this.#moveCursor(outside ? cell : target);
		} else if (key === " ") {
			this.#picture = null;
			if (!this.#cells.delete(cell)) this.#cells.add(cell);
			this.#moveCursor(cell);
			this.#onChange();
		} else if (key === "Delete" || key === "Backspace") {
			this.clear();
			this.#status.textContent = "Drawing cleared";
		} else return;
		event.preventDefault();
	}

	/** Moves the keyboard cursor to a cell and announces it. Hides the cursor if `cell` is null. */
	#moveCursor(cell) {
		this.#cursor = cell;
		this.#paint();
		if (cell === null) return;
		this.#lastCursor = cell;
		const content = this.#cells.has(cell) ? "filled" : "empty";
		const [row, column] = [Math.floor(cell / SIDE) + 1, (cell % SIDE) + 1];
		this.#status.textContent = `Row ${row}, column ${column}, ${content}`;
	}

	#update() {
		this.#paint();
		this.#onChange();
	}

	#paint() {
		const canvas = this.#canvas;
		const size = Math.round(canvas.clientWidth * devicePixelRatio);
		const cellSize = size / SIDE;
		canvas.width = canvas.height = size;
		const style = getComputedStyle(canvas);
		const context = canvas.getContext("2d");
		const drawCells = (color, cells, method) => {
			context.fillStyle = context.strokeStyle = style.getPropertyValue(color);
			for (const cell of cells) {
				const [x, y] = [(cell % SIDE) * cellSize, Math.floor(cell / SIDE) * cellSize];
				context[method](x, y, cellSize, cellSize);
			}
		};
		if (this.#picture) context.drawImage(this.#picture, 0, 0, size, size);
		drawCells("--border", Array(SIDE * SIDE).keys(), "strokeRect");
		drawCells("--text", this.#cells, "fillRect");
		strokeLines(context, this.#strokes, cellSize, ([x, y]) => [x * size, y * size]);
		context.lineWidth = 3 * devicePixelRatio;
		drawCells("--orange", this.#cursor === null ? [] : [this.#cursor], "strokeRect");
	}
}

function strokeLines(context, lines, thickness, toCanvas) {
	context.lineWidth = thickness;
	context.lineCap = context.lineJoin = "round";
	context.beginPath();
	for (const line of lines) {
		const [x, y] = toCanvas(line[0]);
		context.moveTo(x + 0.01, y); // browsers may not draw a line of length 0
		for (const point of line) context.lineTo(...toCanvas(point));
	}
	context.stroke();
}

/**
 * Draws the lines centred and scaled to the height of the image, as in the training data. Returns
 * the ink of each block, from 0 to 1.
 */
function rasterise(lines, thickness) {
	const points = lines.flat();
	const [x, y] = [0, 1].map((dimension) => {
		let [low, high] = [Infinity, -Infinity];
		for (const point of points) {
			low = Math.min(low, point[dimension]);
			high = Math.max(high, point[dimension]);
		}
		return { middle: (low + high) / 2, length: high - low };
	});
	// The minimum lengths keep a dot small. A wide drawing is compressed horizontally.
	const scaleY = (RASTER_SIDE - thickness) / Math.max(y.length, 0.25);
	const scaleX = Math.min(scaleY, (MAX_WIDTH - thickness / 2) / Math.max(x.length, 0.05));
	raster.clearRect(0, 0, RASTER_SIDE, RASTER_SIDE);
	strokeLines(raster, lines, thickness, (point) => [
		RASTER_SIDE / 2 + (point[0] - x.middle) * scaleX,
		RASTER_SIDE / 2 + (point[1] - y.middle) * scaleY,
	]);
	const { data } = raster.getImageData(0, 0, RASTER_SIDE, RASTER_SIDE);
	return averages((index) => data[4 * index + 3] / 255);
}

/** Returns the mean of each block of the raster. */
function averages(inkAt) {
	const pixels = new Float32Array(SIDE * SIDE);
	for (let index = 0; index < RASTER_SIDE * RASTER_SIDE; index += 1) {
		const blockRow = Math.floor(index / RASTER_SIDE / BLOCK);
		const blockColumn = Math.floor((index % RASTER_SIDE) / BLOCK);
		pixels[blockRow * SIDE + blockColumn] += inkAt(index) / (BLOCK * BLOCK);
	}
	return pixels;
}

/** Returns the brightness of the raster's pixels, from 0 to 1. */
function brightness() {
	const { data } = raster.getImageData(0, 0, RASTER_SIDE, RASTER_SIDE);
	return Float32Array.from({ length: RASTER_SIDE * RASTER_SIDE }, (_, index) => {
		const [red, green, blue] = data.subarray(4 * index, 4 * index + 3);
		return (0.299 * red + 0.587 * green + 0.114 * blue) / 255;
	});
}

/** Returns the ink of a picture, centred and scaled as a drawing; null if it has one colour. */
function inkOf(picture) {
	const draw = (...places) => {
		raster.fillStyle = "white"; // what is transparent is light
		raster.fillRect(0, 0, RASTER_SIDE, RASTER_SIDE);
		raster.drawImage(picture, ...places);
		return brightness();
	};
	const whole = draw(0, 0, RASTER_SIDE, RASTER_SIDE);
	const position = (index) => [index % RASTER_SIDE, Math.floor(index / RASTER_SIDE)];
	const isEdge = (value) => value === 0 || value === RASTER_SIDE - 1;
	const border = whole.filter((_, index) => position(index).some(isEdge)).sort();
	const background = border[border.length >> 1];
	const contrast = whole.reduce((most, value) => Math.max(most, Math.abs(value - background)), 0);
	if (contrast < 0.1) return null;
	const inkOfValue = (value) => Math.abs(value - background) / contrast;
	// The box of what is clearly no background.
	let [left, top, right, bottom] = [RASTER_SIDE, RASTER_SIDE, 0, 0];
	whole.forEach((value, index) => {
		if (inkOfValue(value) < 0.4) return;
		const [x, y] = position(index);
		[left, top] = [Math.min(left, x), Math.min(top, y)];
		[right, bottom] = [Math.max(right, x + 1), Math.max(bottom, y + 1)];
	});
	const [unitX, unitY] = [picture.width / RASTER_SIDE, picture.height / RASTER_SIDE];
	const [width, height] = [(right - left) * unitX, (bottom - top) * unitY];
	const drawnWidth = clamp(Math.max((RASTER_SIDE * width) / height, BLOCK), MAX_WIDTH);
	const middle = (RASTER_SIDE - drawnWidth) / 2;
	const box = [left * unitX, top * unitY, width, height];
	const drawn = draw(...box, middle, 0, drawnWidth, RASTER_SIDE);
	const isInside = (index) => Math.abs((index % RASTER_SIDE) + 0.5 - RASTER_SIDE / 2) < drawnWidth / 2;
	const pixels = averages((index) => (isInside(index) ? clamp(inkOfValue(drawn[index]), 1) : 0));
	const ink = pixels.reduce((sum, value) => sum + value);
	return pixels.map((value) => clamp((value * TARGET_INK) / ink, 1));
}
