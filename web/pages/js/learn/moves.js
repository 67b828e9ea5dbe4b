// What it costs to move a tensor to the GPU, to compute with it, and to move it back.
import { $, formatBinary, formatNumber } from "../page.js";
import { formatDuration } from "../measure.js";
import { openEngine } from "./engine.js";

const MEASUREMENT_MS = 300;
/** The methods of the lines, and the bytes of a unit of their argument. */
const lines = [
	["race_upload", 1],
	["race_elementwise", 4],
	["race_download", 1],
];

export async function measureMoves(report) {
	const { engine, device, description } = await openEngine();
	const bytes = 2 ** Number($("moved").value);
	const seconds = [];
	for (const [row, [method, unit]] of lines.entries()) {
		report(`Line ${row + 1}…`);
		const result = await engine.call(method, device, bytes / unit, MEASUREMENT_MS);
		seconds.push(result.seconds);
		$("moves-rows").rows[row].cells[1].textContent = formatDuration(result.seconds);
	}
	const [upload, compute, download] = seconds;
	const ratio = formatNumber((upload + download) / compute, 2);
	$("moves-summary").textContent =
		`Moving ${formatBinary(bytes, "B")} takes ${ratio} times as long as one addition. ` +
		`So tensors stay where they are computed with.`;
	return `Measured on ${description}.`;
}
