//! Metrics that stay on the device until they are read.

use std::fmt;

use burn::tensor::backend::ExecutionError;
use burn::tensor::{DType, IndexingUpdateOp, Int, Tensor};

use super::Readback;
use crate::backend::Wgsl;
use crate::device::WgslDevice;

/// The mean of values, such as of the losses of batches, each weighted by its samples.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_wgsl::train::Mean;
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// let device = WgslDevice::default();
/// let mut loss = Mean::new();
/// loss.add(Tensor::<Wgsl, 1>::from_floats([1.0], &device), 30);
/// loss.add(Tensor::<Wgsl, 1>::from_floats([4.0], &device), 10);
/// // Some steps later:
/// let reading = loss.read()?.expect("there are values");
/// assert_eq!(reading.take()?, 1.75);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Mean {
    mean: Option<Tensor<Wgsl, 1>>,
    samples: usize,
}

impl Mean {
    /// Creates the mean of no values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value `[1]` of some samples. The mean is f32.
    ///
    /// # Panics
    ///
    /// Panics if there is more than one value.
    pub fn add(&mut self, value: Tensor<Wgsl, 1>, samples: usize) {
        let [values] = value.dims();
        assert_eq!(values, 1, "there are {values} values; add their mean");
        if samples == 0 {
            return;
        }
        let value = value.cast(DType::F32);
        self.samples += samples;
        let share = samples as f64 / self.samples as f64;
        self.mean = Some(match self.mean.take() {
            // A mean loses less than a sum of many values that is divided at the end.
            Some(mean) => mean.clone() + (value - mean) * share,
            None => value,
        });
    }

    /// Returns the samples since the last reading.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Starts to read the mean of the values since the last reading; `None` if there are none.
    ///
    /// # Errors
    ///
    /// Returns an error if the device fails.
    pub fn read(&mut self) -> Result<Option<Readback<f64>>, ExecutionError> {
        self.samples = 0;
        let first = |data: burn::tensor::TensorData| data.iter::<f64>().next().unwrap_or(f64::NAN);
        self.mean.take().map(|mean| Ok(Readback::start(mean)?.map(first))).transpose()
    }
}

/// The share of samples that are classified correctly.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use burn_wgsl::train::Accuracy;
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// let device = WgslDevice::default();
/// let scores = Tensor::<Wgsl, 2>::from_floats([[0.9, 0.1], [0.4, 0.6]], &device);
/// let labels = Tensor::<Wgsl, 1, Int>::from_ints([0, 0], &device);
/// let mut accuracy = Accuracy::new();
/// accuracy.add(scores, labels);
/// let reading = accuracy.read()?.expect("there are samples");
/// assert_eq!(reading.take()?, 0.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Accuracy {
    correct: Option<Tensor<Wgsl, 1, Int>>,
    samples: usize,
}

impl Accuracy {
    /// Creates the accuracy of no samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the scores `[n, classes]` and the labels `[n]` of samples. The class with the largest score is predicted.
    ///
    /// # Panics
    ///
    /// Panics if the numbers of scores and labels differ.
    pub fn add(&mut self, scores: Tensor<Wgsl, 2>, labels: Tensor<Wgsl, 1, Int>) {
        let [samples] = labels.dims();
        if samples == 0 {
            return;
        }
        let correct = predicted(scores, samples).equal(labels).int().sum();
        self.samples += samples;
        self.correct = Some(match self.correct.take() {
            Some(sum) => sum + correct,
            None => correct,
        });
    }

    /// Returns the samples since the last reading.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Starts to read the accuracy of the samples since the last reading, from 0 to 1; `None` if there are none.
    ///
    /// # Errors
    ///
    /// Returns an error if the device fails.
    pub fn read(&mut self) -> Result<Option<Readback<f64>>, ExecutionError> {
        let samples = std::mem::take(&mut self.samples) as f64;
        let share = move |data: burn::tensor::TensorData| {
            data.iter::<f64>().next().unwrap_or(f64::NAN) / samples
        };
        self.correct.take().map(|correct| Ok(Readback::start(correct)?.map(share))).transpose()
    }
}

/// Returns the class with the largest score of each sample.
fn predicted(scores: Tensor<Wgsl, 2>, samples: usize) -> Tensor<Wgsl, 1, Int> {
    let [rows, _] = scores.dims();
    assert_eq!(rows, samples, "there are scores of {rows} samples, and labels of {samples}");
    scores.argmax(1).reshape([samples])
}

