// End-to-end tests of the pages. Each export is a test. A test also fails on any console output.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import assert from "node:assert/strict";

const GPU = "device=software";

/** Records tasks of 50 ms or more on the page's main thread. */
const recordLongTasks = (page) =>
  page.addInitScript(() => {
    window.longTasks = [];
    const record = ({ startTime, duration }) => window.longTasks.push({ startTime, duration });
    const observer = new PerformanceObserver((list) => list.getEntries().forEach(record));
    observer.observe({ type: "longtask", buffered: true });
  });

/** Summarises the recorded tasks. */
async function describeLongTasks(page) {
  const tasks = await page.evaluate(() => window.longTasks);
  const [longest] = tasks.toSorted((a, b) => b.duration - a.duration);
  if (!longest) return "no long tasks";
  const duration = longest.duration.toFixed(0);
  const start = (longest.startTime / 1e3).toFixed(1);
  return `${tasks.length} long tasks, the longest ${duration} ms at ${start} s`;
}

/** Returns the training progress: step, epoch, loss and accuracy as text. */
const progress = (page) => page.evaluate(() => ({ ...document.getElementById("main").dataset }));

const waitForStep = (page, step) =>
  page.waitForFunction(
    (step) => Number(document.getElementById("main").dataset.step) >= step,
    step,
  );

const waitForText = (page, id, start) =>
  page.waitForFunction(
    ([id, start]) => document.getElementById(id).textContent.startsWith(start),
    [id, start],
  );

/** Creates an engine in the page, so that a test can call the worker directly. */
const createEngine = (page) =>
  page.evaluate(async () => {
    const { Engine } = await import("./js/engine.js");
    window.engine = new Engine("all");
  });

/** Runs the library's op cases on the GPU and compares them with the CPU. */
async function checkCases({ page, go }, half) {
  await go("index.html");
  await createEngine(page);
  const { count, failures } = await page.evaluate(async (half) => {
    const { device } = await window.engine.call("open", "software");
    const count = await window.engine.call("case_count");
    const failures = [];
    for (let index = 0; index < count; index += 1) {
      const difference = await window.engine
        .call("check_case", index, device, half)
        .catch((error) => `case ${index}: ${error.message}`);
      if (difference) failures.push(difference);
      if (window.engine.failed) break;
    }
    return { count, failures };
  }, half);
  assert.deepEqual(failures, []);
  assert.ok(count > 300, `expected more than 300 cases, found ${count}`);
}

export const op_cases_match_cpu = (test) => checkCases(test, false);
export const op_cases_match_cpu_in_f16 = (test) => checkCases(test, true);

