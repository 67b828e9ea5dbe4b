// Line charts on a plain canvas: linear or logarithmic axes, ticks, a legend, marks at values of x.
import { number } from "./page.js";

const SIZE = 14;
const DASHES = [[], [7, 4], [2, 3]]; // lines differ by more than their colour
const clamp = (value, low, high) => Math.max(low, Math.min(value, high));

export class LineChart {
	#canvas;
	#options;
	#series;
	#marks;
	#asked = false;

	/**
	 * `x` and `y`: {label, span: [low, high] that is always shown, log, ticks, format};
	 * `series`: [{name, color (a CSS property), dots}].
	 * `label` says what the chart shows; the last values are added to it for screen readers.
	 */
	constructor(canvas, options) {
		this.#canvas = canvas;
		this.#options = options;
		const redraw = () => this.#ask();
		new ResizeObserver(redraw).observe(canvas);
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
		document.addEventListener("visibilitychange", redraw);
		this.draw([]);
	}

	/** `lines` are [[x, y], ...] for each of the series; `marks` are {x, label}. */
	draw(lines, marks = []) {
		this.#series = this.#options.series.map((series, index) => ({ ...series, points: lines[index] ?? [] }));
		this.#marks = marks;
		this.#ask();
	}

	// At most once a frame, and not at all in a hidden tab.
	#ask() {
		if (this.#asked) return;
		this.#asked = true;
		requestAnimationFrame(() => {
			this.#asked = false;
			const x = axis(this.#options.x, this.#series, 0);
			const y = axis(this.#options.y, this.#series, 1);
			if (this.#canvas.clientWidth) this.#paint(x, y);
			const told = this.#series
				.filter(({ points }) => points.length)
				.map(({ name, points: all }) => `${name} ${y.text(all.at(-1)[1])} at ${x.label} ${x.text(all.at(-1)[0])}`);
			for (const { label } of this.#marks) told.push(label);
			this.#canvas.ariaLabel = `${this.#options.label}: ${told.join("; ") || "no values yet"}.`;
		});
	}

	#paint(x, y) {
		const canvas = this.#canvas;
		const { clientWidth: width, clientHeight: height } = canvas;
		canvas.width = Math.round(width * devicePixelRatio);
		canvas.height = Math.round(height * devicePixelRatio);
		const c = canvas.getContext("2d");
		c.scale(devicePixelRatio, devicePixelRatio);
		c.font = `${SIZE}px system-ui, sans-serif`;
		c.textBaseline = "middle";
		const style = getComputedStyle(canvas);
		const color = (name) => (c.strokeStyle = c.fillStyle = style.getPropertyValue(name).trim());
		const wide = (text) => c.measureText(text).width;
		const line = (x0, y0, x1, y1) => {
			c.beginPath();
			c.moveTo(x0, y0);
			c.lineTo(x1, y1);
			c.stroke();
		};

		// The name of the y axis and the series, in rows as wide as there is room.
		color("--muted");
		let row = SIZE / 2 + 2;
		c.fillText(y.label, 0, row);
		let at = wide(y.label) + 18;
		c.lineWidth = 2;
		this.#series.forEach((series, index, { length }) => {
			if (length === 1) return;
			const needs = 30 + wide(series.name);
			if (at + needs > width) {
				at = 0;
				row += 1.5 * SIZE;
			}
			c.setLineDash(DASHES[index]);
			color(series.color);
			line(at, row, at + 24, row);
			color("--muted");
			c.fillText(series.name, at + 30, row);
			at += needs + 16;
		});
		c.setLineDash([]);
		c.lineWidth = 1;

		const top = row + (this.#marks.length ? 2.6 : 1.3) * SIZE;
		const bottom = height - 3 * SIZE;
		const left = Math.max(...y.ticks.map((tick) => wide(y.text(tick)))) + 8;
		const right = width - 8;
		x.place(left, right);
		y.place(bottom, top);
		c.textAlign = "right";
		c.fillText(x.label, right, height - SIZE / 2 - 1);
		let free = Infinity;
		for (const tick of y.ticks) {
			const at = Math.round(y.at(tick)) + 0.5;
			color("--line");
			line(left, at, right, at);
			color("--muted");
			if (at > free) continue;
			c.fillText(y.text(tick), left - 6, at);
			free = at - 1.3 * SIZE;
		}
		c.textAlign = "center";
		free = -Infinity;
		for (const tick of x.ticks) {
			const at = Math.round(x.at(tick)) + 0.5;
			line(at, bottom, at, bottom + 5);
			const half = wide(x.text(tick)) / 2;
			const middle = Math.min(at, width - half);
			if (middle - half < free) continue;
			c.fillText(x.text(tick), middle, bottom + SIZE + 1);
			free = middle + half + 8;
		}

		c.lineJoin = "round";
		this.#series.forEach((series, index) => {
			color(series.color);
			c.lineWidth = 2;
			c.setLineDash(DASHES[index]);
			const points = thin(series.points, right - left).map((point) => [x.at(point[0]), y.at(point[1])]);
			c.beginPath();
			for (const point of points) c.lineTo(...point);
			c.stroke();
			if (!series.dots) return;
			for (const point of points) {
				c.beginPath();
				c.arc(...point, 3.5, 0, 7);
				c.fill();
			}
		});

		color("--text");
		c.lineWidth = 1;
		c.setLineDash([4, 4]);
		for (const mark of this.#marks) {
			const at = Math.round(x.at(mark.x)) + 0.5;
			line(at, top, at, bottom);
			const half = wide(mark.label) / 2;
			c.fillText(mark.label, clamp(at, left + half, right - half), top - SIZE / 2 - 2);
		}
	}
}

/** No more points than there are pixels to show them. */
function thin(points, most) {
	const every = Math.ceil(points.length / most);
	return points.filter((_, at) => at % every === 0);
}

function axis({ label, span, log, ticks, format = number }, series, which) {
	let [low, high] = span;
	for (const { points } of series) {
		for (const { [which]: value } of points) {
			if (!Number.isFinite(value) || (log && value <= 0)) continue;
			low = Math.min(low, value);
			high = Math.max(high, value);
		}
	}
	const bend = log ? Math.log : Number;
	let from = 0;
	let factor = 1;
	return {
		label,
		text: format,
		ticks: (ticks ?? (log ? decades : steps)(low, high)).filter((tick) => tick >= low && tick <= high),
		place(start, end) {
			factor = (end - start) / (bend(high) - bend(low));
			from = start;
		},
		at: (value) => from + (bend(clamp(value, low, high)) - bend(low)) * factor,
	};
}

function steps(low, high) {
	const rough = (high - low) / 5;
	const power = 10 ** Math.floor(Math.log10(rough));
	const step = [1, 2, 5, 10].find((times) => times * power >= rough) * power;
	const list = [];
	for (let at = Math.ceil(low / step); at * step <= high + step * 1e-6; at += 1) list.push(at * step);
	return list;
}

function decades(low, high) {
	const list = [];
	for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
		for (const times of high / low > 200 ? [1] : [1, 2, 5]) list.push(Number(`${times}e${power}`));
	}
	return list;
}
