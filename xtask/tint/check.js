// Has Tint, the WGSL compiler of Chromium, read every .wgsl file of a folder, and makes a compute pipeline of each within the
// limits that every browser grants. Dawn's null backend compiles and runs nothing, so this needs no GPU.
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { create, globals } from 'webgpu';

Object.assign(globalThis, globals);
// Global, because Dawn ends when this object is collected.
globalThis.gpu = create(['backend=null']);
const adapter = await gpu.requestAdapter();
// What a text enables must be there; the limits are left at their guaranteed values.
const requiredFeatures = ['shader-f16', 'subgroups'].filter((name) => adapter.features.has(name));
const device = await adapter.requestDevice({ requiredFeatures });

const folder = process.argv[2];
const files = (await readdir(folder)).filter((name) => name.endsWith('.wgsl')).sort();
let failed = 0;
for (const file of files) {
  const code = await readFile(join(folder, file), 'utf8');
  const complaints = await compile(code);
  if (complaints.length > 0) {
    failed += 1;
    // The first line says which variant it is.
    console.error(`\n${join(folder, file)}\n  ${code.split('\n', 1)[0]}`);
    for (const complaint of complaints) {
      console.error(`  ${complaint}`);
    }
  }
}
console.log(`    ${files.length} shaders, ${failed} of which do not compile`);
process.exit(failed > 0 || files.length === 0 ? 1 : 0);

// What is wrong with a shader: messages with their lines, or else why there is no pipeline.
async function compile(code) {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  await device.popErrorScope();
  const lines = code.split('\n');
  const errors = messages
    .filter(({ type }) => type === 'error')
    .map(({ lineNum, linePos, message }) => `${lineNum}:${linePos} ${message}\n    ${lines[lineNum - 1]}`);
  if (errors.length > 0) {
    return errors;
  }
  try {
    await device.createComputePipelineAsync({ layout: 'auto', compute: { module, entryPoint: 'main' } });
    return [];
  } catch (error) {
    return [error.message];
  }
}
