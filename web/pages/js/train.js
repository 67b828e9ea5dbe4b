// Trains the digits network: curves, figures, and its opinion of what one draws.
import { $, binary, number, params, say, setState } from "./page.js";
import { clearNotice, showNotice } from "./notice.js";
import { Engine } from "./engine.js";
import { Learning, rateField } from "./learning.js";
import { LineChart } from "./chart.js";
import { Pad } from "./pad.js";

const EPOCH = 1437; // images
const EPOCHS = 20; // after so many more it pauses by itself
const LARGEST = 4 << 20; // bytes: no weights file of this network is larger

const learning = new Learning({ train, reset, create, show });

let info = null; // of the network's device
let changed = false; // settings that the network has not been told
let warm = false; // its first steps, which compile shaders, are done
let counted = 0; // its epochs
let run = blank();

function blank() {
	return { step: 0, epoch: 0, images: 0, inEpoch: 0, speed: NaN, until: EPOCHS, losses: [], accuracies: [], kept: null };
}

function settings() {
	return { rate: Number($("rate").value), batch: Number($("batch").value) };
}

async function create(opened) {
	const made = await learning.engine.create("Digits", opened.device, { seed: 1, ...settings() });
	rewind();
	if (run.kept) await made.call("set_weights", run.kept.weights);
	info = opened;
	warm = changed = false;
	counted = 0;
	return made;
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
	learning.running = true;
	await learning.ready();
	predict();
	if (run.epoch >= run.until) run.until = run.epoch + EPOCHS;
	let steps = 1;
	while (learning.running && run.epoch < run.until) {
		const seconds = await advance(steps);
		const toEpoch = Math.ceil((EPOCH - run.inEpoch) / settings().batch);
		steps = Math.max(1, Math.min(learning.paced(steps, seconds), toEpoch));
	}
	learning.running = false;
	if (run.epoch < run.until) learning.state("paused", "Paused.");
	else learning.state("done", `${run.epoch} epochs done: ${percent(run.accuracies.at(-1)[1])} right.`);
}

async function single() {
	clearNotice();
	await learning.ready();
	await advance(1);
	predict();
	learning.state("paused", "Paused after one step.");
}

/** Some steps, and the accuracy where they end an epoch; tells the seconds of the steps. */
async function advance(steps) {
	if (warm) learning.state("training", "Training.");
	else learning.state("compiling", "Compiling shaders …");
	const now = learning.net;
	if (changed) await now.call("set", settings());
	changed = false;
	const { losses, samples: images, seconds, epoch } = await now.call("run", steps);
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
	learning.diverged(losses.at(-1));
	return seconds;
}

async function measure(network) {
	run.accuracies.push([run.images / EPOCH, await network.call("accuracy")]);
}

let looked = 0;
function memory() {
	if (performance.now() - looked < 1000) return;
	looked = performance.now();
	const tell = (bytes) => say("memory", bytes ? binary(bytes.in_use, "B") : "–");
	learning.engine.call("device_memory", info.device).then(tell, () => {}); // the training itself tells of a lost device
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
	lossChart.draw([run.losses]);
	accuracyChart.draw([run.accuracies]);
	$("step").disabled = learning.running;
	$("save").disabled = !learning.net;
	$("lose").disabled = !learning.net || !info.gpu;
	const label = epoch >= until ? `${EPOCHS} more epochs` : step ? "Go on" : "Start";
	learning.show(label, images / EPOCH / until);
}

async function reset() {
	learning.forget();
	run = blank();
	learning.state("idle", "Not started.");
	predict();
}

$("step").onclick = () => learning.act(single);
$("clear").onclick = () => pad.clear();

// While it trains, the next step tells of it.
$("lose").onclick = async () => {
	const trained = learning.running;
	const closed = learning.engine.call("close", info.device);
	await closed.catch((error) => learning.device.fail(error));
	if (!trained) learning.device.fail(new Error("The device was given back: what was on it is lost."));
};

const change = () => (changed = true);
rateField(change);
$("batch").onchange = change;

// The network moves along to the other device; from a lost one, as it was at the last epoch.
learning.device.onChange(() => {
	const went = learning.running;
	learning.act(async () => {
		learning.again = train;
		if (!learning.net) return;
		await learning.net.call("weights").then(keep, () => {});
		learning.drop();
		if (went) await train();
		else learning.state("paused", "The device changes with the next step.");
	});
});

$("save").onclick = async () => {
	let weights;
	try {
		weights = await learning.net.call("weights");
	} catch (error) {
		learning.device.fail(error);
		return;
	}
	try {
		const link = document.createElement("a");
		link.href = URL.createObjectURL(new Blob([await withFiles("weights_file", weights)]));
		link.download = "digits.mpk";
		link.click();
		setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
	} catch (error) {
		showNotice(`The weights could not be saved: ${error.message}`, [["Try again", "save", () => $("save").click()]]);
	}
};

$("load").onchange = () => {
	const [file] = $("load").files;
	if (file) learning.act(() => load(file));
};

/** Files are read and written by the whole module, which this page has no other use for: it is loaded for that and let go again. */
async function withFiles(method, ...args) {
	const files = new Engine("all");
	try {
		return await files.call(method, ...args);
	} finally {
		files.stop();
	}
}

async function load(file) {
	$("load").value = ""; // so that the same file can be chosen again
	await learning.ready();
	learning.again = train;
	let weights;
	try {
		if (file.size > LARGEST) throw new Error("it is too large to be this network's weights.");
		weights = await withFiles("file_weights", new Uint8Array(await file.arrayBuffer()));
		await learning.net.call("set_weights", weights);
	} catch (error) {
		if (learning.engine.dead) throw error;
		learning.state("paused", "No weights loaded.");
		showNotice(`${file.name}: ${error.message}`, [
			["Try again", "load", () => learning.act(() => load(file))],
			["Choose another file", "choose", () => $("load").click()],
		]);
		return;
	}
	clearNotice();
	await measure(learning.net);
	keep(weights);
	learning.state("paused", `Weights loaded from ${file.name}: ${percent(run.accuracies.at(-1)[1])} right.`);
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
	const { net } = learning;
	let [pixels, shares] = [null, null];
	try {
		pixels = pad.image();
		if (net && pixels) shares = await net.call("predict", pixels);
	} catch (error) {
		if (net === learning.net) learning.device.fail(error); // else it went meanwhile, and that is known
	}
	asking = false;
	const sure = shares?.every(Number.isFinite);
	const most = sure ? Math.max(...shares) : NaN;
	bars.forEach((row, digit) => {
		row.style.setProperty("--share", sure ? shares[digit] : 0);
		row.className = sure && shares[digit] === most ? "best" : "";
		row.lastChild.textContent = percent(sure ? shares[digit] : undefined);
	});
	if (stale) return predict();
	if (pad.drawing) return;
	if (sure) say("verdict", `Looks like a ${shares.indexOf(most)}.`);
	else if (shares) say("verdict", "The network's weights are no longer numbers: start over or load some.");
	else say("verdict", pixels ? "No network yet: start the training or load weights." : "Nothing drawn.");
}

show();
predict();
if (params.get("auto") === "1") learning.act(train);
