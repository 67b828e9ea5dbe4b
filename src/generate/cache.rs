//! The keys and values of the tokens that a model has read.

use burn_tensor::backend::Backend;
use burn_tensor::{Bool, DType, Int, Tensor};
use thiserror::Error;

/// The sizes of a [`KvCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvCacheConfig {
    /// Layers of the model.
    pub layers: usize,
    /// Sequences that are continued together.
    pub sequences: usize,
    /// Heads of keys and values.
    pub heads: usize,
    /// The most tokens of a sequence.
    pub capacity: usize,
    /// Elements of a key, and of a value.
    pub width: usize,
}

impl KvCacheConfig {
    /// Returns the bytes of the keys and values, if an element has so many.
    pub fn bytes(&self, element: usize) -> usize {
        2 * self.layers * self.sequences * self.heads * self.capacity * self.width * element
    }
}

/// A sequence has no room for more tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a sequence of {len} tokens cannot be continued by {new} in a cache of {capacity}")]
pub struct CacheFull {
    /// Tokens of the sequence.
    pub len: usize,
    /// Tokens that were to be added.
    pub new: usize,
    /// The most tokens of a sequence.
    pub capacity: usize,
}

/// The keys and values of all tokens that a model has read, in memory of a fixed size.
///
/// A step adds those of its tokens in place. All sequences write at the same position, which begins again where the
/// memory ends, so that sequences of different lengths take one write. Where they differ, [`mask`](Self::mask) hides
/// the columns that hold no tokens of a sequence.
///
/// ```
/// use burn_tensor::{DType, Tensor};
/// use burn_wgsl::generate::{KvCache, KvCacheConfig};
/// use burn_wgsl::{Wgsl, WgslDevice};
///
/// let device = WgslDevice::default();
/// let config = KvCacheConfig { layers: 1, sequences: 1, heads: 2, capacity: 16, width: 8 };
/// let mut cache = KvCache::<Wgsl>::new(config, DType::F32, &device);
/// // Of a prompt of three tokens, then of one token.
/// for tokens in [3, 1] {
///     cache.check_room(tokens)?;
///     let new = Tensor::ones([2, 1, 2, tokens, 8], &device);
///     let [keys, values] = cache.append(0, new);
///     // Attention reads the keys and values of all tokens.
///     assert_eq!(keys.dims(), values.dims());
///     cache.advance(tokens);
/// }
/// assert_eq!(cache.len(0), 4);
/// # Ok::<(), burn_wgsl::generate::CacheFull>(())
/// ```
#[derive(Debug)]
pub struct KvCache<B: Backend> {
    config: KvCacheConfig,
    device: B::Device,
    /// `[2, sequences, heads, capacity, width]` of each layer. An `Option`, because the tensor is written by value.
    layers: Vec<Option<Tensor<B, 5>>>,
    /// Columns that were written. The next one is this modulo the capacity.
    end: usize,
    /// Tokens of each sequence. `None` are places without one.
    lens: Vec<Option<usize>>,
}

impl<B: Backend> KvCache<B> {
    /// Creates an empty cache.
    ///
    /// # Panics
    ///
    /// Panics if a size is 0, or the device has no memory for the keys and values.
    pub fn new(config: KvCacheConfig, dtype: DType, device: &B::Device) -> Self {
        let KvCacheConfig { layers, sequences, heads, capacity, width } = config;
        let is_empty = [layers, sequences, heads, capacity, width].contains(&0);
        assert!(!is_empty, "a cache of no elements: {config:?}");
        let zeros = || Tensor::zeros([2, sequences, heads, capacity, width], (device, dtype));
        Self {
            config,
            device: device.clone(),
            layers: (0..layers).map(|_| Some(zeros())).collect(),
            end: 0,
            // The only sequence is there from the beginning.
            lens: vec![(sequences == 1).then_some(0); sequences],
        }
    }

    /// Returns the sizes.
    pub fn config(&self) -> KvCacheConfig {
        self.config
    }

    /// Returns the number of tokens of a sequence; 0 if there is none in this place.
    ///
    /// # Panics
    ///
    /// Panics if there is no such place.
    pub fn len(&self, sequence: usize) -> usize {
        self.lens[sequence].unwrap_or(0)
    }

    /// Returns whether no sequence has tokens.
    pub fn is_empty(&self) -> bool {
        self.lens.iter().all(|len| len.unwrap_or(0) == 0)
    }

    /// Forgets the tokens of a sequence. In a cache of several, its place is free until another joins: steps go on
    /// with a token in it that no other sequence reads, and whose logits mean nothing.
    ///
    /// # Panics
    ///
    /// Panics if there is no such place.
    pub fn clear(&mut self, sequence: usize) {
        self.lens[sequence] = (self.lens.len() == 1).then_some(0);
        if self.is_empty() {
            self.end = 0;
        }
    }

    /// Checks that every sequence has room for `new` tokens.
    ///
    /// # Errors
    ///
    /// Returns an error for the longest sequence if it has none.
    ///
    /// # Panics
    ///
    /// Panics if several tokens are to be added to several sequences: a cache of one sequence can take them, and
    /// [`join`](Self::join) the others then.
    pub fn check_room(&self, new: usize) -> Result<(), CacheFull> {
        let sequences = self.lens.len();
        assert!(new <= 1 || sequences == 1, "{new} tokens at once, for {sequences} sequences");
        let capacity = self.config.capacity;
        let len = self.lens.iter().flatten().copied().max().unwrap_or(0);
        match len + new <= capacity {
            true => Ok(()),
            false => Err(CacheFull { len, new, capacity }),
        }
    }

