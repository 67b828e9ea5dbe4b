// One line on the first page: what this browser offers. The WebAssembly module is not loaded for it.
import { $, adapterName } from "./page.js";

async function look() {
	if (!isSecureContext) return "no WebGPU, which needs https; the demos run on the CPU";
	if (!navigator.gpu) return "no WebGPU; the demos run on the CPU";
	const adapter = await navigator.gpu.requestAdapter();
	if (!adapter) return "WebGPU, but no GPU for it; the demos run on the CPU";
	const name = adapterName(adapter.info) || "an adapter without a name";
	if (adapter.info?.isFallbackAdapter) return `WebGPU on the CPU (${name}); the demos take the CPU itself, which is faster`;
	return `WebGPU on ${name}`;
}

$("status").textContent = await look().catch((error) => `WebGPU, but asking for a GPU failed: ${error.message}`);
