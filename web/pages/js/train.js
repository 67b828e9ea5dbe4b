// Trains the digits network: charts, metrics, and the prediction for the user's drawing.
import { $, formatBinary, formatNumber, params, setText } from "./page.js";
import { clearNotice, showNotice } from "./notice.js";
import { Engine } from "./engine.js";
import { Learning, bindLearningRate } from "./learning.js";
import { LineChart } from "./chart.js";
import { Pad } from "./pad.js";

const TRAINING_IMAGES = 1437;
const EPOCHS = 20; // training pauses after this many epochs
const MAX_FILE_BYTES = 4 << 20; // weights files of this network are smaller

const learning = new Learning({ train, reset, create, update });

let deviceInfo = null; // the device of the network
let settingsChanged = false; // since the network last received them
let shadersCompiled = false;
let networkEpochs = 0; // epochs of the current network object, which a new device resets
let run = newRun();

function newRun() {
	return {
		step: 0,
		epoch: 0,
		images: 0,
		imagesInEpoch: 0,
		speed: NaN, // images per second
		targetEpoch: EPOCHS,
		losses: [], // [epoch, loss]
		accuracies: [], // [epoch, accuracy]
		checkpoint: null,
	};
}

function settings() {
	return { rate: Number($("learning-rate").value), batch: Number($("batch-size").value) };
}

async function create(info) {
	const network = await learning.engine.create("Digits", info.device, { seed: 1, ...settings() });
	restoreCheckpoint();
	if (run.checkpoint) await network.call("set_weights", run.checkpoint.weights);
	deviceInfo = info;
	shadersCompiled = settingsChanged = false;
	networkEpochs = 0;
	return network;
}

// Training resumes from the last checkpoint after a failure or a change of device.
function saveCheckpoint(weights) {
	const { checkpoint, losses, accuracies, ...counts } = run;
	run.checkpoint = { weights, counts, losses: losses.length, accuracies: accuracies.length };
}

function restoreCheckpoint() {
	const { checkpoint } = run;
	if (!checkpoint) run = newRun();
	else Object.assign(run, checkpoint.counts);
	run.losses.length = checkpoint?.losses ?? 0;
	run.accuracies.length = checkpoint?.accuracies ?? 0;
}

async function train() {
	clearNotice();
	learning.running = true;
	await learning.ensureNetwork();
	predict();
	if (run.epoch >= run.targetEpoch) run.targetEpoch = run.epoch + EPOCHS;
	let steps = 1;
	while (learning.running && run.epoch < run.targetEpoch) {
		const seconds = await trainSteps(steps);
		const stepsToEpochEnd = Math.ceil((TRAINING_IMAGES - run.imagesInEpoch) / settings().batch);
		steps = Math.max(1, Math.min(learning.nextStepCount(steps, seconds), stepsToEpochEnd));
	}
	learning.running = false;
	if (run.epoch < run.targetEpoch) {
		learning.setState("paused", "Paused.");
	} else {
		const message = `Trained for ${run.epoch} epochs. Test accuracy: ${lastAccuracy()}.`;
		learning.setState("done", message);
	}
}

async function trainSingleStep() {
	clearNotice();
	await learning.ensureNetwork();
	await trainSteps(1);
	predict();
	learning.setState("paused", "Paused after one step.");
}

/**
 * Trains some steps and measures the accuracy if they end an epoch. Returns the seconds that the
 * steps took.
 */
async function trainSteps(steps) {
	if (shadersCompiled) learning.setState("training", "Training…");
	else learning.setState("compiling", "Compiling shaders…");
	const { network } = learning;
	if (settingsChanged) await network.call("configure", settings());
	settingsChanged = false;
	const { losses, samples: images, seconds, epoch } = await network.call("run", steps);
	shadersCompiled ||= run.step > 0;
	losses.forEach((loss, index) => {
		const trainedImages = run.images + (images * (index + 1)) / losses.length;
		run.losses.push([trainedImages / TRAINING_IMAGES, loss]);
	});
	run.step += losses.length;
	run.images += images;
	run.imagesInEpoch += images;
	run.speed = run.speed > 0 ? 0.8 * run.speed + (0.2 * images) / seconds : images / seconds;
	updateMemory();
	// A new network that resumes a run counts its epochs from 0: add the difference.
	const endedEpochs = epoch - networkEpochs;
	networkEpochs = epoch;
	if (endedEpochs > 0) {
		run.epoch += endedEpochs;
		run.imagesInEpoch = 0;
		await measureAccuracy(network);
		saveCheckpoint(await network.call("weights"));
		predict();
	}
	update();
	learning.stopIfDiverged(losses.at(-1));
	return seconds;
}

