//! The mean of gradients, in buckets: while one is summed on the host, the device copies the next.

use std::collections::{HashSet, VecDeque};

use burn::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Tensor, TensorData};

use super::ParallelError;
use super::board::{Exchange, Label};
use super::peers::Peers;
use crate::backend::Wgsl;
use crate::train::Readback;

/// Numbers of a bucket, at most: those of a readback that is taken later.
const BUCKET: usize = 1 << 20;
/// Buckets that the device copies ahead.
const AHEAD: usize = 4;

/// A gradient as one axis.
struct Gradient {
    dtype: DType,
    /// `None` is zeros.
    flat: Option<Tensor<Wgsl, 1>>,
    len: usize,
}

/// Which numbers of which gradient are in a bucket.
type Pieces = Vec<(usize, std::ops::Range<usize>)>;

/// Returns the mean of the gradients of all workers, each weighted by its samples.
pub(super) fn mean<B, M>(
    peers: &Peers,
    mut gradients: GradientsParams,
    module: &M,
    samples: usize,
) -> Result<GradientsParams, ParallelError>
where
    B: AutodiffBackend<InnerBackend = Wgsl>,
    M: AutodiffModule<B>,
{
    if peers.world == 1 {
        return Ok(gradients);
    }
    let mut taken = Take { gradients: &mut gradients, seen: HashSet::new(), taken: Vec::new() };
    module.visit(&mut taken);
    let mut taken = taken.taken;

    let present: Vec<bool> = taken.iter().map(|gradient| gradient.flat.is_some()).collect();
    let label = Label::Samples { parameters: taken.len() };
    let all = peers.exchange(label, (samples, present), |all| {
        let mut total = 0;
        let mut present = vec![false; all.first().map_or(0, |(_, present)| present.len())];
        for (samples, of_worker) in all {
            total += samples;
            present.iter_mut().zip(of_worker).for_each(|(any, one)| *any |= one);
        }
        (total, present)
    })?;
    let (total, present) = &*all;
    if *total == 0 {
        return Ok(gradients);
    }
    let share = (samples as f64 / *total as f64) as f32;

    let lens: Vec<usize> =
        taken.iter().zip(present).map(|(one, any)| if *any { one.len } else { 0 }).collect();
    let buckets = divided(&lens);
    let mut means: Vec<Vec<Tensor<Wgsl, 1>>> = taken.iter().map(|_| Vec::new()).collect();
    let mut copied: VecDeque<Readback> = VecDeque::new();
    let mut summed: VecDeque<Exchange> = VecDeque::new();
    let mut to_copy = buckets.iter();
    for (index, bucket) in buckets.iter().enumerate() {
        while copied.len() < AHEAD
            && let Some(next) = to_copy.next()
        {
            let flat = joined(next, &taken, peers);
            copied.push_back(Readback::start(flat).map_err(|error| peers.device_failed(&error))?);
        }
        let Some(readback) = copied.pop_front() else { continue };
        let data = readback.take().map_err(|error| peers.device_failed(&error))?;
        let numbers = data.into_vec::<f32>().map_err(|error| peers.device_failed(&error))?;
        let len = bucket.iter().map(|(_, range)| range.len()).sum();
        let label = Label::Bucket { index, of: buckets.len(), len };
        summed.push_back(peers.put(label, (share, numbers), weighted_sum)?);
        // The others may still copy this bucket: the one before is taken first.
        if summed.len() > 1 {
            upload(peers, &mut summed, &buckets[index - 1], &mut means)?;
        }
    }
    if let Some(last) = buckets.last() {
        upload(peers, &mut summed, last, &mut means)?;
    }
    taken.iter_mut().for_each(|gradient| gradient.flat = None);
    module.visit(&mut Register {
        gradients: &mut gradients,
        seen: HashSet::new(),
        means: means.into_iter(),
        taken: taken.iter(),
    });
    Ok(gradients)
}

