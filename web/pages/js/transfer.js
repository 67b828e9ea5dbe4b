// Measures upload and download bandwidth by size, and an elementwise operation on data of the same
// size.
import { $, formatBinary, formatNumber } from "./page.js";
import { Engine } from "./engine.js";
import { LineChart } from "./chart.js";
import { Run, Table, formatDuration, formatMeasured } from "./measure.js";

const MEASUREMENT_MS = 300;
const SIZES = [2 ** 18, 2 ** 20, 2 ** 22, 2 ** 24, 2 ** 26]; // bytes
const formatBytes = (size) => formatBinary(size, "B");
// `unit` is the number of bytes per unit of the method's size argument.
const operations = [
	{ name: "Upload", color: "--orange", dots: true, method: "race_upload", unit: 1 },
	{ name: "Download", color: "--green", dots: true, method: "race_download", unit: 1 },
	{ name: "Compute", color: "--blue", dots: true, method: "race_elementwise", unit: 4 },
];

const chart = new LineChart($("chart"), {
	label: "Bandwidth",
	x: {
		label: "size",
		domain: [SIZES[0] / 1.2, SIZES.at(-1) * 1.2],
		log: true,
		ticks: SIZES,
		format: formatBytes,
	},
	y: { label: "GB/s", domain: [0.1, 10], log: true },
	series: operations,
});
const table = new Table($("rows"), SIZES.map(formatBytes), 2 * operations.length);
const engine = new Engine();
const run = new Run(engine, measure);

async function measure({ isStopped }) {
	const { device } = await run.device.open();
	const bandwidths = operations.map(() => []);
	const seconds = operations.map(() => 0); // at the size last measured
	table.clear();
	chart.draw([]);
	$("summary").textContent = "\u00a0";
	for (const [row, size] of SIZES.entries()) {
		for (const [index, { name, method, unit }] of operations.entries()) {
			if (isStopped()) return false;
			run.showProgress(
				(row + index / operations.length) / SIZES.length,
				`${name}, ${formatBytes(size)}`,
			);
			const result = await engine.call(method, device, size / unit, MEASUREMENT_MS);
			seconds[index] = result.seconds;
			bandwidths[index].push([size, result.gbytes_per_second]);
			table.set(row, index, formatDuration(result.seconds));
			table.set(row, operations.length + index, formatMeasured(result.gbytes_per_second));
			chart.draw(bandwidths);
		}
	}
	const [upload, download, compute] = seconds;
	const ratio = formatNumber((upload + download) / compute, 2);
	const size = formatBytes(SIZES.at(-1));
	$("summary").textContent =
		`A round trip of ${size} (upload and download) takes ${ratio} times as long ` +
		`as one elementwise operation on it.`;
	run.showProgress(1, `Each time is the median of ${MEASUREMENT_MS} ms of runs.`);
	return true;
}
