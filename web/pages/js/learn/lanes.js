// How fast a kernel is by the number of its workgroups and lanes.
import { $, formatNumber } from "../page.js";
import { LineChart } from "../chart.js";
import { OPERATIONS, multiplyAdds, openGpu } from "./gpu.js";

const MOST_GROUPS = 2 ** 10;
const CELLS = 256;
/** A launch of one workgroup takes at least as long, in seconds: clocks of browsers are coarse. */
const LEAST_SECONDS = 4e-3;
/** Launches that are expected to take longer are left out. */
const MOST_SECONDS = 0.5;
const MOST_ROUNDS = 2 ** 18;

const series = [
	{ name: "64 lanes each", color: "--blue", dots: true, lanes: 64 },
	{ name: "1 lane each", color: "--orange", dots: true, lanes: 1 },
];

let chart;

function showGrid(groups) {
	const grid = $("grid");
	if (grid.childElementCount === 0) {
		for (let cell = 0; cell < CELLS; cell += 1) grid.append(document.createElement("i"));
	}
	for (const [index, cell] of [...grid.children].entries()) {
		cell.classList.toggle("on", index < groups);
	}
	grid.ariaLabel = `Workgroups that run: ${groups}`;
}

export async function measureLanes(report) {
	chart ??= new LineChart($("groups-chart"), {
		label: "Speed by number of workgroups",
		x: { label: "workgroups", domain: [1, MOST_GROUPS], log: true },
		y: { label: "GFLOP/s", domain: [0.1, 10], log: true },
		series,
	});
	const gpu = await openGpu();
	const lines = series.map(() => []);
	try {
		for (const [index, { lanes }] of series.entries()) {
			let rounds = 16;
			let kernel;
			let seconds = 0;
			while (seconds < LEAST_SECONDS && rounds < MOST_ROUNDS) {
				rounds *= 4;
				kernel = await gpu.kernel(multiplyAdds(lanes, rounds), 4 * 64 * MOST_GROUPS);
				seconds = await kernel.seconds(1);
			}
			for (let groups = 1; groups <= MOST_GROUPS; groups *= 2) {
				report(`${groups} workgroups of ${lanes} ${lanes === 1 ? "lane" : "lanes"}…`);
				showGrid(groups);
				seconds = await kernel.seconds(groups);
				lines[index].push([groups, (groups * lanes * rounds * OPERATIONS) / seconds / 1e9]);
				chart.draw(lines);
				// Twice as many take at most twice as long.
				if (2 * seconds > MOST_SECONDS) break;
			}
		}
	} finally {
		gpu.close();
		showGrid(0);
	}
	const best = (line) => Math.max(...line.map(([, speed]) => speed));
	const [whole, single] = lines.map(best);
	const full = lines[0].find(([, speed]) => speed > 0.8 * whole)[0];
	$("lanes-summary").textContent =
		`It is full from ${full} ${full === 1 ? "workgroup" : "workgroups"} on. Lanes make it ` +
		`${formatNumber(whole / single, 2)} times faster.`;
	return `${formatNumber(whole)} GFLOP/s at most.`;
}
