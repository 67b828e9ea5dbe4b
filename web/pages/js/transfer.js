// Upload and download by size, beside computing on as much data.
import { $, binary, number } from "./page.js";
import { Engine } from "./engine.js";
import { LineChart } from "./chart.js";
import { Run, Table, duration, measured } from "./measure.js";

const TIME = 300; // milliseconds for a measurement
const SIZES = [2 ** 18, 2 ** 20, 2 ** 22, 2 ** 24, 2 ** 26]; // bytes
const bytes = (size) => binary(size, "B");
const kinds = [
	{ name: "upload", color: "--orange", dots: true, method: "race_upload", unit: 1 },
	{ name: "download", color: "--green", dots: true, method: "race_download", unit: 1 },
	{ name: "compute", color: "--blue", dots: true, method: "race_elementwise", unit: 4 }, // counts elements
];

const chart = new LineChart($("chart"), {
	label: "Bandwidth",
	x: { label: "size", span: [SIZES[0] / 1.2, SIZES.at(-1) * 1.2], log: true, ticks: SIZES, format: bytes },
	y: { label: "GB/s", span: [0.1, 10], log: true },
	series: kinds,
});
const table = new Table($("rows"), SIZES.map(bytes), 2 * kinds.length);
const engine = new Engine();
const run = new Run(engine, measure);

async function measure({ stopped }) {
	const { device } = await run.device.open();
	const lines = kinds.map(() => []);
	const times = kinds.map(() => 0);
	table.wipe();
	chart.draw([]);
	$("summary").textContent = "\u00a0";
	for (const [at, size] of SIZES.entries()) {
		for (const [which, { name, method, unit }] of kinds.entries()) {
			if (stopped()) return false;
			run.progress((at + which / kinds.length) / SIZES.length, `${name}, ${bytes(size)}`);
			const result = await engine.call(method, device, size / unit, TIME);
			times[which] = result.seconds;
			lines[which].push([size, result.gbytes_per_second]);
			table.set(at, which, duration(result.seconds));
			table.set(at, kinds.length + which, measured(result.gbytes_per_second));
			chart.draw(lines);
		}
	}
	const ratio = (times[0] + times[1]) / times[2];
	const told = ratio >= 1 ? `${number(ratio, 2)} times as long as` : `${number(ratio, 2)} of the time of`;
	$("summary").textContent = `Moving ${bytes(SIZES.at(-1))} there and back takes ${told} computing on it once.`;
	run.progress(1, `Times are medians over ${TIME} ms each.`);
	return true;
}
