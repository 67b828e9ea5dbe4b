// Compiles every .wgsl file of a folder with Tint, Chromium's WGSL compiler, and creates a compute
// pipeline from each one, within WebGPU's default limits.
//
// Usage: node check.js FOLDER
//
// Dawn's null backend validates without executing anything, so this script needs no GPU.
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { create, globals } from 'webgpu';

Object.assign(globalThis, globals);
// Keep a global reference: Dawn shuts down when this object is garbage-collected.
globalThis.gpu = create(['backend=null']);
const adapter = await gpu.requestAdapter();
// Enable the features that shaders may use; the limits stay at their defaults.
const requiredFeatures = ['shader-f16', 'subgroups'].filter((name) => adapter.features.has(name));
const device = await adapter.requestDevice({ requiredFeatures });

const folder = process.argv[2];
const files = (await readdir(folder)).filter((name) => name.endsWith('.wgsl')).sort();
let failed = 0;
for (const file of files) {
  const code = await readFile(join(folder, file), 'utf8');
  const errors = await compile(code);
  if (errors.length > 0) {
    failed += 1;
    // The first line of a shader is a comment that names its variant.
    console.error(`\n${join(folder, file)}\n  ${code.split('\n', 1)[0]}`);
    for (const error of errors) {
      console.error(`  ${error}`);
    }
  }
}
console.log(`    ${files.length} shaders checked, ${failed} failed to compile`);
process.exit(failed > 0 || files.length === 0 ? 1 : 0);

// Returns the errors of a shader: the compiler's messages with their source lines, or the error of
// the pipeline if there are none.
async function compile(code) {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  await device.popErrorScope();
  const lines = code.split('\n');
  const errors = messages
    .filter(({ type }) => type === 'error')
    .map(({ lineNum, linePos, message }) => {
      return `${lineNum}:${linePos} ${message}\n    ${lines[lineNum - 1]}`;
    });
  if (errors.length > 0) {
    return errors;
  }
  try {
    const compute = { module, entryPoint: 'main' };
    await device.createComputePipelineAsync({ layout: 'auto', compute });
    return [];
  } catch (error) {
    return [error.message];
  }
}
