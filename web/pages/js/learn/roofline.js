// The roofline: how fast an operation can be by its operations per byte.
import { $, formatNumber } from "../page.js";
import { LineChart } from "../chart.js";

const INTENSITIES = [2 ** -5, 2 ** 10];
const MEASUREMENT_MS = 200;
/** An addition moves twelve bytes. */
const ADDITION = 1 / 12;
const ELEMENTS = 2 ** 22;
const SIDES = [64, 128, 256, 512, 1024];
/** Products that are expected to take longer are left out, in seconds. */
const MOST_SECONDS = 1;

/** Returns the operations per byte of a product of matrices of f32 whose sides have `n` elements. */
const intensityOfProduct = (n) => (2 * n ** 3) / (3 * 4 * n ** 2);

export function showRoofline() {
	const chart = new LineChart($("roofline-chart"), {
		label: "Speed by intensity",
		x: { label: "operations per byte", domain: INTENSITIES, log: true },
		y: { label: "GFLOP/s", domain: [0.1, 100], log: true },
		series: [
			{ name: "roof", color: "--blue" },
			{ name: "addition", color: "--orange", dots: true },
			{ name: "products", color: "--green", dots: true },
		],
	});
	let points = [[], []];
	const draw = () => {
		const peak = 10 ** Number($("peak").value);
		const bandwidth = 10 ** Number($("bandwidth").value);
		$("peak-text").textContent = `${formatNumber(peak)} GFLOP/s`;
		$("bandwidth-text").textContent = `${formatNumber(bandwidth)} GB/s`;
		const ridge = peak / bandwidth;
		const roof = [INTENSITIES[0], ridge, INTENSITIES[1]]
			.filter((x) => x >= INTENSITIES[0] && x <= INTENSITIES[1])
			.map((x) => [x, Math.min(peak, x * bandwidth)]);
		chart.draw([roof, ...points], [{ x: ridge, label: `${formatNumber(ridge, 2)} operations per byte` }]);
	};
	$("peak").oninput = draw;
	$("bandwidth").oninput = draw;
	draw();

	/** Measures an addition and products. The roof becomes that of the fastest of them. */
	async function measure(report) {
		const { openEngine } = await import("./engine.js");
		const { engine, device, description } = await openEngine();
		points = [[], []];
		report("An addition…");
		const addition = await engine.call("race_elementwise", device, ELEMENTS, MEASUREMENT_MS);
		points[0].push([ADDITION, addition.gbytes_per_second * ADDITION]);
		let peak = 0;
		for (const n of SIDES) {
			report(`A product of ${n} by ${n}…`);
			const product = await engine.call("race_matmul", device, n, MEASUREMENT_MS);
			points[1].push([intensityOfProduct(n), product.gflops]);
			peak = Math.max(peak, product.gflops);
			if (8 * product.seconds > MOST_SECONDS) break;
		}
		$("peak").value = Math.log10(peak);
		$("bandwidth").value = Math.log10(addition.gbytes_per_second);
		draw();
		return `Measured on ${description}. The roof is that of the fastest product, and of the addition.`;
	}
	return { measure };
}
