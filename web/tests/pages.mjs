// What each page must do, as its user would find out. Each export is a test; run.mjs fails it for any console output too.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import assert from "node:assert/strict";

const GPU = "device=software";

/** Longest blocks of the page's own thread since the page was opened, in milliseconds. */
const watchBlocks = (page) =>
  page.addInitScript(() => {
    window.blocks = [];
    new PerformanceObserver((list) => window.blocks.push(...list.getEntries().map(({ duration }) => duration))).observe({
      type: "longtask",
      buffered: true,
    });
  });

const numbers = (page) => page.evaluate(() => ({ ...document.getElementById("main").dataset }));

/** Calls the worker from a test, past the page. */
const engine = (page) =>
  page.evaluate(async () => {
    const { Engine } = await import("./js/engine.js");
    window.engine = new Engine("all");
  });

export async function ops({ page, go }) {
  await go("index.html");
  await engine(page);
  const { count, failed } = await page.evaluate(async () => {
    const { device } = await window.engine.call("open", "software");
    const count = await window.engine.call("check_count");
    const failed = [];
    for (let at = 0; at < count; at += 1) {
      const answer = await window.engine.call("check", at, device).catch((error) => `case ${at}: ${error.message}`);
      if (answer) failed.push(answer);
      if (window.engine.dead) break;
    }
    return { count, failed };
  });
  assert.deepEqual(failed, []);
  assert.ok(count > 300, `only ${count} cases`);
}

export async function train({ page, go, state, shot, results }) {
  await watchBlocks(page);
  const opened = performance.now();
  await go(`train.html?${GPU}&auto=1`);
  await page.waitForFunction(() => Number(document.getElementById("main").dataset.step) >= 1);
  const first = (performance.now() - opened) / 1e3;
  await state("training");
  await page.waitForFunction(() => Number(document.getElementById("main").dataset.epoch) >= 1);
  await page.click("#start");
  await state("paused");
  const told = await numbers(page);
  assert.ok(Number(told.accuracy) > 0.6, `accuracy ${told.accuracy} after an epoch`);
  assert.ok(Number(told.loss) < 2, `loss ${told.loss}`);
  const speed = await page.textContent("#speed");
  await shot("train");

  // A seven, drawn with the mouse.
  await page.locator("#pad").scrollIntoViewIfNeeded();
  const pad = await page.locator("#pad").boundingBox();
  const at = (x, y) => [pad.x + pad.width * x, pad.y + pad.height * y];
  await page.mouse.move(...at(0.25, 0.15));
  await page.mouse.down();
  for (const point of [[0.75, 0.15], [0.6, 0.5], [0.45, 0.85]]) await page.mouse.move(...at(...point), { steps: 8 });
  await page.mouse.up();
  await page.waitForFunction(() => document.getElementById("verdict").textContent.startsWith("Looks like"));
  const probabilities = () => page.$$eval("#bars li .value", (all) => all.map((each) => Number.parseFloat(each.textContent)));
  const shares = await probabilities();
  const sum = shares.reduce((a, b) => a + b);
  assert.ok(shares.length === 10 && Math.abs(sum - 100) < 1, `the probabilities add up to ${sum} %`);
  await shot("train-drawn");

  // Weights go out and come back; what is no weights file is refused with a message.
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save")]);
  const file = join(results, "digits.mpk");
  await download.saveAs(file);
  await page.setInputFiles("#load", file);
  await page.waitForFunction(() => document.getElementById("status").textContent.startsWith("Weights loaded"));
  const loaded = await numbers(page);
  await page.waitForFunction(() => document.getElementById("verdict").textContent.startsWith("Looks like"));
  assert.deepEqual(await probabilities(), shares, "the same weights see the same digit");
  for (const [name, bytes, expected] of [
    ["text.mpk", Buffer.from("no model"), "is not a model"],
    ["cut.mpk", readFileSync(file).subarray(0, 5000), "it is cut"],
  ]) {
    await page.setInputFiles("#load", { name, mimeType: "application/octet-stream", buffer: bytes });
    await page.waitForFunction((text) => document.getElementById("notice").textContent.includes(text), expected);
  }
  await page.click('#notice [data-action="dismiss"]');

  // One step, another learning rate and batch, then from the beginning.
  await page.selectOption("#batch", "16");
  await page.fill("#rate", "0.002");
  await page.click("#step");
  await page.waitForFunction((before) => Number(document.getElementById("main").dataset.step) === before + 1, Number(loaded.step));
  await state("paused");
  await page.setViewportSize({ width: 600, height: 900 });
  await shot("train-600");
  await page.click("#reset");
  await state("idle");
  assert.equal((await numbers(page)).step, "0");

  const blocks = await page.evaluate(() => window.blocks);
  const longest = Math.max(0, ...blocks);
  writeFileSync(
    join(results, "train.json"),
    JSON.stringify({ accuracyOfFile: Number(loaded.accuracy), firstStepSeconds: first, imagesPerSecond: speed, longestBlock: longest, blocks: blocks.length }),
  );
  console.log(`       first step ${first.toFixed(1)} s after opening, ${speed} images/s, longest block ${longest.toFixed(0)} ms`);
}

