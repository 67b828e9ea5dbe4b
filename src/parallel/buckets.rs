//! The mean of gradients, in buckets: while one is added up, the device copies the next, or computes it.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensorOps;
use burn::tensor::{DType, Shape, Tensor, TensorData, TensorPrimitive};

use super::ParallelError;
use super::peers::{Label, Peers};
use super::transport::Pending;
use crate::backend::{Wgsl, WgslTensor};
use crate::train::Readback;

/// Numbers of a bucket, at most: half of those of a readback that is taken later.
const BUCKET: usize = 1 << 20;
/// Buckets that the device copies ahead.
const AHEAD: usize = 8;
const OTHER_MODULE: &str = "the mean is of another module than the one that is watched";

/// The gradient of a parameter.
struct Gradient {
    shape: Shape,
    dtype: DType,
    /// As one axis, until it is copied. `None` is zeros.
    flat: Option<Tensor<Wgsl, 1>>,
    /// It is computed, or there is none.
    is_complete: bool,
    /// What a backward pass that is watched gave, as it gave it.
    from_backward: Option<WgslTensor>,
    /// Whether this worker has the gradient.
    is_computed: bool,
    /// The mean of all workers, in pieces.
    mean: Vec<Tensor<Wgsl, 1>>,
    /// Whether a worker with samples has the gradient.
    exists: bool,
}

/// Which numbers of which gradient are in a bucket.
type Pieces = Vec<(usize, Range<usize>)>;

/// The exchange of the gradients of a step. Its buckets begin with the last parameters, because a backward pass does.
pub(super) struct Exchange {
    peers: Arc<Peers>,
    /// The part of all samples that this worker has.
    share: f32,
    gradients: Vec<Gradient>,
    indices: HashMap<ParamId, usize>,
    buckets: Vec<Pieces>,
    /// Buckets that the device copies, that were copied, and whose means were uploaded, so far.
    started: usize,
    copied: usize,
    uploaded: usize,
    readbacks: VecDeque<Readback>,
    sums: VecDeque<Pending<Arc<Vec<f32>>>>,
}

impl Exchange {
    /// Exchanges the number of samples. Returns `None` if the total is 0.
    pub fn start<B, M>(
        peers: &Arc<Peers>,
        module: &M,
        samples: usize,
    ) -> Result<Option<Self>, ParallelError>
    where
        B: AutodiffBackend,
        M: Module<B>,
    {
        let mut found = Find::default();
        module.visit(&mut found);
        let Find { gradients, indices } = found;
        let shapes: Vec<&Shape> = gradients.iter().map(|gradient| &gradient.shape).collect();
        let checksum = crc32fast::hash(format!("{shapes:?}").as_bytes());
        let label =
            Label::Samples(format!("{} parameters (shapes {checksum:08x})", gradients.len()));
        let all = peers.gather_numbers(&label, &[samples as f64])?.concat();
        let total: f64 = all.iter().sum();
        if total == 0.0 {
            return Ok(None);
        }
        let lens: Vec<usize> = shapes.iter().map(|shape| shape.num_elements()).collect();
        Ok(Some(Self {
            peers: peers.clone(),
            share: (samples as f64 / total) as f32,
            gradients,
            indices,
            buckets: divided(&lens),
            started: 0,
            copied: 0,
            uploaded: 0,
            readbacks: VecDeque::new(),
            sums: VecDeque::new(),
        }))
    }

    /// Returns the place of each parameter that has a gradient.
    pub fn indices(&self) -> &HashMap<ParamId, usize> {
        &self.indices
    }

    /// Returns the type of a parameter.
    pub fn dtype(&self, index: usize) -> DType {
        self.gradients[index].dtype
    }

    /// Takes a gradient, in the type of its parameter, from a backward pass.
    pub fn add_watched(&mut self, index: usize, gradient: WgslTensor) -> Result<(), ParallelError> {
        let of_parameter = &mut self.gradients[index];
        // A second backward pass is not watched.
        if of_parameter.is_complete {
            return Ok(());
        }
        of_parameter.from_backward = Some(gradient.clone());
        let len = of_parameter.shape.num_elements();
        let flat = Wgsl::float_reshape(gradient, Shape::from([len]));
        self.add(index, Some(Tensor::from_primitive(TensorPrimitive::Float(flat))));
        // The backward pass holds its graph, for which other workers wait at the end of theirs: it must not wait for
        // them.
        while self.start_copy()? {
            if self.readbacks.len() > AHEAD {
                self.exchange()?;
            }
        }
        while self.readbacks.front().is_some_and(Readback::is_ready) {
            self.exchange()?;
        }
        Ok(())
    }

