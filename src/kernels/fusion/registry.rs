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
    list: Vec<Registered>,
}

/// A program, and what is known of it.
struct Registered {
    program: Arc<Program>,
    /// The ops that it was first made for.
    ops: Arc<[&'static str]>,
    /// See [`Program::rounds`].
    rounds: u64,
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
    list.push(Registered {
        ops: ops.collect(),
        rounds: program.rounds(),
        program: program.clone(),
    });
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
    let registry = REGISTRY.lock();
    let Registered { program, ops, .. } = &registry.list[index as usize];
    (program.clone(), ops.clone())
}

/// Returns the rounds of loops of a program with an index, for each element, at most.
pub(crate) fn rounds_of(index: u32) -> u64 {
    REGISTRY.lock().list[index as usize].rounds
}