    /// Adds the keys (0) and values (1) of new tokens, `[2, sequences, heads, tokens, width]`, to those of a layer.
    /// Returns the keys and values of all columns in use, `[sequences, heads, columns, width]`. In a cache of one
    /// sequence, the columns are in the order of its tokens.
    ///
    /// # Panics
    ///
    /// Panics if the shape is another, or a sequence has no room.
    pub fn append(&mut self, layer: usize, new: Tensor<B, 5>) -> [Tensor<B, 4>; 2] {
        let KvCacheConfig { sequences, heads, capacity, width, .. } = self.config;
        let tokens = new.dims()[3];
        let expected = [2, sequences, heads, tokens, width];
        assert_eq!(new.dims(), expected, "the shape of new keys and values");
        if let Err(full) = self.check_room(tokens) {
            panic!("{full}; call `check_room` first");
        }
        let start = self.end % capacity;
        let kept = self.layers[layer].take().expect("the step before left them");
        let place = [0..2, 0..sequences, 0..heads, start..start + tokens, 0..width];
        let kept = kept.slice_assign(place, new);
        let columns = self.columns(tokens);
        let parts = [0, 1].map(|part| {
            let all = [part..part + 1, 0..sequences, 0..heads, 0..columns, 0..width];
            kept.clone().slice(all).reshape([sequences, heads, columns, width])
        });
        self.layers[layer] = Some(kept);
        parts
    }

    /// Ends a step in which every layer got `tokens` new ones of every sequence.
    pub fn advance(&mut self, tokens: usize) {
        self.end += tokens;
        self.lens.iter_mut().flatten().for_each(|len| *len += tokens);
    }

    /// Returns the columns in use, once there are `new` more.
    fn columns(&self, new: usize) -> usize {
        (self.end + new).min(self.config.capacity)
    }

    /// Returns the positions of the next token of each sequence, `[sequences]`.
    pub fn positions(&self) -> Tensor<B, 1, Int> {
        let lens: Vec<i32> = self.lens.iter().map(|len| len.unwrap_or(0) as i32).collect();
        Tensor::from_data(lens.as_slice(), &self.device)
    }

    /// Returns which columns hold no tokens of a sequence, `[sequences, 1, 1, columns]`, once every sequence has one
    /// more; `None` if all columns hold tokens of all sequences.
    pub fn mask(&self) -> Option<Tensor<B, 4, Bool>> {
        let columns = self.columns(1);
        if self.lens.iter().all(|len| len.unwrap_or(0) + 1 >= columns) {
            return None;
        }
        let (sequences, capacity) = (self.lens.len(), self.config.capacity);
        let newest = self.end % capacity;
        // A column is as old as it is far behind the newest one.
        let ages = (0..columns).map(|column| ((newest + capacity - column) % capacity) as i32);
        let ages: Vec<i32> = ages.collect();
        let ages = Tensor::<B, 1, Int>::from_data(ages.as_slice(), &self.device);
        let shape = [sequences, 1, 1, columns];
        let ages = ages.reshape([1, 1, 1, columns]).expand(shape);
        let lens = self.positions().reshape([sequences, 1, 1, 1]).expand(shape);
        Some(ages.greater(lens))
    }

    /// Puts the only sequence of another cache into a place here, so that it ends where the others do. What was in the
    /// place before is forgotten, also by the device: numbers that are not finite would reach the sequence through
    /// weights of 0.
    ///
    /// # Panics
    ///
    /// Panics if there is no such place, the other cache has several sequences or other sizes or another type, or its
    /// sequence is longer than the capacity.
    pub fn join(&mut self, sequence: usize, other: &Self) {
        let KvCacheConfig { heads, capacity, width, layers, .. } = self.config;
        let expected =
            KvCacheConfig { sequences: 1, capacity: other.config.capacity, ..self.config };
        assert_eq!(other.config, expected, "the sizes of the sequence that joins");
        let len = other.len(0);
        assert!(len <= capacity, "a sequence of {len} tokens in a cache of {capacity}");
        self.clear(sequence);
        if self.is_empty() {
            self.end = len;
        } else if self.end < len {
            // It begins behind the columns that were written: all are in use then.
            self.end += capacity;
        }
        let first = self.end - len;
        for layer in 0..layers {
            let from = other.layers[layer].as_ref().expect("the step before left them");
            let mut kept = self.layers[layer].take().expect("the step before left them");
            let whole = [0..2, sequence..sequence + 1, 0..heads, 0..capacity, 0..width];
            let zeros = Tensor::zeros([2, 1, heads, capacity, width], (&self.device, kept.dtype()));
            kept = kept.slice_assign(whole, zeros);
            let mut done = 0;
            while done < len {
                let start = (first + done) % capacity;
                let count = (len - done).min(capacity - start);
                let part = from.clone().slice([0..2, 0..1, 0..heads, done..done + count, 0..width]);
                let place =
                    [0..2, sequence..sequence + 1, 0..heads, start..start + count, 0..width];
                kept = kept.slice_assign(place, part);
                done += count;
            }
            self.layers[layer] = Some(kept);
        }
        self.lens[sequence] = Some(len);
    }
}
