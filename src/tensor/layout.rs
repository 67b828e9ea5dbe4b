//! Tensor layouts and views: shapes, strides and offsets, all in elements.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

/// Sizes of the axes, outermost first.
pub type Shape = SmallVec<[usize; 6]>;
/// Distance in elements between neighbours along each axis.
pub type Strides = SmallVec<[isize; 6]>;

/// The positions of a tensor's elements in its buffer. Clones share the axes, so that tensors are moved and cloned
/// quickly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    axes: Arc<Axes>,
    /// The position of the element at index zero of every axis.
    pub offset: usize,
}

/// The axes of a layout.
#[derive(Debug, PartialEq, Eq)]
pub struct Axes {
    /// Sizes of the axes.
    pub shape: Shape,
    /// Distance in elements between neighbours along each axis; negative for flipped axes, zero for
    /// expanded axes.
    pub strides: Strides,
    is_contiguous: bool,
}

impl Deref for Layout {
    type Target = Axes;

    fn deref(&self) -> &Axes {
        &self.axes
    }
}

/// One axis of a slice: the indices `start + i * step` for `i` in `0..len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceAxis {
    /// The first index.
    pub start: usize,
    /// The distance to the next index, never zero. A negative step reverses the order.
    pub step: isize,
    /// The number of indices.
    pub len: usize,
}

impl SliceAxis {
    /// Returns the slice of a whole axis of `len` elements.
    pub fn full(len: usize) -> Self {
        Self { start: 0, step: 1, len }
    }
}

impl Layout {
    /// Returns the layout of axes of these sizes and strides.
    pub fn new(shape: Shape, strides: Strides, offset: usize) -> Self {
        let is_contiguous = are_contiguous(&shape, &strides);
        Self { axes: Arc::new(Axes { shape, strides, is_contiguous }), offset }
    }

