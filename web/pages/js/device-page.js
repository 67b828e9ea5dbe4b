// What the browser and burn-wgsl tell of the GPU: as tables to read, and as text for a bug report.
import { $, setState } from "./page.js";
import { showNotice } from "./notice.js";
import { Engine } from "./engine.js";

const engine = new Engine("gpu");
engine.addEventListener("fatal", ({ error }) => fail(error));

const plain = (value) => (Array.isArray(value) ? value.join(", ") || "none" : String(value ?? "none"));

function element(name, content) {
	const made = document.createElement(name);
	made.append(content);
	return made;
}

function table(label, facts) {
	const made = document.createElement("table");
	made.className = "facts";
	for (const [name, value] of facts) {
		const row = made.insertRow();
		const head = element("th", name);
		head.scope = "row";
		row.append(head, element("td", plain(value)));
	}
	const frame = element("div", made);
	frame.className = "scroll";
	frame.tabIndex = 0;
	frame.role = "region";
	frame.ariaLabel = label;
	return frame;
}

/** A list of facts that opens and closes: limits and features are long. */
function folded(title, label, facts) {
	const details = element("details", element("summary", title));
	details.append(table(label, facts));
	return details;
}

async function browser() {
	const facts = [
		["user agent", navigator.userAgent],
		["processors", navigator.hardwareConcurrency],
		["secure context", isSecureContext ? "yes" : "no: WebGPU needs https or localhost"],
		["WebGPU", navigator.gpu ? "yes" : "no"],
	];
	if (!navigator.gpu) return facts;
	const adapter = await navigator.gpu.requestAdapter().catch((error) => facts.push(["adapter", error.message]) && null);
	if (!adapter) return [...facts, ["adapter", "none given"]];
	const info = adapter.info ?? {};
	for (const name of ["vendor", "architecture", "device", "description", "subgroupMinSize", "subgroupMaxSize"]) {
		if (info[name]) facts.push([name, info[name]]);
	}
	facts.push(["fallback adapter", info.isFallbackAdapter ?? adapter.isFallbackAdapter ? "yes" : "no"]);
	facts.push(["features", [...adapter.features].sort()]);
	facts.push(["WGSL language features", [...(navigator.gpu.wgslLanguageFeatures ?? [])].sort()]);
	return facts;
}

function card({ name, kind, api, usable, problem, limits, features }) {
	const made = element("article", element("h3", name));
	made.className = "panel";
	const offered = Object.values(features).filter(Boolean).length;
	made.append(
		element("p", usable ? "burn-wgsl can use it." : `burn-wgsl cannot use it: ${problem}`),
		table(name, [["kind", kind], ["through", api]]),
		folded(`Limits (${Object.keys(limits).length})`, `Limits of ${name}`, Object.entries(limits)),
		folded(`Features (${offered} of ${Object.keys(features).length})`, `Features of ${name}`, yesNo(features)),
	);
	return made;
}

const yesNo = (features) =>
	Object.entries(features).map(([name, value]) => [name, typeof value === "boolean" ? (value ? "yes" : "no") : value]);

function report(version, advice, adapters, facts) {
	const lines = (list) => list.map(([name, value]) => `  ${name}: ${plain(value)}`);
	return [
		`burn-wgsl ${version}, ${new Date().toISOString().slice(0, 10)}`,
		...(advice ? [advice] : []),
		"",
		"browser",
		...lines(facts),
		...(adapters.length ? [] : ["", "no adapter"]),
		...adapters.flatMap(({ name, kind, api, usable, problem, limits, features }) => [
			"",
			`adapter ${name} (${kind}, ${api}): ${usable ? "usable" : `not usable: ${problem}`}`,
			"  limits",
			...lines(Object.entries(limits)).map((line) => `  ${line}`),
			"  features",
			...lines(yesNo(features)).map((line) => `  ${line}`),
		]),
		"",
	].join("\n");
}

// Everything at once, so that nothing jumps; what the browser tells is worth having even if the module does not load.
async function look() {
	setState("opening", "Looking …");
	const facts = await browser();
	try {
		const version = await engine.call("version");
		const adapters = await engine.call("adapters");
		const [best] = adapters.filter(({ usable }) => usable);
		const advice = best ? "" : await engine.call("advice");
		tell(version, advice, adapters, facts);
		setState("done", `burn-wgsl ${version} ${best ? `can use ${best.name}.` : "finds no GPU that it can use."}`);
	} catch (error) {
		tell("(not loaded)", "", [], facts);
		fail(error);
	}
}

function tell(version, advice, adapters, facts) {
	$("report").value = report(version, advice, adapters, facts);
	$("copy").disabled = false;
	$("facts").replaceChildren(
		element("h2", "Adapters"),
		element("p", advice),
		...adapters.map(card),
		element("h2", "Browser"),
		table("Browser", facts),
	);
}

function fail(error) {
	if (document.body.dataset.state === "failed") return;
	setState("failed", "The adapters could not be listed.");
	showNotice(error.message, [["Try again", "restart", start]]);
}

function start() {
	engine.alive();
	look();
}

$("copy").addEventListener("click", async () => {
	try {
		await navigator.clipboard.writeText($("report").value);
		$("copied").textContent = "Copied.";
	} catch {
		$("report").focus();
		$("report").select();
		$("copied").textContent = "The browser refused: the report is selected, copy it from there.";
	}
});

start();
