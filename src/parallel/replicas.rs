//! The parameters of a module on several workers.

use std::fmt::Write;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::{Backend, ExecutionError};
use burn::tensor::{BasicOps, Bool, Int, Tensor, TensorData};

use super::ParallelError;
use super::board::Label;
use super::peers::Peers;
use crate::device::WgslDevice;

/// Returns a module with the tensors of the first worker's.
pub(super) fn broadcast<B, M>(peers: &Peers, module: M) -> Result<M, ParallelError>
where
    B: Backend<Device = WgslDevice>,
    M: Module<B>,
{
    // Creates the values of parameters in the same order for any number of workers.
    let mut shapes = Shapes::default();
    module.visit(&mut shapes);
    if peers.world == 1 {
        return Ok(module);
    }
    let mut data = None;
    if peers.rank == 0 {
        data = Some(read::<B, M>(peers, &module)?);
    }
    let label = Label::Broadcast(shapes.text());
    let first = peers.exchange(label, data, |all| all.into_iter().next().flatten())?;
    match &*first {
        Some(data) if peers.rank != 0 => {
            // What this worker added to running statistics would come after those of the first.
            drop(module.clone().into_record());
            let device = peers.device;
            Ok(module.map(&mut Replace { data: data.iter(), device }))
        }
        _ => Ok(module),
    }
}

/// Returns whether the tensors of a module have the same bits on all workers.
pub(super) fn are_equal<B, M>(peers: &Peers, module: &M) -> Result<bool, ParallelError>
where
    B: Backend<Device = WgslDevice>,
    M: Module<B>,
{
    if peers.world == 1 {
        return Ok(true);
    }
    let tensors = read::<B, M>(peers, module)?;
    let own: Vec<u32> = tensors.iter().map(|data| crc32fast::hash(&data.bytes)).collect();
    let sums = peers.exchange(Label::Checksums, own, |sums| sums)?;
    Ok(sums.iter().all(|sum| *sum == sums[0]))
}

/// Reads the tensors of a module back.
fn read<B: Backend, M: Module<B>>(
    peers: &Peers,
    module: &M,
) -> Result<Vec<TensorData>, ParallelError> {
    module.visit(&mut Shapes::default());
    // Running statistics keep what threads add to them apart, until a record is made.
    drop(module.clone().into_record());
    let mut read = Read { data: Ok(Vec::new()) };
    module.visit(&mut read);
    read.data.map_err(|error| peers.device_failed(&error))
}

/// The shapes of tensors, in order.
#[derive(Default)]
struct Shapes {
    tensors: usize,
    numbers: usize,
    text: String,
}

impl Shapes {
    fn add(&mut self, kind: &str, dims: &[usize]) {
        self.tensors += 1;
        self.numbers += dims.iter().product::<usize>();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{kind}{dims:?}");
    }

    /// Returns a text that is equal for equal shapes.
    fn text(&self) -> String {
        let Self { tensors, numbers, text } = self;
        let checksum = crc32fast::hash(text.as_bytes());
        format!("{tensors} tensors with {numbers} numbers (shapes {checksum:08x})")
    }
}

impl<B: Backend> ModuleVisitor<B> for Shapes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.add("float", &param.val().dims());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add("int", &param.val().dims());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add("bool", &param.val().dims());
    }
}

/// Reads tensors back, until one cannot be read.
struct Read {
    data: Result<Vec<TensorData>, ExecutionError>,
}

impl Read {
    fn add(&mut self, read: impl FnOnce() -> Result<TensorData, ExecutionError>) {
        if let Ok(all) = &mut self.data {
            match read() {
                Ok(data) => all.push(data),
                Err(error) => self.data = Err(error),
            }
        }
    }
}

impl<B: Backend> ModuleVisitor<B> for Read {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.add(|| param.val().try_into_data());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add(|| param.val().try_into_data());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add(|| param.val().try_into_data());
    }
}

/// Replaces tensors, in order.
struct Replace<'a> {
    data: std::slice::Iter<'a, TensorData>,
    device: WgslDevice,
}

impl Replace<'_> {
    /// Returns the next tensor, with the type of the old one.
    fn next<B, const D: usize, K>(&mut self, old: &Tensor<B, D, K>) -> Tensor<B, D, K>
    where
        B: Backend<Device = WgslDevice>,
        K: BasicOps<B>,
    {
        match self.data.next() {
            Some(data) => Tensor::from_data(data.clone(), (&self.device, old.dtype())),
            None => old.clone(),
        }
    }
}

impl<B: Backend<Device = WgslDevice>> ModuleMapper<B> for Replace<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, old, mapper) = param.consume();
        let tensor = self.next(&old).set_require_grad(old.is_require_grad());
        Param::from_mapped_value(id, tensor, mapper)
    }

    fn map_int<const D: usize>(
        &mut self,
        param: Param<Tensor<B, D, Int>>,
    ) -> Param<Tensor<B, D, Int>> {
        let (id, old, mapper) = param.consume();
        Param::from_mapped_value(id, self.next(&old), mapper)
    }

    fn map_bool<const D: usize>(
        &mut self,
        param: Param<Tensor<B, D, Bool>>,
    ) -> Param<Tensor<B, D, Bool>> {
        let (id, old, mapper) = param.consume();
        Param::from_mapped_value(id, self.next(&old), mapper)
    }
}
