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
// The offset of the element of a query and a key in a mask or a bias. Rows and keys past the edge have that of the
// last one.
fn offset_of(strides: vec4<u32>, batch: u32, head: u32, query: u32, key: u32) -> u32 {
    let offsets = vec4<u32>(batch, head, min(query, p.queries - 1u), min(key, p.keys - 1u)) * strides;
    return offsets.x + offsets.y + offsets.z + offsets.w;
}
//#endif

// Whether a query attends to a key only without a causal mask. With one, the last query attends to all keys, and
// each before it to one key less.
fn is_causally_masked(query: u32, key: u32) -> bool {
    return p.causal == 1u && key + p.queries > query + p.keys;
}

// The end of the keys that the queries below query_end attend to.
fn keys_end(query_end: u32) -> u32 {
    if (p.causal == 0u) { return p.keys; }
    let end_plus_queries = min(query_end, p.queries) + p.keys;
    return min(p.keys, select(0u, end_plus_queries - p.queries, end_plus_queries > p.queries));
}
