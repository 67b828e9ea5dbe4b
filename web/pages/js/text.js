// Loads a language model, from a file or from the server, and lets it write.
import { $, formatBinary, formatNumber, setState } from "./page.js";
import { clearNotice, showNotice } from "./notice.js";
import { Device } from "./device.js";
import { Engine } from "./engine.js";

const CONTEXT = 1024; // tokens of a text, with its prompt
const URL_OF_MODEL = new URL("model.gguf", location.href).href;
const CACHE = "models"; // of models from the server
const PIECE = 1 << 20; // bytes that go to the worker at once

const engine = new Engine();
const device = new Device(engine, drop, () => source !== undefined && schedule(() => load(source)));

let model = null;
let context; // tokens of a text of this model
let source; // a File, or null for the server's: what a retry loads
let loading; // aborts a download
let running = false; // whether the current task should continue
let queue = Promise.resolve();

/** Ends the current task, and runs another after it. */
function schedule(task) {
	running = false;
	loading?.abort();
	queue = queue.then(task).catch((error) => device.fail(error));
}

function drop() {
	model?.free();
	model = null;
	running = false;
	update();
}

function update() {
	const { state } = document.body.dataset;
	$("write").disabled = !["ready", "running"].includes(state);
	$("write").textContent = state === "running" ? "Stop" : "Write";
	$("load").textContent = state === "loading" ? "Stop loading" : "Load model.gguf";
}

function show(state, text) {
	setState(state, text);
	update();
}

/** Returns the cache of models, if there is one: pages without HTTPS have none. */
async function modelCache() {
	return self.caches?.open(CACHE).catch(() => undefined);
}

/** Returns the response with the server's model, and whether it was kept. */
async function fetched() {
	const kept = await (await modelCache())?.match(URL_OF_MODEL);
	if (kept) return { response: kept, isKept: true };
	const response = await fetch(URL_OF_MODEL, { signal: loading.signal });
	if (!response.ok) throw new LoadError("There is no model.gguf beside this page: choose a file.");
	return { response, isKept: false };
}

/** Returns {bytes, stream, keep}: the length of a model, its bytes, and what is to be kept of it. */
async function open(from) {
	if (from) return { bytes: from.size, stream: from.stream() };
	const { response, isKept } = await fetched();
	const { headers } = response;
	const bytes = Number(headers.get("content-length"));
	if (!bytes || headers.get("content-encoding")) {
		throw new LoadError("The server does not say how long model.gguf is.");
	}
	return { bytes, stream: response.body, keep: isKept ? null : [] };
}

/** Keeps the pieces of the server's model for the next visit, if there is room. */
async function keep(parts, bytes) {
	const cache = await modelCache();
	const response = new Response(new Blob(parts), { headers: { "content-length": String(bytes) } });
	await cache?.put(URL_OF_MODEL, response).catch(() => {});
}

/** An error of a model, not of the device. */
class LoadError extends Error {}

async function load(from) {
	source = from;
	clearNotice();
	drop();
	running = true;
	loading = new AbortController();
	show("opening", "Opening device…");
	const info = await device.open();
	show("loading", "Loading…");
	const start = performance.now();
	try {
		const { bytes, stream, keep: parts } = await open(from).catch(asLoadError);
		model = await engine.create("Text", info.device, { bytes, context: CONTEXT });
		$("progress").value = 0;
		let arrived = 0;
		for await (const piece of pieces(stream)) {
			if (!running) throw new LoadError("Loading was stopped.");
			await pushed(piece);
			parts?.push(new Blob([piece]));
			arrived += piece.length;
			$("progress").value = arrived / bytes;
			$("status").textContent = `Loading: ${formatBinary(arrived, "B")} of ${formatBinary(bytes, "B")}`;
		}
		const loaded = await pushed();
		({ context } = loaded);
		const { memory } = loaded;
		if (parts) await keep(parts, bytes);
		$("model-size").textContent = formatBinary(bytes, "B");
		$("memory").textContent = memory === undefined || memory === null ? "–" : formatBinary(memory, "B");
	} catch (error) {
		if (engine.failed || !(error instanceof LoadError)) throw error;
		drop();
		show("idle", "No model was loaded.");
		showNotice(error.message);
		return;
	} finally {
		running = false;
		loading = null;
		await showKept();
	}
	const seconds = (performance.now() - start) / 1e3;
	show("ready", `The model was loaded in ${formatNumber(seconds)} s.`);
}

