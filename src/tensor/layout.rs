//! The algebra of views: shape, strides and offset, in elements.

use smallvec::{SmallVec, smallvec};

/// Sizes of the axes, outermost first.
pub type Shape = SmallVec<[usize; 6]>;
/// Distances between neighbours along each axis.
pub type Strides = SmallVec<[isize; 6]>;

/// How a tensor's elements lie in its buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Sizes of the axes.
    pub shape: Shape,
    /// Distance in elements between neighbours along each axis; negative where flipped, zero where
    /// expanded.
    pub strides: Strides,
    /// The element at index zero of every axis.
    pub offset: usize,
}

/// One axis of a slice: indices `start + i * step` for `i` in `0..len`. A negative step walks down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceAxis {
    /// The first index taken.
    pub start: usize,
    /// The distance to the next one, never zero.
    pub step: isize,
    /// How many are taken.
    pub len: usize,
}

impl Layout {
    /// Row-major, without gaps.
    pub fn contiguous(shape: &[usize]) -> Self {
        let mut strides: Strides = smallvec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis].max(1) as isize;
        }
        Self { shape: shape.into(), strides, offset: 0 }
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the elements lie in row-major order without gaps, wherever they start.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if size != 1 && stride != expected {
                return self.is_empty();
            }
            expected *= size as isize;
        }
        true
    }

    /// Reorders the axes: axis `i` of the result is axis `axes[i]` of this.
    pub fn permute(&self, axes: &[usize]) -> Self {
        Self {
            shape: axes.iter().map(|&axis| self.shape[axis]).collect(),
            strides: axes.iter().map(|&axis| self.strides[axis]).collect(),
            offset: self.offset,
        }
    }

    /// Exchanges two axes.
    pub fn swap(&self, a: usize, b: usize) -> Self {
        let mut out = self.clone();
        out.shape.swap(a, b);
        out.strides.swap(a, b);
        out
    }

    /// Repeats axes of size one, and adds axes in front, without a copy. `None` where it does not fit.
    pub fn expand(&self, shape: &[usize]) -> Option<Self> {
        let extra = shape.len().checked_sub(self.rank())?;
        let mut strides: Strides = smallvec![0; shape.len()];
        for (axis, (&size, &stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            if size == shape[axis + extra] {
                strides[axis + extra] = stride;
            } else if size != 1 {
                return None;
            }
        }
        Some(Self { shape: shape.into(), strides, offset: self.offset })
    }

    /// The elements `start..start + len` along an axis.
    #[must_use]
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Self {
        let mut out = self.clone();
        out.shape[axis] = len;
        out.offset = out.offset.wrapping_add_signed(start as isize * out.strides[axis]);
        out
    }

    /// A part of the tensor. Axes beyond `axes` are taken whole.
    pub fn slice(&self, axes: &[SliceAxis]) -> Self {
        let mut out = self.clone();
        let mut offset = self.offset as isize;
        for (axis, part) in axes.iter().enumerate() {
            if part.len > 0 {
                offset += part.start as isize * self.strides[axis];
            }
            out.shape[axis] = part.len;
            out.strides[axis] *= part.step;
        }
        out.offset = offset as usize;
        out
    }

    /// Reverses the given axes.
    pub fn flip(&self, axes: &[usize]) -> Self {
        let whole = |axis| SliceAxis { start: 0, step: 1, len: self.shape[axis] };
        let mut parts: SmallVec<[SliceAxis; 6]> = (0..self.rank()).map(whole).collect();
        for &axis in axes {
            let len = self.shape[axis];
            parts[axis] = SliceAxis { start: len.saturating_sub(1), step: -1, len };
        }
        self.slice(&parts)
    }

    /// Sliding windows along an axis: the axis becomes the count of windows and a last axis of
    /// `size` is added. The windows overlap in memory.
    pub fn unfold(&self, axis: usize, size: usize, step: usize) -> Self {
        let mut out = self.clone();
        let len = self.shape[axis];
        out.shape[axis] = if len < size { 0 } else { (len - size) / step + 1 };
        out.strides[axis] *= step as isize;
        out.shape.push(size);
        out.strides.push(self.strides[axis]);
        out
    }

    /// The same elements in row-major order under another shape, if no copy is needed for it.
    pub fn reshape(&self, shape: &[usize]) -> Option<Self> {
        if self.is_contiguous() {
            let mut out = Self::contiguous(shape);
            out.offset = self.offset;
            return Some(out);
        }
        // Cut both shapes into runs of equal size; each run of ours must be one straight line.
        let mut strides: Strides = smallvec![0; shape.len()];
        let ours: SmallVec<[(usize, isize); 6]> = self
            .shape
            .iter()
            .zip(&self.strides)
            .map(|(&size, &stride)| (size, stride))
            .filter(|&(size, _)| size != 1)
            .collect();
        let mut at = 0;
        let mut axis = 0;
        while at < ours.len() {
            let (mut size, start) = (ours[at].0, at);
            let (mut wanted, first) = (1, axis);
            while axis < shape.len() && wanted < size {
                wanted *= shape[axis];
                axis += 1;
            }
            while wanted != size {
                if wanted < size {
                    wanted *= shape.get(axis)?;
                    axis += 1;
                } else {
                    at += 1;
                    size *= ours.get(at)?.0;
                }
            }
            for i in start..at {
                if ours[i].1 != ours[i + 1].1 * ours[i + 1].0 as isize {
                    return None;
                }
            }
            let mut stride = ours[at].1;
            for i in (first..axis).rev() {
                strides[i] = stride;
                stride *= shape[i] as isize;
            }
            at += 1;
        }
        Some(Self { shape: shape.into(), strides, offset: self.offset })
    }
}

