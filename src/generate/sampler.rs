//! The choice of the next token.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// How a token is chosen among those that may be next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Logits are divided by this: below 1, likely tokens become likelier. At 0, below, and if it is not finite, the
    /// most likely token is taken.
    pub temperature: f32,
    /// Only so many of the most likely tokens are candidates. 0: all are.
    pub top_k: usize,
    /// Only the most likely tokens are candidates whose probabilities add up to this. 1: all are. (A. Holtzman et al.,
    /// The Curious Case of Neural Text Degeneration, 2020.) At 0 and below, the most likely one is.
    pub top_p: f32,
}

impl Sampling {
    /// The most likely token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0 };

    /// Returns whether the most likely token is taken. Then a program need not read the logits of others.
    pub fn is_greedy(self) -> bool {
        !(self.temperature > 0.0 && self.temperature.is_finite()) || self.top_k == 1
    }
}

/// Chooses tokens. Equal seeds and logits lead to equal tokens.
///
/// ```
/// use burn_wgsl::generate::{Sampler, Sampling};
///
/// let sampling = Sampling { temperature: 0.8, top_k: 2, top_p: 0.95 };
/// let mut sampler = Sampler::new(sampling, 7);
/// let token = sampler.choose(&[0.1, 2.0, -1.0, 1.5]);
/// assert!(token == Some(1) || token == Some(3));
/// ```
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: StdRng,
}

impl Sampler {
    /// Creates a sampler.
    pub fn new(sampling: Sampling, seed: u64) -> Self {
        Self { sampling, random: StdRng::seed_from_u64(seed) }
    }

    /// Returns how tokens are chosen.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// Changes how tokens are chosen from now on.
    pub fn set_sampling(&mut self, sampling: Sampling) {
        self.sampling = sampling;
    }

    /// Returns the index of a token, given the logits of all. Tokens whose logit is NaN are never chosen; `None` if
    /// there is no other.
    pub fn choose(&mut self, logits: &[f32]) -> Option<usize> {
        let candidates = logits.iter().copied().enumerate().filter(|(_, logit)| !logit.is_nan());
        let mut candidates: Vec<(usize, f32)> = candidates.collect();
        // Of equal logits, the first comes first.
        let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let Sampling { temperature, top_k, top_p } = self.sampling;
        if self.sampling.is_greedy() {
            return candidates.into_iter().min_by(order).map(|(index, _)| index);
        }
        if top_k > 0 && top_k < candidates.len() {
            candidates.select_nth_unstable_by(top_k - 1, order);
            candidates.truncate(top_k);
        }
        candidates.sort_unstable_by(order);
        let (_, largest) = *candidates.first()?;
        // Infinite logits are equal, too.
        let weight = |logit: f32| match logit == largest {
            true => 1.0,
            false => f64::from((logit - largest) / temperature).exp(),
        };
        let mut weights: Vec<f64> = candidates.iter().map(|&(_, logit)| weight(logit)).collect();
        let total: f64 = weights.iter().sum();
        let mut sum = 0.0;
        // The candidate that reaches the share belongs to it.
        let last = weights.iter().position(|weight| {
            sum += weight;
            sum >= f64::from(top_p) * total
        });
        weights.truncate(last.map_or(weights.len(), |last| last + 1));
        let mut left = self.random.random::<f64>() * weights.iter().sum::<f64>();
        let chosen = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        // Rounding may leave a little.
        Some(candidates[chosen.unwrap_or(weights.len() - 1)].0)
    }
}
