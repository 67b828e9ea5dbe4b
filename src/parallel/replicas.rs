//! The parameters of a module on several workers.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::{Backend, ExecutionError};
use burn::tensor::{BasicOps, Bool, BoolStore, DType, Int, Shape, Tensor, TensorData};

use super::ParallelError;
use super::peers::{Label, Peers};
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
    peers.gather(&Label::Shapes(shapes.text()), Vec::new())?;
    let mut own = None;
    if peers.rank == 0 {
        own = Some(read::<B, M>(peers, &module)?.into_iter());
    }
    let mut data = Vec::new();
    for (index, (shape, dtype)) in shapes.all.iter().enumerate() {
        let label = Label::Tensor { index, of: shapes.all.len() };
        let own = own.as_mut().and_then(Iterator::next);
        let own = own.map(|own| own.convert_dtype(*dtype).bytes.to_vec());
        let bytes = peers.broadcast(&label, own)?;
        if peers.rank != 0 {
            data.push(TensorData::from_bytes_vec(bytes.to_vec(), shape.clone(), *dtype));
        }
    }
    if peers.rank == 0 {
        return Ok(module);
    }
    // What this worker added to running statistics would come after those of the first.
    drop(module.clone().into_record());
    Ok(module.map(&mut Replace { data: data.into_iter(), device: peers.device }))
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
    let own = tensors.iter().flat_map(|data| crc32fast::hash(&data.bytes).to_le_bytes()).collect();
    let sums = peers.gather(&Label::Checksums, own)?;
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

/// The shapes and types of tensors, in order.
#[derive(Default)]
struct Shapes {
    all: Vec<(Shape, DType)>,
}

impl Shapes {
    /// Returns a text that is equal for equal shapes and types.
    fn text(&self) -> String {
        let numbers: usize = self.all.iter().map(|(shape, _)| shape.num_elements()).sum();
        let checksum = crc32fast::hash(format!("{:?}", self.all).as_bytes());
        format!("{} tensors with {numbers} numbers (shapes {checksum:08x})", self.all.len())
    }
}

impl<B: Backend> ModuleVisitor<B> for Shapes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let value = param.val();
        self.all.push((value.shape(), value.dtype()));
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        let value = param.val();
        self.all.push((value.shape(), value.dtype()));
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        // Devices store booleans in different ways.
        self.all.push((param.val().shape(), DType::Bool(BoolStore::Native)));
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
struct Replace {
    data: std::vec::IntoIter<TensorData>,
    device: WgslDevice,
}

impl Replace {
    /// Returns the next tensor, with the type of the old one.
    fn next<B, const D: usize, K>(&mut self, old: &Tensor<B, D, K>) -> Tensor<B, D, K>
    where
        B: Backend<Device = WgslDevice>,
        K: BasicOps<B>,
    {
        match self.data.next() {
            Some(data) => Tensor::from_data(data, (&self.device, old.dtype())),
            None => old.clone(),
        }
    }
}

impl<B: Backend<Device = WgslDevice>> ModuleMapper<B> for Replace {
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