async function measureAccuracy(network) {
	run.accuracies.push([run.images / TRAINING_IMAGES, await network.call("accuracy")]);
}

let memoryUpdated = 0;
function updateMemory() {
	if (performance.now() - memoryUpdated < 1000) return;
	memoryUpdated = performance.now();
	const show = (usage) => setText("memory", usage ? formatBinary(usage.in_use, "B") : "–");
	// Errors are ignored: training itself reports a lost device.
	learning.engine.call("device_memory", deviceInfo.device).then(show, () => {});
}

const percent = (fraction) => (fraction === undefined ? "–" : `${(100 * fraction).toFixed(1)}%`);
const lastAccuracy = () => percent(run.accuracies.at(-1)?.[1]);

const x = { label: "epoch", domain: [0, EPOCHS] };
const lossChart = new LineChart($("loss-chart"), {
	label: "Training loss",
	x,
	y: { label: "loss", domain: [0.1, 3], log: true },
	series: [{ name: "loss", color: "--blue" }],
});
const accuracyChart = new LineChart($("accuracy-chart"), {
	label: "Test accuracy",
	x,
	y: { label: "accuracy", domain: [0, 1], format: (fraction) => `${Math.round(100 * fraction)}%` },
	series: [{ name: "accuracy", color: "--orange", dots: true }],
});

function update() {
	const { step, epoch, targetEpoch, images } = run;
	const loss = run.losses.at(-1)?.[1];
	const accuracy = run.accuracies.at(-1)?.[1];
	Object.assign($("main").dataset, { step, epoch, loss: loss ?? "", accuracy: accuracy ?? "" });
	setText("step-count", formatNumber(step, 9));
	setText("epoch-count", `${epoch} of ${targetEpoch}`);
	setText("loss", loss === undefined ? "–" : loss.toPrecision(3));
	setText("accuracy", lastAccuracy());
	setText("speed", formatNumber(run.speed));
	lossChart.draw([run.losses]);
	accuracyChart.draw([run.accuracies]);
	$("single-step").disabled = learning.running;
	$("download-weights").disabled = !learning.network;
	$("simulate-loss").disabled = !learning.network || !deviceInfo.is_gpu;
	const label = epoch >= targetEpoch ? `Train ${EPOCHS} more` : step ? "Resume" : "Train";
	learning.updateControls(label, images / TRAINING_IMAGES / targetEpoch);
}

async function reset() {
	learning.resetNetwork();
	run = newRun();
	learning.setState("idle", "Not started.");
	predict();
}

$("single-step").onclick = () => learning.schedule(trainSingleStep);
$("clear").onclick = () => pad.clear();

// During training, the next training step reports the lost device.
$("simulate-loss").onclick = async () => {
	const wasRunning = learning.running;
	const closed = learning.engine.call("close", deviceInfo.device);
	await closed.catch((error) => learning.device.fail(error));
	if (wasRunning) return;
	const message = "The device was lost. Reopen it to resume from the last completed epoch.";
	learning.device.fail(new Error(message));
};

const onSettingsChange = () => (settingsChanged = true);
bindLearningRate(onSettingsChange);
$("batch-size").onchange = onSettingsChange;

// Moves the network to the selected device. If the old device was lost, the last checkpoint is
// used.
learning.device.onChange(() => {
	const wasRunning = learning.running;
	learning.schedule(async () => {
		learning.retryTask = train;
		if (!learning.network) return;
		await learning.network.call("weights").then(saveCheckpoint, () => {});
		learning.dropNetwork();
		if (wasRunning) await train();
		else learning.setState("paused", "The next step will run on the selected device.");
	});
});

