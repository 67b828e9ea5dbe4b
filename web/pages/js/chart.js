// Line charts on a canvas: linear or logarithmic axes, ticks, a legend and vertical markers.
import { formatNumber } from "./page.js";

const FONT_SIZE = 14; // CSS pixels
const DASHES = [[], [7, 4], [2, 3]]; // distinguish the series without colour
const clamp = (value, low, high) => Math.max(low, Math.min(value, high));

export class LineChart {
	#canvas;
	#options;
	#series;
	#markers;
	#redrawScheduled = false;

	/**
	 * `x` and `y`: {label, domain: [low, high] that is always visible, log, ticks, format}.
	 * `series`: [{name, color (a CSS property), dots}].
	 * `label` describes the chart to screen readers. The last values are appended to it.
	 */
	constructor(canvas, options) {
		this.#canvas = canvas;
		this.#options = options;
		const redraw = () => this.#scheduleRedraw();
		new ResizeObserver(redraw).observe(canvas);
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
		document.addEventListener("visibilitychange", redraw);
		this.draw([]);
	}

	/** `lines` has a list of [x, y] for each series. `markers` are {x, label}. */
	draw(lines, markers = []) {
		this.#series = this.#options.series.map((series, index) => ({
			...series,
			points: lines[index] ?? [],
		}));
		this.#markers = markers;
		this.#scheduleRedraw();
	}

	// Redraws at most once per frame. Browsers run no animation frames in a hidden tab.
	#scheduleRedraw() {
		if (this.#redrawScheduled) return;
		this.#redrawScheduled = true;
		requestAnimationFrame(() => {
			this.#redrawScheduled = false;
			const x = createAxis(this.#options.x, this.#series, 0);
			const y = createAxis(this.#options.y, this.#series, 1);
			if (this.#canvas.clientWidth) this.#paint(x, y);
			const summary = this.#series
				.filter(({ points }) => points.length)
				.map(({ name, points }) => {
					const [lastX, lastY] = points.at(-1);
					return `${name} ${y.format(lastY)} at ${x.label} ${x.format(lastX)}`;
				});
			for (const { label } of this.#markers) summary.push(label);
			this.#canvas.ariaLabel = `${this.#options.label}: ${summary.join("; ") || "no data yet"}.`;
		});
	}

	#paint(x, y) {
		const canvas = this.#canvas;
		const { clientWidth: width, clientHeight: height } = canvas;
		canvas.width = Math.round(width * devicePixelRatio);
		canvas.height = Math.round(height * devicePixelRatio);
		const context = canvas.getContext("2d");
		context.scale(devicePixelRatio, devicePixelRatio);
		context.font = `${FONT_SIZE}px system-ui, sans-serif`;
		context.textBaseline = "middle";
		const style = getComputedStyle(canvas);
		const setColor = (name) =>
			(context.strokeStyle = context.fillStyle = style.getPropertyValue(name).trim());
		const textWidth = (text) => context.measureText(text).width;
		const drawLine = (x0, y0, x1, y1) => {
			context.beginPath();
			context.moveTo(x0, y0);
			context.lineTo(x1, y1);
			context.stroke();
		};

		// The y axis label and the legend, wrapped to the width of the canvas.
		setColor("--muted");
		let legendY = FONT_SIZE / 2 + 2;
		context.fillText(y.label, 0, legendY);
		let legendX = textWidth(y.label) + 18;
		context.lineWidth = 2;
		this.#series.forEach((series, index, { length }) => {
			if (length === 1) return;
			const entryWidth = 30 + textWidth(series.name);
			if (legendX + entryWidth > width) {
				legendX = 0;
				legendY += 1.5 * FONT_SIZE;
			}
			context.setLineDash(DASHES[index]);
			setColor(series.color);
			drawLine(legendX, legendY, legendX + 24, legendY);
			setColor("--muted");
			context.fillText(series.name, legendX + 30, legendY);
			legendX += entryWidth + 16;
		});
		context.setLineDash([]);
		context.lineWidth = 1;

		const top = legendY + (this.#markers.length ? 2.6 : 1.3) * FONT_SIZE;
		const bottom = height - 3 * FONT_SIZE;
		const left = Math.max(...y.ticks.map((tick) => textWidth(y.format(tick)))) + 8;
		const right = width - 8;
		x.setRange(left, right);
		y.setRange(bottom, top);
		context.textAlign = "right";
		context.fillText(x.label, right, height - FONT_SIZE / 2 - 1);
		// Tick labels that would overlap the previous one are omitted.
		let limit = Infinity;
		for (const tick of y.ticks) {
			const tickY = Math.round(y.toPixel(tick)) + 0.5;
			setColor("--border");
			drawLine(left, tickY, right, tickY);
			setColor("--muted");
			if (tickY > limit) continue;
			context.fillText(y.format(tick), left - 6, tickY);
			limit = tickY - 1.3 * FONT_SIZE;
		}
		context.textAlign = "center";
		limit = -Infinity;
		for (const tick of x.ticks) {
			const tickX = Math.round(x.toPixel(tick)) + 0.5;
			drawLine(tickX, bottom, tickX, bottom + 5);
			const halfWidth = textWidth(x.format(tick)) / 2;
			const middle = Math.min(tickX, width - halfWidth);
			if (middle - halfWidth < limit) continue;
			context.fillText(x.format(tick), middle, bottom + FONT_SIZE + 1);
			limit = middle + halfWidth + 8;
		}

		context.lineJoin = "round";
		this.#series.forEach((series, index) => {
			setColor(series.color);
			context.lineWidth = 2;
			context.setLineDash(DASHES[index]);
			const points = downsample(series.points, right - left).map((point) => [
				x.toPixel(point[0]),
				y.toPixel(point[1]),
			]);
			context.beginPath();
			for (const point of points) context.lineTo(...point);
			context.stroke();
			if (!series.dots) return;
			for (const point of points) {
				context.beginPath();
				context.arc(...point, 3.5, 0, 7);
				context.fill();
			}
		});

		setColor("--text");
		context.lineWidth = 1;
		context.setLineDash([4, 4]);
		for (const marker of this.#markers) {
			const markerX = Math.round(x.toPixel(marker.x)) + 0.5;
			drawLine(markerX, top, markerX, bottom);
			const halfWidth = textWidth(marker.label) / 2;
			const labelX = clamp(markerX, left + halfWidth, right - halfWidth);
			context.fillText(marker.label, labelX, top - FONT_SIZE / 2 - 2);
		}
	}
}