/** Tests examples/page. */
export async function example_page_fits_a_line({ page, go, shot }) {
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

/** Returns the bytes of a tiny language model: one layer, random weights, a token for each byte. */
function tinyModel() {
  const [width, hidden, heads] = [32, 64, 2];
  const parts = [];
  const number = (value, bytes) => {
    const buffer = Buffer.alloc(bytes);
    if (bytes === 8) buffer.writeBigUInt64LE(BigInt(value));
    else buffer.writeUInt32LE(value);
    return buffer;
  };
  const string = (text) => Buffer.concat([number(Buffer.byteLength(text), 8), Buffer.from(text)]);
  const key = (name, type, value) => parts.push(string(name), number(type, 4), value);
  const size = (name, value) => key(name, 4, number(value, 4));
  const float = (name, value) => {
    const buffer = Buffer.alloc(4);
    buffer.writeFloatLE(value);
    key(name, 6, buffer);
  };
  const list = (name, type, values) =>
    key(name, 9, Buffer.concat([number(type, 4), number(values.length, 8), ...values]));
  // As in GPT-2: printable bytes are themselves, and the others follow code point 256.
  let other = 256;
  const isPrintable = (byte) =>
    (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || byte > 173;
  const letters = Array.from({ length: 256 }, (_, byte) =>
    String.fromCodePoint(isPrintable(byte) ? byte : other++),
  );
  const tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", ...letters];
  key("general.architecture", 8, string("llama"));
  size("llama.block_count", 1);
  size("llama.context_length", 64);
  size("llama.embedding_length", width);
  size("llama.feed_forward_length", hidden);
  size("llama.attention.head_count", heads);
  float("llama.attention.layer_norm_rms_epsilon", 1e-5);
  key("tokenizer.ggml.model", 8, string("gpt2"));
  key("tokenizer.ggml.pre", 8, string("smollm"));
  list("tokenizer.ggml.tokens", 8, tokens.map(string));
  list("tokenizer.ggml.merges", 8, []);
  list("tokenizer.ggml.token_type", 5, tokens.map((_, index) => number(index < 3 ? 3 : 1, 4)));
  const keys = 12;
  const layer = {
    attn_norm: [width],
    attn_q: [width, width],
    attn_k: [width, width],
    attn_v: [width, width],
    attn_output: [width, width],
    ffn_norm: [width],
    ffn_gate: [hidden, width],
    ffn_up: [hidden, width],
    ffn_down: [width, hidden],
  };
  const tensors = { token_embd: [tokens.length, width], output_norm: [width] };
  for (const [name, shape] of Object.entries(layer)) tensors[`blk.0.${name}`] = shape;
  let start = 0;
  const data = [];
  Object.entries(tensors).forEach(([name, shape], tensor) => {
    const count = shape.reduce((product, axis) => product * axis);
    const values = Float32Array.from({ length: count }, (_, i) =>
      shape.length === 1 ? 1 : (((i * 7919 + tensor * 104729) % 2003) / 1001 - 1) / 2,
    );
    parts.push(string(`${name}.weight`), number(shape.length, 4));
    for (const axis of shape.toReversed()) parts.push(number(axis, 8));
    parts.push(number(0, 4), number(start, 8));
    data.push(Buffer.from(values.buffer));
    start += values.byteLength;
  });
  const count = Object.keys(tensors).length;
  const header = Buffer.concat([
    Buffer.from("GGUF"),
    number(3, 4),
    number(count, 8),
    number(keys, 8),
    ...parts,
  ]);
  const gap = Buffer.alloc((32 - (header.length % 32)) % 32);
  return Buffer.concat([header, gap, ...data]);
}

/** A language model is loaded from a file and from the server, and writes the same on GPU and CPU. */
export async function text({ page, go, state, shot, results }) {
  const bytes = tinyModel();
  const file = join(results, "tiny.gguf");
  writeFileSync(file, bytes);
  const texts = [];
  for (const device of ["software", "cpu"]) {
    await go(`text.html?device=${device}`);
    assert.ok(await page.isDisabled("#write"));
    await page.setInputFiles("#file", file);
    await state("ready");
    await page.selectOption("#mode", "continue");
    await page.fill("#prompt", "the way");
    await page.click("#write");
    await state("ready");
    texts.push(await page.textContent("#output"));
    assert.match(await page.textContent("#status"), /complete|There are 64 tokens/);
  }
  assert.equal(texts[0], texts[1]);
  assert.ok(texts[0].startsWith("the way") && texts[0].length > 10, texts[0]);
  await shot("text");

  // From the server: there is none, then there is one, which is kept for the next visit.
  await page.route("**/model.gguf", (route) => route.fulfill({ status: 200, body: bytes }));
  await page.click("#load");
  await state("ready");
  await page.waitForFunction(() => !document.getElementById("forget").hidden);
  await page.unroute("**/model.gguf");
  await page.reload();
  await page.click("#load");
  await state("ready");
  await page.click("#forget");
  await page.waitForFunction(() => document.getElementById("forget").hidden);

  // Questions, a prompt that is too long, and stopping.
  await page.selectOption("#mode", "answer");
  await page.fill("#prompt", "x".repeat(2000));
  await page.click("#write");
  const notice = (text) =>
    page.waitForFunction(
      (text) => document.getElementById("notice").textContent.includes(text),
      text,
    );
  await notice("tokens, of 1 to 63");
  await state("ready");

  // Files that are cut, damaged or of another kind.
  for (const [name, content, expected] of [
    ["cut.gguf", bytes.subarray(0, bytes.length - 100), "beyond the file"],
    ["text.gguf", Buffer.from("no model at all"), "no GGUF file"],
    ["empty.gguf", Buffer.alloc(0), "ends after 0"],
  ]) {
    writeFileSync(join(results, name), content);
    await page.setInputFiles("#file", join(results, name));
    await notice(expected);
    await state("idle");
    assert.ok(await page.isDisabled("#write"));
  }
}

/** Weights of the native example load in the browser, and the same seed gives the same training. */
export async function native({ page, go, results }) {
  const nativeReport = JSON.parse(readFileSync(join(results, "native.json"), "utf8"));
  await go("index.html");
  await createEngine(page);
  const file = readFileSync(join(results, "native.mpk"));
  const browser = await page.evaluate(
    async (file) => {
      const { device } = await window.engine.call("open", "software");
      const digits = await window.engine.create("Digits", device, {
        seed: 1,
        batch: 64,
        rate: 1e-3,
      });
      const losses = [];
      for (let epoch = 0; epoch < 1;) {
        const report = await digits.call("run", 1);
        losses.push(report.losses[0] * report.samples);
        ({ epoch } = report);
      }
      const trained = await digits.call("accuracy");
      const weights = await window.engine.call("decode_weights", Uint8Array.from(file));
      await digits.call("set_weights", weights);
      const loaded = await digits.call("accuracy");
      return { totalLoss: losses.reduce((a, b) => a + b), trained, loaded };
    },
    [...file],
  );
  const loss = browser.totalLoss / nativeReport.train_images;
  const nativeLoss = nativeReport.train_loss[0];
  assert.ok(Math.abs(loss - nativeLoss) < 0.01 * loss, `loss ${loss}, native loss ${nativeLoss}`);
  const nativeAccuracy = nativeReport.test_accuracy;
  const correct = (accuracy) => Math.round(accuracy * nativeReport.test_images);
  const difference = (accuracy) => Math.abs(correct(accuracy) - correct(nativeAccuracy));
  const message = (accuracy) => `accuracy ${accuracy}, native accuracy ${nativeAccuracy}`;
  assert.ok(difference(browser.trained) <= 4, message(browser.trained));
  assert.ok(difference(browser.loaded) <= 1, message(browser.loaded));
}

export async function train({ page, go, state, shot, results }) {
  await recordLongTasks(page);
  const opened = performance.now();
  await go(`train.html?${GPU}&auto=1`);
  await waitForStep(page, 1);
  const firstStepSeconds = (performance.now() - opened) / 1e3;
  await state("training");
  await page.waitForFunction(() => Number(document.getElementById("main").dataset.epoch) >= 1);
  await page.click("#start");
  await state("paused");
  const trained = await progress(page);
  assert.ok(Number(trained.accuracy) > 0.6, `accuracy ${trained.accuracy} after one epoch`);
  assert.ok(Number(trained.loss) < 2, `loss ${trained.loss} after one epoch`);
  const speed = await page.textContent("#speed");
  await shot("train");

  // Draws a seven with the mouse.
  await page.locator("#pad").scrollIntoViewIfNeeded();
  const pad = await page.locator("#pad").boundingBox();
  const toPage = (x, y) => [pad.x + pad.width * x, pad.y + pad.height * y];
  await page.mouse.move(...toPage(0.25, 0.15));
  await page.mouse.down();
  for (const point of [
    [0.75, 0.15],
    [0.6, 0.5],
    [0.45, 0.85],
  ]) {
    await page.mouse.move(...toPage(...point), { steps: 8 });
  }
  await page.mouse.up();
  await waitForText(page, "prediction", "Prediction");
  const readProbabilities = () =>
    page.$$eval("#probabilities li .value", (values) =>
      values.map((value) => Number.parseFloat(value.textContent)),
    );
  let probabilities = await readProbabilities();
  const sum = probabilities.reduce((a, b) => a + b);
  assert.equal(probabilities.length, 10);
  assert.ok(Math.abs(sum - 100) < 1, `the probabilities add up to ${sum}%`);
  await shot("train-drawn");

  // A picture of a seven, dark on light and light on dark.
  for (const [name, background, ink] of [
    ["dark", "white", "black"],
    ["light", "navy", "yellow"],
  ]) {
    const url = await page.evaluate(
      ([background, ink]) => {
        const canvas = document.createElement("canvas");
        canvas.width = canvas.height = 200;
        const context = canvas.getContext("2d");
        context.fillStyle = background;
        context.fillRect(0, 0, 200, 200);
        context.strokeStyle = ink;
        context.lineWidth = 14;
        context.beginPath();
        for (const [x, y] of [
          [60, 50],
          [140, 50],
          [90, 150],
        ])
          context.lineTo(x, y);
        context.stroke();
        return canvas.toDataURL("image/png");
      },
      [background, ink],
    );
    const picture = join(results, `${name}.png`);
    writeFileSync(picture, Buffer.from(url.split(",")[1], "base64"));
    await page.click("#clear");
    await waitForText(page, "prediction", "Nothing drawn");
    await page.setInputFiles("#picture", picture);
    await waitForText(page, "prediction", "Prediction");
    probabilities = await readProbabilities();
    assert.ok(Math.abs(probabilities.reduce((a, b) => a + b) - 100) < 1);
    await shot(`train-picture-${name}`);
  }
  const dropped = await page.evaluate(async () => {
    const drop = (file) => {
      const data = new DataTransfer();
      data.items.add(file);
      const target = document.querySelector(".drawing");
      target.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
    };
    drop(new File(["no picture"], "text.png"));
    await new Promise((resolve) => setTimeout(resolve, 200));
    return document.getElementById("notice").textContent;
  });
  assert.match(dropped, /text.png is no picture/);
  await page.click('#notice [data-action="dismiss"]');

  // Downloads the weights and loads them again. Invalid files are rejected with a message.
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.click("#download-weights"),
  ]);
  const file = join(results, "digits.mpk");
  await download.saveAs(file);
  await page.click("#reset");
  await state("idle");
  await waitForText(page, "prediction", "No network");
  await page.setInputFiles("#load-weights", file);
  await waitForText(page, "status", "Weights loaded");
  const loaded = await progress(page);
  await waitForText(page, "prediction", "Prediction");
  assert.deepEqual(
    await readProbabilities(),
    probabilities,
    "loaded weights should give the same prediction",
  );
  for (const [name, bytes, expected] of [
    ["text.mpk", Buffer.from("no model"), "is not a model"],
    ["cut.mpk", readFileSync(file).subarray(0, 5000), "it is cut"],
    ["large.mpk", Buffer.alloc(5 << 20), "too large"],
  ]) {
    // Passed by path: passing the bytes over the browser's protocol blocks the page.
    writeFileSync(join(results, name), bytes);
    await page.setInputFiles("#load-weights", join(results, name));
    await page.waitForFunction(
      (text) => document.getElementById("notice").textContent.includes(text),
      expected,
    );
  }
  await page.click('#notice [data-action="dismiss"]');

  // Runs one step with another learning rate and batch size, then resets.
  await page.selectOption("#batch-size", "16");
  await page.fill("#learning-rate", "7");
  await page.locator("#learning-rate").blur();
  const clamped = await page.inputValue("#learning-rate");
  assert.equal(clamped, "0.1", "a learning rate out of bounds should be clamped");
  await page.fill("#learning-rate", "0.002");
  await page.click("#single-step");
  await page.waitForFunction(
    (before) => Number(document.getElementById("main").dataset.step) === before + 1,
    Number(loaded.step),
  );
  await state("paused");
  await page.setViewportSize({ width: 600, height: 900 });
  await shot("train-600");
  await page.click("#reset");
  await state("idle");
  assert.equal((await progress(page)).step, "0");

  // Draws a one with the keyboard.
  await page.focus("#pad");
  for (let row = 0; row < 8; row += 1) {
    await page.keyboard.press("Space");
    await page.keyboard.press("ArrowDown");
  }
  await page.click("#single-step");
  await waitForText(page, "prediction", "Prediction");

  const longTasks = await describeLongTasks(page);
  writeFileSync(
    join(results, "train.json"),
    JSON.stringify({
      loadedAccuracy: Number(loaded.accuracy),
      firstStepSeconds,
      imagesPerSecond: speed,
      longTasks,
    }),
  );
  const seconds = firstStepSeconds.toFixed(1);
  console.log(`       first step ${seconds} s after opening, ${speed} images/s, ${longTasks}`);
}

