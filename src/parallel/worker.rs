//! A worker, as its program sees it.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn::module::{AutodiffModule, Module};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use web_time::Instant;

use super::part::{Part, Rest, divided, range};
use super::peers::{Label, Peers};
use super::speed::Speed;
use super::transport::Transport;
use super::watch::{self, Watched};
use super::{ParallelError, replicas};
use crate::Autodiff;
use crate::autodiff::CheckpointStrategy;
use crate::backend::Wgsl;
use crate::device::WgslDevice;
use crate::train::Sampler;

/// A worker of a run. Its program calls the methods that exchange values in the same order as those of the others.
///
/// ```
/// use burn_wgsl::parallel::{self, ParallelError, Workers};
///
/// let workers: Workers = "cpu,cpu".parse()?;
/// let results = parallel::run(workers.oversubscribed(true), |worker| {
///     worker.agree("the number of items", 101)?;
///     // Its part of the items, and the sum of the counts of all workers.
///     let even = worker.range(101).filter(|item| item % 2 == 0).count();
///     let sum = worker.sum(&[even as f64])?;
///     if worker.is_first() {
///         println!("{} of 101 items are even", sum[0]);
///     }
///     Ok::<_, ParallelError>(sum[0])
/// })?;
/// assert_eq!(results, [51.0, 51.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Worker {
    peers: Arc<Peers>,
    /// The part of a batch of each worker; they add up to 1.
    shares: RefCell<Vec<f64>>,
    /// The gradients of the backward pass that is watched.
    watched: RefCell<Option<Watched>>,
    speed: RefCell<Speed>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Peers { rank, device, world, .. } = &*self.peers;
        write!(f, "Worker {{ rank: {rank}, world: {world}, device: {device} }}")
    }
}

impl Worker {
    pub(super) fn new(transport: Arc<dyn Transport>, device: WgslDevice) -> Self {
        let peers = Arc::new(Peers::new(transport, device));
        let shares = vec![1.0 / peers.world as f64; peers.world];
        let (watched, speed) = (RefCell::default(), RefCell::default());
        Self { peers, shares: RefCell::new(shares), watched, speed }
    }

    pub(super) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Returns the number of this worker, from 0.
    pub fn rank(&self) -> usize {
        self.peers.rank
    }

    /// Returns the number of workers.
    pub fn world(&self) -> usize {
        self.peers.world
    }

    /// Returns whether this is the worker that prints and saves.
    pub fn is_first(&self) -> bool {
        self.peers.rank == 0
    }

    /// Returns the device of this worker.
    pub fn device(&self) -> WgslDevice {
        self.peers.device
    }

