// Compares burn-wgsl with other libraries in one browser and prints Markdown tables. Run
// `cargo xtask web` in the repository root and `npm ci` here first, then
// `node run.mjs [matmul] [training]` (default: matmul).
//
// Environment variables: BROWSER (the Chromium executable), ROUNDS, PEERS (a,b,c) and SIZES. The
// workload `training` requires a build of `burn-wgpu`: see its Cargo.toml.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { execFileSync } from "node:child_process";
import { chromium } from "playwright-core";

const here = import.meta.dirname;
const root = join(here, "../../..");
const { BROWSER = "/usr/bin/chromium", ROUNDS = "5" } = process.env;
const rounds = Number(ROUNDS);

const MIME_TYPES = {
	".html": "text/html",
	".js": "text/javascript",
	".mjs": "text/javascript",
	".wasm": "application/wasm",
};
/** Folders by the first component of a URL path. Other paths are relative to this folder. */
const ROUTES = {
	modules: join(here, "node_modules"),
	ours: join(root, "web/dist"),
	burn: join(here, "burn-wgpu"),
};
const server = createServer(async (request, response) => {
	const path = normalize(new URL(request.url, "http://here").pathname).slice(1);
	const [first, ...rest] = path.split("/");
	const file = ROUTES[first] ? join(ROUTES[first], ...rest) : join(here, path);
	try {
		const body = await readFile(file);
		const type = MIME_TYPES[extname(file)] ?? "application/octet-stream";
		response.writeHead(200, { "content-type": type }).end(body);
	} catch {
		response.writeHead(404).end();
	}
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const browser = await chromium.launch({
	executablePath: BROWSER,
	args: [
		"--no-sandbox",
		"--enable-unsafe-webgpu",
		"--no-first-run",
		"--disable-quic",
		"--disable-background-networking",
	],
	ignoreDefaultArgs: ["--disable-gpu"],
});
const page = await browser.newPage();
page.setDefaultTimeout(0);
page.on("console", (message) => console.error(`    ${message.text()}`));
await page.goto(`http://127.0.0.1:${server.address().port}/index.html`);
await page.waitForFunction(() => globalThis.peers);

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
/** Formats the median with the minimum and the maximum. */
const range = (values, format) => {
	const [min, max] = [Math.min(...values), Math.max(...values)];
	return `${format(median(values))} (${format(min)}-${format(max)})`;
};

/**
 * Runs all peers once as a warm-up and then in interleaved rounds. Each round starts with the next
 * peer. Returns the samples of each peer; a peer that fails is removed.
 */
async function interleave(names, run) {
	const samples = new Map(names.map((name) => [name, []]));
	for (let round = -1; round < rounds; round += 1) {
		for (let turn = 0; turn < names.length; turn += 1) {
			const name = names[(turn + Math.max(round, 0)) % names.length];
			if (!samples.has(name)) continue;
			try {
				const value = await run(name, round < 0);
				if (round >= 0) samples.get(name).push(value);
			} catch (error) {
				console.error(`    ${name}: ${error.message.split("\n")[0]}`);
				samples.delete(name);
			}
		}
	}
	return samples;
}

async function matmul() {
	const names = (process.env.PEERS ?? "burn-wgsl,jax-js,tfjs,onnxruntime-web").split(",");
	console.log(`| product | unit | ${names.join(" | ")} |`);
	console.log(`|---|---|${"--:|".repeat(names.length)}`);
	for (const n of (process.env.SIZES ?? "512,1024").split(",").map(Number)) {
		const samples = await interleave(names, async (name, isWarmUp) => {
			const call = ([name, n, time]) => globalThis.peers.matmul(name, n, time);
			return (await page.evaluate(call, [name, n, isWarmUp ? 0 : 1000])).seconds;
		});
		const rate = (seconds) => (2 * n ** 3 / seconds / 1e9).toFixed(2);
		const cell = (name) => (samples.get(name)?.length ? range(samples.get(name), rate) : "-");
		console.log(`| ${n} x ${n} | GFLOP/s | ${names.map(cell).join(" | ")} |`);
	}
}

async function training() {
	const names = (process.env.PEERS ?? "burn-wgsl,burn-wgpu").split(",");
	const firstSteps = new Map();
	const steps = 5;
	const samples = await interleave(names, async (name, isWarmUp) => {
		const call = ([name, steps]) => globalThis.peers.training(name, steps);
		const seconds = async (steps) => (await page.evaluate(call, [name, steps])).seconds;
		if (isWarmUp) {
			firstSteps.set(name, await seconds(1));
			// Tuning takes several steps: repeat until the times no longer fall.
			let [last, now] = [Infinity, await seconds(1)];
			while (now < 0.8 * last) [last, now] = [now, await seconds(1)];
		}
		return (64 * steps) / (await seconds(steps));
	});
	console.log(`| | ${names.join(" | ")} |`);
	console.log(`|---|${"--:|".repeat(names.length)}`);
	const rate = (value) => value.toFixed(1);
	const cell = (name) => (samples.get(name)?.length ? range(samples.get(name), rate) : "-");
	const firstStep = (name) => firstSteps.get(name)?.toFixed(1) ?? "-";
	console.log(`| first step, with download and start, s | ${names.map(firstStep).join(" | ")} |`);
	console.log(`| images per second | ${names.map(cell).join(" | ")} |`);
}

const workloads = process.argv.slice(2);
const commit = execFileSync("git", ["rev-parse", "--short", "HEAD"], { cwd: here });
console.log(`- Date: ${new Date().toISOString()}`);
console.log(`- Commit: ${commit.toString().trim()}`);
console.log(`- Browser: Chromium ${browser.version()}, software adapter (SwiftShader)\n`);
if (!workloads.length || workloads.includes("matmul")) await matmul();
if (workloads.includes("training")) await training();
await browser.close();
server.close();