/// Divides gradients of these lengths into buckets, in order. A gradient may be in several.
fn divided(lens: &[usize]) -> Vec<Pieces> {
    let mut buckets: Vec<Pieces> = Vec::new();
    let mut room = 0;
    for (index, &len) in lens.iter().enumerate() {
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

/// Returns the numbers of a bucket as one tensor.
fn joined(bucket: &Pieces, gradients: &[Gradient], peers: &Peers) -> Tensor<Wgsl, 1> {
    let pieces: Vec<Tensor<Wgsl, 1>> = bucket
        .iter()
        .map(|(index, range)| match &gradients[*index].flat {
            Some(flat) if *range == (0..gradients[*index].len) => flat.clone(),
            Some(flat) => flat.clone().slice_dim(0, range.clone()),
            None => Tensor::zeros([range.len()], (&peers.device, DType::F32)),
        })
        .collect();
    Tensor::cat(pieces, 0)
}

/// Returns the sum of the numbers of all workers, each times its share, in the order of the workers.
fn weighted_sum(all: Vec<(f32, Vec<f32>)>) -> Vec<f32> {
    // The gradients of a worker without samples may be NaN.
    let mut all = all.into_iter().filter(|(share, _)| *share > 0.0);
    let Some((share, mut sums)) = all.next() else { return Vec::new() };
    sums.iter_mut().for_each(|sum| *sum *= share);
    for (share, numbers) in all {
        sums.iter_mut().zip(&numbers).for_each(|(sum, number)| *sum += share * number);
    }
    sums
}

/// Takes the mean of the oldest bucket, and uploads it.
fn upload(
    peers: &Peers,
    summed: &mut VecDeque<Exchange>,
    bucket: &Pieces,
    means: &mut [Vec<Tensor<Wgsl, 1>>],
) -> Result<(), ParallelError> {
    let Some(exchange) = summed.pop_front() else { return Ok(()) };
    let mean = peers.take::<Vec<f32>>(exchange)?;
    let len = mean.len();
    let data = TensorData::new(mean.to_vec(), [len]);
    let mean = Tensor::<Wgsl, 1>::from_data(data, (&peers.device, DType::F32));
    let mut start = 0;
    for (index, range) in bucket {
        let end = start + range.len();
        means[*index].push(mean.clone().slice_dim(0, start..end));
        start = end;
    }
    Ok(())
}

/// Takes the gradients of parameters, in order.
struct Take<'a> {
    gradients: &'a mut GradientsParams,
    /// A parameter that is used twice is visited twice.
    seen: HashSet<ParamId>,
    taken: Vec<Gradient>,
}

impl<B: AutodiffBackend<InnerBackend = Wgsl>> ModuleVisitor<B> for Take<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let value = param.val();
        let (dtype, len) = (value.dtype(), value.shape().num_elements());
        let gradient = self.gradients.remove::<Wgsl, D>(param.id);
        let flat = gradient.map(|gradient| gradient.cast(DType::F32).reshape([len]));
        self.taken.push(Gradient { dtype, flat, len });
    }
}

/// Registers the means of gradients, in the order in which they were taken.
struct Register<'a> {
    gradients: &'a mut GradientsParams,
    seen: HashSet<ParamId>,
    means: std::vec::IntoIter<Vec<Tensor<Wgsl, 1>>>,
    taken: std::slice::Iter<'a, Gradient>,
}

impl<B: AutodiffBackend<InnerBackend = Wgsl>> ModuleVisitor<B> for Register<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !self.seen.insert(param.id) {
            return;
        }
        let (Some(mut pieces), Some(Gradient { dtype, .. })) =
            (self.means.next(), self.taken.next())
        else {
            return;
        };
        let mean = match pieces.len() {
            0 => return,
            1 => pieces.swap_remove(0),
            _ => Tensor::cat(pieces, 0),
        };
        let mean = mean.reshape(param.val().shape()).cast(*dtype);
        self.gradients.register::<Wgsl, D>(param.id, mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_all_numbers_once_and_in_order() {
        let lens = [3, 0, BUCKET - 3, 1, 2 * BUCKET + 5, 7];
        let buckets = divided(&lens);
        assert_eq!(buckets.len(), 4);
        let mut next = (0, 0);
        for (index, range) in buckets.iter().flatten() {
            while next.1 == lens[next.0] {
                next = (next.0 + 1, 0);
            }
            assert_eq!((*index, range.start), next);
            next.1 = range.end;
        }
        assert_eq!(next, (5, 7));
        let sizes = buckets.iter().map(|pieces| pieces.iter().map(|(_, r)| r.len()).sum::<usize>());
        assert_eq!(sizes.collect::<Vec<_>>(), [BUCKET, BUCKET, BUCKET, 13]);
        assert!(divided(&[0, 0]).is_empty());
    }

    #[test]
    fn sums_are_weighted() {
        let sum = weighted_sum(vec![(0.25, vec![4.0, 8.0]), (0.75, vec![4.0, 0.0])]);
        assert_eq!(sum, [4.0, 2.0]);
        let without = weighted_sum(vec![(0.0, vec![f32::NAN; 2]), (1.0, vec![1.0, 2.0])]);
        assert_eq!(without, [1.0, 2.0]);
    }
}
