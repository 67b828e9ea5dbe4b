// Trains the digits network: curves, figures, and its opinion of what one draws.
import { $, binary, number, params, say, setState } from "./page.js";
import { clearNotice, showNotice } from "./notice.js";
import { Engine } from "./engine.js";
import { Device } from "./device.js";
import { LineChart } from "./chart.js";
import { Pad } from "./pad.js";

const EPOCH = 1437; // images
const EPOCHS = 20; // after so many more it pauses by itself
const CALL = 0.15; // seconds that a call to the worker should take

const engine = new Engine();
const device = new Device(engine, drop, () => act(asked));

let net = null;
let word = ""; // of the network's device
let running = false;
let changed = false; // settings that the network has not been told
let warm = false; // its first steps, which compile shaders, are done
let counted = 0; // its epochs
let asked = train; // what a recovery goes on with
let run = blank();

function blank() {
	return { step: 0, epoch: 0, images: 0, inEpoch: 0, speed: NaN, until: EPOCHS, losses: [], accuracies: [], kept: null };
}

// One thing at a time: a new one pauses the training and waits for what is still under way.
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
	show();
}

function settings() {
	return { rate: Number($("rate").value), batch: Number($("batch").value) };
}

async function ready() {
	if (net) return;
	state("opening", "Opening the device …");
	const info = await device.open();
	state("compiling", "Preparing the network …");
	const made = await engine.create("Digits", info.device, { seed: 1, ...settings() });
	rewind();
	if (run.kept) await made.call("set_weights", run.kept.weights);
	word = info.device;
	warm = changed = false;
	counted = 0;
	net = made;
}

// After a failure or a change of device the run goes on from the weights last kept.
function keep(weights) {
	const { kept, losses, accuracies, ...counts } = run;
	run.kept = { weights, counts, losses: losses.length, accuracies: accuracies.length };
}

function rewind() {
	const { kept } = run;
	if (!kept) run = blank();
	else Object.assign(run, kept.counts);
	run.losses.length = kept?.losses ?? 0;
	run.accuracies.length = kept?.accuracies ?? 0;
}

async function train() {
	clearNotice();
	running = true;
	await ready();
	if (run.epoch >= run.until) run.until = run.epoch + EPOCHS;
	let steps = 1;
	while (running && run.epoch < run.until) {
		const seconds = await advance(steps);
		const toEpoch = Math.ceil((EPOCH - run.inEpoch) / settings().batch);
		steps = Math.max(1, Math.min(Math.round((CALL * steps) / seconds), 4 * steps, toEpoch));
	}
	running = false;
	if (run.epoch < run.until) state("paused", "Paused.");
	else state("done", `${run.epoch} epochs done: ${percent(run.accuracies.at(-1)[1])} right.`);
}

async function single() {
	clearNotice();
	await ready();
	await advance(1);
	state("paused", "Paused after one step.");
}

/** Some steps, and the accuracy where they end an epoch; tells the seconds of the steps. */
async function advance(steps) {
	if (warm) state("training", "Training.");
	else state("compiling", "Compiling shaders …");
	const now = net;
	if (changed) await now.call("set", settings());
	changed = false;
	const { losses, images, seconds, epoch } = await now.call("run", steps);
	warm ||= run.step > 0;
	losses.forEach((loss, at) => run.losses.push([(run.images + (images * (at + 1)) / losses.length) / EPOCH, loss]));
	run.step += losses.length;
	run.images += images;
	run.inEpoch += images;
	run.speed = run.speed > 0 ? 0.8 * run.speed + (0.2 * images) / seconds : images / seconds;
	memory();
	// Counted from differences, so that it goes on where a fresh network took over old weights.
	const ended = epoch - counted;
	counted = epoch;
	if (ended > 0) {
		run.epoch += ended;
		run.inEpoch = 0;
		await measure(now);
		keep(await now.call("weights"));
		predict();
	}
	show();
	if (!Number.isFinite(losses.at(-1))) {
		running = false;
		showNotice("The loss is no longer a number: the learning rate is too high. Lower it, then start over.", [
			["Start over", "reset", () => act(reset)],
		]);
	}
	return Math.max(seconds, 1e-4);
}

async function measure(network) {
	run.accuracies.push([run.images / EPOCH, await network.call("accuracy")]);
}

let looked = 0;
function memory() {
	if (performance.now() - looked < 1000) return;
	looked = performance.now();
	const tell = (bytes) => say("memory", bytes ? binary(bytes.in_use, "B") : "–");
	engine.call("device_memory", word).then(tell, () => {}); // the training itself tells of a lost device
}

const percent = (share) => (share === undefined ? "–" : `${(100 * share).toFixed(1)} %`);

const x = { label: "epoch", span: [0, EPOCHS] };
const lossChart = new LineChart($("loss-chart"), {
	label: "Training loss",
	x,
	y: { label: "loss", span: [0.1, 3], log: true },
	series: [{ name: "loss", color: "--blue" }],
});
const accuracyChart = new LineChart($("accuracy-chart"), {
	label: "Held-out images right",
	x,
	y: { label: "right", span: [0, 1], format: (share) => `${Math.round(100 * share)} %` },
	series: [{ name: "right", color: "--orange", dots: true }],
});

