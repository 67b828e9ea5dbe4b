// A WebGPU device of the page's own, and kernels whose times show how it works.

const SAMPLES = 3;

/** A kernel that was compiled, and its device. */
export class Kernel {
	#device;
	#pipeline;
	#bindings;

	constructor(device, pipeline, bindings) {
		this.#device = device;
		this.#pipeline = pipeline;
		this.#bindings = bindings;
	}

	/** Resolves with the shortest of some times of a launch, in seconds. */
	async seconds(workgroups) {
		let shortest = Infinity;
		for (let sample = 0; sample <= SAMPLES; sample += 1) {
			const start = performance.now();
			const encoder = this.#device.createCommandEncoder();
			const pass = encoder.beginComputePass();
			pass.setPipeline(this.#pipeline);
			pass.setBindGroup(0, this.#bindings);
			pass.dispatchWorkgroups(workgroups);
			pass.end();
			this.#device.queue.submit([encoder.finish()]);
			await this.#device.queue.onSubmittedWorkDone();
			// The first launch also compiles.
			if (sample > 0) shortest = Math.min(shortest, (performance.now() - start) / 1e3);
		}
		return shortest;
	}
}

/** Opens the browser's GPU. Rejects if there is none. */
export async function openGpu() {
	const adapter = await navigator.gpu?.requestAdapter();
	if (!adapter) throw new Error("this browser offers no GPU");
	const device = await adapter.requestDevice();
	return {
		/** Compiles a kernel that reads and writes one buffer of f32. */
		async kernel(code, bytes) {
			const module = device.createShaderModule({ code });
			const pipeline = await device.createComputePipelineAsync({
				layout: "auto",
				compute: { module },
			});
			const buffer = device.createBuffer({ size: bytes, usage: GPUBufferUsage.STORAGE });
			const bindings = device.createBindGroup({
				layout: pipeline.getBindGroupLayout(0),
				entries: [{ binding: 0, resource: { buffer } }],
			});
			return new Kernel(device, pipeline, bindings);
		},
		close: () => device.destroy(),
	};
}

/** Returns a kernel of `lanes` lanes, each of which takes `rounds` rounds of 64 multiply-adds. */
export const multiplyAdds = (lanes, rounds) => `
	@group(0) @binding(0) var<storage, read_write> data: array<f32>;

	@compute @workgroup_size(${lanes})
	fn main(@builtin(global_invocation_id) id: vec3u) {
		var a = vec4f(f32(id.x));
		var b = a + 1.0;
		var c = a + 2.0;
		var d = a + 3.0;
		for (var i = 0u; i < ${rounds}u; i += 1u) {
			for (var k = 0u; k < 4u; k += 1u) {
				a = fma(a, vec4f(0.999), vec4f(0.5));
				b = fma(b, vec4f(0.998), vec4f(0.5));
				c = fma(c, vec4f(0.997), vec4f(0.5));
				d = fma(d, vec4f(0.996), vec4f(0.5));
			}
		}
		let sum = a + b + c + d;
		data[id.x % arrayLength(&data)] = sum.x + sum.y + sum.z + sum.w;
	}`;

/** Operations of a lane in a round of `multiplyAdds`. */
export const OPERATIONS = 128;

/** Returns a kernel whose lanes read `count` elements each, one after the other, from all of the buffer. */
export const reads = (lanes, count, all) => `
	@group(0) @binding(0) var<storage, read_write> data: array<vec4f>;

	@compute @workgroup_size(${lanes})
	fn main(@builtin(global_invocation_id) id: vec3u) {
		var sum = vec4f(0.0);
		var at = id.x % arrayLength(&data);
		for (var i = 0u; i < ${count}u; i += 1u) {
			sum += data[at];
			at = (at + ${all}u) % arrayLength(&data);
		}
		// It never is: the reads must stay.
		if (sum.x == 12345.0) {
			data[id.x % arrayLength(&data)] = sum;
		}
	}`;
