// How fast memory is read by the size of the buffer.
import { $, formatBinary, formatNumber } from "../page.js";
import { LineChart } from "../chart.js";
import { openGpu, reads } from "./gpu.js";

const SIZES = Array.from({ length: 8 }, (_, index) => 2 ** (13 + 2 * index)); // 8 KiB to 128 MiB
const LANES = 64;
const GROUPS = 1024;
const ELEMENT = 16; // bytes
/** A launch takes at least as long, in seconds. */
const LEAST_SECONDS = 10e-3;
const MOST_READS = 2 ** 14;

let chart;

export async function measureCaches(report) {
	const formatSize = (bytes) => formatBinary(bytes, "B");
	chart ??= new LineChart($("caches-chart"), {
		label: "Bytes read per second by size of the buffer",
		x: {
			label: "buffer",
			domain: [SIZES[0], SIZES.at(-1)],
			log: true,
			ticks: SIZES,
			format: formatSize,
		},
		y: { label: "GB/s", domain: [1, 100], log: true },
		series: [{ name: "reads", color: "--blue", dots: true }],
	});
	const gpu = await openGpu();
	const line = [];
	try {
		const all = LANES * GROUPS;
		let count = 16;
		for (const size of SIZES) {
			report(`${formatSize(size)}…`);
			let seconds = 0;
			while (true) {
				const kernel = await gpu.kernel(reads(LANES, count, all), size);
				seconds = await kernel.seconds(GROUPS);
				if (seconds >= LEAST_SECONDS || count >= MOST_READS) break;
				count *= 4;
			}
			line.push([size, (all * count * ELEMENT) / seconds / 1e9]);
			chart.draw([line]);
		}
	} finally {
		gpu.close();
	}
	const speeds = line.map(([, speed]) => speed);
	const ratio = formatNumber(Math.max(...speeds) / speeds.at(-1), 2);
	return `The nearest cache is ${ratio} times as fast as the memory.`;
}
