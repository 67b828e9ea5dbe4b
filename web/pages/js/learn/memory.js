// The memory of a network that is trained: calculated from its sizes, and measured.
import { $, formatBinary } from "../page.js";

const parts = ["Parameters", "Gradients", "Adam's moments", "Kept for the backward pass"];

/** Returns the bytes of each part. `keeps` is the number of tensors of a layer that the backward pass needs. */
export function bytesOf({ width, layers, batch, bits, checkpointing }) {
	const parameters = 4 * layers * (width ** 2 + width);
	const tensor = (batch * width * bits) / 8;
	// The input of the product, and that of the activation. With checkpointing: all inputs, and one layer.
	const kept = checkpointing ? (layers + 2) * tensor : 2 * layers * tensor;
	return [parameters, parameters, 2 * parameters, kept];
}

export function showMemory() {
	const fields = ["width", "layers", "batch", "bits", "checkpointing"];
	const settings = () => Object.fromEntries(fields.map((id) => [id, Number($(id).value)]));
	const rows = [...parts, "Together"].map((name) => {
		const row = document.createElement("li");
		const [label, bar, value] = ["span", "span", "span"].map((tag) => document.createElement(tag));
		label.className = "part";
		label.textContent = name;
		bar.className = "bar";
		value.className = "value";
		row.append(label, bar, value);
		$("memory-bars").append(row);
		return { bar, value };
	});
	const draw = () => {
		const bytes = bytesOf(settings());
		const sum = bytes.reduce((total, part) => total + part);
		for (const [index, part] of [...bytes, sum].entries()) {
			rows[index].bar.style.setProperty("--fraction", part / sum);
			rows[index].value.textContent = formatBinary(part, "B");
		}
		$("memory-status").textContent = "Calculated, not measured.";
	};
	for (const id of fields) $(id).onchange = draw;
	draw();

	/** Trains for a step, and compares the peak of the memory. */
	async function measure() {
		const { openEngine } = await import("./engine.js");
		const { engine, device, is_gpu } = await openEngine();
		if (!is_gpu) return "There is no GPU here whose memory could be measured.";
		const { width, layers, batch, bits, checkpointing } = settings();
		const sum = bytesOf(settings()).reduce((total, part) => total + part);
		const peak = await engine.call(
			"memory_of_step",
			device,
			width,
			layers,
			batch,
			bits === 16,
			checkpointing === 1,
		);
		return `${formatBinary(peak, "B")} measured, ${formatBinary(sum, "B")} calculated: the rest is what ops need meanwhile.`;
	}
	return { measure };
}