    /// Returns the packed layout of a shape: row-major, without gaps, offset zero.
    pub fn contiguous(shape: &[usize]) -> Self {
        let mut strides: Strides = smallvec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            // Wraps only if the tensor is empty: then no stride is used.
            strides[axis - 1] = strides[axis].wrapping_mul(shape[axis].max(1) as isize);
        }
        let axes = Axes { shape: Shape::from_slice(shape), strides, is_contiguous: true };
        Self { axes: Arc::new(axes), offset: 0 }
    }

    /// Returns the packed layout of the same shape.
    #[must_use]
    pub fn packed(&self) -> Self {
        let mut next = 1isize;
        let mut axes = self.shape.iter().zip(&self.strides).rev();
        // An axis of size one may have any stride. In a new tensor, it is the product of the inner sizes.
        let is_canonical = axes.all(|(&size, &stride)| {
            let expected = next;
            next = next.wrapping_mul(size.max(1) as isize);
            stride == expected
        });
        if is_canonical { self.clone().at(0) } else { Self::contiguous(&self.shape) }
    }

    /// Returns the layout with another offset.
    #[must_use]
    pub fn at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// Returns the layout with other sizes and strides, at the same offset.
    #[must_use]
    pub fn edited(&self, edit: impl FnOnce(&mut Shape, &mut Strides)) -> Self {
        let mut shape = Shape::from_slice(&self.shape);
        let mut strides = Strides::from_slice(&self.strides);
        edit(&mut shape, &mut strides);
        Self::new(shape, strides, self.offset)
    }

    /// Returns the layout of the first `count` axes.
    #[must_use]
    pub fn leading(&self, count: usize) -> Self {
        let (shape, strides) = (&self.shape[..count], &self.strides[..count]);
        Self::new(Shape::from_slice(shape), Strides::from_slice(strides), self.offset)
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        if self.is_empty() { 0 } else { self.shape.iter().product() }
    }

    /// Returns the first position of an element, and the first position after all elements; `None`
    /// if an element is at a negative position or positions overflow.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        if self.is_empty() {
            return Some((0, 0));
        }
        let (mut first, mut last) =
            (i64::try_from(self.offset).ok()?, i64::try_from(self.offset).ok()?);
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            let span = i64::try_from(size - 1).ok()?.checked_mul(stride as i64)?;
            let bound = if span < 0 { &mut first } else { &mut last };
            *bound = bound.checked_add(span)?;
        }
        (first >= 0).then_some((first as u64, last as u64 + 1))
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Returns whether the elements are in row-major order without gaps, at any offset.
    pub fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }

    /// Returns the order of the axes in which the layout is packed; `None` if there is none.
    pub fn dense_order(&self) -> Option<SmallVec<[usize; 6]>> {
        let mut axes: SmallVec<[usize; 6]> = SmallVec::new();
        for (axis, stride) in self.strides.iter().enumerate() {
            let is_inside = |&other: &usize| self.strides[other] < *stride;
            let position = axes.iter().position(is_inside).unwrap_or(axes.len());
            axes.insert(position, axis);
        }
        self.permute(&axes).is_packed().then_some(axes)
    }

    /// Returns whether the layout is contiguous and its offset is zero.
    pub fn is_packed(&self) -> bool {
        self.offset == 0 && self.is_contiguous()
    }

    /// Returns whether all positions are those of one element.
    pub fn is_one_element(&self) -> bool {
        self.shape.iter().zip(&self.strides).all(|(&size, &stride)| size == 1 || stride == 0)
    }

    /// Returns how many neighbours are the same element, if the elements are otherwise contiguous.
    pub fn repeats(&self) -> Option<usize> {
        let axes = self.shape.iter().zip(&self.strides).rev();
        let repeated = axes.take_while(|&(&size, &stride)| size == 1 || stride == 0).count();
        let outer = self.rank() - repeated;
        self.leading(outer).is_contiguous().then(|| self.shape[outer..].iter().product())
    }

    /// Returns the layout of the same memory in elements of twice the size, each of two neighbours along the last axis;
    /// `None` if some of them would hold an element that is not next to the other.
    pub fn pairs(&self) -> Option<Self> {
        let (last, outer) = self.shape.split_last()?;
        let (&step, strides) = self.strides.split_last()?;
        let fits = step == 1
            && last.is_multiple_of(2)
            && self.offset.is_multiple_of(2)
            && outer.iter().zip(strides).all(|(&size, stride)| size == 1 || stride % 2 == 0);
        let halve = |shape: &mut Shape, strides: &mut Strides| {
            shape[outer.len()] /= 2;
            strides[..outer.len()].iter_mut().for_each(|stride| *stride /= 2);
        };
        fits.then(|| self.edited(halve).at(self.offset / 2))
    }

    /// Reorders the axes: axis `i` of the result is axis `axes[i]` of `self`.
    pub fn permute(&self, axes: &[usize]) -> Self {
        let shape = axes.iter().map(|&axis| self.shape[axis]).collect();
        let strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        Self::new(shape, strides, self.offset)
    }

    /// Swaps two axes.
    pub fn swap(&self, a: usize, b: usize) -> Self {
        self.edited(|shape, strides| {
            shape.swap(a, b);
            strides.swap(a, b);
        })
    }

    /// Expands axes of size one and adds leading axes, with stride zero, to broadcast to `shape`.
    ///
    /// Returns `None` if the layout does not broadcast to `shape`.
    pub fn expand(&self, shape: &[usize]) -> Option<Self> {
        let added = shape.len().checked_sub(self.rank())?;
        let mut strides: Strides = smallvec![0; shape.len()];
        for (axis, (&size, &stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            if size == shape[axis + added] {
                strides[axis + added] = stride;
            } else if size != 1 {
                return None;
            }
        }
        Some(Self::new(Shape::from_slice(shape), strides, self.offset))
    }

    /// Selects the elements `start..start + len` along an axis.
    #[must_use]
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Self {
        let offset = self.offset.wrapping_add_signed(start as isize * self.strides[axis]);
        self.edited(|shape, _| shape[axis] = len).at(offset)
    }

    /// Slices the leading axes by `axes`. The remaining axes are unchanged.
    pub fn slice(&self, axes: &[SliceAxis]) -> Self {
        let mut offset = self.offset as isize;
        let sliced = self.edited(|shape, strides| {
            for (axis, slice) in axes.iter().enumerate() {
                if slice.len > 0 {
                    offset += slice.start as isize * strides[axis];
                }
                shape[axis] = slice.len;
                strides[axis] *= slice.step;
            }
        });
        sliced.at(offset as usize)
    }

    /// Reverses the given axes.
    pub fn flip(&self, axes: &[usize]) -> Self {
        let mut slices: SmallVec<[SliceAxis; 6]> =
            self.shape.iter().map(|&len| SliceAxis::full(len)).collect();
        for &axis in axes {
            let len = self.shape[axis];
            slices[axis] = SliceAxis { start: len.saturating_sub(1), step: -1, len };
        }
        self.slice(&slices)
    }

    /// Returns sliding windows of `size` elements along an axis, `step` elements apart.
    ///
    /// The size of the axis becomes the number of windows, and a last axis of size `size` is added.
    /// Windows can overlap in memory.
    pub fn unfold(&self, axis: usize, size: usize, step: usize) -> Self {
        let len = self.shape[axis];
        self.edited(|shape, strides| {
            shape[axis] = if len < size { 0 } else { (len - size) / step + 1 };
            strides[axis] *= step as isize;
            shape.push(size);
            strides.push(self.strides[axis]);
        })
    }

    /// Reshapes without a copy. The row-major order of the elements is unchanged.
    ///
    /// Returns `None` if no strides describe this layout with the new shape. Both shapes must have
    /// the same number of elements.
    pub fn reshape(&self, shape: &[usize]) -> Option<Self> {
        if self.is_contiguous() {
            return Some(Self::contiguous(shape).at(self.offset));
        }
        // Split the old and the new axes into the smallest groups with equal numbers of elements.
        // The old axes of each group must be mergeable into one axis with a single stride.
        let mut strides: Strides = smallvec![0; shape.len()];
        let old_axes: SmallVec<[(usize, isize); 6]> = self
            .shape
            .iter()
            .zip(&self.strides)
            .map(|(&size, &stride)| (size, stride))
            .filter(|&(size, _)| size != 1)
            .collect();
        // The current axis of the old shape, and the next axis of the new shape.
        let mut old_axis = 0;
        let mut new_axis = 0;
        while old_axis < old_axes.len() {
            let (mut old_len, first_old_axis) = (old_axes[old_axis].0, old_axis);
            let (mut new_len, first_new_axis) = (1, new_axis);
            while new_axis < shape.len() && new_len < old_len {
                new_len *= shape[new_axis];
                new_axis += 1;
            }
            while new_len != old_len {
                if new_len < old_len {
                    new_len *= shape.get(new_axis)?;
                    new_axis += 1;
                } else {
                    old_axis += 1;
                    old_len *= old_axes.get(old_axis)?.0;
                }
            }
            for i in first_old_axis..old_axis {
                if old_axes[i].1 != old_axes[i + 1].1 * old_axes[i + 1].0 as isize {
                    return None;
                }
            }
            let mut stride = old_axes[old_axis].1;
            for i in (first_new_axis..new_axis).rev() {
                strides[i] = stride;
                stride *= shape[i] as isize;
            }
            old_axis += 1;
        }
        Some(Self::new(Shape::from_slice(shape), strides, self.offset))
    }
}

