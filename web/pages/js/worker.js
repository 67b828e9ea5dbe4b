// All wasm runs here, so that neither compiling shaders nor training on the CPU blocks the page.

const name = new URLSearchParams(self.location.search).get("module");
let wasm;
const objects = new Map();
let next = 1;
let dead = false;

function die(message) {
	if (!dead) self.postMessage({ fatal: message }); // the first report knows the cause
	dead = true;
}

// Called by the panic hook: afterwards the instance may not be used again.
self.reportPanic = (message) => die(`The program stopped: ${message}`);

// A trap in an async export never settles its promise; it shows up here instead.
self.onerror = (message) => {
	self.reportPanic(message);
	return true;
};
self.onunhandledrejection = (event) => {
	if (!(event.reason instanceof WebAssembly.RuntimeError)) return;
	event.preventDefault();
	self.reportPanic(text(event.reason));
};

function text(error) {
	return error instanceof Error ? error.message || error.name : String(error);
}

async function run({ on, method, args }) {
	if (method.startsWith("new:")) {
		objects.set(next, await wasm[method.slice(4)].create(...args));
		return next++;
	}
	if (on === undefined) return wasm[method](...args);
	const object = objects.get(on);
	if (!object) throw new Error("This object has been freed.");
	if (method === "free") objects.delete(on);
	return object[method](...args);
}

async function answer({ id, ...message }) {
	if (dead) return;
	try {
		const value = await run(message);
		const whole = ArrayBuffer.isView(value) && value.byteLength === value.buffer.byteLength;
		self.postMessage({ id, value }, whole ? [value.buffer] : []);
	} catch (error) {
		if (error instanceof WebAssembly.RuntimeError) self.reportPanic(text(error));
		else self.postMessage({ id, error: text(error) });
	}
}

// One after another: calls for one object must not overlap.
let chain = import(`../pkg/${name}.js`)
	.then((module) => (wasm = module).default())
	.catch((error) => die(`The WebAssembly module could not be loaded: ${text(error)}`));
self.onmessage = ({ data }) => {
	chain = chain.then(() => answer(data));
};
