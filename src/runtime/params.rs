//! Kernel parameters: one Rust struct per WGSL `Params`, laid out alike.
//!
//! [`params!`](crate::params) declares the struct and records where its fields are. `tests/variants.rs` compares that with
//! naga's layout of the WGSL struct, for every variant.

/// A field of a parameter struct.
#[derive(Debug, Clone, Copy)]
pub struct ParamField {
    /// The name, the same as in WGSL. Fields named `pad*` fill gaps and have no counterpart there.
    pub name: &'static str,
    /// Distance in bytes from the start of the struct.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// The fields of a nested parameter struct; empty for scalars and arrays.
    pub fields: &'static [ParamField],
}

/// A value that a kernel takes as parameters, or as a part of them.
pub trait Params: bytemuck::NoUninit {
    /// The fields in memory order; none for a scalar or an array.
    const FIELDS: &'static [ParamField];
}

macro_rules! leaves {
    ($($ty:ty)*) => {
        $(
            impl Params for $ty {
                const FIELDS: &'static [ParamField] = &[];
            }

            impl<const N: usize> Params for [$ty; N] {
                const FIELDS: &'static [ParamField] = &[];
            }

            /// Rows of four, as WGSL has `array<vec4<T>, N>`.
            impl<const N: usize> Params for [[$ty; 4]; N] {
                const FIELDS: &'static [ParamField] = &[];
            }
        )*
    };
}

leaves! { u32 i32 f32 }

/// Declares a kernel's parameter struct: `#[repr(C)]`, plain bytes, with [`Params`] implemented.
///
/// WGSL aligns nested structs and `vec4`s to 16 bytes and pads the whole to 16; gaps are written out
/// as fields named `pad*`.
#[doc(hidden)]
#[macro_export]
macro_rules! params {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $ty:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, ::bytemuck::Pod, ::bytemuck::Zeroable)]
        $vis struct $name {
            $($(#[$field_meta])* pub $field: $ty,)*
        }

        impl $crate::runtime::Params for $name {
            const FIELDS: &'static [$crate::runtime::ParamField] = &[
                $($crate::runtime::ParamField {
                    name: stringify!($field),
                    offset: ::std::mem::offset_of!($name, $field),
                    size: ::std::mem::size_of::<$ty>(),
                    fields: <$ty as $crate::runtime::Params>::FIELDS,
                },)*
            ];
        }
    };
}