export async function reopens_lost_device({ page, go, state, shot }) {
  await go(`train.html?${GPU}&auto=1`);
  await waitForStep(page, 3);
  await page.click("#simulate-loss");
  await state("failed");
  await shot("train-lost");
  const text = await page.textContent("#notice-text");
  assert.match(text, /lost|not open|destroyed/);
  await page.click('#notice :is([data-action="reopen"], [data-action="restart"])');
  await state("training");
  const { step } = await progress(page);
  await waitForStep(page, Number(step) + 3);
}

export async function memory_use_stays_constant({ page, go }) {
  await go("index.html");
  await createEngine(page);
  const { early, late, heap } = await page.evaluate(async () => {
    const { engine } = window;
    const { device } = await engine.call("open", "software");
    const digits = await engine.create("Digits", device, { seed: 1, batch: 8, rate: 1e-3 });
    for (let call = 0; call < 10; call += 1) await digits.call("run", 5);
    const early = await engine.call("device_memory", device);
    const before = await engine.call("heap_bytes");
    for (let call = 0; call < 25; call += 1) await digits.call("run", 20);
    const late = await engine.call("device_memory", device);
    const after = await engine.call("heap_bytes");
    return { early, late, heap: [before, after] };
  });
  assert.ok(
    late.reserved <= early.reserved * 1.05,
    `GPU memory grew from ${early.reserved} to ${late.reserved} bytes`,
  );
  assert.ok(
    heap[1] <= heap[0] + (2 << 20),
    `WebAssembly memory grew from ${heap[0]} to ${heap[1]} bytes`,
  );
}

