// CPU against GPU by size, in turns, with the size from which on the GPU wins.
import { $, binary, number } from "./page.js";
import { showNotice } from "./notice.js";
import { Engine } from "./engine.js";
import { LineChart } from "./chart.js";
import { Run, Table, duration, measured } from "./measure.js";

const TIME = 250; // milliseconds for a measurement
const LONGEST = 1; // seconds: a run that would take longer is left out
const powers = (from, to, step) => Array.from({ length: (to - from) / step + 1 }, (_, at) => 2 ** (from + at * step));

const works = {
	matmul: {
		method: "race_matmul",
		sizes: powers(5, 11, 1),
		cost: (n) => n ** 3,
		name: (n) => number(n, 9),
		what: (n) => `Matrix product, ${n} by ${n}`,
		rate: "gflops",
		unit: "GFLOP/s",
		label: "Time of a matrix product",
		axis: "n",
		from: (n) => `n = ${n}`,
	},
	elementwise: {
		method: "race_elementwise",
		sizes: powers(10, 24, 2),
		cost: (count) => count,
		name: (count) => binary(count),
		what: (count) => `Elementwise, ${binary(count)} elements`,
		rate: "gbytes_per_second",
		unit: "GB/s",
		label: "Time of an elementwise operation",
		axis: "elements",
		from: (count) => `${binary(count)} elements`,
	},
};

for (const [id, work] of Object.entries(works)) {
	const { axis, label, name, sizes } = work;
	work.chart = new LineChart($(`${id}-chart`), {
		label,
		x: { label: axis, span: [sizes[0] / 1.2, sizes.at(-1) * 1.2], log: true, ticks: sizes, format: name },
		y: { label: "time", span: [1e-4, 1], log: true, format: (seconds) => duration(seconds, number) },
		series: [
			{ name: "CPU", color: "--orange", dots: true },
			{ name: "GPU", color: "--blue", dots: true },
		],
	});
	work.table = new Table($(`${id}-rows`), sizes.map(name), 5);
}

const engine = new Engine();
const run = new Run(engine, race);

async function race({ cpu, stopped }) {
	const racers = [(await engine.alive().call("open", "cpu")).device];
	if (!cpu) {
		const info = await run.device.open();
		if (!info.gpu) return noGpu();
		racers.push(info.device);
	}
	const chosen = Object.keys(works).filter((id) => ["both", id].includes($("work").value));
	const all = chosen.reduce((sum, id) => sum + works[id].sizes.length, 0) * racers.length;
	let done = 0;
	for (const id of chosen) {
		const { chart, cost, method, rate, sizes, table, unit, what } = works[id];
		const times = racers.map(() => []);
		const rates = racers.map(() => []);
		table.wipe();
		chart.draw([]);
		$(`${id}-summary`).textContent = "\u00a0";
		$("main").dataset[`${id}Crossover`] = "";
		for (const [at, size] of sizes.entries()) {
			for (const [who, racer] of racers.entries()) {
				if (stopped()) return false;
				run.progress(done / all, `${what(size)}: ${who ? "GPU" : "CPU"}`);
				done += 1;
				const before = times[who].at(-1);
				if (before && (before[1] * cost(size)) / cost(before[0]) > LONGEST) {
					table.set(at, who, "left out");
					continue;
				}
				const result = await engine.call(method, racer, size, TIME);
				times[who].push([size, result.seconds]);
				rates[who].push(result[rate]);
				table.set(at, who, duration(result.seconds));
				table.set(at, 2 + who, measured(result[rate]));
				const [other, seconds] = times[0].at(-1);
				if (who && other === size) table.set(at, 4, `${measured(seconds / result.seconds)}x`);
				bars(rates, unit);
				chart.draw(times);
			}
		}
		if (!cpu) finish(id, times);
	}
	run.progress(1, `Times are medians over ${TIME} ms each; a run that would take more than ${LONGEST} s was left out.`);
	return true;
}

async function noGpu() {
	const advice = await engine.call("advice");
	run.device.fail(new Error(`There is no GPU to race against. ${advice}`));
}

function bars(rates, unit) {
	const most = Math.max(...rates.flat());
	for (const [who, name] of ["cpu", "gpu"].entries()) {
		const rate = rates[who]?.at(-1);
		$(`bar-${name}`).style.setProperty("--share", rate ? rate / most : 0);
		$(`rate-${name}`).textContent = rate ? `${measured(rate)} ${unit}` : "–";
	}
}

function finish(id, times) {
	const { chart, from, sizes } = works[id];
	const size = crossover(times);
	$("main").dataset[`${id}Crossover`] = size;
	let told = `The GPU is ahead from about ${from(size)} on.`;
	if (size === Infinity) told = "The GPU is not ahead at the largest size that both could do.";
	if (size === sizes[0]) told = "The GPU is ahead at every size.";
	$(`${id}-summary`).textContent = told;
	chart.draw(times, size > sizes[0] && size < Infinity ? [{ x: size, label: `GPU ahead from ${from(size)}` }] : []);
}

/** Where the speedup passes 1 for the last time, on a straight line between two sizes on logarithmic axes. */
function crossover([cpu, gpu]) {
	const pairs = cpu.flatMap(([size, seconds]) =>
		gpu.filter((point) => point[0] === size).map((point) => [Math.log(size), Math.log(seconds / point[1])]),
	);
	const before = pairs.findLastIndex(([, ahead]) => ahead < 0);
	if (before === pairs.length - 1) return Infinity;
	if (before < 0) return cpu[0][0];
	const [[x0, y0], [x1, y1]] = pairs.slice(before, before + 2);
	return Math.round(Math.exp(x0 + ((x1 - x0) * -y0) / (y1 - y0)));
}
