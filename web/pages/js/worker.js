// The dedicated worker that runs the WebAssembly module, so that neither shader compilation nor
// training on the CPU blocks the page.

const moduleName = new URLSearchParams(self.location.search).get("module");
let wasm;
const objects = new Map(); // Rust objects by handle
let nextHandle = 1;
let failed = false;

function fail(message) {
	if (!failed) self.postMessage({ fatal: message }); // report only the first error
	failed = true;
}

// Called by the panic hook. The module instance must not be used after a panic.
self.reportPanic = (message) => fail(`The WebAssembly module crashed: ${message}`);

// A trap in an async export never settles its promise. It is reported here instead.
self.onerror = (message) => {
	self.reportPanic(message);
	return true;
};
self.onunhandledrejection = (event) => {
	if (!(event.reason instanceof WebAssembly.RuntimeError)) return;
	event.preventDefault();
	self.reportPanic(errorText(event.reason));
};

function errorText(error) {
	return error instanceof Error ? error.message || error.name : String(error);
}

/** Calls a function of the module, or a method of the object with the given handle. */
async function call({ handle, method, args }) {
	if (method.startsWith("new:")) {
		objects.set(nextHandle, await wasm[method.slice(4)].create(...args));
		return nextHandle++;
	}
	if (handle === undefined) return wasm[method](...args);
	const object = objects.get(handle);
	if (!object) throw new Error(`${method} was called on an object that has been freed.`);
	if (method === "free") objects.delete(handle);
	return object[method](...args);
}

async function respond({ id, ...request }) {
	if (failed) return;
	try {
		const value = await call(request);
		const ownsBuffer = ArrayBuffer.isView(value) && value.byteLength === value.buffer.byteLength;
		self.postMessage({ id, value }, ownsBuffer ? [value.buffer] : []);
	} catch (error) {
		if (error instanceof WebAssembly.RuntimeError) self.reportPanic(errorText(error));
		else self.postMessage({ id, error: errorText(error) });
	}
}

// Requests run one after another: calls on the same object must not overlap.
let queue = import(`../pkg/${moduleName}.js`)
	.then((module) => {
		wasm = module;
		return module.default();
	})
	.catch((error) => fail(`The WebAssembly module could not be loaded: ${errorText(error)}`));
self.onmessage = ({ data }) => {
	queue = queue.then(() => respond(data));
};
