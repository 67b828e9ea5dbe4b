// Shows what the browser and burn-wgsl report about the GPU, as tables and as text for a bug
// report.
import { $, setState } from "./page.js";
import { showNotice } from "./notice.js";
import { Engine } from "./engine.js";

const engine = new Engine("gpu");
engine.addEventListener("fatal", ({ error }) => fail(error));

const formatValue = (value) =>
	Array.isArray(value) ? value.join(", ") || "none" : String(value ?? "none");

function createElement(name, content) {
	const element = document.createElement(name);
	element.append(content);
	return element;
}

/** `properties` are [name, value]. */
function createTable(label, properties) {
	const table = document.createElement("table");
	table.className = "properties";
	for (const [name, value] of properties) {
		const row = table.insertRow();
		const header = createElement("th", name);
		header.scope = "row";
		row.append(header, createElement("td", formatValue(value)));
	}
	const frame = createElement("div", table);
	frame.className = "scroll";
	frame.tabIndex = 0;
	frame.role = "region";
	frame.ariaLabel = label;
	return frame;
}

function createCollapsibleTable(title, label, properties) {
	const details = createElement("details", createElement("summary", title));
	details.append(createTable(label, properties));
	return details;
}

async function browserProperties() {
	const properties = [
		["User agent", navigator.userAgent],
		["Logical processors", navigator.hardwareConcurrency],
		["Secure context", isSecureContext ? "yes" : "no (WebGPU requires HTTPS or localhost)"],
		["WebGPU", navigator.gpu ? "yes" : "no"],
	];
	if (!navigator.gpu) return properties;
	const adapter = await navigator.gpu
		.requestAdapter()
		.catch((error) => properties.push(["Adapter error", error.message]) && null);
	if (!adapter) return [...properties, ["Adapter", "none"]];
	const info = adapter.info ?? {};
	for (const [key, name] of [
		["vendor", "Vendor"],
		["architecture", "Architecture"],
		["device", "Device"],
		["description", "Description"],
		["subgroupMinSize", "Minimum subgroup size"],
		["subgroupMaxSize", "Maximum subgroup size"],
	]) {
		if (info[key]) properties.push([name, info[key]]);
	}
	properties.push([
		"Fallback adapter",
		(info.isFallbackAdapter ?? adapter.isFallbackAdapter) ? "yes" : "no",
	]);
	properties.push(["Features", [...adapter.features].sort()]);
	properties.push([
		"WGSL language features",
		[...(navigator.gpu.wgslLanguageFeatures ?? [])].sort(),
	]);
	return properties;
}

function createCard({ name, kind, api, usable, problem, limits, features }) {
	const card = createElement("article", createElement("h3", name));
	card.className = "panel";
	const supported = Object.values(features).filter(Boolean).length;
	const limitsTitle = `Limits (${Object.keys(limits).length})`;
	const featuresTitle = `Features (${supported} of ${Object.keys(features).length})`;
	card.append(
		createElement(
			"p",
			usable ? "Supported by burn-wgsl." : `Not supported by burn-wgsl: ${problem}`,
		),
		createTable(name, [
			["Type", kind],
			["API", api],
		]),
		createCollapsibleTable(limitsTitle, `Limits of ${name}`, Object.entries(limits)),
		createCollapsibleTable(featuresTitle, `Features of ${name}`, featureProperties(features)),
	);
	return card;
}

const featureProperties = (features) =>
	Object.entries(features).map(([name, value]) => [
		name,
		typeof value === "boolean" ? (value ? "yes" : "no") : value,
	]);

function createReport(version, hint, adapters, browser) {
	const lines = (properties) =>
		properties.map(([name, value]) => `  ${name}: ${formatValue(value)}`);
	return [
		`burn-wgsl ${version}, ${new Date().toISOString().slice(0, 10)}`,
		...(hint ? [hint] : []),
		"",
		"Browser",
		...lines(browser),
		...(adapters.length ? [] : ["", "No adapters"]),
		...adapters.flatMap(({ name, kind, api, usable, problem, limits, features }) => [
			"",
			`Adapter ${name} (${kind}, ${api}): ${usable ? "usable" : `not usable: ${problem}`}`,
			"  Limits",
			...lines(Object.entries(limits)).map((line) => `  ${line}`),
			"  Features",
			...lines(featureProperties(features)).map((line) => `  ${line}`),
		]),
		"",
	].join("\n");
}

// Renders everything at once, so that the layout does not shift. The browser's properties are shown
// even if the module fails to load.
async function detect() {
	setState("opening", "Detecting adapters…");
	const browser = await browserProperties();
	try {
		const version = await engine.call("version");
		const adapters = await engine.call("adapters");
		const [best] = adapters.filter(({ usable }) => usable);
		const hint = best ? "" : `No usable GPU was found; ${await engine.call("install_hint")}.`;
		render(version, hint, adapters, browser);
		setState(
			"done",
			`burn-wgsl ${version} ${best ? `can use ${best.name}.` : "found no usable GPU."}`,
		);
	} catch (error) {
		render("(not loaded)", "", [], browser);
		fail(error);
	}
}

function render(version, hint, adapters, browser) {
	$("report").value = createReport(version, hint, adapters, browser);
	$("copy").disabled = false;
	$("properties").replaceChildren(
		createElement("h2", "Adapters"),
		createElement("p", hint),
		...adapters.map(createCard),
		createElement("h2", "Browser"),
		createTable("Browser", browser),
	);
}

function fail(error) {
	if (document.body.dataset.state === "failed") return;
	setState("failed", "The adapters could not be listed.");
	showNotice(error.message, [["Try again", "restart", start]]);
}

function start() {
	engine.ensureRunning();
	detect();
}

$("copy").addEventListener("click", async () => {
	try {
		await navigator.clipboard.writeText($("report").value);
		$("copy-status").textContent = "Copied.";
	} catch {
		$("report").focus();
		$("report").select();
		$("copy-status").textContent =
			"The browser blocked access to the clipboard. Copy the selected report manually.";
	}
});

start();