/** The same seed gives the same losses on the CPU and on the GPU. */
export async function cpu_and_gpu_losses_match({ page, go }) {
  await go("index.html");
  await createEngine(page);
  const [gpu, cpu] = await page.evaluate(async () => {
    const losses = [];
    for (const selector of ["software", "cpu"]) {
      const { device } = await window.engine.call("open", selector);
      const digits = await window.engine.create("Digits", device, {
        seed: 1,
        batch: 64,
        rate: 1e-3,
      });
      losses.push((await digits.call("run", 5)).losses);
    }
    return losses;
  });
  assert.equal(gpu.length, 5);
  gpu.forEach((loss, step) => {
    const expected = cpu[step];
    const message = `step ${step}: loss ${loss} on the GPU, ${expected} on the CPU`;
    assert.ok(Math.abs(loss - expected) < 0.01 * expected, message);
  });
}

/** Runs a script in the worker before its own, for example to replace WebGPU functions. */
const injectIntoWorker = (page, script) =>
  page.route("**/js/worker.js*", async (route) => {
    // Ignores requests of workers that the page has terminated meanwhile.
    const ignore = () => {};
    const response = await route.fetch().catch(ignore);
    const body = await response?.text().catch(ignore);
    if (body) await route.fulfill({ response, body: `${script}\n${body}` }).catch(ignore);
  });

