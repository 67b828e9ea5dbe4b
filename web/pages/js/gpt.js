// A small transformer learns WGSL and writes between training steps.
import { $, binary, number, params } from "./page.js";
import { clearNotice } from "./notice.js";
import { Learning, rateField } from "./learning.js";
import { LineChart } from "./chart.js";

const SAMPLE = 500; // tokens of one text, then a new one begins
const KEPT = 20_000; // characters on the page
const BREATH = 60; // milliseconds of writing between training calls

const learning = new Learning({ train, reset, create, show, dropped });

let warm = 0; // calls made
let training = false;
let changed = false; // a learning rate that the network has not been told
let step = 0;
let losses = [];
let written = Infinity; // tokens of the present text; none has begun

function dropped() {
	training = false;
	written = Infinity;
}

async function create(info) {
	// A fresh network starts from the beginning, also after a failure.
	step = 0;
	losses = [];
	warm = 0;
	changed = false;
	const made = await learning.engine.create("Gpt", info.device, { seed: 1, rate: Number($("rate").value) });
	const { parameters, context, vocabulary, text_bytes: size } = await made.call("info");
	$("parameters").textContent = number(parameters, 9);
	$("context").textContent = `${number(context, 9)} tokens`;
	$("vocabulary").textContent = number(vocabulary, 9);
	$("text-size").textContent = binary(size, "B");
	return made;
}

async function train() {
	clearNotice();
	learning.running = training = true;
	await learning.ready();
	const { net } = learning;
	let steps = 1;
	while (learning.running) {
		learning.state(...(warm < 2 ? ["compiling", "Compiling shaders …"] : ["training", "Training."]));
		if (changed) await net.call("set_rate", Number($("rate").value));
		changed = false;
		const made = await net.call("run", steps);
		warm += 1;
		made.losses.forEach((loss, at) => losses.push([made.step - made.losses.length + at + 1, loss]));
		step = made.step;
		$("speed").textContent = number(made.samples / made.seconds);
		if (learning.diverged(losses.at(-1)[1])) break;
		steps = warm < 2 ? 1 : learning.paced(steps, made.seconds);
		if (written >= SAMPLE) await begin();
		const until = performance.now() + BREATH;
		do await token();
		while (learning.running && written < SAMPLE && performance.now() < until);
	}
	learning.running = training = false;
	learning.state("paused", "Paused.");
}

async function write() {
	clearNotice();
	learning.running = true;
	await learning.ready();
	learning.state("running", "Writing.");
	await begin();
	while (learning.running && written < SAMPLE) await token();
	learning.running = false;
	learning.state("paused", "Written.");
}

async function begin() {
	const loss = losses.length ? `, loss ${losses.at(-1)[1].toFixed(2)}` : "";
	const start = await learning.net.call("write", $("prompt").value);
	written = 0;
	append(`${$("text").textContent ? "\n\n" : ""}// step ${step}${loss}\n${start}`);
}

let recent = [];
async function token() {
	const before = performance.now();
	append(await learning.net.call("next", Number($("temperature").value)));
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
	y: { label: "loss", span: [0, 5] },
	series: [{ name: "loss", color: "--blue" }],
});

function show() {
	const loss = losses.at(-1)?.[1];
	Object.assign($("main").dataset, { step, loss: loss ?? "" });
	$("step-count").textContent = number(step, 9);
	$("loss").textContent = loss === undefined ? "–" : loss.toPrecision(3);
	chart.draw([losses]);
	learning.show(step ? "Go on" : "Start", 0);
}

async function reset() {
	learning.forget();
	step = 0;
	losses = [];
	$("text").textContent = "";
	$("speed").textContent = $("writing").textContent = "–";
	learning.state("idle", "Not started.");
}

$("write").onclick = () => {
	// While it trains, a new text begins with the next call.
	if (learning.running && training) written = Infinity;
	else learning.act(write);
};
rateField(() => (changed = true));
$("temperature").oninput = () => ($("temperature-value").value = $("temperature").value);
learning.device.onChange(() => (learning.net || learning.running) && learning.act(reset));

show();
if (params.get("auto") === "1") learning.act(train);
