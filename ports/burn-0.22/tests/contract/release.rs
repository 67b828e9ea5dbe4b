//! The methods of Burn 0.22 that later releases have otherwise, for `through`.

macro_rules! boolean_methods_of_release {
    () => {
        back! {
            bool_scatter_or(dim: usize, tensor: B, indices: I, value: B) -> B;
            bool_select_or(tensor: B, dim: usize, indices: I, value: B) -> B;
        }
    };
}

macro_rules! module_methods_of_release {
    () => {
        back! {
            attention(
                query: F, key: F, value: F, mask: Option<B>, attn_bias: Option<F>, options: AttentionModuleOptions
            ) -> F;
            avg_pool1d(
                x: F, kernel_size: usize, stride: usize, padding: usize, count_include_pad: bool, ceil_mode: bool
            ) -> F;
            avg_pool1d_backward(
                x: F, grad: F, kernel_size: usize, stride: usize, padding: usize, count_include_pad: bool,
                ceil_mode: bool
            ) -> F;
            avg_pool2d(
                x: F, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], count_include_pad: bool,
                ceil_mode: bool
            ) -> F;
            avg_pool2d_backward(
                x: F, grad: F, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2],
                count_include_pad: bool, ceil_mode: bool
            ) -> F;
        }
    };
}