/** Checks that the page reports a GPU failure and can continue on the CPU. */
async function expectGpuFailure({ page, go, state, shot }, script, message) {
  await injectIntoWorker(page, script);
  await go("train.html?device=software&auto=1");
  await state("failed");
  assert.match(await page.textContent("#notice-text"), message);
  await shot("train-gpu-failure");
  await page.click('#notice [data-action="cpu"]');
  await waitForStep(page, 2);
}

export const reports_too_few_storage_buffers = (test) =>
  expectGpuFailure(
    test,
    `Object.defineProperty(GPUSupportedLimits.prototype, "maxStorageBuffersPerShaderStage", {
       get: () => 4,
     });`,
    /storage buffers per shader stage: has 4, needs 8/,
  );

export const reports_failed_device_request = (test) =>
  expectGpuFailure(
    test,
    `GPUAdapter.prototype.requestDevice = () => Promise.reject(new Error("injected failure"));`,
    /injected failure/,
  );

export const reports_out_of_memory = (test) =>
  expectGpuFailure(
    test,
    `let count = 0;
     const createBuffer = GPUDevice.prototype.createBuffer;
     GPUDevice.prototype.createBuffer = function (descriptor) {
       const buffer = createBuffer.call(this, descriptor);
       count += 1;
       if (count === 12) {
         const error = new GPUOutOfMemoryError("injected failure");
         const event = new GPUUncapturedErrorEvent("uncapturederror", { error });
         setTimeout(() => this.dispatchEvent(event));
       }
       return buffer;
     };`,
    /out of memory/,
  );

/**
 * Training continues in a hidden tab. A headless browser never hides a page, so the test overrides
 * the page's visibility and delays its animation frames.
 */
