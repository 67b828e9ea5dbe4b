// burn-wgsl in a browser beside what else computes there: `node run.mjs` in this folder, after `npm ci` here and `cargo xtask web` in
// the root. Words on the command line: matmul, training. It writes a table in Markdown to its output.
//
// BROWSER names Chromium's program; ROUNDS, PEERS (a,b,c) and SIZES shape a run. `training` needs the peer in `burn-wgpu`
// built before: see its Cargo.toml.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { execFileSync } from "node:child_process";
import { chromium } from "playwright-core";

const here = import.meta.dirname;
const root = join(here, "../../..");
const { BROWSER = "/usr/bin/chromium", ROUNDS = "5" } = process.env;
const rounds = Number(ROUNDS);

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm" };
const PLACES = { modules: join(here, "node_modules"), ours: join(root, "web/dist"), burn: join(here, "burn-wgpu") };
const server = createServer(async (request, response) => {
	const path = normalize(new URL(request.url, "http://here").pathname).slice(1);
	const [first, ...rest] = path.split("/");
	const file = PLACES[first] ? join(PLACES[first], ...rest) : join(here, path);
	try {
		const body = await readFile(file);
		response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream" }).end(body);
	} catch {
		response.writeHead(404).end();
	}
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const browser = await chromium.launch({
	executablePath: BROWSER,
	args: ["--no-sandbox", "--enable-unsafe-webgpu", "--no-first-run", "--disable-quic", "--disable-background-networking"],
	ignoreDefaultArgs: ["--disable-gpu"],
});
const page = await browser.newPage();
page.setDefaultTimeout(0);
page.on("console", (message) => console.error(`    ${message.text()}`));
await page.goto(`http://127.0.0.1:${server.address().port}/index.html`);
await page.waitForFunction(() => globalThis.peers);

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
const range = (values, form) => `${form(median(values))} (${form(Math.min(...values))}-${form(Math.max(...values))})`;

/** All of them in turns; another one is first in each round. */
async function inTurns(names, run) {
	const found = new Map(names.map((name) => [name, []]));
	for (let round = -1; round < rounds; round += 1) {
		for (let at = 0; at < names.length; at += 1) {
			const name = names[(at + Math.max(round, 0)) % names.length];
			if (!found.has(name)) continue;
			try {
				const value = await run(name, round < 0);
				if (round >= 0) found.get(name).push(value);
			} catch (error) {
				console.error(`    ${name}: ${error.message.split("\n")[0]}`);
				found.delete(name);
			}
		}
	}
	return found;
}

async function matmul() {
	const names = (process.env.PEERS ?? "burn-wgsl,jax-js,tfjs,onnxruntime-web").split(",");
	console.log("| product | unit | " + names.join(" | ") + " |");
	console.log("|---|---|" + "--:|".repeat(names.length));
	for (const n of (process.env.SIZES ?? "512,1024").split(",").map(Number)) {
		const found = await inTurns(names, async (name, first) => {
			const ask = ([name, n, time]) => globalThis.peers.matmul(name, n, time);
			return (await page.evaluate(ask, [name, n, first ? 0 : 1000])).seconds;
		});
		const rate = (seconds) => (2 * n ** 3 / seconds / 1e9).toFixed(2);
		const cell = (name) => (found.get(name)?.length ? range(found.get(name), rate) : "-");
		console.log(`| ${n} x ${n} | GFLOP/s | ${names.map(cell).join(" | ")} |`);
	}
}

async function training() {
	const names = (process.env.PEERS ?? "burn-wgsl,burn-wgpu").split(",");
	const firsts = new Map();
	const steps = 5;
	const found = await inTurns(names, async (name, first) => {
		const ask = ([name, steps]) => globalThis.peers.training(name, steps);
		if (first) {
			firsts.set(name, (await page.evaluate(ask, [name, 1])).seconds);
			// Until the times no longer fall: tuning goes on for some steps.
			for (let last = Infinity, now; (now = (await page.evaluate(ask, [name, 1])).seconds) < 0.8 * last; last = now);
		}
		return (64 * steps) / (await page.evaluate(ask, [name, steps])).seconds;
	});
	console.log("| | " + names.join(" | ") + " |");
	console.log("|---|" + "--:|".repeat(names.length));
	const rate = (value) => value.toFixed(1);
	const cell = (name) => (found.get(name)?.length ? range(found.get(name), rate) : "-");
	console.log(`| first step with opening and loading, s | ${names.map((name) => firsts.get(name)?.toFixed(1) ?? "-").join(" | ")} |`);
	console.log(`| images a second | ${names.map(cell).join(" | ")} |`);
}

const words = process.argv.slice(2);
const commit = execFileSync("git", ["rev-parse", "--short", "HEAD"], { cwd: here }).toString().trim();
console.log(`- Date: ${new Date().toISOString()}\n- Commit: ${commit}\n- Browser: Chromium ${browser.version()}, software adapter (SwiftShader)\n`);
if (!words.length || words.includes("matmul")) await matmul();
if (words.includes("training")) await training();
await browser.close();
server.close();