$("download-weights").onclick = async () => {
	let weights;
	try {
		weights = await learning.network.call("weights");
	} catch (error) {
		learning.device.fail(error);
		return;
	}
	try {
		const link = document.createElement("a");
		link.href = URL.createObjectURL(new Blob([await callFileModule("encode_weights", weights)]));
		link.download = "digits.mpk";
		link.click();
		setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
	} catch (error) {
		showNotice(`The weights could not be downloaded: ${error.message}`, [
			["Try again", "download", () => $("download-weights").click()],
		]);
	}
};

$("load-weights").onchange = () => {
	const [file] = $("load-weights").files;
	if (file) learning.schedule(() => loadWeights(file));
};

/**
 * Calls a function for weights files. These functions are in the module "all", which is loaded only
 * for this call.
 */
async function callFileModule(method, ...args) {
	const engine = new Engine("all");
	try {
		return await engine.call(method, ...args);
	} finally {
		engine.stop();
	}
}

async function loadWeights(file) {
	$("load-weights").value = ""; // so that the same file can be selected again
	await learning.ensureNetwork();
	learning.retryTask = train;
	let weights;
	try {
		if (file.size > MAX_FILE_BYTES) {
			throw new Error("the file is too large for the weights of this network.");
		}
		weights = await callFileModule("decode_weights", new Uint8Array(await file.arrayBuffer()));
		await learning.network.call("set_weights", weights);
	} catch (error) {
		if (learning.engine.failed) throw error;
		learning.setState("paused", "The weights were not loaded.");
		showNotice(`${file.name}: ${error.message}`, [
			["Try again", "load", () => learning.schedule(() => loadWeights(file))],
			["Choose another file", "choose", () => $("load-weights").click()],
		]);
		return;
	}
	clearNotice();
	await measureAccuracy(learning.network);
	saveCheckpoint(weights);
	learning.setState(
		"paused",
		`Weights loaded from ${file.name}. Test accuracy: ${lastAccuracy()}.`,
	);
	predict();
}

const pad = new Pad($("pad"), $("preview"), $("pad-status"), predict);

$("picture").onchange = () => showPicture($("picture").files[0]);
const drawing = $("pad").closest(".drawing");
drawing.ondragover = (event) => event.preventDefault(); // accepts what is dropped
drawing.ondrop = (event) => {
	event.preventDefault();
	showPicture(event.dataTransfer.files[0]);
};

async function showPicture(file) {
	$("picture").value = ""; // so that the same file can be selected again
	if (!file) return;
	try {
		pad.show(await createImageBitmap(file));
		clearNotice();
	} catch {
		showNotice(`${file.name} is no picture that this browser can show.`);
	}
}

const rows = Array.from({ length: 10 }, (_, digit) => {
	const row = document.createElement("li");
	row.innerHTML = `<span>${digit}</span><span class="bar"></span><span class="value">–</span>`;
	$("probabilities").append(row);
	return row;
});

let predicting = false;
let outdated = false;

/**
 * Predicts the drawn digit. Only one call runs at a time. It repeats if the drawing has changed
 * meanwhile.
 */
async function predict() {
	outdated = predicting;
	if (predicting) return;
	predicting = true;
	const { network } = learning;
	let [pixels, probabilities] = [null, null];
	try {
		pixels = pad.image();
		if (network && pixels) probabilities = await network.call("predict", pixels);
	} catch (error) {
		// If the network has been replaced, its failure has been reported.
		if (network === learning.network) learning.device.fail(error);
	}
	predicting = false;
	const valid = probabilities?.every(Number.isFinite);
	const max = valid ? Math.max(...probabilities) : NaN;
	rows.forEach((row, digit) => {
		row.style.setProperty("--fraction", valid ? probabilities[digit] : 0);
		row.className = valid && probabilities[digit] === max ? "best" : "";
		row.lastChild.textContent = percent(valid ? probabilities[digit] : undefined);
	});
	if (outdated) return predict();
	if (pad.isDrawing) return;
	let text = pixels ? "No network yet. Start training or load weights." : "Nothing drawn yet.";
	if (valid) text = `Prediction: ${probabilities.indexOf(max)}`;
	else if (probabilities) text = "The network's output is not finite. Reset it or load weights.";
	setText("prediction", text);
}

update();
predict();
if (params.get("auto") === "1") learning.schedule(train);
