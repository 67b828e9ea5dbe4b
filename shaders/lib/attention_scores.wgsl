// The layout of the operands of attention and of its gradients, and which keys a query attends to.
// The including shader must bind `p: Params`.
// F16, BF16: the operands are of these types, and not f32.
//#include "lib/operand"

// The layout of an operand, in vec4s.
struct OperandLayout {
    offset: u32,
    batch_stride: u32,
    head_stride: u32,
    row_stride: u32,
}

// The offset of the first row of a matrix.
fn start_of(operand: OperandLayout, batch: u32, head: u32) -> u32 {
    return operand.offset + batch * operand.batch_stride + head * operand.head_stride;
}

//#if BIASED
// The offsets of the elements of four queries and keys in a mask or a bias. Rows and keys past the edge have that of
// the last one.
fn offsets_of(strides: vec4<u32>, batch: u32, head: u32, queries: vec4<u32>, keys: vec4<u32>) -> vec4<u32> {
    let rows = min(queries, vec4<u32>(p.queries - 1u)) * strides.z;
    let cols = min(keys, vec4<u32>(p.keys - 1u)) * strides.w;
    return batch * strides.x + head * strides.y + rows + cols;
}

// Elements of a bias.
fn biases_at(offsets: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(bias[offsets.x], bias[offsets.y], bias[offsets.z], bias[offsets.w]);
}

fn tanh4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(tanh_(x.x), tanh_(x.y), tanh_(x.z), tanh_(x.w));
}
//#endif

// The end of the keys that the queries below query_end attend to. With a causal mask, the last query attends to all
// keys, and each before it to one key less.
fn keys_end(query_end: u32) -> u32 {
    if (p.causal == 0u) { return p.keys; }
    let end_plus_queries = min(query_end, p.queries) + p.keys;
    return min(p.keys, select(0u, end_plus_queries - p.queries, end_plus_queries > p.queries));
}