/// Counts how often samples of each class are predicted as each class.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use burn_wgsl::train::Confusion;
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// let device = WgslDevice::default();
/// let mut confusion = Confusion::new(2, &device);
/// let scores = Tensor::<Wgsl, 2>::from_floats([[0.9, 0.1], [0.4, 0.6]], &device);
/// confusion.add(scores, Tensor::<Wgsl, 1, Int>::from_ints([0, 0], &device));
/// let matrix = confusion.read()?.take()?;
/// assert_eq!(matrix.count(0, 1), 1); // label 0, predicted as 1
/// assert_eq!(matrix.accuracy(), 0.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Confusion {
    /// `[classes * classes]`, the row is the label.
    counts: Tensor<Wgsl, 1, Int>,
    /// Where the row of each label begins, `[classes]`.
    rows: Tensor<Wgsl, 1, Int>,
    classes: usize,
}

impl Confusion {
    /// Creates the counts of no samples.
    ///
    /// # Panics
    ///
    /// Panics if there are no classes.
    pub fn new(classes: usize, device: &WgslDevice) -> Self {
        assert!(classes > 0, "there are no classes");
        Self {
            counts: Tensor::zeros([classes * classes], device),
            rows: Tensor::arange(0..classes as i64, device) * classes as i64,
            classes,
        }
    }

    /// Adds the scores `[n, classes]` and the labels `[n]` of samples. A label that is not in `0..classes` is an error:
    /// on a GPU when the counts are read, on the CPU a panic at once.
    ///
    /// # Panics
    ///
    /// Panics if the numbers of scores and labels differ, or if there is another number of classes.
    pub fn add(&mut self, scores: Tensor<Wgsl, 2>, labels: Tensor<Wgsl, 1, Int>) {
        let ([samples], [_, classes]) = (labels.dims(), scores.dims());
        assert_eq!(
            classes, self.classes,
            "there are scores of {classes} classes, not {}",
            self.classes
        );
        if samples == 0 {
            return;
        }
        let predicted = predicted(scores, samples);
        let ones = predicted.ones_like();
        // Not `labels * classes`: a label that is no class could count as another.
        let indices = self.rows.clone().select(0, labels) + predicted;
        self.counts = self.counts.clone().select_assign(0, indices, ones, IndexingUpdateOp::Add);
    }

    /// Starts to read the counts of the samples since the last reading.
    ///
    /// # Errors
    ///
    /// Returns an error if the device fails.
    pub fn read(&mut self) -> Result<Readback<ConfusionMatrix>, ExecutionError> {
        let classes = self.classes;
        let zeros = self.counts.zeros_like();
        let counts = Readback::start(std::mem::replace(&mut self.counts, zeros))?;
        Ok(counts.map(move |data| {
            let counts = data.iter::<i64>().map(|count| u64::try_from(count).unwrap_or_default());
            ConfusionMatrix { classes, counts: counts.collect() }
        }))
    }
}

/// How often samples of each class were predicted as each class. Displayed as a table with a row for each label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfusionMatrix {
    classes: usize,
    counts: Vec<u64>,
}

impl ConfusionMatrix {
    /// Creates a matrix of counts, row by row; the row is the label.
    ///
    /// # Panics
    ///
    /// Panics if the number of counts is no square.
    pub fn from_counts(counts: Vec<u64>) -> Self {
        let classes = counts.len().isqrt();
        assert_eq!(classes * classes, counts.len(), "{} counts are no square matrix", counts.len());
        Self { classes, counts }
    }

    /// Returns all counts, row by row; the row is the label.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Returns how often samples of the class `label` were predicted as `predicted`.
    ///
    /// # Panics
    ///
    /// Panics if there is no such class.
    pub fn count(&self, label: usize, predicted: usize) -> u64 {
        let classes = self.classes;
        assert!(label < classes && predicted < classes, "there are {classes} classes");
        self.counts[label * classes + predicted]
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the share of samples that are classified correctly, from 0 to 1; NaN without samples.
    pub fn accuracy(&self) -> f64 {
        let correct: u64 = (0..self.classes).map(|class| self.count(class, class)).sum();
        correct as f64 / self.samples() as f64
    }
}

impl fmt::Display for ConfusionMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let largest = self.counts.iter().copied().max().unwrap_or_default();
        let width = largest.max(self.classes as u64).to_string().len().max(2) + 1;
        write!(f, "{:>9}", "label")?;
        for predicted in 0..self.classes {
            write!(f, "{predicted:>width$}")?;
        }
        writeln!(f, "  predicted")?;
        for (label, row) in self.counts.chunks(self.classes).enumerate() {
            write!(f, "{label:>9}")?;
            for count in row {
                write!(f, "{count:>width$}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
