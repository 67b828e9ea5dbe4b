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
const device = new Device(engine, drop, () => source && schedule(() => load(source)));

let model = null;
let source = null; // a File, or null for the server's: what a retry loads
let running = false; // whether the current task should continue
let queue = Promise.resolve();

/** Ends the current task, and runs another after it. */
function schedule(task) {
	running = false;
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
	$("write").disabled = !model && !running;
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

/** Returns {bytes, stream, kept}: the length of a model, its bytes, and a promise to keep it. */
async function open(from) {
	if (from) return { bytes: from.size, stream: from.stream() };
	const cache = await modelCache();
	let response = await cache?.match(URL_OF_MODEL);
	let kept;
	if (!response) {
		response = await fetch(URL_OF_MODEL);
		if (!response.ok) throw new LoadError("There is no model.gguf beside this page: choose a file.");
		// Without room for it, the model is only not kept.
		kept = cache?.put(URL_OF_MODEL, response.clone()).catch(() => {});
	}
	const bytes = Number(response.headers.get("content-length"));
	if (!bytes) throw new LoadError("The server does not say how long model.gguf is.");
	return { bytes, stream: response.body, kept };
}

/** An error of a model, not of the device. */
class LoadError extends Error {}

async function load(from) {
	source = from;
	clearNotice();
	drop();
	running = true;
	show("opening", "Opening device…");
	const info = await device.open();
	show("loading", "Loading…");
	const start = performance.now();
	try {
		const { bytes, stream, kept } = await open(from);
		model = await engine.create("Text", info.device, { bytes, context: CONTEXT });
		$("progress").value = 0;
		let arrived = 0;
		for await (const piece of pieces(stream)) {
			if (!running) throw new LoadError("Loading was stopped.");
			await pushed(piece);
			arrived += piece.length;
			$("progress").value = arrived / bytes;
			$("status").textContent = `Loading: ${formatBinary(arrived, "B")} of ${formatBinary(bytes, "B")}`;
		}
		const { memory } = await pushed();
		await kept;
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
		await showKept();
	}
	const seconds = (performance.now() - start) / 1e3;
	show("ready", `The model was loaded in ${formatNumber(seconds)} s.`);
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
			const { done, value } = await reader.read();
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
	const texts = { end: "The text is complete.", full: `There are ${CONTEXT} tokens: the text ends.` };
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
	if (document.body.dataset.state === "loading") running = false;
	else schedule(() => load(null));
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
