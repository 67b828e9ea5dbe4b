// The peers, each with what it is asked to do: `matmul(a, b, n)` gives a function that multiplies once and waits for the device,
// and one that reads a number of the product.

const peers = {};

/** Ours, as the pages have it: the module of the pages in its own build. */
peers["burn-wgsl"] = async () => {
	globalThis.reportPanic = (message) => console.error(message);
	const wasm = await import("./ours/pkg/all.js");
	await wasm.default();
	const { device } = await wasm.open("software");
	return {
		version: wasm.version(),
		// It makes its own numbers and takes its own times, each over some products and one read of a number.
		async matmul(a, b, n) {
			return { times: async (milliseconds) => (await wasm.race_matmul(device, n, milliseconds)).seconds };
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
			const [x, y] = [a, b].map((values) => np.array(values, { shape: [n, n], dtype: np.float32 }));
			return {
				async once() {
					const out = product(x.ref, y.ref);
					await jax.blockUntilReady(out);
					return out;
				},
				last: async (out) => (await out.data()).at(-1),
				drop: (out) => out.refCount > 0 && out.dispose(),
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
					const one = tf.slice(out, [0, 0], [1, 1]);
					await one.data();
					one.dispose();
					return out;
				},
				last: async (out) => (await out.data()).at(-1),
				drop: (out) => out.dispose(),
			};
		},
	};
};

peers["onnxruntime-web"] = async () => {
	const ort = await import("./modules/onnxruntime-web/dist/ort.webgpu.min.mjs");
	return {
		version: ort.env.versions.web,
		async matmul(a, b, n) {
			const options = { executionProviders: ["webgpu"], preferredOutputLocation: "gpu-buffer" };
			const session = await ort.InferenceSession.create(matmulModel(n), options);
			const device = await ort.env.webgpu.device;
			const onDevice = (values) => {
				const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
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
				drop: (out) => out.dispose(),
			};
		},
	};
};

/** Burn's own GPU backend, in the digits network of the example. */
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

/** A model of one product of n by n matrices, in ONNX's protocol buffers. */
function matmulModel(n) {
	const varint = (value) => {
		const bytes = [];
		for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
		return [...bytes, value];
	};
	const number = (field, value) => [...varint(field * 8), ...varint(value)];
	const bytes = (field, content) => [...varint(field * 8 + 2), ...varint(content.length), ...content];
	const text = (field, word) => bytes(field, [...word].map((letter) => letter.charCodeAt(0)));
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

/** The same numbers for everybody. */
function numbers(count, seed) {
	const values = new Float32Array(count);
	for (let at = 0, state = seed; at < count; at += 1) {
		state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
		values[at] = state / 2 ** 31 - 1;
	}
	return values;
}

const opened = {};
const open = async (name) => (opened[name] ??= await peers[name]());

const works = new Map();

/** The seconds of a product, the best of what fits into so many milliseconds; the first call opens, compiles and warms up. */
async function matmul(name, n, milliseconds) {
	const key = `${name} ${n}`;
	const [a, b] = [numbers(n * n, 1), numbers(n * n, 2)];
	if (!works.has(key)) works.set(key, await (await open(name)).matmul(a, b, n));
	const work = works.get(key);
	if (work.times) return { seconds: await work.times(milliseconds) };
	const times = [];
	let last;
	const begun = performance.now();
	while (times.length < 2 || performance.now() - begun < milliseconds) {
		const start = performance.now();
		const out = await work.once();
		times.push((performance.now() - start) / 1e3);
		if (times.length === 1) {
			last = await work.last(out);
			const truth = a.subarray(n * (n - 1)).reduce((sum, value, k) => sum + value * b[k * n + n - 1], 0);
			if (!(Math.abs(last - truth) < 1e-2)) throw new Error(`it computes ${last} in place of ${truth}`);
		}
		work.drop(out);
	}
	times.sort((x, y) => x - y);
	return { seconds: times[Math.floor(times.length / 2)] };
}

/** Trains so many steps of the digits network. */
async function training(name, steps) {
	const key = `${name} training`;
	const start = performance.now();
	if (!works.has(key)) works.set(key, await (await open(name)).training());
	const { losses } = await works.get(key)(steps);
	return { seconds: (performance.now() - start) / 1e3, loss: losses.at(-1) };
}

globalThis.peers = { matmul, training, version: async (name) => (await open(name)).version ?? "" };
