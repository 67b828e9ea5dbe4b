// One line on the first page: what this browser offers. The WebAssembly module is not loaded for it.
import { $ } from "./page.js";

async function look() {
	if (!isSecureContext) return "no WebGPU, which needs https; the demos run on the CPU";
	if (!navigator.gpu) return "no WebGPU; the demos run on the CPU";
	const adapter = await navigator.gpu.requestAdapter();
	if (!adapter) return "WebGPU, but no GPU for it; the demos run on the CPU";
	const { vendor, architecture, description } = adapter.info ?? {};
	const name = description || [vendor, architecture].filter(Boolean).join(" ") || "an adapter without a name";
	return `WebGPU on ${name}`;
}

$("status").textContent = await look().catch((error) => `WebGPU, but asking for a GPU failed: ${error.message}`);