function show() {
	const { step, epoch, until, images } = run;
	const loss = run.losses.at(-1)?.[1];
	const accuracy = run.accuracies.at(-1)?.[1];
	Object.assign($("main").dataset, { step, epoch, loss: loss ?? "", accuracy: accuracy ?? "" });
	say("step-count", number(step, 9));
	say("epoch-count", `${epoch} of ${until}`);
	say("loss", loss === undefined ? "–" : loss.toPrecision(3));
	say("accuracy", percent(accuracy));
	say("speed", number(run.speed));
	say("start", running ? "Pause" : epoch >= until ? `${EPOCHS} more epochs` : step ? "Go on" : "Start");
	lossChart.draw([run.losses]);
	accuracyChart.draw([run.accuracies]);
	$("step").disabled = running;
	$("save").disabled = $("lose").disabled = !net;
	if (["opening", "compiling"].includes(document.body.dataset.state)) $("progress").removeAttribute("value");
	else $("progress").value = images / EPOCH / until;
}

async function reset() {
	asked = train;
	clearNotice();
	drop();
	run = blank();
	state("idle", "Not started.");
	predict();
}

$("start").onclick = () => {
	if (running) running = false;
	else act(train);
};
$("step").onclick = () => act(single);
$("reset").onclick = () => act(reset);
$("clear").onclick = () => pad.clear();

// The next step then tells of it.
$("lose").onclick = () => engine.call("close", word).catch((error) => device.fail(error));

function slide() {
	$("rate-slider").value = Math.log10($("rate").value);
	$("rate-slider").ariaValueText = $("rate").value;
	changed = true;
}
$("rate").onchange = () => {
	if (!$("rate").checkValidity() || !$("rate").value) $("rate").value = $("rate").defaultValue;
	slide();
};
$("rate-slider").oninput = () => {
	$("rate").value = Number((10 ** $("rate-slider").value).toPrecision(2));
	slide();
};
$("batch").onchange = () => (changed = true);

// The network moves along to the other device; from a lost one, as it was at the last epoch.
device.onChange(() => {
	const went = running;
	act(async () => {
		asked = train;
		if (!net) return;
		await net.call("weights").then(keep, () => {});
		drop();
		if (went) await train();
		else state("paused", "The device changes with the next step.");
	});
});

$("save").onclick = async () => {
	try {
		const link = document.createElement("a");
		link.href = URL.createObjectURL(new Blob([await files().call("weights_file", await net.call("weights"))]));
		link.download = "digits.mpk";
		link.click();
		setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
	} catch (error) {
		device.fail(error);
	}
};

$("load").onchange = () => {
	const [file] = $("load").files;
	if (file) act(() => load(file));
};

// Files are read and written by the whole module, which this page has no other use for and loads when it is asked to.
let writer;
function files() {
	writer ??= new Engine("all");
	return writer.alive();
}

async function load(file) {
	const bytes = new Uint8Array(await file.arrayBuffer());
	$("load").value = ""; // so that the same file can be chosen again
	await ready();
	asked = train;
	let weights;
	try {
		weights = await files().call("file_weights", bytes);
		await net.call("set_weights", weights);
	} catch (error) {
		if (engine.dead) throw error;
		state("paused", "No weights loaded.");
		showNotice(`${file.name}: ${error.message}`, [["Choose another file", "choose", () => $("load").click()]]);
		return;
	}
	clearNotice();
	await measure(net);
	keep(weights);
	state("paused", `Weights loaded from ${file.name}: ${percent(run.accuracies.at(-1)[1])} right.`);
	predict();
}

const pad = new Pad($("pad"), $("preview"), $("pad-say"), predict);

const bars = Array.from({ length: 10 }, (_, digit) => {
	const row = document.createElement("li");
	row.innerHTML = `<span>${digit}</span><span class="bar"></span><span class="value">–</span>`;
	$("bars").append(row);
	return row;
});

/** One question at a time; what is drawn meanwhile is asked afterwards. */
let asking = false;
let stale = false;
async function predict() {
	stale = asking;
	if (asking) return;
	asking = true;
	const pixels = pad.image();
	const shares = net && pixels && (await net.call("predict", pixels).catch((error) => device.fail(error)));
	asking = false;
	const most = shares && Math.max(...shares);
	bars.forEach((row, digit) => {
		row.style.setProperty("--share", shares?.[digit] ?? 0);
		row.className = most && shares[digit] === most ? "best" : "";
		row.lastChild.textContent = percent(shares?.[digit]);
	});
	if (stale) return predict();
	if (pad.drawing) return;
	if (most) say("verdict", `Looks like a ${shares.indexOf(most)}.`);
	else say("verdict", pixels ? "No network yet: start the training or load weights." : "Nothing drawn.");
}

slide();
show();
predict();
if (params.get("auto") === "1") act(train);