export async function continues_in_hidden_tab({ page, go, state }) {
  await page.addInitScript(() => {
    let hidden = false;
    const delayed = [];
    const requestFrame = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (task) => (hidden ? delayed.push(task) : requestFrame(task));
    Object.defineProperty(document, "hidden", { get: () => hidden });
    Object.defineProperty(document, "visibilityState", {
      get: () => (hidden ? "hidden" : "visible"),
    });
    window.setHidden = (value) => {
      hidden = value;
      document.dispatchEvent(new Event("visibilitychange"));
      if (!value) delayed.splice(0).forEach(requestFrame);
    };
  });
  const expectProgress = async () => {
    const readStep = async () => Number((await progress(page)).step);
    const before = await readStep();
    // Polls, because waitForFunction depends on animation frames.
    for (let tries = 0; (await readStep()) <= before + 3; tries += 1) {
      assert.ok(tries < 300, "training should continue");
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  };
  await go(`train.html?${GPU}&auto=1`);
  await state("training");
  await page.evaluate(() => window.setHidden(true));
  await expectProgress();
  await page.evaluate(() => window.setHidden(false));
  await expectProgress();
  await state("training");
}

/** Trains for 20 epochs, which takes minutes. Runs only if selected by name. */
export async function epochs({ page, go, state, shot, results }) {
  await recordLongTasks(page);
  await go(`train.html?${GPU}&auto=1`);
  await state("done");
  const { accuracy } = await progress(page);
  const speed = await page.textContent("#speed");
  await shot("train-20-epochs");
  const longTasks = await describeLongTasks(page);
  writeFileSync(
    join(results, "epochs.json"),
    JSON.stringify({ accuracy: Number(accuracy), imagesPerSecond: speed, longTasks }),
  );
  console.log(`       accuracy ${accuracy} after 20 epochs, ${speed} images/s, ${longTasks}`);
  assert.ok(Number(accuracy) >= 0.93, `accuracy ${accuracy} after 20 epochs`);
}
epochs.long = true;

/** Training resumes on another device, and repeated clicks are queued only once. */
export async function resumes_on_another_device({ page, go, state }) {
  await go(`train.html?${GPU}&auto=1`);
  await waitForStep(page, 3);
  await page.selectOption("#device", "cpu");
  await waitForText(page, "device-name", "CPU");
  await state("training");
  for (let click = 0; click < 5; click += 1) await page.click("#start");
  await page.click("#single-step");
  await state("paused");
  const { step } = await progress(page);
  await page.waitForTimeout(1500);
  assert.equal((await progress(page)).step, step, "training should stay paused");
}

export async function reports_missing_webgpu({ page, go, state, shot }) {
  await go("train.html?device=gpu&auto=1");
  await state("failed");
  await shot("train-no-webgpu");
  await page.click('#notice [data-action="cpu"]');
  await state("training");
  await waitForStep(page, 2);
}
reports_missing_webgpu.withoutGpu = true;

export async function auto_uses_cpu_without_webgpu({ page, go, state }) {
  await go("train.html?auto=1");
  await state("training");
  assert.match(await page.textContent("#device-name"), /CPU/);
}
auto_uses_cpu_without_webgpu.withoutGpu = true;

export async function race_page_compares_cpu_and_gpu({ page, go, state, shot }) {
  await go(`race.html?${GPU}`);
  await page.click("#start");
  await state("done");
  for (const workload of ["matmul", "elementwise"]) {
    const rows = await page.$$eval(`#${workload}-rows tr`, (rows) =>
      rows.map((row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent)),
    );
    assert.ok(rows.length >= 5);
    // Both devices ran the smallest size, and the speedup is the ratio of their rates.
    const [, , cpu, gpu, speedup] = rows[0].map((text) => Number.parseFloat(text));
    assert.ok(cpu > 0 && gpu > 0, `${workload}: ${rows[0]}`);
    assert.ok(Math.abs(speedup - gpu / cpu) <= 0.02 * speedup + 0.01, `${workload}: ${rows[0]}`);
    const crossover = await page.getAttribute("#main", `data-${workload}-crossover`);
    assert.ok(Number(crossover ?? NaN) > 0);
    assert.match(await page.textContent(`#${workload}-summary`), /^The GPU is/);
  }
  await shot("race");
}

export async function transfer_page_measures_bandwidth({ page, go, state, shot }) {
  await go(`transfer.html?${GPU}`);
  await page.click("#start");
  await state("done");
  const values = await page.$$eval("#rows td", (cells) =>
    cells.map((cell) => Number.parseFloat(cell.textContent)),
  );
  assert.ok(values.length === 30 && values.every((value) => value > 0), `${values}`);
  assert.match(await page.textContent("#summary"), /^A round trip of 64 MiB .* takes/);
  await shot("transfer");
}

export async function device_page_copies_report({ page, go, state, shot }) {
  await go("device.html");
  await state("done");
  const report = await page.inputValue("#report");
  assert.match(report, /^Adapter .*: usable$/m);
  assert.match(report, /max_storage_binding_size: \d+/);
  await page.click("#copy");
  await waitForText(page, "copy-status", "Copied.");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), report);
  await shot("device");
}
device_page_copies_report.context = { permissions: ["clipboard-read", "clipboard-write"] };