    /// Seeds the random numbers of this worker, for dropout. Each worker gets other numbers from one seed.
    pub fn seed<B: Backend<Device = WgslDevice>>(&self, seed: u64) {
        // The first worker has the numbers of a program alone.
        let of_rank = (self.peers.rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        B::seed(&self.peers.device, seed ^ of_rank);
    }

    /// Returns a module with the parameters, running statistics and other tensors of the first worker's.
    ///
    /// # Errors
    ///
    /// Returns an error if the modules have other shapes, a device fails, or another worker failed.
    pub fn broadcast<B, M>(&self, module: M) -> Result<M, ParallelError>
    where
        B: Backend<Device = WgslDevice>,
        M: Module<B>,
    {
        replicas::broadcast::<B, M>(&self.peers, module)
    }

    /// Returns the mean of the gradients of all workers, each weighted by its samples: the gradients of one batch of
    /// all samples, if each loss is a mean over its part. A parameter without gradients has that of zeros, unless all
    /// have none; a worker without samples does not count. Without any samples there are no gradients. Ends the step.
    ///
    /// Clip the mean, and unscale it with [`GradScaler`](crate::scaler::GradScaler): it overflows for all workers or
    /// for none.
    ///
    /// # Errors
    ///
    /// Returns an error if the modules differ, a device fails, or another worker failed or takes another number of
    /// steps.
    pub fn mean<B, M>(
        &self,
        gradients: GradientsParams,
        module: &M,
        samples: usize,
    ) -> Result<GradientsParams, ParallelError>
    where
        B: AutodiffBackend<InnerBackend = Wgsl>,
        M: AutodiffModule<B>,
    {
        let watched = self.watched.take();
        let mean = watch::mean(&self.peers, watched, gradients, module, samples)?;
        self.peers.end_step();
        self.speed.borrow_mut().end_step(Instant::now(), samples, self.peers.exchanging());
        Ok(mean)
    }

    /// Returns a module whose gradients are exchanged while the backward pass computes the others. It is for one
    /// forward and one backward pass, and the gradients are those of the module itself:
    ///
    /// ```
    /// # use burn::nn::LinearConfig;
    /// # use burn::optim::GradientsParams;
    /// # use burn::tensor::Tensor;
    /// # use burn_wgsl::parallel::{self, ParallelError, Workers};
    /// # use burn_wgsl::{Autodiff, Wgsl, WgslDevice};
    /// # let workers = Workers::threads([WgslDevice::Cpu; 2]).oversubscribed(true);
    /// # parallel::run(workers, |worker| {
    /// # let model = worker.broadcast(LinearConfig::new(4, 2).init::<Autodiff<Wgsl>>(&worker.device()))?;
    /// # let (x, samples) = (Tensor::<_, 2>::ones([8, 4], &worker.device()), 8);
    /// let watched = worker.watch(&model, samples)?;
    /// let loss = watched.forward(x).powi_scalar(2).mean();
    /// let gradients = GradientsParams::from_grads(loss.backward(), &model);
    /// let gradients = worker.mean(gradients, &model, samples)?;
    /// # Ok::<_, ParallelError>(())
    /// # })?;
    /// # Ok::<(), ParallelError>(())
    /// ```
    ///
    /// [`mean`](Self::mean) of the same module must follow, and until then nothing else may be exchanged. Gradients
    /// that are accumulated, and those of a parameter that is in the module twice, cannot be watched.
    ///
    /// # Errors
    ///
    /// Returns an error if the modules differ, or another worker failed. If gradients cannot be exchanged,
    /// [`mean`](Self::mean) returns the error.
    pub fn watch<C, M>(&self, module: &M, samples: usize) -> Result<M, ParallelError>
    where
        C: CheckpointStrategy,
        M: AutodiffModule<Autodiff<Wgsl, C>>,
    {
        if self.peers.world == 1 {
            return Ok(module.clone());
        }
        let (module, watched) = Watched::start(&self.peers, module, samples)?;
        self.watched.replace(Some(watched));
        Ok(module)
    }

    /// Returns the sums of numbers of all workers, such as counts of a metric.
    ///
    /// # Errors
    ///
    /// Returns an error if another worker has another number of them, or failed.
    pub fn sum(&self, numbers: &[f64]) -> Result<Vec<f64>, ParallelError> {
        let mut all = self.peers.gather_numbers(&Label::Sum(numbers.len()), numbers)?.into_iter();
        let first = all.next().unwrap_or_default();
        Ok(all.fold(first, |mut sums, numbers| {
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
            sums
        }))
    }

    /// Returns the mean of the values of all workers, each weighted by its samples, such as of a loss; NaN without
    /// samples.
    ///
    /// # Errors
    ///
    /// Returns an error if another worker failed.
    pub fn mean_of(&self, value: f64, samples: usize) -> Result<f64, ParallelError> {
        // A worker without samples has no value.
        let value = if samples == 0 { 0.0 } else { value * samples as f64 };
        let sums = self.sum(&[value, samples as f64])?;
        Ok(sums[0] / sums[1])
    }

    /// Checks that a value is equal on all workers, such as a seed or the length of the data.
    ///
    /// # Errors
    ///
    /// Returns an error that names the workers if it is not, or if another worker failed.
    pub fn agree(&self, what: &str, value: impl fmt::Display) -> Result<(), ParallelError> {
        let label = Label::Agreement(what.to_owned());
        let values = self.peers.gather(&label, value.to_string().into_bytes())?;
        if values.iter().all(|value| *value == values[0]) {
            return Ok(());
        }
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let (what, values) = (what.to_owned(), values.iter().map(text).collect());
        Err(self.peers.fail(ParallelError::Disagree { what, values }))
    }

    /// Returns the module, with the parameters of the first worker's if those of any worker differ. Optimizers of
    /// unlike devices round differently: call it every some steps. It reads the parameters back.
    ///
    /// # Errors
    ///
    /// Returns an error if the modules have other shapes, a device fails, or another worker failed.
    pub fn keep_equal<B, M>(&self, module: M) -> Result<M, ParallelError>
    where
        B: Backend<Device = WgslDevice>,
        M: Module<B>,
    {
        match replicas::are_equal::<B, M>(&self.peers, &module)? {
            true => Ok(module),
            false => self.broadcast(module),
        }
    }

    /// Returns whether the parameters of a module have the same bits on all workers. It reads them back.
    ///
    /// # Errors
    ///
    /// Returns an error if a device fails, or another worker failed.
    pub fn are_equal<B, M>(&self, module: &M) -> Result<bool, ParallelError>
    where
        B: Backend<Device = WgslDevice>,
        M: Module<B>,
    {
        replicas::are_equal::<B, M>(&self.peers, module)
    }

    /// Divides the following batches by speed, for devices that differ: `speed` is what this worker has measured, such
    /// as samples per second. Loaders and parts that were made before stay as they are.
    ///
    /// # Errors
    ///
    /// Returns an error if a speed is not above 0, or another worker failed.
    pub fn balance(&self, speed: f64) -> Result<(), ParallelError> {
        let speeds = self.peers.gather_numbers(&Label::Speed, &[speed])?.concat();
        let wrong = speeds.iter().position(|speed| !(speed.is_finite() && *speed > 0.0));
        if let Some(rank) = wrong {
            return Err(self.peers.fail(ParallelError::NoSpeed { rank, speed: speeds[rank] }));
        }
        self.divide_by(&speeds);
        Ok(())
    }

    /// Divides the following batches by the speed of each worker since it was called last, in the steps that
    /// [`mean`](Self::mean) ends: the median of samples per second, without the time of exchanges. Call it every some
    /// dozens of steps, such as after an epoch: measured with the new division, it comes closer. Until each worker has
    /// taken two steps with samples, nothing changes. Loaders and parts that were made before stay as they are.
    ///
    /// The division depends on time, so that runs do not repeat each other's bits.
    ///
    /// # Errors
    ///
    /// Returns an error if another worker failed.
    pub fn rebalance(&self) -> Result<(), ParallelError> {
        let own = self.speed.borrow_mut().take().unwrap_or_default();
        let speeds = self.peers.gather_numbers(&Label::Speed, &[own])?.concat();
        if speeds.iter().all(|speed| *speed > 0.0) {
            self.divide_by(&speeds);
        }
        Ok(())
    }

    fn divide_by(&self, speeds: &[f64]) {
        let total: f64 = speeds.iter().sum();
        self.shares.replace(speeds.iter().map(|speed| speed / total).collect());
    }

    /// Returns the samples of each worker in a batch of all.
    fn divided(&self, batch: usize) -> Result<Vec<usize>, ParallelError> {
        divided(batch, &self.shares.borrow()).map_err(|error| self.peers.fail(error))
    }

    /// Returns the samples of this worker in a batch of all.
    ///
    /// # Errors
    ///
    /// Returns an error if there are fewer samples than workers.
    pub fn batch_size(&self, batch: usize) -> Result<usize, ParallelError> {
        Ok(self.divided(batch)?[self.peers.rank])
    }

    /// Returns which of some items, such as those of a test, are this worker's. It may have none.
    pub fn range(&self, items: usize) -> Range<usize> {
        range(items, &self.shares.borrow(), self.peers.rank)
    }

    /// Returns this worker's part of the items of a sampler, for a [`Loader`](crate::train::Loader) with batches of
    /// [`batch_size(batch)`](Self::batch_size). The batches of all workers together are those of the sampler with
    /// batches of `batch`; `rest` says how the last is divided. Leave it out with [`Rest::Drop`], not with `drop_last`
    /// of the loader, by which some workers would have a batch less.
    ///
    /// # Errors
    ///
    /// Returns an error if there are fewer samples in a batch than workers.
    pub fn part<S: Sampler>(
        &self,
        sampler: S,
        batch: usize,
        rest: Rest,
    ) -> Result<Part<S>, ParallelError> {
        Ok(Part::new(sampler, self.divided(batch)?, self.peers.rank, rest))
    }
}