/// The shape that two shapes broadcast to, aligned at the last axis, or `None`.
pub fn broadcast(a: &[usize], b: &[usize]) -> Option<Shape> {
    let rank = a.len().max(b.len());
    let at = |shape: &[usize], axis: usize| {
        (axis + shape.len()).checked_sub(rank).map_or(1, |i| shape[i])
    };
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// Merges neighbouring axes that every layout walks in one straight line, and drops axes of size
/// one. All layouts must have the same shape; the first result is the common shape.
pub fn collapse(layouts: &[&Layout]) -> (Shape, SmallVec<[Strides; 4]>) {
    let shape = &layouts[0].shape;
    let mut sizes = Shape::new();
    let mut strides: SmallVec<[Strides; 4]> = smallvec![Strides::new(); layouts.len()];
    for axis in 0..shape.len() {
        if shape[axis] == 1 {
            continue;
        }
        let straight = !sizes.is_empty()
            && layouts.iter().zip(&strides).all(|(layout, out)| {
                out.last() == Some(&(layout.strides[axis] * shape[axis] as isize))
            });
        if straight {
            if let Some(last) = sizes.last_mut() {
                *last *= shape[axis];
            }
            for (layout, out) in layouts.iter().zip(&mut strides) {
                if let Some(last) = out.last_mut() {
                    *last = layout.strides[axis];
                }
            }
        } else {
            sizes.push(shape[axis]);
            for (layout, out) in layouts.iter().zip(&mut strides) {
                out.push(layout.strides[axis]);
            }
        }
    }
    (sizes, strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element's position, in row-major order: the truth that views are held against.
    fn positions(layout: &Layout) -> Vec<isize> {
        let mut out = vec![layout.offset as isize];
        for (&size, &stride) in layout.shape.iter().zip(&layout.strides) {
            out =
                out.iter().flat_map(|&p| (0..size as isize).map(move |i| p + i * stride)).collect();
        }
        out
    }

    #[test]
    fn reshape_never_moves_an_element() {
        let base = Layout::contiguous(&[4, 6, 5]);
        let step = |start, step, len| SliceAxis { start, step, len };
        let views = [
            base.clone(),
            base.swap(0, 1),
            base.permute(&[2, 0, 1]),
            base.slice(&[step(1, 1, 2)]),
            base.slice(&[step(0, 1, 4), step(1, 2, 3)]),
            base.flip(&[1]),
            Layout::contiguous(&[1, 6]).expand(&[4, 6]).unwrap(),
        ];
        let mut reshaped = 0;
        for view in &views {
            let len = view.len();
            for shape in
                [vec![len], vec![len / 2, 2], vec![2, len / 2], vec![1, len, 1], vec![len / 6, 6]]
            {
                if let Some(out) = view.reshape(&shape) {
                    reshaped += 1;
                    assert_eq!(positions(&out), positions(view), "{view:?} as {shape:?}");
                }
            }
        }
        assert!(reshaped > 10);
        assert!(base.swap(0, 1).reshape(&[24, 5]).is_none());
        assert!(base.swap(1, 2).reshape(&[2, 2, 30]).is_none());
        assert!(base.swap(1, 2).reshape(&[2, 2, 5, 6]).is_some());
    }

    #[test]
    fn collapse_keeps_positions() {
        let a = Layout::contiguous(&[2, 3, 4, 5]);
        let b = Layout::contiguous(&[1, 3, 1, 1]).expand(&[2, 3, 4, 5]).unwrap();
        let (shape, strides) = collapse(&[&a, &b]);
        assert_eq!(shape.as_slice(), [2, 3, 20]);
        assert_eq!(strides[1].as_slice(), [0, 1, 0]);
        let (shape, _) = collapse(&[&a]);
        assert_eq!(shape.as_slice(), [120]);
    }

    #[test]
    fn broadcasting_aligns_at_the_end() {
        assert_eq!(broadcast(&[3, 1], &[2, 1, 4]).unwrap().as_slice(), [2, 3, 4]);
        assert_eq!(broadcast(&[3], &[4]), None);
    }

    #[test]
    fn flip_and_unfold() {
        let base = Layout::contiguous(&[5]);
        assert_eq!(positions(&base.flip(&[0])), [4, 3, 2, 1, 0]);
        let windows = base.unfold(0, 3, 2);
        assert_eq!(windows.shape.as_slice(), [2, 3]);
        assert_eq!(positions(&windows), [0, 1, 2, 2, 3, 4]);
    }
}