/** Keeps every n-th point, so that at most `maxPoints` remain. */
function downsample(points, maxPoints) {
	const stride = Math.ceil(points.length / maxPoints);
	return points.filter((_, index) => index % stride === 0);
}

/** `dimension` selects the coordinate of the points: 0 for x, 1 for y. */
function createAxis({ label, domain, log, ticks, format = formatNumber }, series, dimension) {
	let [low, high] = domain;
	for (const { points } of series) {
		for (const { [dimension]: value } of points) {
			if (!Number.isFinite(value) || (log && value <= 0)) continue;
			low = Math.min(low, value);
			high = Math.max(high, value);
		}
	}
	const transform = log ? Math.log : Number;
	const allTicks = ticks ?? (log ? logTicks : linearTicks)(low, high);
	let start = 0;
	let pixelsPerUnit = 1;
	return {
		label,
		format,
		ticks: allTicks.filter((tick) => tick >= low && tick <= high),
		setRange(from, to) {
			pixelsPerUnit = (to - from) / (transform(high) - transform(low));
			start = from;
		},
		toPixel: (value) =>
			start + (transform(clamp(value, low, high)) - transform(low)) * pixelsPerUnit,
	};
}

function linearTicks(low, high) {
	const minStep = (high - low) / 5;
	const power = 10 ** Math.floor(Math.log10(minStep));
	const step = [1, 2, 5, 10].find((factor) => factor * power >= minStep) * power;
	const ticks = [];
	for (let n = Math.ceil(low / step); n * step <= high + step * 1e-6; n += 1) ticks.push(n * step);
	return ticks;
}

function logTicks(low, high) {
	const ticks = [];
	for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
		const factors = high / low > 200 ? [1] : [1, 2, 5];
		for (const factor of factors) ticks.push(Number(`${factor}e${power}`));
	}
	return ticks;
}
