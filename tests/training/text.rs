//! The parts of programs that write text: the choice of a token, and the cache of keys and values, which
//! `examples/llama` tests in a model.

use burn::tensor::{DType, Tensor};
use burn_wgsl::Wgsl;
use burn_wgsl::generate::{CacheFull, KvCache, KvCacheConfig, Sampler, Sampling};

use crate::common;

const ALL: Sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0 };

/// Returns how often each token is chosen of 20,000 times.
fn shares(sampling: Sampling, logits: &[f32]) -> Vec<f64> {
    let mut sampler = Sampler::new(sampling, 3);
    let mut counts = vec![0; logits.len()];
    for _ in 0..20_000 {
        counts[sampler.choose(logits).expect("there are numbers")] += 1;
    }
    counts.into_iter().map(|count| f64::from(count) / 20_000.0).collect()
}

fn assert_shares(sampling: Sampling, logits: &[f32], expected: &[f64]) {
    let found = shares(sampling, logits);
    for (found, expected) in found.iter().zip(expected) {
        // Four standard deviations, at most. What is no candidate is never chosen.
        let tolerance = if *expected == 0.0 { 0.0 } else { 0.0142 };
        assert!((found - expected).abs() <= tolerance, "{sampling:?}: {found}, not {expected}");
    }
}

#[test]
fn tokens_are_chosen_as_often_as_they_are_probable() {
    // Probabilities of 0.1, 0.2, 0.3 and 0.4.
    let logits = [0.1f32, 0.2, 0.3, 0.4].map(f32::ln);
    assert_shares(ALL, &logits, &[0.1, 0.2, 0.3, 0.4]);
    assert_shares(Sampling { top_k: 2, ..ALL }, &logits, &[0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0]);
    assert_shares(Sampling { top_k: 9, ..ALL }, &logits, &[0.1, 0.2, 0.3, 0.4]);
    // The third reaches the share, and belongs to it.
    assert_shares(
        Sampling { top_p: 0.75, ..ALL },
        &logits,
        &[0.0, 2.0 / 9.0, 3.0 / 9.0, 4.0 / 9.0],
    );
    assert_shares(Sampling { top_p: 0.01, ..ALL }, &logits, &[0.0, 0.0, 0.0, 1.0]);
    // Squares of the probabilities.
    assert_shares(
        Sampling { temperature: 0.5, ..ALL },
        &logits,
        &[1.0, 4.0, 9.0, 16.0].map(|x| x / 30.0),
    );
}

#[test]
fn nan_is_never_chosen_and_of_equals_the_first_is() {
    let greedy = |logits: &[f32]| Sampler::new(Sampling::GREEDY, 0).choose(logits);
    assert_eq!(greedy(&[1.0, f32::NAN, 3.0, 3.0]), Some(2));
    assert_eq!(greedy(&[f32::NEG_INFINITY; 3]), Some(0));
    for logits in [&[][..], &[f32::NAN, -f32::NAN]] {
        assert_eq!(greedy(logits), None);
        assert_eq!(Sampler::new(ALL, 0).choose(logits), None);
    }
    assert_shares(ALL, &[f32::NAN, 0.0, 0.0], &[0.0, 0.5, 0.5]);
    assert_shares(ALL, &[f32::INFINITY, 0.0, f32::INFINITY], &[0.5, 0.0, 0.5]);
    assert_shares(ALL, &[f32::NEG_INFINITY, 0.0], &[0.0, 1.0]);
}

#[test]
fn a_cache_hides_what_is_not_of_a_sequence() {
    for device in common::devices() {
        let config = KvCacheConfig { layers: 2, sequences: 2, heads: 1, capacity: 4, width: 4 };
        assert_eq!(config.bytes(4), 2 * 2 * 2 * 4 * 4 * 4);
        let mut cache = KvCache::<Wgsl>::new(config, DType::F32, &device);
        let mut alone = KvCache::new(KvCacheConfig { sequences: 1, ..config }, DType::F32, &device);
        let new = |sequences: usize, tokens: usize, value: f32| {
            Tensor::<Wgsl, 5>::full([2, sequences, 1, tokens, 4], value, &device)
        };
        // Three tokens of the first sequence, which the second has not.
        for layer in 0..2 {
            alone.append(layer, new(1, 3, 1.0));
        }
        alone.advance(3);
        cache.join(0, &alone);
        assert_eq!((cache.len(0), cache.len(1)), (3, 0));
        let hidden = |cache: &KvCache<Wgsl>| {
            let mask = cache.mask().expect("a sequence is shorter").into_data();
            mask.iter::<bool>().collect::<Vec<_>>()
        };
        assert_eq!(hidden(&cache), [false, false, false, false, true, true, true, false]);
        let [keys, values] = cache.append(1, new(2, 1, 5.0));
        for part in [keys, values] {
            let found = part.slice([0..2, 0..1, 0..4, 0..1]).into_data();
            let found: Vec<f32> = found.iter().collect();
            assert_eq!(found, [1.0, 1.0, 1.0, 5.0, 0.0, 0.0, 0.0, 5.0]);
        }
        cache.append(0, new(2, 1, 5.0));
        cache.advance(1);
        assert_eq!(cache.check_room(1), Err(CacheFull { len: 4, new: 1, capacity: 4 }));
        cache.clear(0);
        assert!(cache.is_empty());
        // Places without a sequence do not fill up, and hide nothing of the others.
        for _ in 0..9 {
            cache.check_room(1).expect("there is room");
            cache.append(0, new(2, 1, 6.0));
            cache.append(1, new(2, 1, 6.0));
            cache.advance(1);
        }
        assert!(cache.is_empty());
        // One that joins where another was is as if it were alone.
        cache.join(1, &alone);
        assert_eq!((cache.len(0), cache.len(1)), (0, 3));
        assert_eq!(hidden(&cache), [true, true, true, false, false, false, false, false]);
    }
}
