// What each page must do, as its user would find out. Each export is a test; run.mjs fails it for any console output too.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import assert from "node:assert/strict";

const GPU = "device=software";

/** Remembers the blocks of the page's own thread of 50 ms and more since the page was opened. */
const watchBlocks = (page) =>
  page.addInitScript(() => {
    window.blocks = [];
    const keep = ({ startTime, duration }) => window.blocks.push({ startTime, duration });
    new PerformanceObserver((list) => list.getEntries().forEach(keep)).observe({ type: "longtask", buffered: true });
  });

/** The longest of them, in words. */
async function longestBlock(page) {
  const blocks = await page.evaluate(() => window.blocks);
  const [longest] = blocks.toSorted((a, b) => b.duration - a.duration);
  if (!longest) return "no block of 50 ms";
  return `${blocks.length} blocks of 50 ms, the longest ${longest.duration.toFixed(0)} ms at ${(longest.startTime / 1e3).toFixed(1)} s`;
}

const numbers = (page) => page.evaluate(() => ({ ...document.getElementById("main").dataset }));

/** Calls the worker from a test, past the page. */
const engine = (page) =>
  page.evaluate(async () => {
    const { Engine } = await import("./js/engine.js");
    window.engine = new Engine("all");
  });

/** The library's op cases, against its CPU. */
async function cases({ page, go }, half) {
  await go("index.html");
  await engine(page);
  const { count, failed } = await page.evaluate(async (half) => {
    const { device } = await window.engine.call("open", "software");
    const count = await window.engine.call("check_count");
    const failed = [];
    for (let at = 0; at < count; at += 1) {
      const answer = await window.engine.call("check", at, device, half).catch((error) => `case ${at}: ${error.message}`);
      if (answer) failed.push(answer);
      if (window.engine.dead) break;
    }
    return { count, failed };
  }, half);
  assert.deepEqual(failed, []);
  assert.ok(count > 300, `only ${count} cases`);
}

export const ops = (use) => cases(use, false);
export const ops_in_half = (use) => cases(use, true);

/** The page that shows how to write one of one's own. */
export async function example({ page, go, shot }) {
  await go("example/index.html?device=software");
  await page.click("button");
  await page.waitForFunction(() => document.querySelector("output").textContent.startsWith("y ="));
  assert.equal(await page.textContent("output"), "y = 3.000 x + -2.000");
  await shot("example");
  await go("example/index.html?device=cpu");
  await page.click("button");
  await page.waitForFunction(() => document.querySelector("output").textContent.length > 10);
  assert.match(await page.textContent("output"), /CPU/);
}

