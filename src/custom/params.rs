//! The parameters of a kernel: a Rust struct with the fields of the shader's `Params`.

/// The type of a parameter: a scalar, a vector, or an array of vectors.
///
/// | Rust | WGSL |
/// |---|---|
/// | `u32`, `i32`, `f32` | the same |
/// | `[f32; 2]`, `[f32; 3]`, `[f32; 4]`, and of the other scalars | `vec2<f32>`, `vec3<f32>`, `vec4<f32>` |
/// | `[[f32; 4]; N]`, and of the other scalars | `array<vec4<f32>, N>` |
pub trait ParamType {
    /// The alignment in bytes.
    const ALIGN: usize;

    /// Returns the type in WGSL.
    fn wgsl() -> String;

    /// Appends the value to `bytes`, which are aligned.
    fn write(&self, bytes: &mut Vec<u8>);
}

/// The parameters of a kernel. [`kernel_params!`](crate::kernel_params) declares a struct of parameters; `()`
/// stands for none.
pub trait Params: Send + Sync + 'static {
    /// Returns the names and the WGSL types of the fields.
    fn fields() -> Vec<(&'static str, String)>;

    /// Appends the values, as WGSL lays them out in a uniform buffer.
    fn write(&self, bytes: &mut Vec<u8>);
}

impl Params for () {
    // The expander declares it in a shader without parameters: WGSL has no empty structs.
    fn fields() -> Vec<(&'static str, String)> {
        vec![("none", u32::wgsl())]
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        0u32.write(bytes);
    }
}

/// Appends a field.
pub fn write_field<T: ParamType>(value: &T, bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(T::ALIGN), 0);
    value.write(bytes);
}

macro_rules! impl_param_type {
    ($($ty:ident)*) => {
        $(
            impl ParamType for $ty {
                const ALIGN: usize = 4;

                fn wgsl() -> String {
                    stringify!($ty).to_owned()
                }

                fn write(&self, bytes: &mut Vec<u8>) {
                    bytes.extend_from_slice(&self.to_ne_bytes());
                }
            }

            impl_param_type!(@vector $ty 2 8);
            impl_param_type!(@vector $ty 3 16);
            impl_param_type!(@vector $ty 4 16);

            impl<const N: usize> ParamType for [[$ty; 4]; N] {
                const ALIGN: usize = 16;

                fn wgsl() -> String {
                    format!("array<{}, {N}>", <[$ty; 4]>::wgsl())
                }

                fn write(&self, bytes: &mut Vec<u8>) {
                    self.iter().for_each(|vector| vector.write(bytes));
                }
            }
        )*
    };
    (@vector $ty:ident $len:literal $align:literal) => {
        impl ParamType for [$ty; $len] {
            const ALIGN: usize = $align;

            fn wgsl() -> String {
                concat!("vec", $len, "<", stringify!($ty), ">").to_owned()
            }

            fn write(&self, bytes: &mut Vec<u8>) {
                self.iter().for_each(|component| component.write(bytes));
            }
        }
    };
}

impl_param_type! { u32 i32 f32 }

/// Declares the parameters of a kernel: a struct with the fields of the shader's `Params`, in the same order. Padding
/// is added where WGSL has some. See [`ParamType`](crate::custom::ParamType) for the types.
///
/// ```
/// burn_wgsl::kernel_params! {
///     /// The size and the scale of an image.
///     #[derive(Debug, Clone)]
///     pub struct Image {
///         height: u32,
///         width: u32,
///         scale: [f32; 2],
///     }
/// }
/// # let _ = Image { height: 1, width: 1, scale: [1.0, 1.0] };
/// ```
#[macro_export]
macro_rules! kernel_params {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $ty:ty),* $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $vis $field: $ty,)*
        }

        impl $crate::custom::Params for $name {
            fn fields() -> ::std::vec::Vec<(&'static str, ::std::string::String)> {
                ::std::vec![$((
                    stringify!($field),
                    <$ty as $crate::custom::ParamType>::wgsl(),
                ),)*]
            }

            fn write(&self, bytes: &mut ::std::vec::Vec<u8>) {
                $($crate::custom::write_field(&self.$field, bytes);)*
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    kernel_params! {
        struct Mixed {
            n: u32,
            v: [f32; 3],
            i: i32,
            pair: [u32; 2],
            table: [[u32; 4]; 2],
        }
    }

    #[test]
    fn values_are_laid_out_as_in_wgsl() {
        let params = Mixed {
            n: 1,
            v: [2.0, 3.0, 4.0],
            i: -5,
            pair: [6, 7],
            table: [[8, 9, 10, 11], [12, 13, 14, 15]],
        };
        let mut bytes = Vec::new();
        params.write(&mut bytes);
        let words: Vec<u32> =
            bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        let [two, three, four] = [2.0f32, 3.0, 4.0].map(f32::to_bits);
        let expected = [
            &[1, 0, 0, 0, two, three, four, -5i32 as u32][..],
            &[6, 7, 0, 0, 8, 9, 10, 11, 12, 13, 14, 15],
        ];
        assert_eq!(words, expected.concat());
        let types: Vec<String> = Mixed::fields().into_iter().map(|(_, wgsl)| wgsl).collect();
        assert_eq!(types, ["u32", "vec3<f32>", "i32", "vec2<u32>", "array<vec4<u32>, 2>"]);
    }
}
