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
async function openPage(browser, test) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true, ...test.context });
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => complaints.push(`console ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  page.on("requestfailed", (request) => complaints.push(`not loaded: ${request.url()}`));
  page.on("response", (response) => {
    if (response.status() >= 400) complaints.push(`${response.status()}: ${response.url()}`);
  });
  page.setDefaultTimeout(test.long ? 1_800_000 : 240_000);
  return {
    page,
    complaints,
    go: (path) => page.goto(new URL(path, PAGES).href),
    async state(wanted) {
      await page.waitForFunction((wanted) => [wanted, "failed"].includes(document.body.dataset.state), wanted);
      const found = await page.evaluate(() => [document.body.dataset.state, document.getElementById("notice").textContent]);
      if (found[0] !== wanted) throw new Error(`the page failed: ${found[1]}`);
    },
    async shot(name) {
      const before = await page.evaluate(() => window.blocks?.length);
      await page.screenshot({ path: join(RESULTS, `${name}.png`), fullPage: true });
      // What a screenshot blocks is not the page's doing.
      await page.evaluate(async (before) => {
        await new Promise((done) => setTimeout(done, 100));
        window.blocks?.splice(before);
      }, before);
    },
    close: () => context.close(),
  };
}

const words = process.argv.slice(2);
const wanted = ([name, test]) => (words.length === 0 ? !test.long : words.some((word) => name.includes(word)));
const chosen = Object.entries(tests).filter(wanted);
let failed = 0;
const browsers = new Map();
for (const [name, test] of chosen) {
  const started = performance.now();
  const flags = test.withoutGpu ? [] : GPU;
  const key = flags.join();
  if (!browsers.has(key)) browsers.set(key, await launch(flags));
  const use = await openPage(browsers.get(key), test);
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
