// The page of experiments. An experiment that measures is loaded when its button is pressed.
import { $ } from "./page.js";
import { showAmdahl } from "./learn/amdahl.js";
import { showRoofline } from "./learn/roofline.js";
import { showMemory } from "./learn/memory.js";
import { startQuiz } from "./learn/quiz.js";

let isMeasuring = false;

/** Runs `measure(report)` when the button of an experiment is pressed, one experiment at a time. */
function onStart(name, measure) {
	const status = $(`${name}-status`);
	$(`${name}-start`).onclick = async () => {
		if (isMeasuring) return;
		isMeasuring = true;
		document.body.dataset.state = "running";
		for (const button of document.querySelectorAll("button.primary")) button.disabled = true;
		try {
			status.textContent = "Measuring…";
			status.textContent = await measure((text) => (status.textContent = text));
			document.body.dataset.state = "done";
		} catch (error) {
			status.textContent = `Not measured: ${error.message}`;
			document.body.dataset.state = "failed";
		}
		for (const button of document.querySelectorAll("button.primary")) button.disabled = false;
		isMeasuring = false;
	};
}

onStart("lanes", async (report) => (await import("./learn/lanes.js")).measureLanes(report));
onStart("caches", async (report) => (await import("./learn/caches.js")).measureCaches(report));
onStart("moves", async (report) => (await import("./learn/moves.js")).measureMoves(report));
const memory = showMemory();
onStart("memory", async () => memory.measure());
const roofline = showRoofline();
onStart("roofline", async (report) => roofline.measure(report));
showAmdahl();
startQuiz();
