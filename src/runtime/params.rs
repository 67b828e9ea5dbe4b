//! Kernel parameters: a Rust struct with the same memory layout as the WGSL struct `Params`.
//!
//! [`params!`](crate::params) declares the struct and records the offset of each field.
//! `tests/code/variants` compares the offsets with naga's layout of the WGSL struct, for every
//! variant.

/// Size of a parameter binding in bytes, which is the maximum size of a kernel's parameters.
pub(crate) const PARAMS_SIZE: usize = 1024;
/// Alignment of the words that the runtime appends to a kernel's parameters.
pub(crate) const LAUNCH_ALIGN: usize = 16;

/// A field of a Rust parameter struct.
#[derive(Debug, Clone, Copy)]
pub struct ParamField {
    /// The name, which is the same in WGSL. `pad`, `pad0`, `pad1`, .. are padding, which WGSL may
    /// declare otherwise or not at all.
    pub name: &'static str,
    /// Offset in bytes from the start of the struct.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// The fields of a nested parameter struct. Empty for scalars and arrays.
    pub fields: &'static [ParamField],
}

/// A parameter struct, or the type of one of its fields: a scalar, an array or a nested struct.
pub trait Params: bytemuck::NoUninit {
    /// The fields in memory order. Empty for a scalar or an array.
    const FIELDS: &'static [ParamField];
}

macro_rules! impl_params_for_scalars {
    ($($ty:ty)*) => {
        $(
            impl Params for $ty {
                const FIELDS: &'static [ParamField] = &[];
            }

            impl<const N: usize> Params for [$ty; N] {
                const FIELDS: &'static [ParamField] = &[];
            }

            /// The counterpart of `array<vec4<T>, N>` in WGSL.
            impl<const N: usize> Params for [[$ty; 4]; N] {
                const FIELDS: &'static [ParamField] = &[];
            }
        )*
    };
}

impl_params_for_scalars! { u32 i32 f32 }

/// Declares a kernel's parameter struct as `#[repr(C)]`, derives `Pod` and implements [`Params`].
///
/// WGSL aligns nested structs and `vec4`s to 16 bytes and pads the struct to a multiple of 16
/// bytes. Declare the padding as fields named `pad` or `padN`.
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
