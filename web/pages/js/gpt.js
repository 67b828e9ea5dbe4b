// Trains a small transformer on WGSL and generates text between training steps.
import { $, formatBinary, formatNumber, params } from "./page.js";
import { clearNotice } from "./notice.js";
import { Learning, bindLearningRate } from "./learning.js";
import { LineChart } from "./chart.js";

const TEXT_TOKENS = 500; // length of a generated text
const MAX_CHARACTERS = 20_000; // older output is removed from the page
const PROFILED_STEPS = 3;
const GENERATION_MS = 60; // generation time between training calls

const learning = new Learning({ train, reset, create, update, onDrop });

let trainingCalls = 0; // of this network; the first two compile shaders
let training = false;
let learningRateChanged = false; // since the network last received it
let step = 0;
let losses = [];
let generatedTokens = Infinity; // of the current text; Infinity starts a new one

function onDrop() {
	training = false;
	generatedTokens = Infinity;
}

async function create(info) {
	// A new network starts untrained, after a failure too.
	step = 0;
	losses = [];
	trainingCalls = 0;
	learningRateChanged = false;
	const network = await learning.engine.create("Gpt", info.device, {
		seed: 1,
		rate: Number($("learning-rate").value),
		precision: $("precision").value,
	});
	const { parameters, context_length, vocabulary_size, corpus_bytes, products } =
		await network.call("info");
	$("products").textContent = products;
	$("parameters").textContent = formatNumber(parameters, 9);
	$("context-length").textContent = `${formatNumber(context_length, 9)} tokens`;
	$("vocabulary-size").textContent = formatNumber(vocabulary_size, 9);
	$("corpus-size").textContent = formatBinary(corpus_bytes, "B");
	await showScale(network);
	return network;
}

// The loss scale of f16, which halves when a gradient is infinite: that step changes nothing.
async function showScale(network) {
	const state = await network.call("scale");
	$("scale").textContent = state
		? `${formatNumber(state.scale, 9)}, skipped steps: ${formatNumber(state.skipped_steps, 9)}`
		: "none";
	$("scale").dataset.steps = state ? state.good_steps + state.skipped_steps : "";
}

async function train() {
	clearNotice();
	learning.running = training = true;
	await learning.ensureNetwork();
	const { network } = learning;
	let steps = 1;
	while (learning.running) {
		if (trainingCalls < 2) learning.setState("compiling", "Compiling shaders…");
		else learning.setState("training", "Training…");
		if (learningRateChanged) {
			await network.call("set_learning_rate", Number($("learning-rate").value));
		}
		learningRateChanged = false;
		const report = await network.call("run", steps);
		trainingCalls += 1;
		const firstStep = report.step - report.losses.length + 1;
		losses.push(...report.losses.map((loss, index) => [firstStep + index, loss]));
		step = report.step;
		$("speed").textContent = formatNumber(report.samples / report.seconds);
		await showScale(network);
		if (learning.stopIfDiverged(losses.at(-1)[1])) break;
		steps = trainingCalls < 2 ? 1 : learning.nextStepCount(steps, report.seconds);
		if (generatedTokens >= TEXT_TOKENS) await startText();
		const deadline = performance.now() + GENERATION_MS;
		do await generateToken();
		while (learning.running && generatedTokens < TEXT_TOKENS && performance.now() < deadline);
	}
	learning.running = training = false;
	learning.setState("paused", "Paused.");
}

async function generate() {
	clearNotice();
	learning.running = true;
	await learning.ensureNetwork();
	learning.setState("running", "Generating…");
	await startText();
	while (learning.running && generatedTokens < TEXT_TOKENS) await generateToken();
	learning.running = false;
	learning.setState("paused", generatedTokens < TEXT_TOKENS ? "Paused." : "Generation complete.");
}

async function profile() {
	clearNotice();
	learning.running = true;
	await learning.ensureNetwork();
	learning.setState("profiling", "Profiling three steps…");
	// The first steps compile shaders.
	for (; trainingCalls < 2; trainingCalls += 1) step = (await learning.network.call("run", 1)).step;
	try {
		sessionStorage.setItem("profile", await learning.network.call("profile", PROFILED_STEPS));
		step += PROFILED_STEPS;
		await showScale(learning.network);
		$("profile-section").hidden = false;
		$("profile-frame").src = "profile.html";
		learning.setState("paused", "The profile is at the end of this page.");
	} catch (error) {
		// A browser without timestamps.
		if (!String(error.message).includes("GPU time")) throw error;
		learning.setState("paused", error.message);
	}
	learning.running = false;
	update();
}

async function startText() {
	const loss = losses.length ? `, loss ${losses.at(-1)[1].toFixed(2)}` : "";
	const prompt = await learning.network.call("start_text", $("prompt").value);
	generatedTokens = 0;
	append(`${$("output").textContent ? "\n\n" : ""}// step ${step}${loss}\n${prompt}`);
}

let recentTimes = []; // milliseconds of the last 20 tokens
async function generateToken() {
	const start = performance.now();
	append(await learning.network.call("next_token", Number($("temperature").value)));
	generatedTokens += 1;
	recentTimes = [...recentTimes, performance.now() - start].slice(-20);
	const total = recentTimes.reduce((sum, time) => sum + time);
	$("generation-speed").textContent = formatNumber((1000 * recentTimes.length) / total, 2);
}

// Scrolls to the end, unless the user has scrolled up.
function append(piece) {
	const box = $("output");
	const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
	const text = box.textContent + piece;
	const cut = text.length > MAX_CHARACTERS;
	box.textContent = cut ? text.slice(text.indexOf("\n", text.length - MAX_CHARACTERS)) : text;
	if (atEnd) box.scrollTop = box.scrollHeight;
}

const chart = new LineChart($("chart"), {
	label: "Training loss by step",
	x: { label: "step", domain: [0, 100] },
	y: { label: "loss", domain: [0, 5] },
	series: [{ name: "loss", color: "--blue" }],
});

function update() {
	const loss = losses.at(-1)?.[1];
	Object.assign($("main").dataset, { step, loss: loss ?? "" });
	$("step-count").textContent = formatNumber(step, 9);
	$("loss").textContent = loss === undefined ? "–" : loss.toPrecision(3);
	chart.draw([losses]);
	learning.updateControls(step ? "Resume" : "Train", 0);
}

async function reset() {
	learning.resetNetwork();
	step = 0;
	losses = [];
	$("output").textContent = "";
	for (const id of ["speed", "generation-speed", "products", "scale"]) $(id).textContent = "–";
	learning.setState("idle", "Not started.");
}

$("generate").onclick = () => {
	// During training, a new text starts after the next training call.
	if (learning.running && training) generatedTokens = Infinity;
	else learning.schedule(generate);
};
$("profile").onclick = () => learning.schedule(profile);
bindLearningRate(() => (learningRateChanged = true));
$("temperature").oninput = () => ($("temperature-value").value = $("temperature").value);
const startAnew = () => (learning.network || learning.running) && learning.schedule(reset);
learning.device.onChange(startAnew);
$("precision").onchange = startAnew;

update();
if (params.get("auto") === "1") learning.schedule(train);
