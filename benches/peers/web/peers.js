// The peers. Each entry opens its library and returns the workloads that it supports:
// - `matmul(a, b, n)` uploads two `[n, n]` matrices. It returns either `once` (multiplies and waits
//   for the device), `last` (reads the last element of the product) and `dispose`, or `measure`
//   (returns the median seconds per product).
// - `training()` returns a function that runs training steps of the digits network.

const peers = {};

/** burn-wgsl: the module of this project's web pages. */
peers["burn-wgsl"] = async () => {
	globalThis.reportPanic = (message) => console.error(message);
	const wasm = await import("./ours/pkg/all.js");
	await wasm.default();
	const { device } = await wasm.open("software");
	return {
		version: wasm.version(),
		// The module creates its own operands and measures the time itself. A sample is several
		// products and the readback of one element.
		async matmul(_a, _b, n) {
			return {
				async measure(milliseconds) {
					return (await wasm.race_matmul(device, n, milliseconds)).seconds;
				},
			};
		},
		async training() {
			const digits = await wasm.Digits.create(device, { seed: 1, batch: 64, rate: 1e-3 });
			return (steps) => digits.run(steps);
		},
	};
};

peers["jax-js"] = async () => {
	const jax = await import("./modules/@jax-js/jax/dist/index.js");
	await jax.init("webgpu");
	jax.defaultDevice("webgpu");
	const { numpy: np } = jax;
	return {
		async matmul(a, b, n) {
			const product = jax.jit((x, y) => np.matmul(x, y));
			const options = { shape: [n, n], dtype: np.float32 };
			const [x, y] = [a, b].map((values) => np.array(values, options));
			return {
				async once() {
					const out = product(x.ref, y.ref);
					await jax.blockUntilReady(out);
					return out;
				},
				last: async (out) => (await out.data()).at(-1),
				dispose: (out) => out.refCount > 0 && out.dispose(),
			};
		},
	};
};

peers.tfjs = async () => {
	const { tf } = globalThis;
	await tf.setBackend("webgpu");
	await tf.ready();
	return {
		version: tf.version_core,
		async matmul(a, b, n) {
			const [x, y] = [a, b].map((values) => tf.tensor2d(values, [n, n]));
			return {
				async once() {
					const out = tf.matMul(x, y);
					const element = tf.slice(out, [0, 0], [1, 1]);
					await element.data();
					element.dispose();
					return out;
				},
				last: async (out) => (await out.data()).at(-1),
				dispose: (out) => out.dispose(),
			};
		},
	};
};

peers["onnxruntime-web"] = async () => {
	const ort = await import("./modules/onnxruntime-web/dist/ort.webgpu.min.mjs");
	return {
		version: ort.env.versions.web,
		async matmul(a, b, n) {
			const options = {
				executionProviders: ["webgpu"],
				preferredOutputLocation: "gpu-buffer",
			};
			const session = await ort.InferenceSession.create(matmulModel(n), options);
			const device = await ort.env.webgpu.device;
			const onDevice = (values) => {
				const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
				const usage = STORAGE | COPY_SRC | COPY_DST;
				const gpuBuffer = device.createBuffer({ size: values.byteLength, usage });
				device.queue.writeBuffer(gpuBuffer, 0, values);
				return ort.Tensor.fromGpuBuffer(gpuBuffer, { dataType: "float32", dims: [n, n] });
			};
			const feeds = { a: onDevice(a), b: onDevice(b) };
			return {
				async once() {
					const { c } = await session.run(feeds);
					await device.queue.onSubmittedWorkDone();
					return c;
				},
				last: async (out) => (await out.getData()).at(-1),
				dispose: (out) => out.dispose(),
			};
		},
	};
};

/** burn-wgpu, training the network of the digits example. */
peers["burn-wgpu"] = async () => {
	const wasm = await import("./burn/pkg/burn_wgpu.js");
	await wasm.default();
	return {
		async training() {
			const digits = await wasm.Digits.create(64);
			return (steps) => digits.run(steps);
		},
	};
};

/** Encodes an ONNX model (protocol buffers) with one MatMul of two `[n, n]` matrices. */
function matmulModel(n) {
	const varint = (value) => {
		const bytes = [];
		for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
		return [...bytes, value];
	};
	const number = (field, value) => [...varint(field * 8), ...varint(value)];
	const bytes = (field, content) => {
		return [...varint(field * 8 + 2), ...varint(content.length), ...content];
	};
	const text = (field, string) => bytes(field, [...string].map((char) => char.charCodeAt(0)));
	const size = bytes(1, number(1, n));
	const type = bytes(1, [...number(1, 1), ...bytes(2, [...size, ...size])]);
	const value = (name) => [...text(1, name), ...bytes(2, type)];
	const node = [...text(1, "a"), ...text(1, "b"), ...text(2, "c"), ...text(4, "MatMul")];
	const graph = [
		...bytes(1, node),
		...text(2, "matmul"),
		...bytes(11, value("a")),
		...bytes(11, value("b")),
		...bytes(12, value("c")),
	];
	return Uint8Array.from([...number(1, 8), ...bytes(7, graph), ...bytes(8, number(2, 13))]);
}

/** Returns pseudo-random values in -1..1, the same for all peers. */
function inputValues(count, seed) {
	const values = new Float32Array(count);
	for (let index = 0, state = seed; index < count; index += 1) {
		state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
		values[index] = state / 2 ** 31 - 1;
	}
	return values;
}

const opened = {};
const open = async (name) => (opened[name] ??= await peers[name]());

const workloads = new Map();

/**
 * Multiplies repeatedly for about `milliseconds`. Returns the median seconds per product. The first
 * call also opens the library and compiles.
 */
async function matmul(name, n, milliseconds) {
	const key = `${name} ${n}`;
	const [a, b] = [inputValues(n * n, 1), inputValues(n * n, 2)];
	if (!workloads.has(key)) workloads.set(key, await (await open(name)).matmul(a, b, n));
	const workload = workloads.get(key);
	if (workload.measure) return { seconds: await workload.measure(milliseconds) };
	const times = [];
	let last;
	const started = performance.now();
	while (times.length < 2 || performance.now() - started < milliseconds) {
		const start = performance.now();
		const out = await workload.once();
		times.push((performance.now() - start) / 1e3);
		if (times.length === 1) {
			last = await workload.last(out);
			const lastRow = a.subarray(n * (n - 1));
			const expected = lastRow.reduce((sum, value, k) => sum + value * b[k * n + n - 1], 0);
			if (!(Math.abs(last - expected) < 1e-2)) {
				throw new Error(`the last element of the product is ${last}, expected ${expected}`);
			}
		}
		workload.dispose(out);
	}
	times.sort((x, y) => x - y);
	return { seconds: times[Math.floor(times.length / 2)] };
}

/** Runs training steps of the digits network. Returns their total time and the last loss. */
async function training(name, steps) {
	const key = `${name} training`;
	const start = performance.now();
	if (!workloads.has(key)) workloads.set(key, await (await open(name)).training());
	const { losses } = await workloads.get(key)(steps);
	return { seconds: (performance.now() - start) / 1e3, loss: losses.at(-1) };
}

globalThis.peers = { matmul, training, version: async (name) => (await open(name)).version ?? "" };
