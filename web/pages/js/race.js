// Compares CPU and GPU by size and finds the size from which the GPU is faster.
import { $, formatBinary, formatNumber } from "./page.js";
import { Engine } from "./engine.js";
import { LineChart } from "./chart.js";
import { Run, Table, formatDuration, formatMeasured } from "./measure.js";

const MEASUREMENT_MS = 250;
const MAX_RUN_SECONDS = 1; // sizes whose runs are expected to take longer are skipped
const powersOfTwo = (from, to, step) =>
	Array.from({ length: (to - from) / step + 1 }, (_, index) => 2 ** (from + index * step));

const workloads = {
	matmul: {
		method: "race_matmul",
		sizes: powersOfTwo(5, 11, 1),
		cost: (n) => n ** 3,
		formatSize: (n) => formatNumber(n, 9),
		describe: (n) => `Matrix multiplication, ${n} by ${n}`,
		rate: "gflops",
		rateUnit: "GFLOP/s",
		chartLabel: "Time of a matrix multiplication",
		sizeLabel: "n",
		describeSize: (n) => `n = ${n}`,
	},
	elementwise: {
		method: "race_elementwise",
		sizes: powersOfTwo(10, 24, 2),
		cost: (count) => count,
		formatSize: (count) => formatBinary(count),
		describe: (count) => `Elementwise addition, ${formatBinary(count)} elements`,
		rate: "gbytes_per_second",
		rateUnit: "GB/s",
		chartLabel: "Time of an elementwise addition",
		sizeLabel: "elements",
		describeSize: (count) => `${formatBinary(count)} elements`,
	},
};

for (const [id, workload] of Object.entries(workloads)) {
	const { chartLabel, formatSize, sizeLabel, sizes } = workload;
	workload.chart = new LineChart($(`${id}-chart`), {
		label: chartLabel,
		x: {
			label: sizeLabel,
			domain: [sizes[0] / 1.2, sizes.at(-1) * 1.2],
			log: true,
			ticks: sizes,
			format: formatSize,
		},
		y: {
			label: "time",
			domain: [1e-4, 1],
			log: true,
			format: (seconds) => formatDuration(seconds, formatNumber),
		},
		series: [
			{ name: "CPU", color: "--orange", dots: true },
			{ name: "GPU", color: "--blue", dots: true },
		],
	});
	workload.table = new Table($(`${id}-rows`), sizes.map(formatSize), 5);
}

const engine = new Engine();
const run = new Run(engine, measure);

async function measure({ useCpu, isStopped }) {
	// The CPU comes first. After a GPU failure the user can choose to measure the CPU alone.
	const devices = [(await engine.ensureRunning().call("open", "cpu")).device];
	if (!useCpu) {
		const info = await run.device.open();
		if (!info.is_gpu) return failWithoutGpu();
		devices.push(info.device);
	}
	const selected = Object.keys(workloads).filter((id) => ["all", id].includes($("workload").value));
	const total = selected.reduce((sum, id) => sum + workloads[id].sizes.length, 0) * devices.length;
	let completed = 0;
	for (const id of selected) {
		const { chart, cost, describe, method, rate, rateUnit, sizes, table } = workloads[id];
		const times = devices.map(() => []); // [size, seconds] of each device
		const rates = devices.map(() => []);
		table.clear();
		chart.draw([]);
		$(`${id}-summary`).textContent = "\u00a0";
		$("main").dataset[`${id}Crossover`] = "";
		for (const [row, size] of sizes.entries()) {
			for (const [index, device] of devices.entries()) {
				if (isStopped()) return false;
				run.showProgress(completed / total, `${describe(size)}: ${index ? "GPU" : "CPU"}`);
				completed += 1;
				const previous = times[index].at(-1);
				if (previous && (previous[1] * cost(size)) / cost(previous[0]) > MAX_RUN_SECONDS) {
					table.set(row, index, "skipped");
					continue;
				}
				const result = await engine.call(method, device, size, MEASUREMENT_MS);
				times[index].push([size, result.seconds]);
				rates[index].push(result[rate]);
				table.set(row, index, formatDuration(result.seconds));
				table.set(row, 2 + index, formatMeasured(result[rate]));
				const [cpuSize, cpuSeconds] = times[0].at(-1);
				if (index && cpuSize === size) {
					table.set(row, 4, `${formatMeasured(cpuSeconds / result.seconds)}x`);
				}
				updateBars(rates, rateUnit);
				chart.draw(times);
			}
		}
		if (!useCpu) showCrossover(id, times);
	}
	run.showProgress(
		1,
		`Each time is the median of ${MEASUREMENT_MS} ms of runs. ` +
			`Sizes that would take more than ${MAX_RUN_SECONDS} s per run were skipped.`,
	);
	return true;
}

async function failWithoutGpu() {
	const hint = await engine.call("install_hint");
	run.device.fail(new Error(`No GPU was found to compare with the CPU; ${hint}.`));
}

function updateBars(rates, unit) {
	const max = Math.max(...rates.flat());
	for (const [index, name] of ["cpu", "gpu"].entries()) {
		const rate = rates[index]?.at(-1);
		$(`bar-${name}`).style.setProperty("--fraction", rate ? rate / max : 0);
		$(`rate-${name}`).textContent = rate ? `${formatMeasured(rate)} ${unit}` : "–";
	}
}

function showCrossover(id, times) {
	const { chart, describeSize, sizes } = workloads[id];
	const size = findCrossover(times);
	$("main").dataset[`${id}Crossover`] = size;
	let summary = `The GPU is faster from about ${describeSize(size)}.`;
	if (size === sizes[0]) summary = "The GPU is faster at every size.";
	if (size === Infinity) {
		summary = "The GPU is not faster at the largest size that both devices ran.";
	}
	$(`${id}-summary`).textContent = summary;
	const isInside = size > sizes[0] && size < Infinity;
	chart.draw(times, isInside ? [{ x: size, label: `GPU faster from ${describeSize(size)}` }] : []);
}

/** Returns the size above which the speedup stays over 1, interpolated on logarithmic axes. */
function findCrossover([cpu, gpu]) {
	// [log(size), log(speedup)] of the sizes that both devices ran.
	const points = cpu.flatMap(([size, cpuSeconds]) =>
		gpu
			.filter(([gpuSize]) => gpuSize === size)
			.map(([, gpuSeconds]) => [Math.log(size), Math.log(cpuSeconds / gpuSeconds)]),
	);
	const lastSlower = points.findLastIndex(([, speedup]) => speedup < 0);
	if (lastSlower === points.length - 1) return Infinity;
	if (lastSlower < 0) return cpu[0][0];
	const [[x0, y0], [x1, y1]] = points.slice(lastSlower, lastSlower + 2);
	return Math.round(Math.exp(x0 + ((x1 - x0) * -y0) / (y1 - y0)));
}
