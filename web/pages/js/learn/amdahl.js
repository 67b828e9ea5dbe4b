// Amdahl's law: the speedup of a program of which a share can be divided.
import { $, formatNumber } from "../page.js";
import { LineChart } from "../chart.js";

const MOST_PROCESSORS = 2 ** 14;

/** Returns the speedup on `n` processors of a program of which `share` can be divided. */
export const speedup = (share, n) => 1 / (1 - share + share / n);

export function showAmdahl() {
	const processors = Array.from({ length: 15 }, (_, power) => 2 ** power);
	const chart = new LineChart($("amdahl-chart"), {
		label: "Speedup by number of processors",
		x: { label: "processors", domain: [1, MOST_PROCESSORS], log: true },
		y: { label: "times faster", domain: [1, 10], log: true },
		series: [
			{ name: "speedup", color: "--blue" },
			{ name: "limit", color: "--orange" },
		],
	});
	const draw = () => {
		const share = Number($("share").value) / 100;
		const n = 2 ** Number($("processors").value);
		const limit = 1 / (1 - share);
		$("share-text").textContent = `${formatNumber(100 * share)} %`;
		$("processors-text").textContent = formatNumber(n, 5);
		const times = formatNumber(speedup(share, n));
		$("amdahl-summary").textContent =
			`On ${formatNumber(n, 5)} processors it is ${times} times faster, and at most ${formatNumber(limit)} times.`;
		chart.draw(
			[
				processors.map((count) => [count, speedup(share, count)]),
				[
					[1, limit],
					[MOST_PROCESSORS, limit],
				],
			],
			[{ x: n, label: `${times} times` }],
		);
	};
	$("share").oninput = draw;
	$("processors").oninput = draw;
	draw();
}
