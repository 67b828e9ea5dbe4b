// Runs the tests of the pages in Chromium. `cargo xtask test-web` builds and serves the pages and
// runs this script.
//
// Environment variables: PAGES is the address of the pages, BROWSER the path of the browser,
// MODULES the folder of playwright-core, and RESULTS the folder for screenshots and measurements.
// Each argument selects the tests whose names contain it.
import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import * as tests from "./pages.mjs";

const { PAGES, BROWSER, MODULES, RESULTS } = process.env;
// Resolves playwright-core in MODULES. `createRequire` takes the path of any file there.
const { chromium } = createRequire(join(MODULES, "x.js"))("playwright-core");
mkdirSync(RESULTS, { recursive: true });

const COMMON_FLAGS = [
  "--no-sandbox",
  "--no-first-run",
  "--disable-quic",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const GPU_FLAGS = ["--enable-unsafe-webgpu"];

async function launch(flags) {
  return chromium.launch({
    executablePath: BROWSER,
    args: [...COMMON_FLAGS, ...flags],
    ignoreDefaultArgs: ["--disable-gpu"],
  });
}

/** Opens a page and records its errors and console output, which fail the test. */
async function openPage(browser, test) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    acceptDownloads: true,
    ...test.context,
  });
  const page = await context.newPage();
  const errors = [];
  page.on("console", (message) => errors.push(`console ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => errors.push(`error: ${error.message}`));
  page.on("requestfailed", (request) => errors.push(`request failed: ${request.url()}`));
  page.on("response", (response) => {
    if (response.status() >= 400) errors.push(`${response.status()}: ${response.url()}`);
  });
  page.setDefaultTimeout(test.long ? 1_800_000 : 240_000);
  return {
    page,
    errors,
    go: (path) => page.goto(new URL(path, PAGES).href),
    /** Waits for a page state. */
    async state(expected) {
      await page.waitForFunction(
        (expected) => [expected, "failed"].includes(document.body.dataset.state),
        expected,
      );
      const [state, notice] = await page.evaluate(() => [
        document.body.dataset.state,
        document.getElementById("notice").textContent,
      ]);
      if (state !== expected)
        throw new Error(`expected state "${expected}", found "${state}": ${notice}`);
    },
    /** Saves a screenshot. */
    async shot(name) {
      const before = await page.evaluate(() => window.longTasks?.length);
      await page.screenshot({ path: join(RESULTS, `${name}.png`), fullPage: true });
      // Long tasks caused by the screenshot are not counted.
      await page.evaluate(async (before) => {
        await new Promise((resolve) => setTimeout(resolve, 100));
        window.longTasks?.splice(before);
      }, before);
    },
    close: () => context.close(),
  };
}

const filters = process.argv.slice(2);
const isSelected = ([name, test]) =>
  filters.length === 0 ? !test.long : filters.some((filter) => name.includes(filter));
const selected = Object.entries(tests).filter(isSelected);
let failures = 0;
const browsers = new Map(); // by command-line flags
for (const [name, test] of selected) {
  const start = performance.now();
  const flags = test.withoutGpu ? [] : GPU_FLAGS;
  const key = flags.join();
  if (!browsers.has(key)) browsers.set(key, await launch(flags));
  const fixture = await openPage(browsers.get(key), test);
  let failure = null;
  try {
    await test({ ...fixture, results: RESULTS, pages: PAGES });
    if (fixture.errors.length > 0) failure = fixture.errors.join("\n    ");
  } catch (error) {
    failure = `${error.stack ?? error}\n    ${fixture.errors.join("\n    ")}`;
    await fixture.shot(`failed-${name}`).catch(() => {});
  }
  await fixture.close();
  failures += failure ? 1 : 0;
  const seconds = ((performance.now() - start) / 1e3).toFixed(1);
  console.log(`${failure ? "FAILED" : "ok    "} ${name} (${seconds} s)`);
  if (failure) console.log(`    ${failure}`);
}
for (const browser of browsers.values()) await browser.close();
console.log(failures ? `${failures} of ${selected.length} failed` : `${selected.length} passed`);
process.exit(failures || selected.length === 0 ? 1 : 0);