export async function gpt_page_generates_text({ page, go, state, shot }) {
  await go(`gpt.html?${GPU}&auto=1`);
  await waitForStep(page, 12);
  await page.waitForFunction(() => document.getElementById("output").textContent.length > 40);
  await page.click("#start");
  await state("paused");
  const { loss } = await progress(page);
  assert.ok(Number(loss) < 4.5, `loss ${loss}`);
  assert.equal(await page.textContent("#products"), "in f32");
  assert.equal(await page.textContent("#scale"), "none");
  await shot("gpt");
  await page.fill("#prompt", "let x = ");
  await page.click("#generate");
  await page.waitForFunction(() => {
    const text = document.getElementById("output").textContent;
    return /\/\/ step \d+, loss [\d.]+\nlet x = .{20}/s.test(text);
  });
  await page.click("#start");
  await state("paused");
  await page.click("#reset");
  await state("idle");
  assert.equal(await page.textContent("#output"), "");
}

export async function gpt_page_trains_in_f16({ page, go, state, shot }) {
  await go(`gpt.html?${GPU}`);
  await page.selectOption("#precision", "f16");
  await page.click("#start");
  await waitForStep(page, 12);
  await page.click("#start");
  await state("paused");
  const { loss } = await progress(page);
  assert.ok(Number(loss) < 4.5, `loss ${loss}`);
  assert.match(await page.textContent("#products"), /16 bits/);
  assert.match(await page.textContent("#scale"), /^\d[\d,]*, skipped steps: \d+$/);
  // The optimizer's steps are those of the scale.
  assert.ok(Number(await page.getAttribute("#scale", "data-steps")) >= 12);
  await shot("gpt-f16");
  await page.selectOption("#precision", "bf16");
  await state("idle");
  assert.equal(await page.textContent("#scale"), "–");
  assert.equal(await page.textContent("#products"), "–");
}

export async function gpt_page_profiles_training_steps({ page, go, state, shot }) {
  await go(`gpt.html?${GPU}`);
  await page.click("#profile");
  await state("paused");
  const frame = page.frameLocator("#profile-frame");
  const rows = frame.locator("#groups tr");
  await rows.first().waitFor();
  const kernels = await rows.allTextContents();
  assert.ok(kernels.some((row) => row.startsWith("matmul")), kernels.join("\n"));
  await frame.locator("#by").selectOption("scope");
  const scopes = await frame.locator("#groups tr td:first-child").allTextContents();
  // The losses are read outside of all scopes.
  assert.deepEqual(scopes.sort(), ["backward", "forward", "no scope", "optimizer"]);
  await frame.locator("#launches").scrollIntoViewIfNeeded();
  await shot("profile");
  assert.equal(await page.getAttribute("#main", "data-step"), "5");
}

export async function home_page_shows_webgpu_support({ page, go, shot }) {
  await go("index.html");
  await waitForText(page, "status", "WebGPU on a software adapter");
  await page.keyboard.press("Tab");
  const focused = await page.evaluate(() => document.activeElement.textContent);
  assert.equal(focused, "Skip to main content");
  await shot("home");
}

