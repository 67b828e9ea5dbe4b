// Opens the built pages in Chromium and uses them. `cargo xtask test-web` builds them, serves them and starts this.
//
// PAGES is their address, BROWSER the program, MODULES where playwright-core is, RESULTS a folder for screenshots and figures.
// Words on the command line choose tests by their names.
import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import * as tests from "./pages.mjs";

const { PAGES, BROWSER, MODULES, RESULTS } = process.env;
const { chromium } = createRequire(join(MODULES, "x.js"))("playwright-core");
mkdirSync(RESULTS, { recursive: true });

const QUIET = ["--no-first-run", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const GPU = ["--enable-unsafe-webgpu"];

async function launch(args) {
  return chromium.launch({
    executablePath: BROWSER,
    args: ["--no-sandbox", ...QUIET, ...args],
    ignoreDefaultArgs: ["--disable-gpu"],
  });
}

/** A page whose errors and console output are remembered: any of them fails its test. */
async function openPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true, ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => complaints.push(`console ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  page.on("requestfailed", (request) => complaints.push(`not loaded: ${request.url()}`));
  page.on("response", (response) => {
    if (response.status() >= 400) complaints.push(`${response.status()}: ${response.url()}`);
  });
  page.setDefaultTimeout(600_000);
  return {
    page,
    complaints,
    go: (path) => page.goto(new URL(path, PAGES).href),
    state: (...states) =>
      page.waitForFunction((wanted) => wanted.includes(document.body.dataset.state), states),
    shot: (name) => page.screenshot({ path: join(RESULTS, `${name}.png`), fullPage: true }),
    close: () => context.close(),
  };
}

const words = process.argv.slice(2);
const chosen = Object.entries(tests).filter(([name]) => words.length === 0 || words.some((word) => name.includes(word)));
let failed = 0;
const browsers = new Map();
for (const [name, test] of chosen) {
  const started = performance.now();
  const flags = test.withoutGpu ? [] : GPU;
  const key = flags.join();
  if (!browsers.has(key)) browsers.set(key, await launch(flags));
  const use = await openPage(browsers.get(key), test.context);
  let problem = null;
  try {
    await test({ ...use, results: RESULTS, pages: PAGES });
    if (use.complaints.length > 0) problem = use.complaints.join("\n    ");
  } catch (error) {
    problem = `${error.stack ?? error}\n    ${use.complaints.join("\n    ")}`;
    await use.shot(`failed-${name}`).catch(() => {});
  }
  await use.close();
  failed += problem ? 1 : 0;
  console.log(`${problem ? "FAILED" : "ok    "} ${name} (${((performance.now() - started) / 1e3).toFixed(1)} s)`);
  if (problem) console.log(`    ${problem}`);
}
for (const browser of browsers.values()) await browser.close();
console.log(failed ? `${failed} of ${chosen.length} failed` : `${chosen.length} passed`);
process.exit(failed || chosen.length === 0 ? 1 : 0);