/// Returns whether axes are in row-major order without gaps.
fn are_contiguous(shape: &[usize], strides: &[isize]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1;
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        if size != 1 && stride != expected {
            return false;
        }
        // Wraps only where positions overflow: no tensor has such a layout.
        expected = size.cast_signed().wrapping_mul(expected);
    }
    true
}

/// Returns the number of elements of a shape, or `None` if it overflows. A shape with a size of
/// zero has no elements, however large its other sizes are.
pub fn checked_len(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |len, &size| len.checked_mul(size))
}

/// Returns [`checked_len`], or `None` also if the strides of the shape overflow: those of an empty tensor can.
pub fn strided_len(shape: &[usize]) -> Option<usize> {
    let strides = shape.iter().try_fold(1usize, |len, &size| len.checked_mul(size.max(1)));
    strides.filter(|&len| isize::try_from(len).is_ok())?;
    checked_len(shape)
}

/// Returns the shape that two shapes broadcast to, aligned at the last axis, or `None` if they are
/// incompatible.
pub fn broadcast(a: &[usize], b: &[usize]) -> Option<Shape> {
    let rank = a.len().max(b.len());
    let size_at = |shape: &[usize], axis: usize| {
        (axis + shape.len()).checked_sub(rank).map_or(1, |i| shape[i])
    };
    (0..rank)
        .map(|axis| match (size_at(a, axis), size_at(b, axis)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// The maximum number of axes that kernels support, after [`collapse`].
pub const MAX_RANK: usize = 12;

/// Merges neighbouring axes that have a single stride in every layout, and drops axes of size one.
///
/// Returns the merged shape and the merged strides of each layout. All layouts must have the same
/// shape.
pub fn collapse(layouts: &[&Layout]) -> (Shape, SmallVec<[Strides; 4]>) {
    let shape = &layouts[0].shape;
    let mut sizes = Shape::new();
    let mut strides: SmallVec<[Strides; 4]> = smallvec![Strides::new(); layouts.len()];
    for axis in 0..shape.len() {
        if shape[axis] == 1 {
            continue;
        }
        let mergeable = !sizes.is_empty()
            && layouts.iter().zip(&strides).all(|(layout, out)| {
                // An empty tensor can have an axis of any size.
                out.last() == Some(&layout.strides[axis].wrapping_mul(shape[axis] as isize))
            });
        if mergeable {
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

    #[test]
    fn the_range_of_a_layout_has_all_its_positions() {
        let layout = Layout::contiguous(&[3, 4]);
        assert_eq!(layout.range(), Some((0, 12)));
        assert_eq!(layout.flip(&[0, 1]).range(), Some((0, 12)));
        assert_eq!(layout.narrow(1, 1, 2).range(), Some((1, 11)));
        assert_eq!(Layout::contiguous(&[3, 0]).range(), Some((0, 0)));
        let below = layout.flip(&[0]).at(3);
        assert_eq!(below.range(), None);
        let overflowing = Layout::new(smallvec![3], smallvec![isize::MAX], 0);
        assert_eq!(overflowing.range(), None);
    }

    /// Returns the position of every element in row-major order, as the reference for views.
    fn positions(layout: &Layout) -> Vec<isize> {
        let mut out = vec![layout.offset as isize];
        for (&size, &stride) in layout.shape.iter().zip(&layout.strides) {
            out =
                out.iter().flat_map(|&p| (0..size as isize).map(move |i| p + i * stride)).collect();
        }
        out
    }

    #[test]
    fn reshape_keeps_positions() {
        let base = Layout::contiguous(&[4, 6, 5]);
        let axis = |start, step, len| SliceAxis { start, step, len };
        let views = [
            base.clone(),
            base.swap(0, 1),
            base.permute(&[2, 0, 1]),
            base.slice(&[axis(1, 1, 2)]),
            base.slice(&[axis(0, 1, 4), axis(1, 2, 3)]),
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
    fn pairs_hold_neighbours() {
        let base = Layout::contiguous(&[3, 2, 4]);
        let axis = |start, step, len| SliceAxis { start, step, len };
        for view in [
            base.clone(),
            base.swap(0, 1),
            base.narrow(2, 2, 2),
            base.slice(&[axis(1, 1, 2), axis(1, -1, 2)]),
            Layout::contiguous(&[1, 4]).expand(&[3, 4]).unwrap(),
            Layout::contiguous(&[5, 1, 2]).slice(&[axis(1, 2, 2)]),
        ] {
            let pairs = view.pairs().unwrap_or_else(|| panic!("{view:?} has pairs"));
            let both = |first: isize| [2 * first, 2 * first + 1];
            let found: Vec<isize> = positions(&pairs).into_iter().flat_map(both).collect();
            assert_eq!(found, positions(&view), "{view:?}");
        }
        for view in [
            base.swap(1, 2),
            base.narrow(2, 1, 2),
            base.narrow(2, 0, 3),
            base.flip(&[2]),
            Layout::contiguous(&[3, 5]).narrow(1, 0, 4),
            Layout::contiguous(&[]),
        ] {
            assert_eq!(view.pairs(), None, "{view:?}");
        }
    }

    #[test]
    fn collapse_merges_axes_that_are_mergeable_in_every_layout() {
        let a = Layout::contiguous(&[2, 3, 4, 5]);
        let b = Layout::contiguous(&[1, 3, 1, 1]).expand(&[2, 3, 4, 5]).unwrap();
        let (shape, strides) = collapse(&[&a, &b]);
        assert_eq!(shape.as_slice(), [2, 3, 20]);
        assert_eq!(strides[1].as_slice(), [0, 1, 0]);
        let (shape, _) = collapse(&[&a]);
        assert_eq!(shape.as_slice(), [120]);
    }

    #[test]
    fn broadcast_aligns_shapes_at_the_last_axis() {
        assert_eq!(broadcast(&[3, 1], &[2, 1, 4]).unwrap().as_slice(), [2, 3, 4]);
        assert_eq!(broadcast(&[3], &[4]), None);
    }

    #[test]
    fn an_empty_shape_can_have_huge_axes() {
        let huge = 1 << 40;
        for shape in [[huge, huge, 0], [0, huge, huge], [huge, 0, huge]] {
            let layout = Layout::contiguous(&shape);
            assert_eq!((layout.len(), checked_len(&shape)), (0, Some(0)), "{shape:?}");
            assert!(layout.is_packed() && layout.swap(0, 2).is_packed(), "{shape:?}");
        }
        assert_eq!(checked_len(&[huge, huge]), None);
        let outer = Layout::contiguous(&[huge, huge, 0]).leading(2);
        assert!(!outer.is_empty() && outer.is_contiguous(), "{outer:?}");
    }

    #[test]
    fn a_packed_layout_is_that_of_a_new_tensor() {
        let axis_of_one = Layout::new(smallvec![1, 4], smallvec![7, 1], 0);
        assert!(axis_of_one.is_packed());
        let base = Layout::contiguous(&[2, 3, 4]);
        for layout in [
            axis_of_one,
            base.swap(0, 2),
            base.narrow(0, 1, 1),
            base.clone().at(5),
            Layout::contiguous(&[1 << 40, 1 << 40, 0]),
            Layout::contiguous(&[]),
            base,
        ] {
            assert_eq!(layout.packed(), Layout::contiguous(&layout.shape), "{layout:?}");
        }
    }

    #[test]
    fn flip_reverses_and_unfold_returns_sliding_windows() {
        let base = Layout::contiguous(&[5]);
        assert_eq!(positions(&base.flip(&[0])), [4, 3, 2, 1, 0]);
        let windows = base.unfold(0, 3, 2);
        assert_eq!(windows.shape.as_slice(), [2, 3]);
        assert_eq!(positions(&windows), [0, 1, 2, 2, 3, 4]);
    }
}
