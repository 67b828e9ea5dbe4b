// A small transformer learns WGSL and writes between training steps.
import { $, binary, number, params, say, setState } from "./page.js";
import { clearNotice, showNotice } from "./notice.js";
import { Engine } from "./engine.js";
import { Device } from "./device.js";
import { LineChart } from "./chart.js";

const CALL = 0.15; // seconds that a call to the worker should take
const SAMPLE = 500; // tokens of one text, then a new one begins
const KEPT = 20_000; // characters on the page
const BREATH = 60; // milliseconds of writing between training calls

const engine = new Engine();
const device = new Device(engine, drop, () => act(asked));

let net = null;
let running = false;
let warm = 0;
let asked = train;
let step = 0;
let losses = [];
let written = Infinity; // tokens of the present text; none has begun

// One thing at a time: a new one ends what is under way and waits for it.
let last = Promise.resolve();
function act(task) {
	asked = task;
	running = false;
	last = last.then(task).catch((error) => device.fail(error));
}

function state(name, text) {
	setState(name, text);
	show();
}

function drop() {
	net?.free();
	net = null;
	running = false;
	written = Infinity;
	show();
}

async function ready() {
	if (net) return;
	// A fresh network starts from the beginning, also after a failure.
	step = 0;
	losses = [];
	warm = 0;
	state("opening", "Opening the device …");
	const info = await device.open();
	state("compiling", "Preparing the network …");
	const made = await engine.create("Gpt", info.device, { seed: 1, rate: Number($("rate").value) });
	const { parameters, context, vocabulary, text_bytes: size } = await made.call("info");
	$("parameters").textContent = number(parameters, 9);
	$("context").textContent = `${number(context, 9)} tokens`;
	$("vocabulary").textContent = number(vocabulary, 9);
	$("text-size").textContent = binary(size, "B");
	net = made;
}

async function train() {
	clearNotice();
	running = true;
	await ready();
	let steps = 1;
	while (running) {
		state(...(warm < 2 ? ["compiling", "Compiling shaders …"] : ["training", "Training."]));
		const made = await net.call("run", steps);
		warm += 1;
		made.losses.forEach((loss, at) => losses.push([made.step - made.losses.length + at + 1, loss]));
		step = made.step;
		$("speed").textContent = number(made.tokens / made.seconds);
		if (!Number.isFinite(losses.at(-1)[1])) {
			showNotice("The loss is no longer a number: the learning rate is too high. Lower it, then start over.", [
				["Start over", "reset", () => act(reset)],
			]);
			break;
		}
		steps = warm < 2 ? 1 : Math.max(1, Math.min(Math.round((CALL * steps) / Math.max(made.seconds, 1e-4)), 4 * steps));
		if (written >= SAMPLE) await begin();
		const until = performance.now() + BREATH;
		do await token();
		while (running && written < SAMPLE && performance.now() < until);
	}
	running = false;
	state("paused", "Paused.");
}

async function write() {
	clearNotice();
	running = true;
	await ready();
	state("running", "Writing.");
	await begin();
	while (running && written < SAMPLE) await token();
	running = false;
	state("paused", "Written.");
}

async function begin() {
	const loss = losses.length ? `, loss ${losses.at(-1)[1].toFixed(2)}` : "";
	const start = await net.call("write", $("prompt").value, Number($("temperature").value));
	written = 0;
	append(`${$("text").textContent ? "\n\n" : ""}// step ${step}${loss}\n${start}`);
}

let recent = [];
async function token() {
	const before = performance.now();
	append(await net.call("next"));
	written += 1;
	recent = [...recent, performance.now() - before].slice(-20);
	$("writing").textContent = number((1000 * recent.length) / recent.reduce((sum, each) => sum + each), 2);
}

// One text node grows; it follows the end unless one has scrolled up to read.
function append(piece) {
	const box = $("text");
	const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
	const text = box.textContent + piece;
	box.textContent = text.length > KEPT ? text.slice(text.indexOf("\n", text.length - KEPT)) : text;
	if (follows) box.scrollTop = box.scrollHeight;
}

const chart = new LineChart($("chart"), {
	label: "Training loss by step",
	x: { label: "step", span: [0, 100] },
	y: { label: "loss", span: [0, 4] },
	series: [{ name: "loss", color: "--blue" }],
});

function show() {
	const loss = losses.at(-1)?.[1];
	Object.assign($("main").dataset, { step, loss: loss ?? "" });
	$("step-count").textContent = number(step, 9);
	$("loss").textContent = loss === undefined ? "–" : loss.toPrecision(3);
	chart.draw([losses]);
	say("start", running ? "Pause" : step ? "Go on" : "Start");
	const waits = ["opening", "compiling"].includes(document.body.dataset.state);
	if (waits) $("progress").removeAttribute("value");
	else $("progress").value = 0;
}

async function reset() {
	asked = train;
	clearNotice();
	drop();
	step = 0;
	losses = [];
	$("text").textContent = "";
	$("speed").textContent = $("writing").textContent = "–";
	state("idle", "Not started.");
}

$("start").onclick = () => {
	if (running) running = false;
	else act(train);
};
$("write").onclick = () => {
	// While it trains, a new text begins with the next call.
	if (document.body.dataset.state === "training") written = Infinity;
	else act(write);
};
$("reset").onclick = () => act(reset);
$("rate").onchange = () => {
	if (!$("rate").checkValidity() || !$("rate").value) $("rate").value = $("rate").defaultValue;
	if (net) say("status", "The learning rate holds from the next start over on.");
};
$("temperature").oninput = () => ($("temperature-value").value = $("temperature").value);
device.onChange(() => net && act(reset));

show();
if (params.get("auto") === "1") act(train);