/** What the native example wrote is read here, and the same seed learns the same here. */
export async function native({ page, go, results }) {
  const told = JSON.parse(readFileSync(join(results, "native.json"), "utf8"));
  await go("index.html");
  await engine(page);
  const here = await page.evaluate(async (file) => {
    const { device } = await window.engine.call("open", "software");
    const digits = await window.engine.create("Digits", device, { seed: 1, batch: 64, rate: 1e-3 });
    const losses = [];
    for (let epoch = 0; epoch < 1; ) {
      const made = await digits.call("run", 1);
      losses.push(made.losses[0] * made.samples);
      ({ epoch } = made);
    }
    const learnt = await digits.call("accuracy");
    await digits.call("set_weights", await window.engine.call("file_weights", Uint8Array.from(file)));
    return { loss: losses.reduce((a, b) => a + b), learnt, loaded: await digits.call("accuracy") };
  }, [...readFileSync(join(results, "native.mpk"))]);
  const loss = here.loss / told.train_images;
  assert.ok(Math.abs(loss - told.train_loss[0]) < 0.01 * loss, `loss ${loss}, natively ${told.train_loss[0]}`);
  const images = (share) => Math.round(share * told.test_images);
  const difference = Math.abs(images(here.learnt) - images(told.test_accuracy));
  assert.ok(difference <= 4, `${here.learnt} right, natively ${told.test_accuracy}`);
  assert.ok(Math.abs(images(here.loaded) - images(told.test_accuracy)) <= 1, `${here.loaded} right, natively ${told.test_accuracy}`);
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
  await page.click("#reset");
  await state("idle");
  await page.waitForFunction(() => document.getElementById("verdict").textContent.startsWith("No network"));
  await page.setInputFiles("#load", file);
  await page.waitForFunction(() => document.getElementById("status").textContent.startsWith("Weights loaded"));
  const loaded = await numbers(page);
  await page.waitForFunction(() => document.getElementById("verdict").textContent.startsWith("Looks like"));
  assert.deepEqual(await probabilities(), shares, "the same weights see the same digit");
  for (const [name, bytes, expected] of [
    ["text.mpk", Buffer.from("no model"), "is not a model"],
    ["cut.mpk", readFileSync(file).subarray(0, 5000), "it is cut"],
    ["large.mpk", Buffer.alloc(5 << 20), "too large"],
  ]) {
    // From the disk: bytes that are handed over by the browser's protocol block the page.
    writeFileSync(join(results, name), bytes);
    await page.setInputFiles("#load", join(results, name));
    await page.waitForFunction((text) => document.getElementById("notice").textContent.includes(text), expected);
  }
  await page.click('#notice [data-action="dismiss"]');

  // One step, another learning rate and batch, then from the beginning.
  await page.selectOption("#batch", "16");
  await page.fill("#rate", "7");
  await page.locator("#rate").blur();
  assert.equal(await page.inputValue("#rate"), "0.1", "a rate beyond the bounds becomes the nearest");
  await page.fill("#rate", "0.002");
  await page.click("#step");
  await page.waitForFunction((before) => Number(document.getElementById("main").dataset.step) === before + 1, Number(loaded.step));
  await state("paused");
  await page.setViewportSize({ width: 600, height: 900 });
  await shot("train-600");
  await page.click("#reset");
  await state("idle");
  assert.equal((await numbers(page)).step, "0");

  // Drawn with the keyboard alone: a one.
  await page.focus("#pad");
  for (let row = 0; row < 8; row += 1) {
    await page.keyboard.press("Space");
    await page.keyboard.press("ArrowDown");
  }
  await page.click("#step");
  await page.waitForFunction(() => document.getElementById("verdict").textContent.startsWith("Looks like"));

  const blocks = await longestBlock(page);
  writeFileSync(
    join(results, "train.json"),
    JSON.stringify({ accuracyOfFile: Number(loaded.accuracy), firstStepSeconds: first, imagesPerSecond: speed, blocks }),
  );
  console.log(`       first step ${first.toFixed(1)} s after opening, ${speed} images/s, ${blocks}`);
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
  assert.equal(gpu.length, 5);
  gpu.forEach((loss, at) => assert.ok(Math.abs(loss - cpu[at]) < 0.01 * cpu[at], `step ${at}: ${loss} and ${cpu[at]}`));
}

/** What the browser's adapter is made to say or do, in the worker. */
const adapted = (page, script) =>
  page.route("**/js/worker.js*", async (route) => {
    // A worker that the page no longer wants may be on its way still.
    const gone = () => {};
    const response = await route.fetch().catch(gone);
    const body = await response?.text().catch(gone);
    if (body) await route.fulfill({ response, body: `${script}\n${body}` }).catch(gone);
  });

/** A message, and the page goes on with the CPU. */
async function refused({ page, go, state, shot }, script, message) {
  await adapted(page, script);
  await go("train.html?device=software&auto=1");
  await state("failed");
  assert.match(await page.textContent("#notice-text"), message);
  await shot("train-refused");
  await page.click('#notice [data-action="cpu"]');
  await page.waitForFunction(() => Number(document.getElementById("main").dataset.step) >= 2);
}

export const too_few_buffers = (use) =>
  refused(
    use,
    `Object.defineProperty(GPUSupportedLimits.prototype, "maxStorageBuffersPerShaderStage", { get: () => 4 });`,
    /storage buffers per shader stage: has 4, needs 8/,
  );

export const adapter_refuses = (use) =>
  refused(use, `GPUAdapter.prototype.requestDevice = () => Promise.reject(new Error("not today"));`, /not today/);

export const out_of_memory = (use) =>
  refused(
    use,
    `let count = 0;
     const make = GPUDevice.prototype.createBuffer;
     GPUDevice.prototype.createBuffer = function (descriptor) {
       const buffer = make.call(this, descriptor);
       count += 1;
       if (count === 40) {
         const error = new GPUOutOfMemoryError("no room for a buffer");
         setTimeout(() => this.dispatchEvent(new GPUUncapturedErrorEvent("uncapturederror", { error })));
       }
       return buffer;
     };`,
    /out of memory/,
  );

