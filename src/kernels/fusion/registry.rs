//! The programs of the process. A kernel refers to one by its index.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::kernels::fusion::program::Program;
use crate::runtime::Runtime;

/// The maximum number of tensors in memory that a kernel reads and writes.
pub(crate) const MAX_BINDINGS: u32 = 16;

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Registry {
    indices: FxHashMap<Arc<Program>, u32>,
    /// Each program, and the ops that it was first made for.
    list: Vec<(Arc<Program>, Arc<[&'static str]>)>,
}

/// Returns the index of a program of these ops.
pub(crate) fn index_of(program: &Program, ops: impl Iterator<Item = &'static str>) -> u32 {
    let mut registry = REGISTRY.lock();
    let Registry { indices, list } = &mut *registry;
    if let Some(&index) = indices.get(program) {
        return index;
    }
    let program = Arc::new(program.clone());
    let index = list.len() as u32;
    list.push((program.clone(), ops.collect()));
    indices.insert(program, index);
    index
}

/// Returns whether a kernel of the program should be asked for: it has an index, or more kernels
/// should be generated.
pub(crate) fn may_use(runtime: &Runtime, program: &Program) -> bool {
    runtime.may_generate() || REGISTRY.lock().indices.contains_key(program)
}

/// Returns the program with an index, and its ops.
pub(crate) fn program_of(index: u32) -> (Arc<Program>, Arc<[&'static str]>) {
    REGISTRY.lock().list[index as usize].clone()
}