/** Every page fits the width of a phone, in dark mode. */
export async function pages_fit_phone_screen({ page, go, shot }) {
  for (const name of ["index", "train", "race", "transfer", "gpt", "learn", "device"]) {
    await go(`${name}.html`);
    await page.waitForTimeout(500);
    const overflow = await page.evaluate(() => {
      const { clientWidth, scrollWidth } = document.documentElement;
      return scrollWidth - clientWidth;
    });
    assert.ok(overflow <= 0, `${name} is ${overflow} pixels wider than the screen`);
    await shot(`phone-${name}`);
  }
}
pages_fit_phone_screen.context = { viewport: { width: 360, height: 740 }, colorScheme: "dark" };

/** Everything that the page of experiments calculates and measures, and the quiz by keyboard. */
export async function learn_page_measures_and_asks({ page, go, state, shot }) {
  await recordLongTasks(page);
  await go(`learn.html?${GPU}`);
  await page.waitForFunction(() => document.getElementById("memory-bars").childElementCount === 5);
  const bytes = await page.evaluate(() => {
    const entries = ["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type));
    return entries.reduce((sum, { decodedBodySize }) => sum + decodedBodySize, 0);
  });
  assert.ok(bytes > 10_000 && bytes < 60_000, `${bytes} bytes before a measurement`);

  await page.fill("#share", "50");
  await page.fill("#processors", "1");
  assert.match(await page.textContent("#amdahl-summary"), /2 processors it is 1\.33 times faster, and at most 2 /);
  const together = () => page.textContent("#memory-bars li:last-child .value");
  assert.equal(await together(), "64.1 MiB");
  await page.selectOption("#checkpointing", "1");
  assert.equal(await together(), "52.1 MiB");

  for (const [name, expected] of [
    ["lanes", /GFLOP\/s at most/],
    ["caches", /times as fast as the memory/],
    ["moves", /^Measured on /],
    ["roofline", /^Measured on /],
    ["memory", /^[\d.]+ MiB measured, 52\.1 MiB calculated/],
  ]) {
    await page.click(`#${name}-start`);
    await state("done");
    assert.match(await page.textContent(`#${name}-status`), expected);
  }
  assert.match(await page.textContent("#lanes-summary"), /^It is full from \d+ workgroups? on/);
  const measured = Number.parseFloat(await page.textContent("#memory-status"));
  assert.ok(measured > 40 && measured < 120, `${measured} MiB`);

  // By keyboard: the second answer of the first question is right, the first of the second, too.
  await page.focus('.question input[name="q1"]');
  await page.keyboard.press("ArrowDown");
  assert.match(await page.textContent("#quiz-score"), /^1 of 1 right/);
  await page.focus('.question input[name="q2"][value="2"]');
  await page.keyboard.press("Space");
  assert.match(await page.textContent("#quiz-score"), /^1 of 2 right/);
  assert.ok(await page.isVisible('.question:has(input[name="q2"]) details p'));
  console.log(`       learn: ${await describeLongTasks(page)}`);
  await shot("learn");
}

/** Without WebGPU, an experiment that needs it says so. The others work. */
export async function learn_page_without_webgpu({ page, go }) {
  // A browser that has WebGPU and finds no adapter writes to the console.
  await page.addInitScript(() => Object.defineProperty(navigator, "gpu", { value: undefined }));
  await go("learn.html");
  await page.click("#lanes-start");
  await page.waitForFunction(() => document.body.dataset.state === "failed");
  assert.match(await page.textContent("#lanes-status"), /this browser offers no GPU/);
  await page.fill("#share", "90");
  assert.match(await page.textContent("#amdahl-summary"), /at most 10 times/);
}
/** Without scripts, the answers of the quiz can be opened. */
export async function learn_page_without_scripts({ page, go, results }) {
  await go("learn.html");
  assert.match(await page.textContent("noscript"), /need JavaScript/);
  const answer = page.locator(".question details").nth(2);
  assert.ok(!(await answer.locator("p").isVisible()));
  await answer.locator("summary").click();
  assert.match(await answer.locator("p").textContent(), /^10 times/);
  assert.equal(await page.locator(".question").count(), 10);
  // `shot` waits in the page.
  await page.screenshot({ path: join(results, "learn-without-scripts.png"), fullPage: true });
}
learn_page_without_scripts.context = { javaScriptEnabled: false, viewport: { width: 360, height: 740 } };