    /// Takes a gradient that is complete, or notes that there is none.
    fn add(&mut self, index: usize, flat: Option<Tensor<Wgsl, 1>>) {
        let gradient = &mut self.gradients[index];
        gradient.is_computed = flat.is_some();
        gradient.flat = flat.map(|flat| flat.cast(DType::F32));
        gradient.is_complete = true;
    }

    fn is_complete(&self, bucket: &Pieces) -> bool {
        bucket.iter().all(|(index, _)| self.gradients[*index].is_complete)
    }

    /// Starts to copy the next bucket to the host, if it is complete. Returns whether it is.
    fn start_copy(&mut self) -> Result<bool, ParallelError> {
        let Some(bucket) = self.buckets.get(self.started).filter(|next| self.is_complete(next))
        else {
            return Ok(false);
        };
        let readback = Readback::start(joined(bucket, &self.gradients, &self.peers));
        self.readbacks.push_back(readback.map_err(|error| self.peers.device_failed(&error))?);
        // The copy has what it needs.
        for index in ends(bucket, &self.gradients).collect::<Vec<_>>() {
            self.gradients[index].flat = None;
        }
        self.started += 1;
        Ok(true)
    }

    /// Takes the oldest bucket that is copied, and begins to add those of all workers. Waits for the device only.
    fn exchange(&mut self) -> Result<(), ParallelError> {
        let Some(readback) = self.readbacks.pop_front() else { return Ok(()) };
        let peers = self.peers.clone();
        let data = readback.take().map_err(|error| peers.device_failed(&error))?;
        let mut numbers = data.into_vec::<f32>().map_err(|error| peers.device_failed(&error))?;
        // Which gradients there are: all workers, or none, have a mean.
        numbers.extend(ends(&self.buckets[self.copied], &self.gradients).map(|index| {
            let is_computed = self.gradients[index].is_computed;
            f32::from(u8::from(is_computed))
        }));
        let (index, of, len) = (self.copied, self.buckets.len(), numbers.len());
        self.sums.push_back(peers.start_sum(
            &Label::Bucket { index, of, len },
            self.share,
            numbers,
        )?);
        self.copied += 1;
        Ok(())
    }

    /// Takes the sum of the oldest bucket, and uploads it.
    fn upload(&mut self) -> Result<(), ParallelError> {
        let Some(sum) = self.sums.pop_front() else { return Ok(()) };
        let sum = sum()?;
        let bucket = &self.buckets[self.uploaded];
        self.uploaded += 1;
        let len = bucket.iter().map(|(_, range)| range.len()).sum();
        let data = TensorData::new(sum[..len].to_vec(), [len]);
        let mean = Tensor::<Wgsl, 1>::from_data(data, (&self.peers.device, DType::F32));
        let ends: Vec<usize> = ends(bucket, &self.gradients).collect();
        for (index, workers) in ends.into_iter().zip(&sum[len..]) {
            self.gradients[index].exists = *workers > 0.0;
        }
        let mut start = 0;
        for (index, range) in bucket {
            let end = start + range.len();
            self.gradients[*index].mean.push(mean.clone().slice_dim(0, start..end));
            start = end;
        }
        Ok(())
    }

    /// Takes the gradients that the backward pass did not give, exchanges what is left, and registers the means.
    pub fn finish<B, M>(
        mut self,
        gradients: &mut GradientsParams,
        module: &M,
    ) -> Result<(), ParallelError>
    where
        B: AutodiffBackend<InnerBackend = Wgsl>,
        M: Module<B>,
    {
        let mut take = Take { exchange: &mut self, gradients, result: Ok(()) };
        module.visit(&mut take);
        take.result?;
        if !self.gradients.iter().all(|gradient| gradient.is_complete) {
            return Err(self.peers.failed(OTHER_MODULE.to_owned()));
        }
        while self.uploaded < self.buckets.len() {
            while self.readbacks.len() < AHEAD && self.start_copy()? {}
            // The others may still copy the last one that this worker has: the one before is taken first.
            match self.copied < self.buckets.len() && self.sums.len() < 2 {
                true => self.exchange()?,
                false => self.upload()?,
            }
        }
        module.visit(&mut Register { exchange: &mut self, gradients });
        Ok(())
    }
}

/// Divides gradients of these lengths into buckets that begin with the last. A gradient may be in several.
fn divided(lens: &[usize]) -> Vec<Pieces> {
    let mut buckets: Vec<Pieces> = Vec::new();
    let mut room = 0;
    for (index, &len) in lens.iter().enumerate().rev() {
        let mut start = 0;
        while start < len {
            if room == 0 {
                buckets.push(Vec::new());
                room = BUCKET;
            }
            let end = len.min(start + room);
            if let Some(bucket) = buckets.last_mut() {
                bucket.push((index, start..end));
            }
            (room, start) = (room - (end - start), end);
        }
    }
    buckets
}