/** What is wrong with a download is no error of the device. */
function asLoadError(error) {
	if (error instanceof LoadError) throw error;
	const stopped = loading?.signal.aborted;
	throw new LoadError(stopped ? "Loading was stopped." : `The model cannot be read: ${error.message}`);
}

/** Gives the worker a piece of the model, or the end without one. What is wrong with it is an error of the model. */
async function pushed(piece) {
	try {
		return await (piece ? model.call("push", piece) : model.call("finish"));
	} catch (error) {
		throw engine.failed ? error : new LoadError(error.message);
	}
}

/** Joins what a stream gives to pieces that are worth a message to the worker. */
async function* pieces(stream) {
	const reader = stream.getReader();
	let [parts, size] = [[], 0];
	const joined = () => {
		const whole = new Uint8Array(size);
		let position = 0;
		for (const part of parts) {
			whole.set(part, position);
			position += part.length;
		}
		[parts, size] = [[], 0];
		return whole;
	};
	try {
		for (;;) {
			const { done, value } = await reader.read().catch(asLoadError);
			if (done) break;
			parts.push(value);
			size += value.length;
			if (size >= PIECE) yield joined();
		}
		if (size) yield joined();
	} finally {
		reader.cancel().catch(() => {});
	}
}

async function showKept() {
	const cache = await modelCache();
	$("forget").hidden = !(await cache?.match(URL_OF_MODEL));
}

async function write() {
	clearNotice();
	if (!model) return;
	running = true;
	show("running", "Reading the prompt…");
	$("output").textContent = $("mode").value === "continue" ? $("prompt").value : "";
	let end = "stopped";
	try {
		const count = await model.call("start_text", {
			prompt: $("prompt").value,
			is_question: $("mode").value === "answer",
			temperature: Number($("temperature").value),
			seed: Math.max(0, Math.trunc(Number($("seed").value))) % 2 ** 32,
		});
		$("prompt-tokens").textContent = formatNumber(count, 9);
		end = await writeTokens();
	} catch (error) {
		if (engine.failed) throw error;
		showNotice(error.message);
	}
	running = false;
	const texts = { end: "The text is complete.", full: `There are ${context} tokens: the text ends.` };
	show("ready", texts[end] ?? "Stopped.");
}

/** Writes until the text ends or the user stops it. Returns why it ended. */
async function writeTokens() {
	const start = performance.now();
	let first;
	for (let tokens = 0; running; tokens += 1) {
		const { text, end } = await model.call("next_token");
		append(text);
		if (end) return end;
		const now = performance.now();
		if (first === undefined) {
			first = now;
			$("first").textContent = `${formatNumber((now - start) / 1e3)} s`;
			show("running", "Writing…");
		} else $("speed").textContent = formatNumber((1e3 * tokens) / (now - first));
	}
	return "stopped";
}

// Scrolls to the end, unless the user has scrolled up.
function append(text) {
	const box = $("output");
	const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
	box.append(text);
	if (atEnd) box.scrollTop = box.scrollHeight;
}

$("file").onchange = () => {
	const [file] = $("file").files;
	$("file").value = ""; // so that the same file can be selected again
	if (file) schedule(() => load(file));
};
$("load").onclick = () => {
	if (document.body.dataset.state !== "loading") return schedule(() => load(null));
	running = false;
	loading?.abort();
};
$("write").onclick = () => {
	if (document.body.dataset.state === "running") running = false;
	else schedule(write);
};
$("forget").onclick = async () => {
	const cache = await modelCache();
	await cache?.delete(URL_OF_MODEL);
	await showKept();
};
$("temperature").oninput = () => ($("temperature-value").value = $("temperature").value);
device.onChange(() => {
	drop();
	show("idle", "The device was changed: load a model.");
});
update();
await showKept();
