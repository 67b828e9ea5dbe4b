// Shows on the home page what this browser supports, without loading a WebAssembly module.
import { $, adapterName } from "./page.js";

async function describeSupport() {
	if (!isSecureContext) return "No WebGPU, because it requires HTTPS. The demos run on the CPU.";
	if (!navigator.gpu) return "No WebGPU. The demos run on the CPU.";
	const adapter = await navigator.gpu.requestAdapter();
	if (!adapter) return "WebGPU is available, but no GPU was found. The demos run on the CPU.";
	const name = adapterName(adapter.info) || "an unnamed adapter";
	if (adapter.info?.isFallbackAdapter) {
		return `WebGPU on a software adapter (${name}). The demos use the faster CPU backend instead.`;
	}
	return `WebGPU on ${name}`;
}

$("status").textContent = await describeSupport().catch(
	(error) => `WebGPU is available, but requesting an adapter failed: ${error.message}`,
);
