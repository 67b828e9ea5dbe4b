// resample: out[n, y, x] = sum over j, k of a[y, j] * b[x, k] * in[n, j, k]. Each row of the matrices a and b has one
// run of weights, and zeros around it. What is resized how, and whether this is a gradient, is in the matrices.
//#include "lib/grid"

struct Params {
    len: u32,
    in_h: u32,
    in_w: u32,
    out_h: u32,
    out_w: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(auto) var<uniform> p: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;
// Two words for each run of a and one past them, the same for b, then the weights, as bits.
@group(0) @binding(auto) var<storage, read> matrices: array<u32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;

struct Run {
    // The column of the run's first weight.
    first: u32,
    // Its weights are the words from `start` to before `end`, where those of the next run start.
    start: u32,
    end: u32,
}

fn run(i: u32) -> Run {
    return Run(matrices[2u * i], matrices[2u * i + 1u], matrices[2u * i + 3u]);
}

fn weight(k: u32) -> f32 {
    return bitcast<f32>(matrices[k]);
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, groups) * 64u + lane;
    if (i >= p.len) { return; }
    let row = run(i / p.out_w % p.out_h);
    let col = run(p.out_h + 1u + i % p.out_w);
    var line = (i / (p.out_w * p.out_h) * p.in_h + row.first) * p.in_w + col.first;
    var sum = 0.0;
    for (var j = row.start; j < row.end; j++) {
        var part = 0.0;
        for (var k = col.start; k < col.end; k++) {
            part += weight(k) * x[line + k - col.start];
        }
        sum += weight(j) * part;
        line += p.in_w;
    }
    out[i] = sum;
}