/// Returns the gradients that end in a bucket.
fn ends(bucket: &Pieces, gradients: &[Gradient]) -> impl Iterator<Item = usize> {
    let last =
        bucket.iter().filter(|(index, range)| range.end == gradients[*index].shape.num_elements());
    last.map(|(index, _)| *index)
}

/// Returns the numbers of a bucket as one tensor.
fn joined(bucket: &Pieces, gradients: &[Gradient], peers: &Peers) -> Tensor<Wgsl, 1> {
    let pieces: Vec<Tensor<Wgsl, 1>> = bucket
        .iter()
        .map(|(index, range)| match &gradients[*index].flat {
            Some(flat) if *range == (0..flat.dims()[0]) => flat.clone(),
            Some(flat) => flat.clone().slice_dim(0, range.clone()),
            None => Tensor::zeros([range.len()], (&peers.device, DType::F32)),
        })
        .collect();
    Tensor::cat(pieces, 0)
}

/// Finds the parameters that have gradients, in order.
#[derive(Default)]
struct Find {
    gradients: Vec<Gradient>,
    /// A parameter that is used twice is visited twice.
    indices: HashMap<ParamId, usize>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Find {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let value = param.val();
        if !value.is_require_grad() || self.indices.contains_key(&param.id) {
            return;
        }
        self.indices.insert(param.id, self.gradients.len());
        self.gradients.push(Gradient {
            shape: value.shape(),
            dtype: value.dtype(),
            flat: None,
            is_complete: false,
            from_backward: None,
            is_computed: false,
            mean: Vec::new(),
            exists: false,
        });
    }
}

/// Takes the gradients that are not there yet.
struct Take<'a> {
    exchange: &'a mut Exchange,
    gradients: &'a mut GradientsParams,
    result: Result<(), ParallelError>,
}

impl<B: AutodiffBackend<InnerBackend = Wgsl>> ModuleVisitor<B> for Take<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(&index) = self.exchange.indices.get(&param.id) else {
            if param.val().is_require_grad() && self.result.is_ok() {
                self.result = Err(self.exchange.peers.failed(OTHER_MODULE.to_owned()));
            }
            return;
        };
        let found = self.gradients.remove::<Wgsl, D>(param.id);
        let gradient = &mut self.exchange.gradients[index];
        match (found, gradient.from_backward.take()) {
            (found, None) if !gradient.is_complete => {
                let len = gradient.shape.num_elements();
                let flat = found.map(|found| found.reshape([len]));
                self.exchange.add(index, flat);
            }
            // It was taken before.
            (None, None) => {}
            (Some(found), Some(watched))
                if found.clone().into_primitive().tensor().shares_memory(&watched) => {}
            _ if self.result.is_err() => {}
            _ => {
                let message = "the gradients are not those of the watched backward pass alone; \
                               compute the whole loss with the module that `Worker::watch` \
                               returned, and accumulate without it";
                self.result = Err(self.exchange.peers.failed(message.to_owned()));
            }
        }
    }
}

/// Registers the means.
struct Register<'a> {
    exchange: &'a mut Exchange,
    gradients: &'a mut GradientsParams,
}

impl<B: AutodiffBackend<InnerBackend = Wgsl>> ModuleVisitor<B> for Register<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(&index) = self.exchange.indices.get(&param.id) else { return };
        let gradient = &mut self.exchange.gradients[index];
        let mut pieces = std::mem::take(&mut gradient.mean);
        let mean = match pieces.len() {
            _ if !gradient.exists => return,
            0 => return,
            1 => pieces.swap_remove(0),
            _ => Tensor::cat(pieces, 0),
        };
        let mean = mean.reshape(gradient.shape.clone()).cast(gradient.dtype);
        self.gradients.register::<Wgsl, D>(param.id, mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_all_numbers_once_and_begin_with_the_last_gradients() {
        let lens = [7, 2 * BUCKET + 5, 1, BUCKET - 3, 0, 3];
        let buckets = divided(&lens);
        assert_eq!(buckets.len(), 4);
        let mut next = (5, 0);
        for (index, range) in buckets.iter().flatten() {
            while next.1 == lens[next.0] {
                next = (next.0 - 1, 0);
            }
            assert_eq!((*index, range.start), next);
            next.1 = range.end;
        }
        assert_eq!(next, (0, 7));
        let sizes = buckets.iter().map(|pieces| pieces.iter().map(|(_, r)| r.len()).sum::<usize>());
        assert_eq!(sizes.collect::<Vec<_>>(), [BUCKET, BUCKET, BUCKET, 13]);
        assert!(divided(&[0, 0]).is_empty());
    }
}