export async function lost({ page, go, state, shot }) {
  await go(`train.html?${GPU}&auto=1`);
  await page.waitForFunction(() => Number(document.getElementById("main").dataset.step) >= 3);
  await page.click("#lose");
  await state("failed");
  await shot("train-lost");
  const text = await page.textContent("#notice-text");
  assert.match(text, /given back|lost|not open|destroyed/);
  await page.click('#notice :is([data-action="reopen"], [data-action="restart"])');
  await state("training");
  const { step } = await numbers(page);
  await page.waitForFunction((before) => Number(document.getElementById("main").dataset.step) > before + 2, Number(step));
}

/** Memory stays where it is after the first steps. */
export async function memory({ page, go }) {
  await go("index.html");
  await engine(page);
  const { early, late, heap } = await page.evaluate(async () => {
    const { engine } = window;
    const { device } = await engine.call("open", "software");
    const digits = await engine.create("Digits", device, { seed: 1, batch: 8, rate: 1e-3 });
    for (let at = 0; at < 10; at += 1) await digits.call("run", 5);
    const early = await engine.call("device_memory", device);
    const before = await engine.call("heap_bytes");
    for (let at = 0; at < 25; at += 1) await digits.call("run", 20);
    const late = await engine.call("device_memory", device);
    const after = await engine.call("heap_bytes");
    return { early, late, heap: [before, after] };
  });
  assert.ok(late.reserved <= early.reserved * 1.05, `reserved ${early.reserved} bytes, then ${late.reserved}`);
  assert.ok(heap[1] <= heap[0] + (2 << 20), `the module's memory was ${heap[0]} bytes, then ${heap[1]}`);
}

/** The same seed on the CPU and on the GPU of this browser. */
export async function devices_agree({ page, go }) {
  await go("index.html");
  await engine(page);
  const [gpu, cpu] = await page.evaluate(async () => {
    const losses = [];
    for (const word of ["software", "cpu"]) {
      const { device } = await window.engine.call("open", word);
      const digits = await window.engine.create("Digits", device, { seed: 1, batch: 64, rate: 1e-3 });
      losses.push((await digits.call("run", 5)).losses);
    }
    return losses;
  });
  gpu.forEach((loss, at) => assert.ok(Math.abs(loss - cpu[at]) < 0.01 * cpu[at], `step ${at}: ${loss} and ${cpu[at]}`));
}

export async function without_webgpu({ page, go, state, shot }) {
  await go("train.html?device=gpu&auto=1");
  await state("failed");
  await shot("train-no-webgpu");
  await page.click('#notice [data-action="cpu"]');
  await state("training");
  await page.waitForFunction(() => Number(document.getElementById("main").dataset.step) >= 2);
}
without_webgpu.withoutGpu = true;

export async function automatic_without_webgpu({ page, go, state }) {
  await go("train.html?auto=1");
  await state("training");
  assert.match(await page.textContent("#device-name"), /CPU/);
}
automatic_without_webgpu.withoutGpu = true;

export async function race({ page, go, state, shot }) {
  await go(`race.html?${GPU}`);
  await page.selectOption("#work", "matmul");
  await page.click("#start");
  await page.waitForFunction(() => document.querySelectorAll("#matmul-rows td").length > 8);
  await state("done", "paused");
  assert.ok((await page.textContent("#matmul-summary")).includes("GPU"));
  await shot("race");
}

export async function transfer({ page, go, state, shot }) {
  await go(`transfer.html?${GPU}`);
  await page.click("#start");
  await state("done", "paused");
  await shot("transfer");
}

export async function device({ page, go, state, shot }) {
  await go("device.html");
  await state("done", "idle");
  const report = await page.inputValue("#report");
  assert.match(report, /storage/i);
  await page.click("#copy");
  await page.waitForFunction(() => document.getElementById("copied").textContent !== "");
  await shot("device");
}
device.context = { permissions: ["clipboard-read", "clipboard-write"] };

export async function gpt({ page, go, state, shot }) {
  await go(`gpt.html?${GPU}&auto=1`);
  await page.waitForFunction(() => Number(document.getElementById("main").dataset.step) >= 4);
  await page.waitForFunction(() => document.getElementById("text").textContent.length > 40);
  await page.click("#start");
  await state("paused");
  const { loss } = await numbers(page);
  assert.ok(Number(loss) < 4.5, `loss ${loss}`);
  await shot("gpt");
}

export async function home({ page, go, shot }) {
  await go("index.html");
  assert.equal(await page.locator('a[href="train.html"]').first().isVisible(), true);
  await shot("home");
}

/** Every page on a phone, in the dark. */
export async function phone({ page, go, shot }) {
  for (const name of ["index", "train", "race", "transfer", "gpt", "device"]) {
    await go(`${name}.html`);
    await page.waitForTimeout(500);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 0, `${name} is ${wide} pixels wider than the phone`);
    await shot(`phone-${name}`);
  }
}
phone.context = { viewport: { width: 360, height: 740 }, colorScheme: "dark" };