/** The tab goes into the background and comes back. A headless browser hides no page: it is told that it is, and gets no frames. */
export async function hidden({ page, go, state }) {
  await page.addInitScript(() => {
    let hidden = false;
    const waiting = [];
    const frame = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (task) => (hidden ? waiting.push(task) : frame(task));
    Object.defineProperty(document, "hidden", { get: () => hidden });
    Object.defineProperty(document, "visibilityState", { get: () => (hidden ? "hidden" : "visible") });
    window.hide = (now) => {
      hidden = now;
      document.dispatchEvent(new Event("visibilitychange"));
      if (!now) waiting.splice(0).forEach(frame);
    };
  });
  const more = async () => {
    const step = async () => Number((await numbers(page)).step);
    const before = await step();
    // Not by waitForFunction, which waits for frames.
    for (let tries = 0; (await step()) <= before + 3; tries += 1) {
      assert.ok(tries < 300, "it goes on");
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  };
  await go(`train.html?${GPU}&auto=1`);
  await state("training");
  await page.evaluate(() => window.hide(true));
  await more();
  await page.evaluate(() => window.hide(false));
  await more();
  await state("training");
}

/** Twenty epochs take minutes: only when asked for by name. */
export async function epochs({ page, go, state, shot, results }) {
  await watchBlocks(page);
  await go(`train.html?${GPU}&auto=1`);
  await state("done");
  const { accuracy } = await numbers(page);
  const speed = await page.textContent("#speed");
  await shot("train-20-epochs");
  const blocks = await longestBlock(page);
  writeFileSync(join(results, "epochs.json"), JSON.stringify({ accuracy: Number(accuracy), imagesPerSecond: speed, blocks }));
  console.log(`       ${accuracy} right after 20 epochs, ${speed} images/s, ${blocks}`);
  assert.ok(Number(accuracy) >= 0.93, `accuracy ${accuracy}`);
}
epochs.long = true;

/** A run goes on where it was on another device, and clicks while it is busy do not pile up. */
export async function moved({ page, go, state }) {
  await go(`train.html?${GPU}&auto=1`);
  await page.waitForFunction(() => Number(document.getElementById("main").dataset.step) >= 3);
  await page.selectOption("#device", "cpu");
  await page.waitForFunction(() => document.getElementById("device-name").textContent.startsWith("CPU"));
  await state("training");
  for (let click = 0; click < 5; click += 1) await page.click("#start");
  await page.click("#step");
  await state("paused");
  const { step } = await numbers(page);
  await page.waitForTimeout(1500);
  assert.equal((await numbers(page)).step, step, "it stays paused");
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
  await page.click("#start");
  await state("done");
  for (const work of ["matmul", "elementwise"]) {
    const rows = await page.$$eval(`#${work}-rows tr`, (all) =>
      all.map((row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent)),
    );
    assert.ok(rows.length >= 5);
    // The smallest size was run by both, and the ratio is that of the two rates.
    const [, , cpu, gpu, ratio] = rows[0].map((text) => Number.parseFloat(text));
    assert.ok(cpu > 0 && gpu > 0, `${work}: ${rows[0]}`);
    assert.ok(Math.abs(ratio - gpu / cpu) <= 0.02 * ratio + 0.01, `${work}: ${rows[0]}`);
    assert.ok(Number((await page.getAttribute("#main", `data-${work}-crossover`)) ?? NaN) > 0);
    assert.match(await page.textContent(`#${work}-summary`), /^The GPU is/);
  }
  await shot("race");
}

export async function transfer({ page, go, state, shot }) {
  await go(`transfer.html?${GPU}`);
  await page.click("#start");
  await state("done");
  const cells = await page.$$eval("#rows td", (all) => all.map((cell) => Number.parseFloat(cell.textContent)));
  assert.ok(cells.length === 30 && cells.every((value) => value > 0), `${cells}`);
  assert.match(await page.textContent("#summary"), /^Moving 64 MiB there and back takes/);
  await shot("transfer");
}

export async function device({ page, go, state, shot }) {
  await go("device.html");
  await state("done");
  const report = await page.inputValue("#report");
  assert.match(report, /^adapter .*: usable$/m);
  assert.match(report, /max_storage_binding_size: \d+/);
  await page.click("#copy");
  await page.waitForFunction(() => document.getElementById("copied").textContent === "Copied.");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), report);
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
  await page.fill("#prompt", "let x = ");
  await page.click("#write");
  await page.waitForFunction(() => /\/\/ step \d+, loss [\d.]+\nlet x = .{20}/s.test(document.getElementById("text").textContent));
  await page.click("#start");
  await state("paused");
  await page.click("#reset");
  await state("idle");
  assert.equal(await page.textContent("#text"), "");
}

export async function home({ page, go, shot }) {
  await go("index.html");
  await page.waitForFunction(() => document.getElementById("status").textContent.startsWith("WebGPU on the CPU"));
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
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
